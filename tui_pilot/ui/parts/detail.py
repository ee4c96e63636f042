"""Everything known of one phase, most important first: the verdict's sentences, then the facts behind them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len

from tui_pilot.store.state import Row
from tui_pilot.text import duration, size
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import checklist, facts, oom, units
from tui_pilot.ui.parts.phases import ABOUT
from tui_pilot.ui.snapshot import Snapshot

LABEL = 12
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
    again = f", attempt {row.attempt}" if row.attempt > 1 else ""
    return sign, f"{row.phase}, {words.get(row.verdict, str(row.verdict))}{again}", role


def detail(row: Row, snapshot: Snapshot, width: int, full: bool) -> list[Line]:
    """The lines; ``full`` adds thresholds, every input and every rank."""
    lines: list[Line] = []
    if row.verdict in (None, "not_run") and not row.reasons:
        return _not_reached(row, snapshot, width)
    if row.running:
        lines += _running(row, width)
    if row.verdict == "pass":
        lines += _seen(row, width)
    for reason in sorted(row.reasons, key=_quiet):
        lines += _reason(reason, snapshot, width)
    lines += _by_hand(row, snapshot, width)
    lines += _memory(row, width, full)
    lines += parts(row, width)
    lines += _ran_on(row.inputs, width, full)
    lines += _known(row, width)
    if not row.reasons:
        lines += flow("passes when", [ABOUT[row.phase][1]], width, "dim")
    if full and row.thresholds:
        lines.append((("thresholds", "dim"),))
        lines += _listed(row.thresholds, width)
    return lines + _attempts(row, width)


def _quiet(reason: Mapping[str, Any]) -> bool:
    """Notes stand below what decides."""
    return reason.get("severity") == "note"


def _seen(row: Row, width: int) -> list[Line]:
    said = facts.sentence(row.phase, row.inputs)
    return [((text, "text"),) for text in paint.wrap(said, width)] if said else []


def _by_hand(row: Row, snapshot: Snapshot, width: int) -> list[Line]:
    """The person's mark and notes on this phase."""
    lines: list[Line] = []
    if row.mark:
        said = f"{row.mark}, by hand" + (f": {row.note}" if row.note else "")
        lines += flow(f"mark {checklist.MARKS.get(row.mark, '?')}", [said], width, "head")
    for note in snapshot.state.notes:
        if note.get("phase") == row.phase:
            lines += flow("note", [str(note.get("text", ""))], width)
    return lines


def _attempts(row: Row, width: int) -> list[Line]:
    lines: list[Line] = []
    for before in reversed(row.attempts):
        codes = [str(each.get("code")) for each in before.get("reasons") or () if each.get("severity") != "note"]
        said = [str(before.get("verdict") or "no verdict"), duration(before.get("duration_s")), *codes]
        lines += flow(f"attempt {before.get('attempt')}", [", ".join(said)], width)
    return lines


def _not_reached(row: Row, snapshot: Snapshot, width: int) -> list[Line]:
    does, passes = ABOUT[row.phase]
    lines = flow("does", [does], width) + flow("passes when", [passes], width)
    return lines + _by_hand(row, snapshot, width)


def _running(row: Row, width: int) -> list[Line]:
    lines: list[Line] = []
    progress = row.progress or {}
    done, total = progress.get("done"), progress.get("total")
    counted, said = checklist.counted_text(row), checklist.said_text(row)
    if isinstance(done, (int, float)) and isinstance(total, (int, float)) and total > 0:
        cells = max(8, min(24, width - len(counted) - 10))
        bar = paint.bar(done / total, cells).ljust(cells)
        lines.append((("[", "dim"), (bar, "bar"), ("]", "dim"), (f" {done / total:4.0%}  {counted}", "text")))
    if not said and not lines:
        said = ABOUT[row.phase][0]
    return lines + [((text, "text"),) for text in paint.wrap(said, width) if said]


def _reason(reason: Mapping[str, Any], snapshot: Snapshot, width: int) -> list[Line]:
    severity = str(reason.get("severity", "fail"))
    sign, role = paint.glyph(severity if severity != "note" else "skipped")
    code = str(reason.get("code", ""))
    head = paint.wrap(f"{code}: {reason.get('text', '')}", max(10, width - 2))
    loud = role if severity == "fail" else "text"
    lines: list[Line] = [((f"{sign} ", role), (head[0], loud))]
    lines += [((f"  {text}", "text"),) for text in head[1:]]
    where = where_text(reason.get("where"), snapshot)
    placed: list[Line] = [((f"  {text}", "text"),) for text in paint.wrap(where, max(10, width - 2))] if where else []
    filled: list[Line] = [(("  ", "text"), *each) for each in oom.lines(reason.get("where"), max(10, width - 2))]
    lines += filled + placed if filled else placed
    if reason.get("advice") and not oom.has_ways(reason.get("where")):
        advice = paint.wrap(str(reason["advice"]), max(10, width - 4))
        lines += [
            ((("  → " if n == 0 else "    ") + text, "head" if n == 0 else "text"),) for n, text in enumerate(advice)
        ]
    return lines


def where_text(where: Any, snapshot: Snapshot | None = None) -> str:
    """``rows 0417, 2290, 14 more; rank 3``; files as they are named from the run or the plan."""
    if not isinstance(where, Mapping):
        return ""
    said = []
    for key, value in where.items():
        if value is None or key.endswith("_count") or value == [] or key in oom.OWN_KEYS:
            continue
        if isinstance(value, (list, tuple)):
            count = where.get(f"{key}_count", len(value))
            shown = ", ".join(str(item) for item in value[:4])
            more = count - min(4, len(value)) if isinstance(count, int) else 0
            said.append(f"{key} {shown}" + (f", {more:,} more" if more > 0 else ""))
        elif key.endswith("_bytes") and isinstance(value, int):
            said.append(f"{key.removesuffix('_bytes').replace('_', ' ')} {size(value)}")
        elif key == "file":
            said.append(f"file {_short_path(str(value), snapshot)}")
        else:
            said.append(f"{key} {value}")
    if isinstance(where.get("snapshot"), str):
        kept = where["snapshot"]
        said.append(f"allocator snapshot {kept}")
    return "; ".join(said)


def _short_path(path: str, snapshot: Snapshot | None) -> str:
    """From the run's folder or the plan's, where it lies in one of them."""
    if snapshot is None:
        return path
    if snapshot.folder is not None and f"/{snapshot.folder.id}/" in path:
        return path.split(f"/{snapshot.folder.id}/", 1)[1]
    home = str(snapshot.plan.folder) if snapshot.plan is not None else ""
    return path[len(home) + 1 :] if home and path.startswith(f"{home}/") else path


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
        said = [f"{name} {unit.show(rank.get(key), 'NA')}" for key, name in counters]
        return flow(f"peak, {unit.name}", said, width)
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
    return flow("parts", said, width)


def _ran_on(inputs: Mapping[str, Any], width: int, full: bool) -> list[Line]:
    if not inputs:
        return []
    if full:
        return [(("ran on", "dim"),), *_listed(inputs, width)]
    return flow("ran on", [f"{name} {text}" for name, text in facts.facts(inputs)], width)


def _listed(values: Mapping[str, Any], width: int) -> list[Line]:
    """One value a line, names in a column of their own."""
    lines: list[Line] = []
    for name, text in facts.facts(values, full=True):
        wrapped = paint.wrap(text, max(10, width - 24))
        lines.append(((f"  {paint.left(name, 21)} ", "dim"), (wrapped[0], "text")))
        lines += [((f"{'':<24}{each}", "text"),) for each in wrapped[1:]]
    return lines


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
    said = [f"{', '.join(names)} {how};" for how, names in groups.items()]
    return flow("known", [*said[:-1], said[-1].rstrip(";")], width, "dim") if said else []


def flow(name: str, items: Sequence[str], width: int, role: str = "text") -> list[Line]:
    """A dim name, and beside it as many items a line as fit; an item is broken only where it alone is too long."""
    room = max(10, width - LABEL)
    rows: list[str] = []
    for item in items:
        if rows and cell_len(f"{rows[-1]}   {paint.clean(item)}") <= room:
            rows[-1] += f"   {paint.clean(item)}"
        else:
            rows += paint.wrap(item, room)
    lines: list[Line] = []
    for n, text in enumerate(rows):
        label = paint.left(name, LABEL - 1) + " " if n == 0 else " " * LABEL
        lines.append(((label, "dim"), (text, role)))
    return lines
