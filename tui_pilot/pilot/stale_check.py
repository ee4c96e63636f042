"""Whether a forward reads the weights that the optimizer writes: doubled in place, and with autocast's cache empty."""

from __future__ import annotations

import math
from typing import Any

import torch

from tui_pilot.observe.dropout import no_dropout
from tui_pilot.pilot.checkpoint import random_state, restore_random_state
from tui_pilot.pilot.loop import Loop, trainable
from tui_pilot.pilot.rows import Microbatch

GPU_TOLERANCE = 1e-4
"""How far a GPU's own arithmetic may move the loss of one forward repeated."""


def probe(loop: Loop, micro: Microbatch) -> dict[str, Any] | None:
    """The microbatch's loss as it is, with every trainable weight doubled, and with no cast kept from before.

    Doubling and halving are exact, so the weights are bit for bit as before, and no copy of them is needed. None where
    they are too large to be doubled, or all zero.
    """
    tensors = [parameter for _, parameter in trainable(loop.raw)]
    largest = max((float(tensor.detach().abs().max()) for tensor in tensors if tensor.numel()), default=0.0)
    if not 0 < largest < min(torch.finfo(tensor.dtype).max for tensor in tensors) / 4:
        return None
    streams = random_state(loop.context.device)

    def loss() -> float:
        # With gradients on: a cast that autocast caches without them would cut the graph of what comes after.
        restore_random_state(streams, loop.context.device)
        return float(loop.forward(micro).detach())

    try:
        with no_dropout(loop.raw):
            now, again = loss(), loss()
            _scale(tensors, 2.0)
            try:
                doubled = loss()
            finally:
                _scale(tensors, 0.5)
            torch.clear_autocast_cache()
            fresh = loss()
    finally:
        restore_random_state(streams, loop.context.device)
    if not math.isfinite(now):
        return None
    # A loss that differs from forward to forward by itself says nothing about casts.
    tolerance = 2 * abs(again - now) / max(abs(now), 1e-12) + (0.0 if loop.device.type == "cpu" else GPU_TOLERANCE)
    return {"now": now, "doubled": doubled, "fresh": fresh, "tolerance": tolerance}


def _scale(tensors: list[torch.nn.Parameter], factor: float) -> None:
    with torch.no_grad():
        for tensor in tensors:
            tensor.mul_(factor)
