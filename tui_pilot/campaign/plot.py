"""Loss curves of several trials as text: one letter a setting, so that they can be told apart without colour. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

LEAST_WIDTH, LEAST_HEIGHT = 24, 5
SMOOTH = 5
"""Updates that one point is the median of: a curve of single batches crosses itself everywhere."""


def letters(ids: Sequence[str]) -> dict[str, str]:
    """A letter for each setting: of its own name where it is free, else the next free one."""
    found: dict[str, str] = {}
    for id in ids:
        own = [each for each in id.lower() if each.isalnum() and each.isascii()]
        free = [each for each in (*own, *"abcdefghijklmnopqrstuvwxyz0123456789") if each not in found.values()]
        found[id] = free[0] if free else "?"
    return found


def curves(trials: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Each setting's training loss: the mean over the seeds that count at each update, then smoothed."""
    found: dict[str, list[tuple[int, float]]] = {}
    for id in dict.fromkeys(str(each["id"]) for each in trials):
        at: dict[int, list[float]] = {}
        for each in trials:
            if each["id"] == id and each["counts"]:
                for update, value in each["losses"]:
                    number = float(value) if isinstance(value, (int, float)) else math.inf
                    at.setdefault(int(update), []).append(number)
        means = [(update, sum(values) / len(values)) for update, values in sorted(at.items())]
        found[id] = _smoothed(means)
    return found


def _smoothed(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    out = []
    for place, (update, _) in enumerate(points):
        near = sorted(value for _, value in points[max(0, place - SMOOTH // 2) : place + SMOOTH // 2 + 1])
        out.append((update, near[len(near) // 2]))
    return out


def draw(trials: Sequence[Mapping[str, Any]], updates: int, width: int, height: int) -> list[str]:
    """``height`` lines of at most ``width`` characters; empty where there is nothing to draw or no room.

    The scale is that of the settings that did not diverge at any seed; where a curve leaves it, its letter stands on
    the top line.
    """
    lines = {id: points for id, points in curves(trials).items() if points}
    inside = set(lines) - {str(each["id"]) for each in trials if each["state"] == "diverged"}
    values = [v for id, points in lines.items() if id in inside or not inside for _, v in points if math.isfinite(v)]
    if not values or width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return []
    low, high = min(values), max(values)
    high = high if high > low else low + 1.0
    label = max(len(f"{high:.2f}"), len(f"{low:.2f}"))
    inner, rows = width - label - 3, height - 2
    grid = [[" "] * inner for _ in range(rows)]
    signs = letters([str(each) for each in dict.fromkeys(trial["id"] for trial in trials)])
    last = max(updates, 2)
    for id, points in lines.items():
        columns: dict[int, list[float]] = {}
        for update, value in points:
            columns.setdefault(round((update - 1) / (last - 1) * (inner - 1)), []).append(value)
        for column, found in columns.items():
            value = sorted(found)[len(found) // 2]
            share = 1.0 if not math.isfinite(value) else min(1.0, max(0.0, (value - low) / (high - low)))
            row = rows - 1 - round(share * (rows - 1))
            if 0 <= column < inner:
                grid[row][column] = signs[id]
    out = []
    for number, cells in enumerate(grid):
        name = f"{high:.2f}" if number == 0 else f"{low:.2f}" if number == rows - 1 else ""
        out.append(f"{name:>{label}} │{''.join(cells)}".rstrip())
    out.append(f"{'':>{label}} └{'─' * inner}")
    middle, end = f"{last // 2}", f"{last}"
    axis = "1".ljust(inner // 2) + middle
    out.append(f"{'':>{label}}  {axis.ljust(inner - len(end))}{end}")
    return out
