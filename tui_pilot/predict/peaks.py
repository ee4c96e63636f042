"""From a trace to the peak of each part, and what lay there: parameters, gradients, optimizer state, activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tui_pilot.predict.trace import Trace
from tui_pilot.predict.tracker import Turn

CATEGORIES = ("parameters", "gradients", "optimizer_state", "activations", "temporary")


@dataclass
class PartPeak:
    """The highest sum of live bytes while a part ran; ``before`` and ``after`` are those at its edges."""

    phase: str
    part: str | None
    peak: int
    before: int
    after: int = 0
    at_peak: dict[str, int] = field(default_factory=dict)


def peaks_of(trace: Trace, category: Mapping[int, str], unit: int = 1) -> list[PartPeak]:
    """One entry per mark. Each block is rounded up to ``unit`` bytes (512 as CUDA's allocator does, 1 on a CPU)."""
    sums = dict.fromkeys(CATEGORIES, 0)
    total = 0
    found: list[PartPeak] = []
    edges = [mark.index for mark in trace.marks]
    following = 0
    for index, (block, count) in enumerate(trace.events):
        while following < len(edges) and edges[following] <= index:
            _open(found, trace, following, total, sums)
            following += 1
        rounded = -(-abs(count) // unit) * unit * (1 if count > 0 else -1)
        total += rounded
        sums[category.get(block, "temporary")] += rounded
        if found and total > found[-1].peak:
            found[-1].peak, found[-1].at_peak = total, dict(sums)
    while following < len(edges):
        _open(found, trace, following, total, sums)
        following += 1
    if found:
        found[-1].after = total
    return found


def _open(found: list[PartPeak], trace: Trace, number: int, total: int, sums: dict[str, int]) -> None:
    if found:
        found[-1].after = total
    mark = trace.marks[number]
    found.append(PartPeak(mark.phase, mark.part, total, total, at_peak=dict(sums)))


def categories(trace: Trace, turns: list[Turn], with_grad: list[bool], known: Mapping[int, str]) -> dict[int, str]:
    """Blocks by category. ``known`` are parameters, gradients and optimizer state, as they were walked.

    Else: what a forward made and left behind, or a recomputation inside a backward made, is an activation; so is a
    batch. Everything else is temporary.
    """
    died = {block: index for index, (block, count) in enumerate(trace.events) if count < 0}
    found = dict(known)
    ends = [turn.index for turn in turns[1:]] + [len(trace.events)]
    place = -1
    for index, (block, count) in enumerate(trace.events):
        while place + 1 < len(turns) and turns[place + 1].index <= index:
            place += 1
        if count < 0 or block in found or place < 0:
            continue
        kind = turns[place].kind
        outlives = died.get(block, len(trace.events)) >= ends[place]
        if kind == "input" or (kind == "forward" and outlives) or (kind == "backward" and with_grad[block]):
            found[block] = "activations"
    return found
