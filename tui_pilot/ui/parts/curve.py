"""Curves as text, in one style: a step line of box characters, or one letter a curve where there are several. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tui_pilot.text import loss as loss_text
from tui_pilot.text import rate
from tui_pilot.ui.paint import Line, Span

Point = tuple[int, Any]
Placed = tuple[int, float]
_STEPS = "▁▂▃▄▅▆▇█"
MARK = "v"
"""The letter of a validation point in the chart of one run."""
ABOVE, STRANGE = "↑", "×"
LEAST_WIDTH, LEAST_HEIGHT = 20, 3
AXIS_FROM = 7  # lines from which a chart has a rule above its update numbers, and a label in the middle
TAIL, FAR = 0.05, 6.0
"""The highest twentieth of the values leaves the scale where it is so many times farther away than the rest."""


def finite(points: Sequence[Point]) -> list[Placed]:
    """The points a chart can place; ``nan`` and ``inf`` are words in the log and counted by the caller."""
    return [(at, value) for at, value in points if isinstance(value, (int, float)) and math.isfinite(value)]


def columns(values: Sequence[float], width: int) -> list[float]:
    """At most ``width`` values: means of equal stretches where there are more."""
    if len(values) <= width:
        return list(values)
    edges = [round(n * len(values) / width) for n in range(width + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges) if b > a]


def spark(values: Sequence[float], width: int) -> str:
    """One row of columns, from the lowest to the highest value; a constant curve is flat in the middle."""
    shown = columns(values, width)
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    if high - low < 1e-12 * max(1.0, abs(high)):
        return "▄" * len(shown)
    return "".join(_STEPS[min(7, int((value - low) / (high - low) * 7.999))] for value in shown)


def validation(points: Sequence[tuple[int, Mapping[str, Any]]], metric: str = "loss") -> list[Placed]:
    """The validation points that stand on the training loss's scale: those of a loss."""
    return finite([(at, metrics.get(metric)) for at, metrics in points])


def chart(
    points: Sequence[Point], width: int, height: int, kind: str = "loss", marks: Sequence[Placed] = ()
) -> list[Line]:
    """A step line of ``height`` lines: a level is a value and goes on to the next update, values at the left, updates
    below. Empty where nothing can be placed or there is no room.

    The axis starts at the lowest value, not at 0, and says so by naming it. ``marks`` are validation points, a ``v``
    on the same scale. An update whose value is no number is a ``×`` on the top line; a few values far above all others
    leave the scale, an ``↑`` on a top line labelled ``≥``.
    """
    placed = finite(points)
    if not placed or width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return []
    show = rate if kind == "lr" else loss_text
    low, high, cut = _scale([value for _, value in (*placed, *marks)])
    frame = _Frame(low, high, cut, points[0][0], max(points[-1][0], *(at for at, _ in marks), 0), width, height, show)
    grid = frame.grid()
    levels: list[list[float]] = [[] for _ in range(frame.inner)]
    for at, value in placed:
        levels[frame.column(at)].append(value)
    end = frame.column(points[-1][0]) + 1
    before: int | None = None
    for x, found in enumerate(levels[:end]):
        row = before
        if found:
            value = sum(found) / len(found)
            row = frame.row(value)
            if value > high:
                grid[0][x] = ABOVE
                before = None
                continue
        if row is not None:
            _step(grid, x, before, row)
        before = row
    for at, value in points:
        if not (isinstance(value, (int, float)) and math.isfinite(value)):
            grid[0][frame.column(at)] = STRANGE
    for at, value in marks:
        grid[frame.row(value)][frame.column(at)] = MARK
    return frame.lines(grid, MARK)


def lettered(
    curves: Mapping[str, Sequence[Point]],
    width: int,
    height: int,
    last: int = 0,
    scale_of: Collection[str] = (),
    marks: Mapping[str, Sequence[Placed]] | None = None,
) -> list[Line]:
    """Several curves over each other, one letter each; where some lie on one line their letters take turns.

    ``last`` is the update at the right edge (0: the last that any curve has). ``scale_of`` names the curves that the
    scale is made for (none: all); where another leaves it, its letter stands on the top line, which says so.
    ``marks``, by letter, are validation points: the capital of the letter.
    """
    placed = {sign: [(at, value) for at, value in points if not _is_nan(value)] for sign, points in curves.items()}
    of = [sign for sign in placed if not scale_of or sign in scale_of]
    extra = [pair for sign in of for pair in (marks or {}).get(sign, ())]
    values = [value for sign in of for _, value in finite(placed[sign])] + [value for _, value in extra]
    if not values or width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return []
    first = min(at for points in placed.values() for at, _ in points)
    last = max(last, *(at for points in placed.values() for at, _ in points))
    frame = _Frame(min(values), max(values), False, first, last, width, height, loss_text)
    cells: list[list[list[str]]] = [[[] for _ in range(frame.inner)] for _ in range(frame.rows)]
    for sign, points in placed.items():
        for x, value in enumerate(_interpolated(points, frame)):
            if value is not None:
                cells[frame.row(value)][x].append(sign)
    grid = [[found[x % len(found)] if found else " " for x, found in enumerate(row)] for row in cells]
    for sign, pairs in (marks or {}).items():
        for at, value in pairs:
            grid[frame.row(value)][frame.column(at)] = sign.upper()
    for sign, points in placed.items():
        if sign not in of and any(value > frame.high for _, value in points if isinstance(value, (int, float))):
            _say(grid[0], frame.column(points[-1][0]) + 1, f"↑ {sign} leaves the scale")
    return frame.lines(grid, role="text")


def _say(row: list[str], start: int, text: str) -> None:
    """Write words into blank cells; less of them where there is less room, nothing over a curve."""
    for words in (text, text[:1]):
        if start + len(words) <= len(row) and not "".join(row[start : start + len(words)]).strip():
            row[start : start + len(words)] = words
            return


class _Frame:
    """The axes of a chart and where a value stands on them."""

    def __init__(
        self, low: float, high: float, cut: bool, first: int, last: int, width: int, height: int, show: Any
    ) -> None:
        self.low, self.high, self.first, self.last = low, high, first, max(last, first)
        self.ruled = height >= AXIS_FROM
        self.rows = height - (2 if self.ruled else 1)
        middle = self.rows // 2
        self.labels = {0: ("≥" if cut else "") + show(high), self.rows - 1: show(low)}
        if self.ruled and high > low:
            self.labels[middle] = show(high - (high - low) * middle / (self.rows - 1))
        if high <= low:
            self.labels = {self.rows // 2: show(low)}
        self.label = max(5, *(len(text) for text in self.labels.values()))
        self.inner = width - self.label - 3

    def grid(self) -> list[list[str]]:
        return [[" "] * self.inner for _ in range(self.rows)]

    def row(self, value: float) -> int:
        """From the top; what is outside the scale stands at its edge."""
        if self.high <= self.low:
            return self.rows // 2 if value <= self.high else 0
        share = 1.0 if math.isinf(value) and value > 0 else (value - self.low) / (self.high - self.low)
        return self.rows - 1 - round(min(1.0, max(0.0, share)) * (self.rows - 1))

    def column(self, at: int) -> int:
        if self.last == self.first:
            return 0
        return min(self.inner - 1, max(0, round((at - self.first) / (self.last - self.first) * (self.inner - 1))))

    def lines(self, grid: list[list[str]], loud: str = "", role: str = "bar") -> list[Line]:
        """Labels and joints dim, the curve in one role, the ``loud`` characters in another: few, so cheap to send."""
        out: list[Line] = []
        for n, cells in enumerate(grid):
            name = self.labels.get(n, "")
            spans: list[Span] = [(f" {name:>{self.label}} {'┤' if name else '│'}", "dim")]
            for stands_out, run in itertools.groupby("".join(cells).rstrip(), lambda each: each in loud):
                spans.append(("".join(run), "text" if stands_out else role))
            out.append(tuple(spans))
        if self.ruled:
            out.append(((f" {'':>{self.label}} └{'─' * self.inner}", "dim"),))
        out.append(((f" {'':>{self.label}}  {self._ticks()}", "dim"),))
        return out

    def _ticks(self) -> str:
        """Update numbers below their columns; the first says what they are."""
        parts = 4 if self.inner >= 60 else 2 if self.inner >= 30 else 1
        ats = sorted({self.first + round((self.last - self.first) * n / parts) for n in range(parts + 1)})
        text = f"update {self.first}"
        if len(ats) == 1:
            return text
        end = str(self.last)
        if len(text) + len(end) + 1 > self.inner:
            text = str(self.first)
        for at in ats[1:-1]:
            place = self.column(at) - len(str(at)) // 2
            if place > len(text) and place + len(str(at)) < self.inner - len(end):
                text = text.ljust(place) + str(at)
        return text.ljust(self.inner - len(end)) + end if len(text) < self.inner - len(end) else text


def _scale(values: Sequence[float]) -> tuple[float, float, bool]:
    """Lowest, highest, and whether a few values far above the others were left out of it."""
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    rest = ordered[max(0, math.ceil(len(ordered) * (1 - TAIL)) - 1)]
    if len(ordered) >= 8 and rest > low and high - low > FAR * (rest - low):
        return low, max(value for value in ordered if value - low <= FAR * (rest - low)), True
    return low, high, False


def _step(grid: list[list[str]], x: int, before: int | None, row: int) -> None:
    """From the level before to this one, in one column."""
    if before is None or before == row:
        grid[row][x] = "─"
        return
    falls = row > before
    grid[before][x], grid[row][x] = ("┐", "└") if falls else ("┘", "┌")
    for between in range(min(before, row) + 1, max(before, row)):
        grid[between][x] = "│"


def _is_nan(value: Any) -> bool:
    return not isinstance(value, (int, float)) or math.isnan(value)


def _interpolated(points: Sequence[Placed], frame: _Frame) -> list[float | None]:
    """A value for each column from the curve's first to its last: medians of what falls into it, straight between."""
    known: dict[int, list[float]] = {}
    for at, value in points:
        known.setdefault(frame.column(at), []).append(value)
    middle = {x: sorted(found)[len(found) // 2] for x, found in known.items()}
    out: list[float | None] = [None] * frame.inner
    for x, value in middle.items():
        out[x] = value
    for (a, first), (b, last) in itertools.pairwise(sorted(middle.items())):
        for x in range(a + 1, b):
            out[x] = first + (last - first) * (x - a) / (b - a) if math.isfinite(first + last) else first
    return out
