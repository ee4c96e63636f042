"""A folder of runs as a team has it after two days: full tuning, LoRA, one lost, and a comparison with a hot rate."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from room_runs import PLAN, loaded

from tui_pilot.campaign import comparison
from tui_pilot.campaign.comparison import Seen
from tui_pilot.events.schema import PHASES
from tui_pilot.plan import variants
from tui_pilot.plan.document import to_document
from tui_pilot.plan.model import Plan
from tui_pilot.run_folder import RunFolder
from tui_pilot.store import ledger
from tui_pilot.store.ledger import Entry

GIB = 1 << 30
COMPARED = "20261201-203000-rates-comparison-aaaa"


def write_run(
    runs: Path,
    id: str,
    plan: Plan = PLAN,
    *,
    state: str | None = "finished",
    used: float = 34.8,
    seconds: float = 1.31,
    losses: Sequence[tuple[int, Any]] = (),
    validation: Sequence[tuple[int, float]] = (),
    verdicts: Mapping[str, tuple[str, list[dict[str, Any]]]] | None = None,
    reached: int = len(PHASES),
    started: str = "2026-12-01T19:32:00.000Z",
    stop: Mapping[str, Any] | None = None,
    **run: Any,
) -> RunFolder:
    """One run on disk: ``reached`` phases have a row, ``state`` None leaves its log open (a lost run)."""
    folder = RunFolder(runs / id)
    folder.events.mkdir(parents=True)
    facts = {"schema": 1, "run": id, "kind": "pilot", "name": plan.name, "parent": None, "changed": {}}
    created = f"{started[:19]}Z"
    folder.run_file.write_text(json.dumps({**facts, "created": created, **run}))
    folder.plan_file.write_text(json.dumps(to_document(loaded(plan))))
    base: dict[str, Any] = {"v": 1, "at": started, "mono": 10.0, "rank": 0}
    events: list[dict[str, Any]] = [{**base, "kind": "run_started", "run": id, "name": plan.name}]
    events.append({**base, "kind": "facts", "name": "sizes", "value": {"seconds": {"update": seconds}}})
    batch = {"planned": {"effective_batch": plan.effective_batch}}
    events.append({**base, "kind": "facts", "name": "batch", "value": batch})
    if stop is not None:
        events.append({**base, "kind": "facts", "name": "stop", "value": stop})
    for phase in PHASES[:reached]:
        verdict, reasons = (verdicts or {}).get(phase, ("pass", []))
        memory = [] if phase in ("stack", "examples", "splits") else [_memory(used - (phase != "steady_step"))]
        events.append({**base, "kind": "phase_started", "phase": phase, "attempt": 1})
        if phase == "batch":
            events += [
                {**base, "kind": "update", "stage": "train", "phase": phase, "update": at, "loss": value, "lr": 1e-4}
                for at, value in losses
            ]
            events += [
                {**base, "kind": "validation", "update": at, "metrics": {"loss": value}} for at, value in validation
            ]
        ended = {"verdict": verdict, "reasons": reasons, "duration_s": 1.5, "memory": memory}
        events.append({**base, "kind": "phase_ended", "phase": phase, "attempt": 1, **ended})
    if state is None:
        events.append({**base, "kind": "phase_started", "phase": PHASES[reached], "attempt": 1})
    else:
        events.append({**base, "kind": "run_ended", "state": state, "mono": 119.0})
    lines = [json.dumps({**each, "n": n}) for n, each in enumerate(events)]
    (folder.events / "supervisor.jsonl").write_text("".join(line + "\n" for line in lines))
    return folder


def _memory(used: float) -> dict[str, Any]:
    return {
        "rank": 0, "device": "cuda:0", "uuid": "GPU-0", "allocated_peak": int((used - 3) * GIB),
        "reserved_peak": int((used - 1.6) * GIB), "device_used_peak": int(used * GIB), "device_usable": 79 * GIB,
    }  # fmt: skip


def falling(to: float, updates: int = 200, wave: float = 0.03, seed: int = 0) -> list[tuple[int, float]]:
    """A training loss that falls from 2 to ``to``."""
    return [
        (n, round(to + (2.05 - to) * math.exp(-n / 45) + wave * math.sin(n * 1.7 + seed), 4))
        for n in range(1, updates + 1)
    ]


def team(runs: Path) -> dict[str, RunFolder]:
    """Fifteen runs, by a short name."""
    oom = [
        {
            "code": "oom",
            "severity": "fail",
            "where": {},
            "text": "out of memory in optimizer.step: gpu 3 asked 112.0 MiB, 74.0 MiB were free",
            "advice": "fused adamw",
        }
    ]
    cut = [{"code": "response_truncated", "severity": "warn", "where": {}, "text": "37 of 3,200 rows lose a part"}]
    warned = {"examples": ("warn", cut)}
    found: dict[str, RunFolder] = {}

    def add(name: str, id: str, minute: int, plan: Plan, parent: str | None = None, **more: Any) -> None:
        at = f"2026-12-01T19:{minute:02d}:00.000Z"
        changed = variants.differences(plans[parent], plan) if parent in plans else {}
        plans[name] = plan
        kind = "variant" if parent else "pilot"
        found[name] = write_run(
            runs, f"20261201-19{minute:02d}00-{id}", plan, started=at,
            **{"kind": kind, "parent": found[parent].id if parent else None, "changed": changed, **more},
        )  # fmt: skip

    plans: dict[str | None, Plan] = {}
    full = replace(PLAN, name="llama8b", batch=replace(PLAN.batch, micro=1, accumulation=2))
    full = replace(full, launch=replace(PLAN.launch, processes=8))
    add("full", "llama8b-full-3f9a", 1, full, state="failed", used=79.0, reached=8,
        verdicts={**warned, "first_step": ("fail", oom)})  # fmt: skip
    fused = replace(full, optimizer=replace(full.optimizer, implementation="fused"))
    add("fused", "llama8b-fused-b21c", 10, fused, "full", used=77.2, seconds=0.94, verdicts=warned,
        losses=falling(1.2, 5), reached=15)  # fmt: skip
    lora = variants.with_set(full, {"model.adapter": {"kind": "lora", "r": 16}})
    add("lora", "llama8b-lora-77c1", 20, lora, "full", verdicts=warned, losses=falling(1.3, 5))
    ckpt = replace(lora, memory=replace(lora.memory, activation_checkpointing=True))
    add("ckpt", "llama8b-ckpt-e650", 30, ckpt, "lora", state=None, used=19.6, seconds=1.62, reached=9)
    one = replace(lora, batch=replace(lora.batch, micro=2, accumulation=8), launch=replace(lora.launch, processes=1))
    add("one", "llama8b-lora1-9d02", 40, one, "lora", used=49.2, seconds=2.41, verdicts=warned,
        losses=falling(1.25, 5), validation=[(5, 1.42)])  # fmt: skip
    _trials(runs, one, found["one"].id, found)
    return found


def _trials(runs: Path, base: Plan, parent: str, found: dict[str, RunFolder]) -> None:
    sets: dict[str, dict[str, Any]] = {
        "base": {}, "half": {"optimizer.lr": 5e-5}, "double": {"optimizer.lr": 2e-4}, "hot": {"optimizer.lr": 2e-3},
    }  # fmt: skip
    final = {"base": (1.231, 1.252, 1.239), "half": (1.252, 1.286, 1.266), "double": (1.229, 1.205, 1.253)}
    before = base
    for n, (id, changes) in enumerate(sets.items()):
        for seed in (0, 1, 2):
            plan = variants.with_set(base, {**changes, "seed": seed})
            name, minute = f"{id}{seed}", n * 3 + seed
            more: dict[str, Any] = {}
            if id == "hot":
                losses = [*falling(1.9, 15), *((n, round(2 + (n - 15) ** 2 / 9, 3)) for n in range(16, 42))]
                said = [{"code": "diverged", "severity": "fail", "where": {}, "text": "loss above 3 x its start"}]
                stop = {"code": "loss_above_start", "update": 41, "began": 16, "text": "loss above 3 x its start"}
                more = {"state": "diverged", "verdicts": {"batch": ("fail", said)}, "reached": 11, "stop": stop}
            else:
                last = final[id][seed]
                losses = falling(last - 0.12, seed=seed)
                more = {"validation": [(at, round(last + 0.5 * (200 - at) / 200, 4)) for at in (50, 100, 150, 200)]}
            found[name] = write_run(
                runs, f"20261201-2030{minute:02d}-rates-{id}-{seed}a{n}c", plan, losses=losses, used=49.2, seconds=2.4,
                started=f"2026-12-01T20:30:{minute:02d}.500Z", kind="trial", parent=parent, comparison=COMPARED,
                trial=id, seed=seed, changed=variants.differences(before, plan), **more,
            )  # fmt: skip
    record = {
        "id": COMPARED, "name": "rates", "metric": "loss", "direction": "min", "baseline": "base", "seeds": [0, 1, 2],
        "sets": sets, "order": [[id, seed] for seed in (0, 1, 2) for id in sets],
        "held": {key: "equal" for key in ("architecture", "data", "data order", "effective batch", "updates")},
        "planned": {"updates": 200, "validation_at": [50, 100, 150, 200], "validation_every": 50, "save_every": 100,
                    "stop": {"loss_above_start": 3.0}},
        "not_matched": [], "cost": {"predicted": {"seconds": 7500.0, "low": 7000.0, "high": 8000.0, "basis": "x"}},
    }  # fmt: skip
    trials = [entry_of(each) for name, each in found.items() if name[:-1] in sets]
    document = comparison.build(record, [Seen(each.folder, each.run, each.state) for each in trials])
    (runs / COMPARED).mkdir()
    (runs / COMPARED / comparison.FILE).write_text(json.dumps(document))


def entry_of(folder: RunFolder) -> Entry:
    return ledger.entry(folder)
