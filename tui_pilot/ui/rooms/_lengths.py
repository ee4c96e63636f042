"""Lengths of many rows as a few bars, and class names with their counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.text import count
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line

BINS = 4


def histogram(lengths: Sequence[int], limit: int | None, width: int) -> list[Line]:
    """``BINS`` equal ranges up to the limit (or the longest row), and one for what is above the limit."""
    if not lengths:
        return []
    longest = max(lengths)
    top = limit if limit is not None and limit > 0 else longest
    top = min(top, max(longest, 1)) if longest <= top else top
    step = max(1, -(-top // BINS))
    counts = [0] * BINS
    above = 0
    for length in lengths:
        if length > top:
            above += 1
        else:
            counts[min(BINS - 1, max(0, length) // step)] += 1
    named: list[tuple[str, int, str]] = []
    for n, found in enumerate(counts):
        first, last = n * step, min(top, (n + 1) * step - 1) if n < BINS - 1 else top
        if first <= last:
            named.append((f"{first:,}–{last:,}", found, "bar"))
    if above:
        named.append((f"above {top:,}", above, "warn"))
    return bars(named, width)


def bars(named: Sequence[tuple[str, int, str]], width: int) -> list[Line]:
    """A name, a bar and a count for each; bars are steps of one cell, the number is the truth."""
    name_width = max((len(paint.clean(name)) for name, _, _ in named), default=0)
    name_width = min(name_width, max(4, width // 2 - 4))
    number_width = max((len(f"{found:,}") for _, found, _ in named), default=1)
    room = max(1, width - name_width - number_width - 4)
    most = max((found for _, found, _ in named), default=0)
    return [
        (
            (" " + paint.left(name, name_width) + " ", "text"),
            (paint.left(paint.bar(found / most if most else 0.0, room), room), role),
            (" " + paint.right(f"{found:,}", number_width), "text"),
        )
        for name, found, role in named
    ]


def classes(found: Sequence[Mapping[str, Any]], width: int, most: int) -> list[Line]:
    """``0  ham  4,827`` with a bar; at most ``most`` lines, the rest counted."""
    listed = sorted(found, key=lambda each: -(each.get("count") or 0)) if len(found) > most else list(found)
    shown = listed if len(listed) <= most else listed[: most - 1]
    named = [
        (f"{each.get('id')} {each.get('name') or '(no name)'}", int(each.get("count") or 0), "bar") for each in shown
    ]
    out = bars(named, width)
    rest = listed[len(shown) :]
    if rest:
        out.append(
            ((f" {count(len(rest))} more classes, {count(sum(each.get('count') or 0 for each in rest))} rows", "dim"),)
        )
    return out
