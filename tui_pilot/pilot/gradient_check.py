"""Two ways to one gradient: the loop's accumulated window against the same rows one by one."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tui_pilot.observe.dropout import no_dropout
from tui_pilot.pilot.lengths import shortest_supervised
from tui_pilot.pilot.loop import Loop, trainable
from tui_pilot.pilot.rows import Feed, chunks

MOST_MICROBATCHES = 4


def compare(loop: Loop) -> dict[str, Any]:
    """Relative error, length ratio and direction of the two gradients over the shortest rows.

    The reference sums the loss over rows at micro 1 and divides by the window's count: never a batch larger than
    planned. Gradients of the reference live on the host. Weights are not touched.
    """
    context = loop.context
    kinds = (nn.modules.batchnorm._BatchNorm,)
    if any(isinstance(module, kinds) for module in loop.raw.modules()):
        return {"why": "the model has batch normalization, whose gradient depends on the microbatch by design."}
    plan = context.plan.batch
    parts = min(plan.accumulation, MOST_MICROBATCHES)
    wanted = plan.micro * parts * context.world
    places = shortest_supervised(context, loop.feed.split, wanted)
    if len(places) < max(2, context.world):
        return {"why": "fewer than two supervised rows."}
    # Longest against shortest inside a microbatch: unequal counts are what a mean of means gets wrong.
    share = places[context.rank :: context.world]
    window = [loop.feed.build(group) for group in chunks(share, plan.micro)]
    loop.raw.train()
    loop.optimizer.zero_grad(set_to_none=True)
    with no_dropout(loop.raw):
        total = loop.window_total(window)
        if total == 0:
            return {"why": "the chosen rows hold no supervised item."}
        saved, loop.scaler = loop.scaler, None
        try:
            for number, micro in enumerate(window):
                loop.forward_backward(micro, total, number == len(window) - 1)
            real = {name: p.grad.detach().cpu().clone() for name, p in trainable(loop.raw) if p.grad is not None}
            loop.optimizer.zero_grad(set_to_none=True)
            reference = _one_by_one(loop, places, total)
            together = _additive(loop, places)
        finally:
            loop.scaler = saved
            loop.optimizer.zero_grad(set_to_none=True)
    error, ratio, direction = distance(real, reference)
    rows = [row for micro in window for row in micro.ids]
    return {
        "error": error,
        "ratio": ratio,
        "direction": direction,
        "microbatches": len(window),
        "rows": rows,
        "rows_per_micro": len(window[0].ids),
        "items": total,
        "together": together,
    }


def _one_by_one(loop: Loop, places: list[int], total: int) -> dict[str, torch.Tensor]:
    world = loop.context.world
    feed: Feed = loop.feed
    for place in places:
        micro = feed.build([place])
        loss = loop.forward(micro)
        # Every rank runs all rows alone, so nothing is reduced and the sum is divided once.
        if world > 1:
            with loop.model.no_sync():  # type: ignore[operator]
                (loss / total).backward()  # type: ignore[no-untyped-call]
        else:
            (loss / total).backward()  # type: ignore[no-untyped-call]
    return {name: p.grad.detach().cpu().clone() for name, p in trainable(loop.raw) if p.grad is not None}


def _additive(loop: Loop, places: list[int]) -> dict[str, Any]:
    """The loss of two rows in one microbatch beside the sum of each alone: equal only for a loss that is a sum."""
    pair = [places[0], places[-1]]
    with torch.no_grad():
        whole = float(loop.forward(loop.feed.build(pair)))
        apart = sum(float(loop.forward(loop.feed.build([place]))) for place in pair)
    return {"whole": whole, "apart": apart, "error": abs(whole - apart) / max(1e-12, abs(apart))}


def distance(real: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> tuple[float, float, float]:
    """``|g - r| / |r|``, ``|g| / |r|`` and the cosine between them, in double precision."""
    square = own = other = product = 0.0
    for name, tensor in reference.items():
        want = tensor.double()
        have = real[name].double() if name in real else torch.zeros_like(want)
        square += float(((have - want) ** 2).sum())
        own += float((have**2).sum())
        other += float((want**2).sum())
        product += float((have * want).sum())
    if other == 0:
        return (0.0, 1.0, 1.0) if own == 0 else (float("inf"), float("inf"), 0.0)
    return (square / other) ** 0.5, (own / other) ** 0.5, product / max(1e-300, (own * other) ** 0.5)
