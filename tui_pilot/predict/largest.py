"""The largest microbatch that fits, the effective batch held: which ones there are, and the search among them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tui_pilot.predict.catalogue import Fit


@dataclass(frozen=True)
class Shape:
    """A microbatch and how many of them make an update: their product is the rows of one update and replica."""

    micro: int
    accumulation: int

    @property
    def changes(self) -> dict[str, int]:
        """The plan's keys that say it."""
        return {"batch.micro": self.micro, "batch.accumulation": self.accumulation}


@dataclass(frozen=True)
class Asked:
    """One shape that was predicted. ``fit`` is None where nothing could be predicted; ``why`` says it then."""

    shape: Shape
    fit: Fit | None
    why: str | None = None

    @property
    def good(self) -> bool:
        return self.fit is not None and self.fit.fits


@dataclass(frozen=True)
class Found:
    """The answer: the largest shape that fits (None: not even the smallest does), and all that was predicted."""

    best: Asked | None
    asked: Sequence[Asked] = field(default_factory=tuple)

    @property
    def failed(self) -> Asked | None:
        """A shape of which no prediction could be made."""
        return next((each for each in self.asked if each.fit is None), None)


def shapes(micro: int, accumulation: int) -> list[Shape]:
    """Every microbatch that divides the rows of one update, smallest first."""
    rows = micro * accumulation
    return [Shape(size, rows // size) for size in range(1, rows + 1) if rows % size == 0]


def largest(among: Sequence[Shape], ask: Callable[[Shape], Asked], start: Shape | None = None) -> Found:
    """Bisection over shapes in ascending order: what a step takes only grows with its microbatch.

    ``start`` is asked first: it is the plan's own, and what a person wants to know anyway. A shape of which nothing can
    be predicted ends the search.
    """
    low, high = -1, len(among)  # the largest known to fit, the smallest known not to
    asked: list[Asked] = []
    place = among.index(start) if start is not None else (low + high) // 2
    while low + 1 < high:
        answer = ask(among[place])
        asked.append(answer)
        if answer.fit is None:
            return Found(None, tuple(asked))
        if answer.good:
            low = place
        else:
            high = place
        place = (low + high) // 2
    best = next((each for each in asked if low >= 0 and each.shape == among[low]), None)
    return Found(best, tuple(sorted(asked, key=lambda each: each.shape.micro)))


def as_json(asked: Asked) -> dict[str, Any]:
    """One shape as ``fit --json`` lists it."""
    fit = asked.fit
    return {
        "micro": asked.shape.micro,
        "accumulation": asked.shape.accumulation,
        "fits": asked.good,
        "need_bytes": None if fit is None else fit.need_bytes,
        "margin": None if fit is None else round(fit.margin, 4),
        "binding_phase": None if fit is None else fit.binding_phase,
        "why": asked.why,
    }
