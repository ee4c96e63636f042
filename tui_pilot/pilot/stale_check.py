"""Whether a forward reads the weights that the optimizer writes: turned in place, and with autocast's cache empty."""

from __future__ import annotations

import math
from typing import Any

import torch

from tui_pilot.observe.dropout import no_dropout
from tui_pilot.observe.random_streams import restore_random_state, streams_kept
from tui_pilot.observe.still import same_buffers
from tui_pilot.pilot.loop import Loop, trainable
from tui_pilot.pilot.rows import Microbatch

GPU_TOLERANCE = 1e-4
"""How far a GPU's own arithmetic may move the loss of one forward repeated."""

SIGNS = [-1 if number * number % 61 < 30 else 1 for number in range(61)]
"""As many of either, without a pattern; 61 divides no usual width."""


def probe(loop: Loop, micro: Microbatch) -> dict[str, Any] | None:
    """The microbatch's loss as it is, with the signs of half of the weights turned, and with no cast kept from before.

    Signs turned twice are bit for bit as before, so no copy of the weights is needed; unlike a larger weight, another
    sign is not undone by a normalisation. None where all trainable weights are zero.
    """
    tensors = [parameter for _, parameter in trainable(loop.raw)]
    if not any(bool((tensor.detach() != 0).any()) for tensor in tensors):
        return None
    with streams_kept(loop.device) as streams, no_dropout(loop.raw), same_buffers(loop.raw):

        def loss() -> float:
            # With gradients on: a cast that autocast caches without them would cut the graph of what comes after.
            restore_random_state(streams, loop.device)
            return float(loop.forward(micro).detach())

        now, again = loss(), loss()
        _turn(tensors)
        try:
            turned = loss()
        finally:
            _turn(tensors)
        torch.clear_autocast_cache()
        fresh = loss()
    if not math.isfinite(now):
        return None
    # A loss that differs from forward to forward by itself says nothing about casts.
    tolerance = 2 * abs(again - now) / max(abs(now), 1e-12) + (0.0 if loop.device.type == "cpu" else GPU_TOLERANCE)
    return {"now": now, "turned": turned, "fresh": fresh, "tolerance": tolerance}


def _turn(tensors: list[torch.nn.Parameter]) -> None:
    """The signs of about half of the elements, in place.

    In no regular order: every second one is a whole column of a table, and two looked up in it would turn together.
    """
    with torch.no_grad():
        for tensor in tensors:
            signs = torch.tensor(SIGNS, dtype=tensor.dtype, device=tensor.device)
            count = tensor.numel()
            tensor.mul_(signs.repeat(-(-count // len(SIGNS)))[:count].view(tensor.shape))
