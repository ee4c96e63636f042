"""A run's memory over time as columns, with the phases below: pure.

A column shows the highest reading of its stretch. Where nothing was read it stays blank; a long pause is cut out and
says how long it was, so that a resume test hours later does not press the run flat.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tui_pilot.store.state import Row
from tui_pilot.text import duration
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts.units import Unit, unit_for
from tui_pilot.ui.rooms._memory_history import Points

STEPS = "▁▂▃▄▅▆▇█"
HOLD_S = 3.0
"""An unchanged reading is written once a second: within this a silence is no gap."""
LABEL = 6
CUT_COLUMNS = 9


@dataclass(frozen=True)
class Span:
    """One phase on the time axis, monotonic seconds."""

    phase: str
    start: float
    end: float


@dataclass(frozen=True)
class Chart:
    """What the rule says of a chart beside its lines."""

    lines: tuple[Line, ...]
    unit: Unit
    column_s: float


def spans_of(rows: Sequence[Row], now: float) -> list[Span]:
    """The phases that began, in order of time, earlier attempts too; a running one goes on until ``now``."""
    found: list[Span] = []
    for row in rows:
        for attempt in row.attempts:
            _add(found, row.phase, _earlier(row, attempt.get("started")), attempt.get("duration_s"), None)
        _add(found, row.phase, row.started_mono, row.duration_s, now if row.running else None)
    return sorted(found, key=lambda each: each.start)


def _moment(at: object) -> datetime:
    return datetime.fromisoformat(str(at).replace("Z", "+00:00"))


def _earlier(row: Row, started: object) -> float | None:
    """When an earlier attempt began, on the clock of the newest one: of the earlier only the time of day is kept."""
    try:
        apart = _moment(row.started) - _moment(started)
    except ValueError:
        return None
    return None if row.started_mono is None else row.started_mono - apart.total_seconds()


def _add(found: list[Span], phase: str, start: object, seconds: object, now: float | None) -> None:
    if isinstance(start, (int, float)):
        length = float(seconds) if isinstance(seconds, (int, float)) else 0.0
        found.append(Span(phase, float(start), max(float(start), float(start) + length if now is None else now)))


@dataclass(frozen=True)
class _Column:
    """A stretch of time, or a pause that was cut out (its seconds in ``cut``)."""

    start: float
    end: float
    cut: float = 0.0


def chart(
    points: Points, spans: Sequence[Span], width: int, rows: int, selected: str = "", back: bool = False
) -> Chart:
    """Columns of ``rows`` rows from 0 up, the phases' edges and names under them.

    ``back``: a reading is the highest since the one before in its phase, as a rank's live lines are.
    """
    columns, each = _columns(points, spans, width - LABEL)
    values = _values(points, columns)
    if back:
        values = _filled_back(values, points, columns, spans)
    unit = unit_for(value for value in values if value is not None)
    top = nice(max((value for value in values if value is not None), default=0) / unit.bytes)
    lines: list[Line] = []
    for n in range(rows):
        base = (rows - 1 - n) * 8
        cells = "".join(
            _cell(value, unit.bytes * top, rows, base, n, column) for value, column in _both(values, columns)
        )
        name = f"{top:,g}" if n == 0 else "0" if n == rows - 1 else ""
        joint = "┤" if name else "│"
        lines.append(((f"{name:>{LABEL - 2}} {joint}", "dim"), (cells, "bar")))
    lines.append(_feet(columns, spans, selected))
    return Chart(tuple(lines), unit, each)


def _both(values: list[int | None], columns: list[_Column]) -> list[tuple[int | None, _Column]]:
    return list(zip(values, columns, strict=True))


def _cell(value: int | None, top: float, rows: int, base: int, row: int, column: _Column) -> str:
    if column.cut:
        return "╌" if row == rows - 1 else " "
    if value is None:
        return " "
    over = max(1, round(value / top * rows * 8)) - base
    return " " if over <= 0 else "█" if over >= 8 else STEPS[over - 1]


def nice(value: float) -> float:
    """The next round number at or above: what the axis ends at."""
    if value <= 0:
        return 1.0
    scale = 10 ** math.floor(math.log10(value))
    return float(
        next(step * scale for step in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * scale >= value - 1e-9)
    )


def _columns(points: Points, spans: Sequence[Span], width: int) -> tuple[list[_Column], float]:
    """The time axis: stretches of equal length, pauses longer than a fifth of the rest cut out."""
    held = [(at, at + HOLD_S) for at, _ in points]
    busy: list[list[float]] = []
    for start, end in sorted([*held, *((span.start, span.end) for span in spans)]):
        if busy and start <= busy[-1][1]:
            busy[-1][1] = max(busy[-1][1], end)
        else:
            busy.append([start, end])
    if not busy or width < 1:
        return [], 0.0
    known = sum(end - start for start, end in busy)
    longest = max(60.0, known / 5)
    blocks: list[list[float]] = []
    for start, end in busy:
        if blocks and start - blocks[-1][1] <= longest:
            blocks[-1][1] = end
        else:
            blocks.append([start, end])
    blocks[-1][1] = max([blocks[-1][0] + 0.001, *(at for at, _ in points[-1:]), *(span.end for span in spans)])
    blocks = blocks[-max(1, width // (3 * CUT_COLUMNS)) :]
    room = width - CUT_COLUMNS * (len(blocks) - 1)
    each = sum(end - start for start, end in blocks) / room
    counts = [max(1, round((end - start) / each)) for start, end in blocks]
    counts[counts.index(max(counts))] += room - sum(counts)  # the axis is filled, and every block keeps its column
    columns: list[_Column] = []
    for n, ((start, end), count) in enumerate(zip(blocks, counts, strict=True)):
        if n:
            before = blocks[n - 1][1]
            columns += [_Column(before, start, start - before)] * CUT_COLUMNS
        step = (end - start) / max(1, count)
        columns += [_Column(start + k * step, start + (k + 1) * step) for k in range(count)]
    if columns:  # the last reading is at the very end
        columns[-1] = _Column(columns[-1].start, columns[-1].end + 0.001)
    return columns[:width], each


def _values(points: Points, columns: Sequence[_Column]) -> list[int | None]:
    """The highest reading of each column; a reading holds for ``HOLD_S``."""
    found: list[int | None] = []
    place, last = 0, None
    for column in columns:
        if column.cut:
            found.append(None)
            continue
        while place < len(points) and points[place][0] < column.start:
            last, place = points[place], place + 1
        best = last[1] if last is not None and column.start - last[0] <= HOLD_S else None
        inside = place
        while inside < len(points) and points[inside][0] < column.end:
            value = points[inside][1]
            # The first reading replaces what was only held from before.
            best = value if inside == place else max(best or 0, value)
            last, inside = points[inside], inside + 1
        place = inside
        found.append(best)
    return found


def _filled_back(
    values: list[int | None], points: Points, columns: Sequence[_Column], spans: Sequence[Span]
) -> list[int | None]:
    times = [at for at, _ in points]
    starts = [span.start for span in spans]
    found = list(values)
    for n, column in enumerate(columns):
        after = bisect_left(times, column.start)
        if found[n] is None and not column.cut and after < len(points):
            inside = bisect_right(starts, column.end) - 1
            if inside >= 0 and times[after] <= spans[inside].end + 0.001:
                found[n] = points[after][1]
    return found


def _weight(span: Span, selected: str) -> tuple[bool, float]:
    return span.phase == selected, span.end - span.start


def _feet(columns: Sequence[_Column], spans: Sequence[Span], selected: str) -> Line:
    """``│load │forward│``: where each phase began; of several in one column the selected or the longest is named."""
    edges: dict[int, Span] = {}
    for span in spans:
        at = next((n for n, each in enumerate(columns) if not each.cut and each.start <= span.start < each.end), None)
        if at is not None and (at not in edges or _weight(span, selected) > _weight(edges[at], selected)):
            edges[at] = span
    for at in [at for at, span in edges.items() if span.phase == selected]:
        # The selected phase is named in full, however short it was.
        for near in [each for each in edges if at < each <= at + len(selected)]:
            del edges[near]
    stops: dict[int, str] = {at: span.phase for at, span in edges.items()}
    for at, span in sorted(edges.items()):
        end = next((n for n, each in enumerate(columns) if not each.cut and each.start >= span.end), len(columns))
        # A phase that is over before its name is, needs no mark of its end.
        if end not in stops and end > at + len(span.phase) + 1:
            stops[end] = ""
    cut = None
    for n, column in enumerate(columns):
        if column.cut and column.cut != cut:
            stops[n] = f"+{duration(column.cut)}"
        cut = column.cut
    out: list[paint.Span] = [(" " * LABEL, "dim")]
    marks = sorted(at for at in stops if at < len(columns))
    if marks and marks[0] > 0:
        out.append((" " * marks[0], "dim"))
    for n, at in enumerate(marks):
        room = (marks[n + 1] if n + 1 < len(marks) else len(columns)) - at
        name = stops[at]
        text = "│" + (name if len(name) < room else name[: room - 1])
        out.append((text[:room].ljust(room), "head" if name == selected else "dim"))
    return tuple(out)
