"""Everything that was measured in a run as one table: a line per value, from the events themselves.

Long rather than wide: updates, validations and phases have different columns, and a task may name metrics of its own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tui_pilot.events import schema
from tui_pilot.events.reader import Reader
from tui_pilot.run_folder import RunFolder
from tui_pilot.text import harmless

COLUMNS = ("run", "at", "kind", "stage", "phase", "attempt", "rank", "update", "metric", "value")
NO_METRIC = frozenset({"v", "mono", "n", "attempt", "rank", "update"})
OF_MEMORY = (
    "allocated_before", "allocated_peak", "allocated_after", "reserved_before", "reserved_peak", "reserved_after",
    "active_peak", "device_used_before", "device_used_peak", "outside_torch", "host_peak", "process_peak",
)  # fmt: skip
Row = dict[str, Any]


def rows_of(folder: RunFolder) -> Iterator[Row]:
    """One dictionary a value, in the order of the events: ``kind`` is update, validation, phase, part or memory.

    A value that could not be read is not there; losses that are not finite are the words ``nan``, ``inf``, ``-inf``.
    Bytes and seconds.
    """
    for event in Reader(folder.events).poll():
        base = {
            "run": folder.id, "at": event.get("at"), "stage": event.get("stage"), "phase": event.get("phase"),
            "attempt": event.get("attempt"), "rank": event.get("rank"), "update": event.get("update"),
        }  # fmt: skip
        for kind, more, metric, value in _values(event):
            if isinstance(value, (int, float, str)) and not isinstance(value, bool):
                yield {**base, **more, "kind": kind, "metric": metric, "value": value}


def _values(event: Mapping[str, Any]) -> Iterator[tuple[str, Row, str, Any]]:
    if event["kind"] == schema.UPDATE:
        for name, value in event.items():
            if name not in NO_METRIC and (name in ("loss", "lr") or isinstance(value, (int, float))):
                yield "update", {}, name, value
    elif event["kind"] == schema.VALIDATION:
        for name, value in (event.get("metrics") or {}).items():
            yield "validation", {}, str(name), value
    elif event["kind"] == schema.PHASE_ENDED:
        stage = {"stage": event.get("stage") or schema.STAGE_OF.get(str(event.get("phase")))}
        yield "phase", stage, "verdict", event.get("verdict")
        yield "phase", stage, "duration_s", event.get("duration_s")
        for part, entry in (event.get("parts") or {}).items():
            for name in ("duration_s", "allocated_peak", "reserved_peak"):
                value = entry.get(name) if isinstance(entry, Mapping) else None
                yield "part", stage, f"{part}.{name}", value
        for memory in event.get("memory") or ():
            for name in OF_MEMORY:
                yield "memory", {**stage, "rank": memory.get("rank")}, name, memory.get(name)


def csv_of(folders: Sequence[RunFolder]) -> str:
    """The table of several runs as CSV, with its head; foreign names can neither be a formula nor move a cursor."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for folder in folders:
        for row in rows_of(folder):
            writer.writerow({key: _cell(value) for key, value in row.items()})
    return out.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str) or value in ("-inf",):
        return value
    shown = harmless(value)
    return f"'{shown}" if shown[:1] in ("=", "+", "-", "@") else shown
