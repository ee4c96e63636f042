"""A recorded run whose every foreign text attacks a terminal or a layout: made from it by code, nothing is stored."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from tui_pilot.events import schema
from tui_pilot.events.writer import Writer
from tui_pilot.run_folder import RunFolder

ATTACKS = (
    "[bold red]no[/] [/x] [@click=app.quit]q[/]",
    "\x1b[31mred\x1b[0m\x1b[2J\x1b]0;title\x07\x1b]52;c;cm0=\x07\x9b2J",
    "\u202egnp.exe\u202c \u2066isolated\u2069",
    "zero\u200bwidth\u200d\ufeff e\u0301\u0323 soft\u00adhyphen",
    "很寬的日本語のテキスト 👩‍👩‍👧‍👦 🇫🇷 한국어",
    "tab\there\nand a line\r\nbreak\x00\x08\x7f",
    "long-" + "x" * 10_000,
)
TRACEBACK = (
    'Traceback (most recent call last):\n  File "[bold]task.py[/]", line 7, in loss\n\tx\x1b[1A = y\n'
    "ValueError: \u202e" + "行" * 3000
)


def attacked(text: str, number: int) -> str:
    """The text with an attack before it; which one goes round."""
    return f"{ATTACKS[number % len(ATTACKS)]} {text}"


def make_hostile(folder: RunFolder) -> None:
    """Change the run in place: names, row ids, reasons, advice, notes, texts of rows, a traceback."""
    ids = _rows(folder)
    for path in (folder.run_file, folder.plan_file):
        value = json.loads(path.read_text("utf-8"))
        plan = value.get("plan", value)
        plan["name"] = attacked(plan["name"], 0)
        if "expected" in plan:
            plan["expected"] = attacked("answers", 1)
        path.write_text(json.dumps(value), "utf-8")
    number = 0
    for path in sorted(folder.events.glob("*.jsonl")):
        lines = []
        for line in path.read_text("utf-8").splitlines():
            event = json.loads(line)
            for reason in event.get("reasons") or ():
                reason["text"] = attacked(reason["text"], number)
                reason["advice"] = attacked(reason["advice"], number + 3)
                number += 1
            if event["kind"] == schema.PHASE_ENDED and event["phase"] == "reload":
                event["reasons"][0] |= {"code": "crash", "text": TRACEBACK}
            if event["kind"] == schema.RUN_STARTED:
                event["name"] = attacked(event["name"], 0)
            if event["kind"] == schema.RUN_ENDED:
                event["text"] = attacked(event["text"], 1)
            lines.append(json.dumps(_renamed(event, ids)))
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    last = json.loads((folder.events / "supervisor.jsonl").read_text("utf-8").splitlines()[-1])
    writer = Writer(folder.events, "operator-1-1")
    for phase, text in zip(("stack", "examples", "splits", "overfit", "load", "forward"), ATTACKS, strict=False):
        writer.emit(schema.NOTE, text=text, phase=phase, at=last["at"], mono=last["mono"])
        writer.emit(schema.MARK, phase=phase, verdict="warn", note=text, at=last["at"], mono=last["mono"])
    writer.close()


def _rows(folder: RunFolder) -> dict[str, str]:
    """Attack the audit and the rows' texts; returns the new row ids by the old ones."""
    audit = folder.examples / "audit.jsonl"
    ids: dict[str, str] = {}
    lines = []
    for number, line in enumerate(audit.read_bytes().splitlines()):
        record = json.loads(line)
        ids[record["row"]] = record["row"] = attacked(record["row"], number)
        lines.append(json.dumps(record).encode() + b"\n")
    audit.write_bytes(b"".join(lines))
    starts = [sum(len(line) for line in lines[:n]) for n in range(len(lines))]
    (folder.examples / "audit.idx").write_bytes(b"".join(struct.pack("<Q", start) for start in starts))
    for path in (folder.examples / "rows").glob("*.json"):
        _row(path, ids)
    return ids


def _row(path: Path, ids: dict[str, str]) -> None:
    row: dict[str, Any] = json.loads(path.read_text("utf-8"))
    row["row"] = ids.get(row["row"], row["row"])
    for number, attack in enumerate(ATTACKS):
        place = 3 * number + 4
        if place < len(row["pieces"]):
            row["pieces"][place] = attack
            if row.get("full_pieces"):
                row["full_pieces"][place] = attack
    row["spans"] = [[start, end, attacked(role, turn), turn] for start, end, role, turn in row["spans"]]
    row["source"] = " ".join(ATTACKS) + str(row["source"])
    path.write_text(json.dumps(row), "utf-8")


def _renamed(value: Any, ids: dict[str, str]) -> Any:
    """The same with every row id attacked."""
    if isinstance(value, dict):
        return {key: _renamed(each, ids) for key, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, ids) for each in value]
    return ids.get(value, value) if isinstance(value, str) else value
