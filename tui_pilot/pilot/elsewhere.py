"""Tensors that the rows at hand give no gradient, and other rows do: a head of its own task, an expert, a tower."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tui_pilot.observe.random_streams import streams_kept
from tui_pilot.pilot.loop import Loop
from tui_pilot.pilot.rows import chunks, to_device

MICROBATCHES = 24


def fed_elsewhere(loop: Loop, names: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """Those of ``names`` that rows from all over train give a gradient that is not all zero.

    Asked of autograd for these tensors alone: gradients that are there stay as they are.
    """
    missing = {name: parameters[name] for name in names}
    # Checkpoints of the re-entrant kind, and memory that this asks too much of: then nothing more is known.
    with streams_kept(loop.device), contextlib.suppress(RuntimeError):
        for group in _all_over(loop):
            if not missing:
                break
            given = _gradients(loop, group, list(missing.values()))
            for name, gradient in zip(list(missing), given, strict=True):
                if gradient is not None and bool((gradient != 0).any()):
                    del missing[name]
    return [name for name in names if name not in missing]


def _gradients(loop: Loop, places: list[int], tensors: list[torch.Tensor]) -> Sequence[torch.Tensor | None]:
    batch = to_device(loop.feed.build(places).batch, loop.device)
    with loop.autocast():
        out = loop.task.loss(loop.raw, batch)
    loss = out[0] if isinstance(out, tuple) else out
    if not loss.requires_grad:
        return [None] * len(tensors)
    return torch.autograd.grad(loss, tensors, allow_unused=True)


def _all_over(loop: Loop) -> list[list[int]]:
    """Microbatches whose rows stand far from each other in the file."""
    micro, rows = loop.context.plan.batch.micro, len(loop.feed.split)
    count = min(rows, micro * MICROBATCHES)
    return list(chunks([number * rows // count for number in range(count)], micro))
