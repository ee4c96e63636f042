"""Intervals of two splits: which of them overlap."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any


def overlapping(left: Sequence[Any], right: Sequence[Any]) -> tuple[list[int], list[tuple[float, float]]]:
    """Places of ``right`` whose half-open interval overlaps one of ``left``, and the first such pair.

    Two that begin at one moment overlap also when they have no length. Anything but a pair of numbers is passed over.
    """
    spans = sorted(unit for unit in left if isinstance(unit, tuple))
    starts = [start for start, _ in spans]
    latest: list[tuple[float, float]] = []
    for span in spans:
        latest.append(span if not latest or span[1] > latest[-1][1] else latest[-1])
    places: list[int] = []
    example: list[tuple[float, float]] = []
    for place, unit in enumerate(right):
        if not spans or not isinstance(unit, tuple):
            continue
        before, equal = bisect_left(starts, unit[1]), bisect_left(starts, unit[0])
        hit = latest[before - 1] if before and latest[before - 1][1] > unit[0] else None
        if hit is None and equal < len(spans) and starts[equal] == unit[0]:
            hit = spans[equal]
        if hit is not None:
            places.append(place)
            example = example or [hit, unit]
    return places, example
