"""Small text charts in one style: one character a column, so that a repaint is one run of cells. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tui_pilot.text import loss as loss_text
from tui_pilot.text import rate
from tui_pilot.ui.paint import Line

Point = tuple[int, float | str]
_STEPS = "▁▂▃▄▅▆▇█"
WIDEST = 10  # cells of a column: a few updates fill the chart without becoming walls


def finite(points: Sequence[Point]) -> list[tuple[int, float]]:
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


def chart(points: Sequence[Point], width: int, height: int, kind: str = "loss") -> list[Line]:
    """A column chart of ``height`` rows: highest and lowest value at the left, first and last update below.

    The axis starts at the lowest value, not at 0, and says so by naming it.
    """
    placed = finite(points)
    if not placed or width < 20 or height < 3:
        return []
    show = rate if kind == "lr" else loss_text
    values = [value for _, value in placed]
    low, high = min(values), max(values)
    label = max(len(show(low)), len(show(high)), 5)
    rows = height - 1
    inner = width - label - 4
    shown = columns(values, inner)
    each = max(1, min(WIDEST, inner // len(shown)))
    span = (high - low) or 1.0
    eighths = [max(1, round((value - low) / span * rows * 8)) if high > low else rows * 4 for value in shown]
    lines: list[Line] = []
    for n in range(rows):
        base = (rows - 1 - n) * 8
        text = ""
        for level in eighths:
            over = level - base
            text += (" " if over <= 0 else "█" if over >= 8 else _STEPS[over - 1]) * each
        name = show(high) if n == 0 else show(low) if n == rows - 1 else ""
        lines.append(((f" {name:>{label}} ┤" if name else f" {'':>{label}} │", "dim"), (text, "bar")))
    first, last = f"update {placed[0][0]}", f"{placed[-1][0]}"
    if len(first) + len(last) >= len(shown) * each:
        first = str(placed[0][0])
    room = max(1, len(shown) * each - len(first) - len(last))
    foot = f" {'':>{label}}  {first}" + (f"{' ' * room}{last}" if len(placed) > 1 else "")
    lines.append(((foot, "dim"),))
    return lines
