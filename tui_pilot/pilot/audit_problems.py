"""Problems that are not one row's: names that occur twice, lines that cannot be read, class names, notes of a task."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tui_pilot.pilot.row_view import plain_list
from tui_pilot.pilot.rows import Split
from tui_pilot.tasks.base import Task
from tui_pilot.tasks.class_names import Names, fold, settle
from tui_pilot.tasks.formats.table import Note
from tui_pilot.tasks.units import plain
from tui_pilot.text import plural

MOST_BROKEN = 20


def duplicate_ids(split: Split) -> dict[str, Any] | None:
    """Names that more than one row of a split carries; ``7`` and ``"7"`` are one name."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(split.ids):
        places[plain(row) or repr(row)].append(place)
    twice = [each for each in places.values() if len(each) > 1]
    if not twice:
        return None
    rows = [split.ids[each[0]] for each in twice]
    # a bounded look: what a repeated name stands for is a remark, not a check of its own
    other = sum(1 for each in twice[:1000] if _content(split.records[each[0]]) != _content(split.records[each[1]]))
    text = (
        f"{plural(len(twice), 'row id')} of {split.name} on more than one row, {other:,} with other content, first "
        f"{rows[0]}; expected one row each."
    )
    return {"code": "duplicate_ids", "text": text, "where": {"rows": rows, "split": split.name}}


def _content(record: Any) -> Any:
    if not isinstance(record, Mapping):
        return record
    return {key: plain_list(value) for key, value in record.items() if key != "id" and not str(key).startswith("_")}


def broken_rows(task: Task, split: str) -> list[dict[str, Any]]:
    """Rows of the split's file that cannot be read, all of them, by file and line; the rest is then not looked at."""
    faults = getattr(task, "faults", None)
    errors = list(faults(split)) if callable(faults) else []
    found = [
        {
            "code": "broken_line",
            "text": str(error),
            "where": {key: value for key, value in (("file", error.file), ("line", error.line)) if value},
        }
        for error in errors[:MOST_BROKEN]
    ]
    if len(errors) > MOST_BROKEN:
        text = f"{len(errors):,} rows of {split} cannot be read; the first {MOST_BROKEN} are named."
        found.append({"code": "broken_line", "text": text, "where": {"split": split}})
    return found


def task_problems(task: Task) -> list[dict[str, Any]]:
    """What a task found itself while it read its files: label tables that disagree, notes of the reader."""
    found: list[dict[str, Any]] = []
    labels = getattr(task, "label_problems", None)
    if callable(labels):
        grouped: dict[str, list[dict[str, Any]]] = {}
        for problem in labels():
            grouped.setdefault(problem["code"], []).append(problem)
        for code, group in grouped.items():
            rows = [problem.get("row") for problem in group if problem.get("row") is not None]
            where = {"rows": rows, "rows_count": len(rows)} if rows else {}
            more = f" And {plural(len(group) - 1, 'row')} more." if len(group) > 1 else ""
            text = group[0]["text"].rstrip(".") + "." + more
            found.append({"code": code, "text": text, "where": where, "severity": group[0].get("severity")})
    notes = getattr(task, "file_notes", None)
    if callable(notes):
        said: set[str] = set()
        for note in notes():
            # Rows held out of the training file come with the same notes once more.
            if note["text"] in said:
                continue
            said.add(note["text"])
            found.append({"code": "file_note", "text": note["text"], "where": note.get("where") or {}})
    return found


class _Findings:
    def __init__(self) -> None:
        self.problems: list[dict[str, Any]] = []
        self.notes: list[Note] = []


LABEL_FILES = ("labels.json", "id2label.json", "label2id.json", "label_names.json", "labels.txt", "classes.txt")
"""Names that a file of class names beside the training data goes by."""


def class_tables(task: Task) -> list[dict[str, Any]]:
    """Id to name by the task, the plan, the model's head and a label file beside the data, where two disagree.

    Tasks that make their own table (``label_problems``) have compared theirs already.
    """
    own = [str(name) for name in task.class_names()]
    if not own or callable(getattr(task, "label_problems", None)):
        return []
    known = dict(enumerate(own))
    findings = _Findings()
    settle(
        dict(enumerate(map(str, task.plan.data.classes))), _of_model(task.plan.model.path), known, set(own), findings
    )
    told = bool(findings.problems)
    for file, names in _of_files(task.plan.data.train):
        swapped = [number for number in known if fold(known[number]) != fold(names.get(number))]
        if not told and swapped and sorted(map(fold, known.values())) == sorted(map(fold, names.values())):
            pairs = "; ".join(f"{number}: {known[number]} and {names[number]}" for number in swapped[:6])
            listed = ", ".join(map(str, swapped))
            text = f"ids {listed} are swapped between the task and {file.name} ({pairs})"
            findings.problems.append({"code": "class_names_disagree", "text": text, "where": {"file": str(file)}})
    found = [
        {"code": each["code"], "text": each["text"].rstrip(".") + ".", "where": each.get("where") or {}}
        for each in findings.problems
    ]
    return found + [{"code": "file_note", "text": each["text"], "where": each["where"]} for each in findings.notes]


def _of_model(path: str | None) -> Names:
    try:
        document = json.loads((Path(path) / "config.json").read_text("utf-8")) if path else {}
        return {int(number): str(name) for number, name in (document.get("id2label") or {}).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _of_files(train: str | None) -> Sequence[tuple[Path, Names]]:
    found: list[tuple[Path, Names]] = []
    for name in LABEL_FILES if train else ():
        file = Path(train or "").parent / name
        try:
            text = file.read_text("utf-8-sig")
            value = json.loads(text) if file.suffix == ".json" else [line for line in text.splitlines() if line.strip()]
            names = _names(value)
        except (OSError, ValueError, TypeError):
            continue
        if names:
            found.append((file, names))
    return found


def _names(value: Any) -> Names:
    """Names by id, from a list, ``{id: name}`` or ``{name: id}``."""
    if isinstance(value, list):
        return {number: str(name) for number, name in enumerate(value)}
    if isinstance(value, dict) and all(isinstance(each, int) for each in value.values()):
        return {int(number): str(name) for name, number in value.items()}
    return {int(number): str(name) for number, name in value.items()} if isinstance(value, dict) else {}
