"""Everything known of one phase, most important first: the verdict's sentences, then the facts behind them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.store.state import Row
from tui_pilot.text import duration
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import checklist, units
from tui_pilot.ui.parts.phases import ABOUT
from tui_pilot.ui.snapshot import Snapshot

_SHOWN = (
    ("allocated_peak", "allocated"),
    ("reserved_peak", "reserved"),
    ("device_used_peak", "used"),
    ("outside_torch", "outside torch"),
    ("host_peak", "host"),
    ("process_peak", "process"),
)


def title(row: Row) -> tuple[str, str, str]:
    """Glyph, ``first_step: out of memory ...``, role."""
    sign, role = paint.glyph(row.verdict)
    if checklist.is_lost(row):
        return "?", f"{row.phase}, LOST", "fail"
    words = {"fail": "FAIL", "not_run": "not run", None: "not reached yet"}
    return sign, f"{row.phase}, {words.get(row.verdict, str(row.verdict))}", role


def detail(row: Row, snapshot: Snapshot, width: int, full: bool) -> list[Line]:
    """The lines; ``full`` adds thresholds, every input and every rank."""
    lines: list[Line] = []
    if row.verdict in (None, "not_run") and not row.reasons:
        return _not_reached(row, snapshot, width)
    if row.running:
        lines += _running(row, snapshot, width)
    for reason in row.reasons:
        lines += _reason(reason, width)
    if row.mark:
        said = f"mark {checklist.MARKS.get(row.mark, '?')} {row.mark}, by hand" + (f": {row.note}" if row.note else "")
        lines += [((text, "head" if n == 0 else "text"),) for n, text in enumerate(paint.wrap(said, width))]
    elif row.note:
        lines += [((text, "text"),) for text in paint.wrap(f"note: {row.note}", width)]
    lines += _memory(row, width, full)
    lines += parts(row, width)
    lines += _inputs(row.inputs, width, full)
    lines += _known(row, width)
    if not row.reasons and not row.running:
        lines += _pairs("passes when", ABOUT[row.phase][1], width, "dim")
    if full and row.thresholds:
        lines.append((("thresholds", "dim"),))
        lines += _inputs(row.thresholds, width, full)
    for before in row.attempts:
        text = f"attempt {before.get('attempt')} before: {before.get('verdict')}, {duration(before.get('duration_s'))}"
        lines.append(((text, "dim"),))
    return lines


def _not_reached(row: Row, snapshot: Snapshot, width: int) -> list[Line]:
    does, passes = ABOUT[row.phase]
    lines = _pairs("does", does, width, "text") + _pairs("passes when", passes, width, "text")
    if row.mark or row.note:
        lines += _pairs("note", f"{row.mark or ''} {row.note or ''}".strip(), width, "text")
    return lines


def _running(row: Row, snapshot: Snapshot, width: int) -> list[Line]:
    lines: list[Line] = []
    progress = row.progress or {}
    done, total = progress.get("done"), progress.get("total")
    said = checklist.progress_text(row)
    if isinstance(done, (int, float)) and isinstance(total, (int, float)) and total > 0:
        cells = max(8, min(24, width - len(said) - 8))
        bar = paint.bar(done / total, cells).ljust(cells)
        lines.append((("[", "dim"), (bar, "bar"), ("]", "dim"), (f" {done / total:4.0%}  {said}", "text")))
    elif said:
        lines.append(((said, "text"),))
    else:
        lines += [((text, "text"),) for text in paint.wrap(ABOUT[row.phase][0], width)]
    return lines


def _reason(reason: Mapping[str, Any], width: int) -> list[Line]:
    severity = str(reason.get("severity", "fail"))
    sign, role = paint.glyph(severity if severity != "note" else "skipped")
    code = str(reason.get("code", ""))
    head = paint.wrap(f"{code}: {reason.get('text', '')}", max(10, width - 2))
    loud = role if severity == "fail" else "text"
    lines: list[Line] = [((f"{sign} ", role), (head[0], loud))]
    lines += [((f"  {text}", "text"),) for text in head[1:]]
    where = where_text(reason.get("where"))
    if where:
        lines += [((f"  {text}", "text"),) for text in paint.wrap(where, max(10, width - 2))]
    if reason.get("advice"):
        advice = paint.wrap(str(reason["advice"]), max(10, width - 4))
        lines += [
            ((("  → " if n == 0 else "    ") + text, "head" if n == 0 else "text"),) for n, text in enumerate(advice)
        ]
    return lines


def where_text(where: Any) -> str:
    """``rows 0417, 2290, 14 more; rank 3``."""
    if not isinstance(where, Mapping):
        return ""
    said = []
    for key, value in where.items():
        if value is None or key.endswith("_count"):
            continue
        if isinstance(value, (list, tuple)):
            count = where.get(f"{key}_count", len(value))
            shown = ", ".join(str(item) for item in value[:4])
            more = count - min(4, len(value)) if isinstance(count, int) else 0
            said.append(f"{key} {shown}" + (f", {more:,} more" if more > 0 else ""))
        else:
            said.append(f"{key} {value}")
    return "; ".join(said)


def _memory(row: Row, width: int, full: bool) -> list[Line]:
    if not row.memory:
        return []
    counters = [(key, name) for key, name in _SHOWN if any(rank.get(key) is not None for rank in row.memory)]
    if not counters:
        return []
    values = [rank.get(key) for rank in row.memory for key, _ in counters]
    unit = units.unit_for(value for value in values if isinstance(value, int))
    lines: list[Line] = []
    if len(row.memory) == 1 and not full:
        rank = row.memory[0]
        said = "  ".join(f"{name} {unit.show(rank.get(key), 'NA')}" for key, name in counters)
        return [*_pairs(f"peak, {unit.name}", said, width, "text")]
    heads = {"allocated": "alloc", "reserved": "resvd", "outside torch": "outside", "process": "proc"}
    cell = 8 if unit is units.GIBS else 10
    counters = counters[: max(1, (width - 11) // cell)]
    head = "".join(f"{heads.get(name, name):>{cell}}" for _, name in counters)
    lines.append(((f"{'peak, ' + unit.name:<11}{head}", "dim"),))
    ranks = list(row.memory)
    shown = ranks if full or len(ranks) <= 2 else [max(ranks, key=lambda rank: rank.get("allocated_peak") or 0)]
    for rank in shown:
        name = str(rank.get("device") or f"rank {rank.get('rank', 0)}")
        name += f" of {len(ranks)}" if len(shown) < len(ranks) else ""
        figures = "".join(f"{unit.show(rank.get(key), 'NA'):>{cell}}" for key, _ in counters)
        lines.append(((f"{paint.left(name, 11)}{figures}", "text"),))
    return lines


def parts(row: Row, width: int) -> list[Line]:
    """The timed parts of a phase, each with its own peak."""
    if not row.parts:
        return []
    peaks = [part.get("allocated_peak") for part in row.parts.values() if isinstance(part, Mapping)]
    unit = units.unit_for(peak for peak in peaks if isinstance(peak, int))
    said = []
    for name, part in row.parts.items():
        if not isinstance(part, Mapping):
            continue
        took = part.get("duration_s")
        peak = part.get("allocated_peak")
        text = str(name).replace("_", " ")
        text += f" {duration(took)}" if isinstance(took, (int, float)) else ""
        text += f", {unit.show(peak)} {unit.name}" if isinstance(peak, int) else ""
        said.append(text)
    return _pairs("parts", "   ".join(said), width, "text")


def _inputs(inputs: Mapping[str, Any], width: int, full: bool) -> list[Line]:
    said: list[str] = []
    for key, value in inputs.items():
        text = _value(value, full)
        if text:
            said.append(f"{str(key).replace('_', ' ')} {text}")
    if full:
        return [((text, "text"),) for each in said for text in paint.wrap(each, width)]
    return _pairs("ran on", ", ".join(said), width, "text") if said else []


def _value(value: Any, full: bool) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, int) for item in value) and len(value) <= 4:
            return " x ".join(f"{item:,}" for item in value)
        limit = 40 if full else 3
        more = f", {len(value) - limit:,} more" if len(value) > limit else ""
        return ", ".join(_value(item, full) if isinstance(item, float) else str(item) for item in value[:limit]) + more
    if isinstance(value, Mapping):
        if not full:
            return ""
        return ", ".join(f"{key}: {_value(item, full)}" for key, item in list(value.items())[:40])
    return str(value)


def _known(row: Row, width: int) -> list[Line]:
    if not row.memory:
        return []
    rank = row.memory[0]
    known = rank.get("known")
    if not isinstance(known, Mapping):
        return []
    groups: dict[str, list[str]] = {}
    for key, name in _SHOWN:
        if key in known:
            groups.setdefault(units.how_known(rank, key), []).append(name)
    said = "; ".join(f"{', '.join(names)} {how}" for how, names in groups.items())
    return _pairs("known", said, width, "dim") if said else []


def _pairs(name: str, value: str, width: int, role: str) -> list[Line]:
    """``name: value`` wrapped, the name dim."""
    wrapped = paint.wrap(value, max(10, width - len(name) - 2))
    head: Line = ((f"{name}: ", "dim"), (wrapped[0], role))
    rest = paint.wrap(" ".join(wrapped[1:]), max(10, width - 2)) if len(wrapped) > 1 else []
    return [head, *(((f"  {text}", role),) for text in rest)]
