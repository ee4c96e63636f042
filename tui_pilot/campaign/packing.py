"""Which jobs fit into a rented time: a stated greedy rule over hours, and nothing else. Pure.

The rule: in the order of priority (of equal ones in the order given) each job is taken if it still fits into the hours
that are left. A job that does not fit is left out and a later, shorter one may still be taken. So no job is ever pushed
out by one of lower priority, which a rule that fills the most hours would do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

RULE = (
    "Greedy, by priority: each job is taken if it still fits into the hours left; one that does not is left out, and a "
    "later, shorter one may follow. No job is pushed out by one of lower priority."
)
#: Rounding of sums of hours: less than a millionth of an hour is no reason to leave a job out.
SLACK = 1e-9


@dataclass(frozen=True)
class Want:
    """A job as packing sees it: ``priority`` 1 comes before 2."""

    priority: int
    hours: float


@dataclass(frozen=True)
class Packed:
    """``taken``: places of the jobs that fit, in the order they are packed. ``lacks``: place -> hours missing."""

    taken: tuple[int, ...]
    lacks: dict[int, float]
    unused: float


def order(wants: Sequence[Want]) -> list[int]:
    """Places in the order in which they are tried."""
    return sorted(range(len(wants)), key=lambda place: (wants[place].priority, place))


def pack(wants: Sequence[Want], hours: float) -> Packed:
    """Apply the rule to the hours that are there for jobs."""
    left = max(0.0, hours)
    taken: list[int] = []
    lacks: dict[int, float] = {}
    for place in order(wants):
        need = wants[place].hours
        if need <= left + SLACK:
            taken.append(place)
            left = max(0.0, left - need)
        else:
            lacks[place] = need - left
    return Packed(tuple(taken), lacks, left)


def kept(days: int, evaluation: float, export: float, margin: float, restarts: float = 0.0) -> dict[str, float]:
    """Hours that are taken first; ``margin`` is a share of all the hours."""
    found = {"evaluation": evaluation, "export": export, "margin": days * 24 * margin}
    return {**found, "restarts": restarts} if restarts else found


def left_for_jobs(days: int, taken_first: Iterable[float]) -> float:
    """Hours of the package that remain, never below 0."""
    return max(0.0, days * 24 - sum(taken_first))
