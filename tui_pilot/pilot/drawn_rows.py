"""Rows encoded once, and whether their loss is drawn at random: what differs by chance cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from tui_pilot.observe.random_streams import random_state, restore_random_state
from tui_pilot.pilot.loop import Loop
from tui_pilot.pilot.rows import Feed, Microbatch, collate
from tui_pilot.tasks.base import encode

GPU_NOISE = 1e-4


class Once:
    """Builds microbatches of rows that are encoded once: an augmentation drawn in ``encode`` is one and the same."""

    def __init__(self, feed: Feed) -> None:
        self.feed, self.examples = feed, dict[int, Any]()

    def __call__(self, places: Sequence[int]) -> Microbatch:
        task, split = self.feed.task, self.feed.split
        for place in places:
            if place not in self.examples:
                self.examples[place] = encode(task, split.records[place])
        examples = [dict(self.examples[place]) for place in places]
        return collate(task, examples, list(places), [split.ids[place] for place in places])


def still(loop: Loop, build: Once, places: Sequence[int]) -> bool:
    """Whether the rows' loss is the same each time. Where only training draws, the model is left in evaluation mode."""
    if not _draws(loop, build, places):
        return True
    if loop.device.type == "cuda" and any(isinstance(module, nn.RNNBase) for module in loop.raw.modules()):
        return False  # their backward works in training mode alone
    loop.raw.eval()
    return not _draws(loop, build, places)


def _draws(loop: Loop, build: Once, places: Sequence[int]) -> bool:
    """Whether the loss is another one each time, and the same one from the same random streams."""
    streams = random_state(loop.device)

    def ask(again: bool) -> float:
        if again:
            restore_random_state(streams, loop.device)
        with torch.no_grad():
            return float(loop.forward(build(places)))

    # Every rank goes the same way: a forward of several may wait for all of them.
    gather = loop.context.gather
    if not any(gather(not _equal(loop, ask(True), ask(False)))):
        return False
    return any(gather(_equal(loop, ask(True), ask(True))))


def _equal(loop: Loop, left: float, right: float) -> bool:
    return left == right or (loop.device.type == "cuda" and math.isclose(left, right, rel_tol=GPU_NOISE))
