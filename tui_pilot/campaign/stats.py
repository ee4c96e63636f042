"""What seeds can say: values per seed, paired differences, and when two settings are told apart. Pure.

The rule is fixed and simple: at least three seeds, every paired difference of one sign, and a mean difference of more
than two standard errors. Everything else is "not told apart". No correction is made for the number of pairs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEAST_SEEDS = 3
ERRORS = 2.0
MOST_SEEDS = 20
"""A gap that would need more seeds than this is not worth them: said so instead of asked for."""


@dataclass(frozen=True)
class Paired:
    """One setting against another over the seeds that both have. ``better`` is True, False, or None: not told apart."""

    against: str
    differences: dict[int, float]
    mean: float | None
    standard_error: float | None
    told_apart: bool
    better: bool | None
    why: str

    def as_json(self) -> dict[str, Any]:
        return {
            "against": self.against,
            "differences": {str(seed): value for seed, value in self.differences.items()},
            "mean": self.mean,
            "standard_error": self.standard_error,
            "told_apart": self.told_apart,
            "better": self.better,
            "why": self.why,
        }


def paired(values: Mapping[int, float], others: Mapping[int, float], direction: str, against: str = "") -> Paired:
    """The first against the second, seed by seed: the difference is the first's value minus the second's."""
    seeds = sorted(seed for seed in values if seed in others)
    found = {seed: values[seed] - others[seed] for seed in seeds}
    if not found:
        return Paired(against, {}, None, None, False, None, "no seed has a value of both")
    listed = list(found.values())
    mean = math.fsum(listed) / len(listed)
    error = statistics.stdev(listed) / math.sqrt(len(listed)) if len(listed) > 1 else None

    def says(apart: bool, why: str) -> Paired:
        better = (mean < 0) == (direction == "min") if apart else None
        return Paired(against, found, mean, error, apart, better, why)

    if len(listed) == 1:
        return says(False, "one seed tells nothing apart")
    if len(listed) < LEAST_SEEDS:
        return says(False, f"{len(listed)} seeds, {LEAST_SEEDS} are needed")
    if not (all(value > 0 for value in listed) or all(value < 0 for value in listed)):
        return says(False, "the sign changes from seed to seed")
    if error is not None and abs(mean) > ERRORS * error:
        return says(True, f"{len(listed)} seeds, one sign, mean {mean:+.4g} beyond {ERRORS:g} x {error:.2g}")
    return says(False, f"mean {mean:+.4g} within {ERRORS:g} standard errors of {error:.2g}")


def seeds_wanted(pair: Paired) -> int | None:
    """How many seeds in all might tell the two apart, at the gap and spread seen now; None: more than are worth it."""
    count = len(pair.differences)
    if count < LEAST_SEEDS:
        return LEAST_SEEDS
    if not pair.mean or pair.standard_error is None:
        return None
    deviation = pair.standard_error * math.sqrt(count)
    wanted = max(count + 1, math.floor((ERRORS * deviation / abs(pair.mean)) ** 2) + 1)
    return wanted if wanted <= MOST_SEEDS else None


def new_seeds(seeds: Sequence[int], wanted: int) -> list[int]:
    """Seeds to add so that there are so many, none of them used yet."""
    found: list[int] = []
    candidate = max(seeds, default=-1) + 1
    while len(seeds) + len(found) < wanted:
        found.append(candidate)
        candidate += 1
    return found


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean and standard deviation over seeds; one value has no spread, none has no mean."""
    if not values:
        return {"mean": None, "spread": None}
    mean = math.fsum(values) / len(values)
    return {"mean": mean, "spread": statistics.stdev(values) if len(values) > 1 else None}


def best_of(points: Sequence[tuple[int, float]], direction: str) -> tuple[int, float] | None:
    """The best finite point, the earliest of equals."""
    finite = [(at, value) for at, value in points if math.isfinite(value)]
    if not finite:
        return None
    return min(finite, key=lambda each: (each[1] if direction == "min" else -each[1], each[0]))
