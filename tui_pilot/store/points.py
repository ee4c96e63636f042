"""The points of a curve as they come in, one after the other: all of them, or a bounded number that keeps extremes.

Immutable for whoever holds one, cheap to extend: points stand in lists that only grow, and each ``Points`` remembers
how far of them it goes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

Point = tuple[int, Any]
"""The update and its value: a number, a word for one that is not finite, or a validation's metrics."""


class Points(Sequence[Point]):
    """A sequence of points; ``came`` is how many came in all, ``strange`` of those were no finite number.

    With a ``limit`` every ``each`` neighbouring points are kept as their lowest and highest in their order (and the
    first that is no number), so that a spike never disappears; ``each`` doubles where there would be more than
    ``limit`` such groups. The newest points, at least ``each``, are kept whole, and so is the very first.
    """

    __slots__ = ("_flat", "_groups", "_groups_kept", "_raw", "_raw_kept", "came", "each", "limit", "strange")

    def __init__(self, points: Iterable[Point] = (), limit: int | None = None) -> None:
        if limit is not None and (limit < 2 or limit % 2):
            raise ValueError("a limit is an even number of groups")
        self.limit, self.each, self.came, self.strange = limit, 1, 0, 0
        self._groups: list[tuple[Point, ...]] = []
        self._raw: list[Point] = []
        self._groups_kept = self._raw_kept = 0
        self._flat: tuple[Point, ...] | None = None
        for point in points:
            self._take(point)

    def and_then(self, point: Point) -> Points:
        """These points and one more; this object stays as it is."""
        new = self.copy()
        new._take(point)
        return new

    def copy(self) -> Points:
        """The same points, to be extended by nobody but the caller; nothing is copied until one of the two grows."""
        new = object.__new__(Points)
        new.limit, new.each, new.came, new.strange = self.limit, self.each, self.came, self.strange
        new._groups, new._raw, new._flat = self._groups, self._raw, None
        new._groups_kept, new._raw_kept = self._groups_kept, self._raw_kept
        return new

    def append(self, point: Point) -> None:
        """Extend these points themselves: for a copy that nobody else holds yet."""
        self._flat = None
        self._take(point)

    def _take(self, point: Point) -> None:
        # A list that somebody else has gone on with is left to them.
        if len(self._raw) != self._raw_kept:
            self._raw = self._raw[: self._raw_kept]
        self._raw.append(point)
        self._raw_kept += 1
        self.came += 1
        self.strange += not _finite(point[1])
        if self.limit is not None and self._raw_kept >= max(2 * self.each, 8):
            self._close(self.limit)

    def _close(self, limit: int) -> None:
        if len(self._groups) != self._groups_kept:
            self._groups = self._groups[: self._groups_kept]
        first = not self._groups
        self._groups.append(_kept(self._raw[: self.each], first))
        self._raw = self._raw[self.each :]
        if len(self._groups) >= limit:
            pairs = zip(self._groups[::2], self._groups[1::2], strict=True)
            self._groups = [_kept((*a, *b), n == 0) for n, (a, b) in enumerate(pairs)]
            self.each *= 2
        self._groups_kept, self._raw_kept = len(self._groups), len(self._raw)

    def _all(self) -> tuple[Point, ...]:
        if self._flat is None:
            old = (point for group in self._groups[: self._groups_kept] for point in group)
            self._flat = (*old, *self._raw[: self._raw_kept])
        return self._flat

    def __len__(self) -> int:
        return self._raw_kept if not self._groups_kept else len(self._all())

    def __iter__(self) -> Iterator[Point]:
        return iter(self._all())

    @overload
    def __getitem__(self, place: int) -> Point: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Point, ...]: ...

    def __getitem__(self, place: int | slice) -> Point | tuple[Point, ...]:
        return self._all()[place]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Points):
            return self is other or (self.came == other.came and self._all() == other._all())
        return self._all() == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.came)

    def __repr__(self) -> str:
        return f"Points({list(self._all())!r})"


def as_points(points: Sequence[Point]) -> Points:
    """``Points`` of any sequence, as a copy that may be extended."""
    return points.copy() if isinstance(points, Points) else Points(points)


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _kept(points: Sequence[Point], first: bool) -> tuple[Point, ...]:
    """What stands for a group: lowest, highest, the first without a number; of the first group its first point too."""
    numbers = [n for n, (_, value) in enumerate(points) if _finite(value)]
    places = {0} if first else set()
    if numbers:
        places |= {min(numbers, key=lambda n: points[n][1]), max(numbers, key=lambda n: points[n][1])}
    if len(numbers) < len(points):
        places.add(next(n for n, (_, value) in enumerate(points) if not _finite(value)))
    return tuple(points[n] for n in sorted(places))


def strange(points: Sequence[Point]) -> int:
    """How many points were no finite number, thinned away or not."""
    return as_points(points).strange


def thinned(points: Sequence[Point]) -> str:
    """``each 32 as lowest and highest``, where a curve is thinned; empty where every point is there."""
    each = points.each if isinstance(points, Points) else 1
    return f"each {each} as lowest and highest" if each > 1 else ""
