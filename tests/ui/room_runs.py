"""Made-up runs for the rooms' tests: an audit of any size, token views, events; and an app that shows one room."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from textual.app import App, ComposeResult
from textual.events import Resize

from tui_pilot.events.schema import PHASES
from tui_pilot.plan.document import to_document
from tui_pilot.plan.load import LoadedPlan
from tui_pilot.plan.model import Batch, Budget, Data, Launch, Optimizer, Plan
from tui_pilot.run_folder import RunFolder
from tui_pilot.store.fold import fold
from tui_pilot.store.state import RunState
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.room import Room
from tui_pilot.ui.snapshot import Snapshot

HOSTILE = "[/x] [INST] [bold red]no[/] \x1b[31mred\x1b[0m \x1b]0;title\x07 \u202egnp.exe \x9b2J wide 日本 e\u0301"

PLAN = Plan(
    name="llama8b-lora",
    task="sft",
    data=Data(train="support.jsonl", max_length=2048),
    batch=Batch(micro=2, accumulation=8),
    budget=Budget(epochs=1),
    optimizer=Optimizer(warmup=10),
    launch=Launch(processes=1),
    expected="names the part and the next step",
)

CONVERSATION: tuple[tuple[str, str], ...] = (
    ("system", "You answer for the repair desk of a bicycle shop. Be exact."),
    ("user", "Hello, my gear cable snapped on the climb and the shifter now moves without any click. What do I need?"),
    ("assistant", "Which wheel, front or rear?"),
    ("user", "Rear.  It is a ten speed."),
    ("assistant", "Then keep the wheel in."),
    ("user", "It is in. What now?"),
    ("assistant", "Do you have a cutter?"),
    ("user", "Yes, a good one."),
    (
        "assistant",
        "Then the rear cable is the one to change. In order:\n\n1. Shift to the smallest cog, so that the cable hangs "
        "loose.\n2. Cut the crimped end and pull the old cable out of the\n   shifter. Do not force it past the cap.\n"
        "3. Grease the new cable\tand push it through.\n4. Cut the new housing to the old length.\n5. Seat the "
        "housing, then pull the cable tight by hand and clamp it under the bolt.\n6. Turn the barrel adjuster until "
        "the chain runs  quietly.",
    ),
)


def reason(code: str, text: str, severity: str = "warn", **where: Any) -> dict[str, Any]:
    return {"code": code, "severity": severity, "text": text, "where": where, "advice": "Raise data.max_length."}


def token_view(
    row: Any,
    number: int,
    turns: Sequence[tuple[str, str]] = CONVERSATION,
    max_length: int = 120,
    split: str = "train",
) -> dict[str, Any]:
    """A chat cut at ``max_length`` tokens (words, here), with the assistant's turns trained on."""
    pieces: list[str] = []
    labels: list[int] = []
    spans: list[list[Any]] = []
    for turn, (role, text) in enumerate(turns):
        start = len(pieces)
        head = ["<|start|>", role, "<|end_head|>", "\n\n"]
        words = [part for n, word in enumerate(text.split(" ")) for part in [(" " if n else "") + word]]
        pieces += [*head, *words, "<|eot|>"]
        labels += [-100] * len(head) + [(7 if role == "assistant" else -100)] * (len(words) + 1)
        spans.append([start, len(pieces), role, turn])
    ids = [1000 + n for n in range(len(pieces))]
    labels = [ids[n] if label != -100 else -100 for n, label in enumerate(labels)]
    cut = len(ids) > max_length
    supervised = [text for role, text in turns if role == "assistant"]
    return {
        "row": row,
        "split": split,
        "n": number,
        "unit": f"c-{number % 97:04d}",
        "ids": ids[:max_length],
        "pieces": pieces[:max_length],
        "labels": labels[:max_length],
        "full_ids": ids if cut else None,
        "full_pieces": pieces if cut else None,
        "spans": spans,
        "source": "\n".join(text for _, text in turns),
        "supervised_text": supervised,
        "max_length": max_length,
    }


def record(number: int, **changes: Any) -> dict[str, Any]:
    """One record of the audit."""
    tokens = 90 + number * 37 % 1900
    found = {"n": number, "row": number, "split": "train", "unit": f"c-{number % 97:04d}", "tokens": tokens}
    found |= {
        "length": tokens,
        "supervised": tokens // 3,
        "lost": 0,
        "reasons": [],
        "roles": {"assistant": tokens // 3},
    }
    return {**found, **changes}


def write_audit(folder: RunFolder, records: Iterable[dict[str, Any]]) -> None:
    """``audit.jsonl`` with its index of byte offsets."""
    folder.examples.mkdir(parents=True, exist_ok=True)
    offsets, place = array("Q"), 0
    with (folder.examples / "audit.jsonl").open("wb") as stream:
        for each in records:
            line = json.dumps(each).encode() + b"\n"
            offsets.append(place)
            place += len(line)
            stream.write(line)
    (folder.examples / "audit.idx").write_bytes(offsets.tobytes())


def write_tokens(folder: RunFolder, view: dict[str, Any]) -> None:
    path = folder.examples / "rows" / f"{view['split']}-{view['n']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(view))


def cut_record(number: int, lost: int, row: Any = None) -> dict[str, Any]:
    return record(
        number,
        row=number if row is None else row,
        tokens=2048 + lost,
        length=2048,
        supervised=148,
        lost=lost,
        reasons=["response_truncated"],
    )


def examples_run(root: Path, rows: int = 300, **event: Any) -> RunFolder:
    """A run whose audit has ``rows`` rows, every hundredth cut, with token views for the first ones."""
    folder = RunFolder(root / "20261201-193200-llama8b-lora-77c1")
    every = 100 if rows >= 1000 else 10
    write_audit(folder, (cut_record(n, 20 + n % 250) if n % every == 7 else record(n) for n in range(rows)))
    cut = [n for n in range(rows) if n % every == 7][:40]
    for n in {0, 1, 2, rows - 1, *cut}:
        write_tokens(folder, token_view(n, n, max_length=120 if n % every == 7 else 10_000))
    return folder


def examples_state(rows: int, reasons: Sequence[dict[str, Any]] = (), **facts: Any) -> RunState:
    """The fold of a run that has looked at its examples."""
    said = reason("response_truncated", "3 rows of 300 lose part of the response to the cut at 2048: 263 tokens.")
    listed = list(reasons) or [said]
    value = {
        "rows": rows,
        "supervised_rows": rows,
        "no_supervised": [],
        "no_supervised_count": 0,
        "truncated": 3,
        "response_tokens_lost": 4102,
        "length": {"max": 2311, "p50": 612, "p95": 1688},
        "padding_share": 0.114,
        "classes": [],
        **facts,
    }
    base = {"v": 1, "at": "2026-12-01T19:32:10.000Z", "mono": 10.0, "rank": 0}
    return fold(
        [
            {**base, "kind": "run_started", "run": "20261201-193200-llama8b-lora-77c1", "name": "llama8b-lora"},
            {**base, "kind": "phase_started", "phase": "examples", "attempt": 1},
            {**base, "kind": "facts", "name": "examples", "value": value},
            {**base, "kind": "phase_ended", "phase": "examples", "attempt": 1, "verdict": listed[0]["severity"],
             "reasons": listed, "duration_s": 12.8},
        ]
    )  # fmt: skip


def loaded(plan: Plan = PLAN, demo: bool = False) -> LoadedPlan:
    return LoadedPlan(plan, Path("/plans"), Path("/plans/pilot.yaml"), {}, "", demo)


class RoomApp(App[None]):
    """One room on the whole terminal."""

    CSS = "Screen { background: #1c1c1c; } ToastRack { display: none; }"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, room: Room, snapshot: Snapshot) -> None:
        super().__init__()
        self.room = room
        self.first = snapshot

    def compose(self) -> ComposeResult:
        yield self.room

    def on_mount(self) -> None:
        self.animation_level = "none"
        self.room.focus()
        self.room.fit_to(self.size.width, self.size.height)
        self.call_after_refresh(self.room.show, self.first)

    def on_resize(self, event: Resize) -> None:
        self.room.fit_to(event.size.width, event.size.height)
        self.call_after_refresh(lambda: self.room.show(self.room.snapshot))

    def text(self) -> str:
        """What the room's page shows, top to bottom."""
        page = self.room.query_one(Lines)
        strips = [page.render_line(y) for y in range(page.size.height)]
        return "\n".join(strip.text.rstrip() for strip in strips)


async def settled(app: App[None], pilot: Any) -> None:
    """Every worker ended and every message handled."""
    for _ in range(3):
        await pilot.pause()
        await app.workers.wait_for_complete()
    await pilot.pause()


def whole_run(
    root: Path,
    plan: Plan = PLAN,
    device: str = "cpu",
    verdicts: dict[str, tuple[str, list[dict[str, Any]]]] | None = None,
    marks: Sequence[tuple[str, str, str]] = (),
) -> RunFolder:
    """A pilot that ended, on disk: run.json, plan.json and an event log with fifteen rows."""
    folder = RunFolder(root / "20261201-193200-llama8b-lora-77c1")
    folder.events.mkdir(parents=True)
    folder.run_file.write_text(json.dumps({"schema": 1, "run": folder.id, "kind": "pilot", "name": plan.name}))
    folder.plan_file.write_text(json.dumps(to_document(loaded(plan))))
    base = {"v": 1, "at": "2026-12-01T19:32:10.000Z", "mono": 10.0, "rank": 0}
    events: list[dict[str, Any]] = [{**base, "kind": "run_started", "run": folder.id, "name": plan.name}]
    events += [
        {**base, "kind": "facts", "name": "software", "value": {"python": "3.11.7", "torch": "2.13.0"}},
        {**base, "kind": "facts", "name": "sizes", "value": {"checkpoint_bytes": 29 << 20, "artifact_bytes": 9 << 20}},
    ]
    for phase in PHASES:
        verdict, reasons = (verdicts or {}).get(phase, ("pass", []))
        memory = [] if phase in ("stack", "examples", "splits") else [_memory(device)]
        events.append({**base, "kind": "phase_started", "phase": phase, "attempt": 1})
        events.append(
            {**base, "kind": "phase_ended", "phase": phase, "attempt": 1, "verdict": verdict, "reasons": reasons,
             "duration_s": 1.5, "memory": memory}
        )  # fmt: skip
    failed = any(verdict == "fail" for verdict, _ in (verdicts or {}).values())
    events.append({**base, "kind": "run_ended", "state": "failed" if failed else "finished"})
    _write_events(folder, "supervisor", events)
    _write_events(
        folder,
        "operator-1-1",
        [{**base, "kind": "mark", "phase": phase, "verdict": verdict, "note": note} for phase, verdict, note in marks],
    )
    return folder


def _write_events(folder: RunFolder, name: str, events: Sequence[dict[str, Any]]) -> None:
    lines = [json.dumps({**each, "n": n}) for n, each in enumerate(events)]
    (folder.events / f"{name}.jsonl").write_text("".join(line + "\n" for line in lines))


def _memory(device: str) -> dict[str, Any]:
    gib = 1 << 30
    if device == "cpu":
        return {"rank": 0, "device": "cpu", "allocated_peak": 700 << 20, "host_peak": 2 * gib}
    return {
        "rank": 0, "device": "cuda:0", "uuid": "GPU-0", "allocated_peak": 31 * gib, "reserved_peak": 33 * gib,
        "device_used_peak": 35 * gib, "device_usable": 79 * gib, "outside_torch": 2 * gib,
    }  # fmt: skip
