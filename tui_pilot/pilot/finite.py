"""Rows whose answers are not finite on their own tokens, and how they were padded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from tui_pilot.pilot.context import Context
from tui_pilot.pilot.lengths import lengths_of
from tui_pilot.pilot.loop import Loop, autocast
from tui_pilot.pilot.rows import Microbatch, shape_of, to_device
from tui_pilot.tasks.base import IGNORE

LONGER = 512


def padded_pair(loop: Loop, context: Context) -> Microbatch | None:
    """The shortest row beside a longer one, as a microbatch pads them; None where a campaign never pads.

    The longer one is the longest of at most ``LONGER`` more tokens: padding is what is looked at, not memory.
    """
    if max(context.plan.batch.micro, context.plan.evaluate.micro or 1) < 2:
        return None
    rows = sorted(
        (each for each in lengths_of(context, loop.feed.split) if each.supervised), key=lambda each: each.tokens
    )
    longer = [each for each in rows if rows[0].tokens < each.tokens <= rows[0].tokens + LONGER]
    return loop.feed.build([rows[0].place, longer[-1].place]) if longer else None


def unfinite(loop: Loop, micro: Microbatch) -> list[dict[str, Any]]:
    """Rows of the microbatch with a NaN or inf on a token of their own, in evaluation mode and without gradients."""
    context = loop.context
    batch = to_device(micro.batch, context.device)
    loop.at.update(rows=micro.ids, shape=shape_of(batch), dtype=loop.dtype, part="forward")
    caught: list[torch.Tensor] = []

    def catch(module: Any, given: Any, output: Any) -> None:
        found = _logits(output, len(micro.ids))
        if found is not None:
            caught[:] = [found.detach()]

    mode = loop.raw.training
    loop.raw.eval()
    handle = loop.raw.register_forward_hook(catch)
    try:
        with torch.no_grad(), autocast(context):
            out = loop.task.loss(loop.raw, batch)
        total = float(out[0] if isinstance(out, tuple) else out)
        found = []
        blamed = [] if math.isfinite(total) else _blamed(loop, micro, batch)
        for row in range(len(micro.ids)):
            padding = padding_of(micro, row)
            place = _first_bad(caught[0][row], padding) if caught else None
            if place is None and row in blamed:
                place = -1
            if place is not None:
                found.append({"row": micro.ids[row], "position": place if place >= 0 else None, **padding})
    finally:
        handle.remove()
        loop.raw.train(mode)
    return found


def padding_of(micro: Microbatch, row: int) -> dict[str, Any]:
    """How a row lies in its batch: ``start`` of its own tokens, how many, and places of padding on which side."""
    ids = micro.batch.get("input_ids")
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or row >= len(micro.lengths):
        return {"start": 0, "length": None, "padded": 0, "side": None}
    width, length = int(ids.shape[1]), min(micro.lengths[row], int(ids.shape[1]))
    mask = micro.batch.get("attention_mask")
    left = (
        isinstance(mask, torch.Tensor) and mask.shape == ids.shape and width > length and not bool(mask[row, 0])
    ) or (mask is None and width > length and _labels_end(micro, row) == width - 1)
    start = width - length if left else 0
    side = None if width == length else "left" if left else "right"
    return {"start": start, "length": length, "padded": width - length, "side": side}


def _labels_end(micro: Microbatch, row: int) -> int | None:
    labels = micro.batch.get("labels")
    if not isinstance(labels, torch.Tensor) or labels.dim() != 2:
        return None
    places = (labels[row] != IGNORE).nonzero()
    return int(places[-1]) if len(places) else None


def _first_bad(logits: torch.Tensor, padding: Mapping[str, Any]) -> int | None:
    """The first own place with a NaN or +inf; -inf alone is how a model rules an id out."""
    if logits.dim() < 2 or padding["length"] is None:
        bad = logits.isnan() | (logits == math.inf)
        return 0 if bool(bad.any()) else None
    own = logits[padding["start"] : padding["start"] + padding["length"]]
    bad = (own.isnan() | (own == math.inf)).flatten(1).any(dim=1)
    return padding["start"] + int(bad.nonzero()[0]) if bool(bad.any()) else None


def _blamed(loop: Loop, micro: Microbatch, batch: dict[str, Any]) -> list[int]:
    """Rows whose loss is not finite even alone; where all are, those whose labels make it so inside their batch."""
    rows = range(len(micro.ids))
    with torch.no_grad(), autocast(loop.context):
        alone = [
            row
            for row in rows
            if not _finite(loop.task.loss(loop.raw, to_device(loop.feed.build([micro.places[row]]).batch, loop.device)))
        ]
    return alone or [row for row in rows if not _row_is_finite(loop, batch, row)]


def _finite(out: Any) -> bool:
    return math.isfinite(float(out[0] if isinstance(out, tuple) else out))


def _row_is_finite(loop: Loop, batch: dict[str, Any], row: int) -> bool:
    """The loss of one row inside its batch, the labels of the others left out; True where labels do not allow it."""
    labels = batch.get("labels")
    if not isinstance(labels, torch.Tensor) or labels.is_floating_point() or not labels.dim():
        return True
    alone = torch.full_like(labels, IGNORE)
    alone[row] = labels[row]
    with torch.no_grad(), autocast(loop.context):
        return _finite(loop.task.loss(loop.raw, {**batch, "labels": alone}))


def _logits(output: Any, rows: int) -> torch.Tensor | None:
    """The model's floating-point output with one entry per row."""
    if isinstance(output, torch.Tensor):
        return output if output.is_floating_point() and output.dim() >= 2 and output.shape[0] == rows else None
    named = getattr(output, "logits", None)
    if named is None and isinstance(output, Mapping):
        named = output.get("logits")
    if named is not None:
        return _logits(named, rows)
    if isinstance(output, (tuple, list)):
        return next((found for each in output if (found := _logits(each, rows)) is not None), None)
    return None
