"""Rows of a run and of the ledger as plain text tables. Text left, numbers right, one unit a column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tui_pilot.run_folder import short_id
from tui_pilot.text import cut, duration, harmless, size

REASON_WIDTH = 96
UNKNOWN = "-"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Columns two blanks apart, as wide as their widest cell; columns in ``right`` are numbers."""
    cells = [list(head), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return [
        "  ".join(
            cell.rjust(widths[column]) if column in right else cell.ljust(widths[column])
            for column, cell in enumerate(row)
        ).rstrip()
        for row in cells
    ]


def rows_of_run(document: Mapping[str, Any]) -> list[str]:
    """The fifteen rows; what a verdict is about stands behind it, and how memory is known below."""
    phases = document["phases"]
    # One column of predictions: of what torch takes from a GPU, or of tensors where there is none.
    key = next((key for row in phases for key in ("reserved_peak", "allocated_peak") if _foretold(row, key)), None)
    head = ["phase", "verdict", "mark", "time", "alloc", "resvd", "used", "host", "reason"]
    rows = [list(_row(row)) for row in phases]
    if key is not None:
        place = 5 + (key == "reserved_peak")
        head.insert(place, "~pred")
        for cells, row in zip(rows, phases, strict=True):
            found = _foretold(row, key)
            cells.insert(place, UNKNOWN if found is None else size(found))
    lines = table(head, rows, right=range(3, len(head) - 1))
    notes = _known(phases)
    if key is not None:
        notes += "; ~pred predicted before the run"
    return [*lines, *([f"known: {notes}"] if notes else [])]


def _foretold(row: Mapping[str, Any], key: str) -> int | None:
    value = (row.get("predicted") or {}).get(key)
    return value if isinstance(value, int) else None


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    verdict = str(row["verdict"] or "")
    return (
        str(row["phase"]),
        "FAIL" if verdict == "fail" else verdict.replace("_", " "),
        str(row["mark"] or ""),
        duration(row["duration_s"], UNKNOWN),
        *(_peak(row, key) for key in ("allocated_peak", "reserved_peak", "device_used_peak", "host_peak")),
        cut(harmless(sentence(row)), REASON_WIDTH),
    )


def _peak(row: Mapping[str, Any], key: str) -> str:
    values = [each.get(key) for each in row.get("memory") or () if isinstance(each.get(key), int)]
    return size(max(values), UNKNOWN) if values else UNKNOWN


def sentence(row: Mapping[str, Any]) -> str:
    """The first reason with its code, and how many more there are."""
    reasons = [reason for reason in row.get("reasons") or () if reason.get("severity") != "note"]
    reasons = reasons or list(row.get("reasons") or ())
    if not reasons:
        return ""
    more = f" (+{len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{reasons[0].get('code')}: {reasons[0].get('text')}{more}"


def _known(rows: Iterable[Mapping[str, Any]]) -> str:
    """How the columns' numbers are known, each said once."""
    names = {"allocated_peak": "alloc", "reserved_peak": "resvd", "device_used_peak": "used", "host_peak": "host"}
    said: dict[str, str] = {}
    for row in rows:
        for each in row.get("memory") or ():
            for key, known in (each.get("known") or {}).items():
                if key in names and names[key] not in said and isinstance(known, Mapping):
                    said[names[key]] = _known_words(known)
    return "; ".join(f"{name} {said[name]}" for name in names.values() if name in said)


def _known_words(known: Mapping[str, Any]) -> str:
    if known.get("kind") == "sampled":
        rate = f" {known['hz']} Hz" if known.get("hz") else ""
        return f"sampled{rate}, a floor"
    if known.get("kind") == "unchecked":
        return f"unchecked ({known.get('why')})"
    return str(known.get("kind"))


def heading(document: Mapping[str, Any]) -> list[str]:
    """Which run, how it stands, and what it was made from."""
    verdict = document["verdict"]
    state = str(document["state"]).upper() + (f" {verdict}" if verdict and document["state"] == "finished" else "")
    text = f" {document['text']}" if document.get("text") else ""
    lines = [f"{document['run']}  {state}{text}"]
    if document.get("demo"):
        lines.append("demo: built-in data, not yours")
    if document.get("parent"):
        changed = ", ".join(f"{key} {_change(pair)}" for key, pair in document["changed"].items()) or "nothing changed"
        lines.append(cut(f"parent {short_id(document['parent'])}: {changed}", 200))
    if document.get("binding_phase"):
        lines.append(f"memory is set by {document['binding_phase']}")
    return lines


def _change(pair: Any) -> str:
    old, new = pair if isinstance(pair, (list, tuple)) and len(pair) == 2 else (None, pair)
    return f"{cut(str(old), 24)} -> {cut(str(new), 24)}"


def _on(note: Mapping[str, Any]) -> str:
    return f" on {note['phase']}" if note.get("phase") else ""


def tail(document: Mapping[str, Any]) -> list[str]:
    """Notes, the decision, and what the log itself lacked."""
    lines = [f"note {note.get('at', '')}{_on(note)}: {note.get('text', '')}" for note in document["notes"]]
    decision = document.get("decision")
    if decision:
        lines.append(f"decision: {decision['decision']}: {decision['note']}")
    events = document["events"]
    if events["broken_lines"]:
        lines.append(f"{events['broken_lines']} broken lines in the event log were left out")
    if events["unknown_kinds"]:
        lines.append(f"{events['unknown_kinds']} events of kinds that this version does not know were left out")
    return lines


def _verdict_of(entry: Mapping[str, Any]) -> str:
    """A run that did not reach its end has no verdict over fifteen phases, only so far."""
    verdict = entry["verdict"]
    if verdict is None:
        return UNKNOWN
    word = "FAIL" if verdict == "fail" else str(verdict)
    return f"{word} so far" if entry["state"] in ("stopped", "lost") and verdict != "fail" else word


def reasons_of_run(document: Mapping[str, Any]) -> list[str]:
    """Every reason of every row that did not pass, whole, with its advice below."""
    lines: list[str] = []
    for row in document["phases"]:
        for reason in row.get("reasons") or ():
            if reason.get("severity") == "note":
                continue
            word = {"fail": "FAIL"}.get(str(reason.get("severity")), str(reason.get("severity")))
            lines.append(f"{word} in {row['phase']}: {reason.get('code')}: {harmless(str(reason.get('text')))}")
            if reason.get("advice"):
                lines.append(f"    -> {harmless(str(reason['advice']))}")
    return ["", *lines] if lines else []


def rows_of_ledger(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line a run, oldest first."""
    head = ("run", "kind", "state", "verdict", "size", "payload", "parent", "changed")
    rows = [
        (
            entry["run"],
            str(entry["kind"] or ""),
            entry["state"],
            _verdict_of(entry),
            size(entry["bytes"]),
            size(entry["payload_bytes"]),
            short_id(entry["parent"]) if entry["parent"] else UNKNOWN,
            cut(harmless(entry["problem"] or ", ".join(entry["changed"]) or UNKNOWN), 60),
        )
        for entry in entries
    ]
    return table(head, rows, right=(4, 5))
