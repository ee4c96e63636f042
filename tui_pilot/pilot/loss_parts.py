"""What a loss makes of two rows in one microbatch, beside each alone: a sum over items, or more than that."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tui_pilot.observe.losses import CLASSES, watch_losses
from tui_pilot.pilot.loop import Loop
from tui_pilot.pilot.rows import Microbatch

Build = Callable[[Sequence[int]], Microbatch]
SMALL, SAME = 1e-6, 1e-3


@dataclass
class Parts:
    """A loss, and the calls of torch's losses in it: ``own`` is how much of it each brings, ``shares`` that as a part
    of the call's plain sum over items."""

    value: float
    calls: list[dict[str, Any]]
    own: list[float]
    shares: list[float]

    @property
    def rest(self) -> float:
        return self.value - math.fsum(self.own)


def additive(loop: Loop, build: Build, places: list[int]) -> dict[str, Any]:
    """The loss of two rows in one microbatch beside the sum of each alone: equal only for a loss that is a sum."""
    pair = [places[0], places[-1]]
    with torch.no_grad():
        whole = float(loop.forward(build(pair)))
        apart = sum(float(loop.forward(build([place]))) for place in pair)
    return {"whole": whole, "apart": apart, "error": abs(whole - apart) / max(1e-12, abs(apart))}


def explained(loop: Loop, build: Build, places: list[int]) -> dict[str, Any]:
    """Why a loss that is no sum over rows may be right: it compares rows, or has a part beside its sum over items."""
    pair = [places[0], places[-1]]
    whole, alone = _parts(loop, build(pair)), [_parts(loop, build([place])) for place in pair]
    return {"compares_rows": _compares(whole, alone), "beside": _beside(whole, alone)}


def _parts(loop: Loop, micro: Microbatch) -> Parts:
    whole, loop.model = loop.model, loop.raw  # several processes would wait for a backward of all of it
    try:
        with watch_losses() as calls:
            total = loop.forward(micro)
    finally:
        loop.model = whole
    results = [call["result"] for call in calls]
    known = bool(calls) and all(call["sum"] and call["result"].requires_grad for call in calls)
    given = torch.autograd.grad(total, results, allow_unused=True) if known and total.requires_grad else []
    if not given or any(each is None for each in given):
        return Parts(float(total.detach()), calls, [], [])
    own = [float((result.detach() * each).sum()) for result, each in zip(results, given, strict=True)]
    shares = [part / call["sum"] for part, call in zip(own, calls, strict=True)]
    return Parts(float(total.detach()), calls, own, shares)


def _compares(whole: Parts, alone: Sequence[Parts]) -> bool:
    """Whether rows are each other's wrong answers: as many classes as rows, or nothing to lose for a row alone."""
    apart = math.fsum(each.value for each in alone)
    if abs(apart) <= SMALL * abs(whole.value) and whole.value:
        return True
    for number, call in enumerate(whole.calls):
        others = [each.calls[number]["input"] for each in alone if number < len(each.calls)]
        if call["loss"] not in CLASSES or len(others) != len(alone) or any(len(each) != 2 for each in others):
            continue
        if call["input"] == [sum(each[0] for each in others), sum(each[1] for each in others)]:
            return True
    return False


def _beside(whole: Parts, alone: Sequence[Parts]) -> float | None:
    """The size of a part that depends on which rows stand together, where all else is a plain sum over items.

    Each loss of torch's in it must bring the same share of its sum in every microbatch, and those sums must add up:
    a mean over a microbatch does not.
    """
    if not whole.own or any(len(each.own) != len(whole.own) for each in alone):
        return None
    for number, share in enumerate(whole.shares):
        apart = math.fsum(each.own[number] for each in alone)
        if any(not _close(share, each.shares[number]) for each in alone) or not _close(whole.own[number], apart):
            return None
    rest = math.fsum(each.rest for each in alone)
    size = max(abs(whole.rest), abs(rest))
    return whole.rest if size > SMALL * abs(whole.value) and abs(whole.rest - rest) > SAME * size else None


def _close(left: float, right: float) -> bool:
    return math.isclose(left, right, rel_tol=SAME)
