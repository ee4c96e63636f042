"""A loss scaler judged by what it does: a window with an inf in its last microbatch, and a gradient at two scales."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch

from tui_pilot.observe.gradients import Gradient, gradient_of, overflow
from tui_pilot.pilot.lengths import shortest_supervised
from tui_pilot.pilot.loop import Loop, trainable
from tui_pilot.pilot.rows import Microbatch, chunks

LARGE, SMALL = 4096.0, 16.0


@dataclass
class FixedScale:
    """Stands in for the scaler while gradients are compared: what it scales by never moves."""

    size: float

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * self.size


def at_scale(loop: Loop, window: list[Microbatch], total: int, size: float) -> Gradient:
    """The window's gradient by the loop's own way at one scale, unscaled."""
    loop.optimizer.zero_grad(set_to_none=True)
    saved, loop.scaler = loop.scaler, FixedScale(size)
    try:
        for number, micro in enumerate(window):
            loop.forward_backward(micro, total, number == len(window) - 1)
    finally:
        loop.scaler = saved
    found = gradient_of(loop.raw, size)
    loop.optimizer.zero_grad(set_to_none=True)
    return found


def length_of(gradient: Gradient) -> float:
    """The Euclidean length over all tensors."""
    return float(sum(float((tensor.double() ** 2).sum()) for tensor in gradient.values()) ** 0.5)


def inject(loop: Loop) -> dict[str, Any] | None:
    """Run one window whose last microbatch leaves an inf; weights, states and scale are as before afterwards.

    None without a scaler. It belongs before the first update, while the optimizer holds no state of its own.
    """
    if loop.scaler is None:
        return None
    context, plan = loop.context, loop.context.plan.batch
    places = shortest_supervised(context, loop.feed.split, plan.micro * min(plan.accumulation, 2) * context.world)
    share = places[context.rank :: context.world]
    window = [loop.feed.build(group) for group in chunks(share, plan.micro)]
    total = loop.window_total(window)
    if not total:
        return None
    named = dict(trainable(loop.raw))
    weights = {name: parameter.detach().cpu().clone() for name, parameter in named.items()}
    kept = [copy.deepcopy(each.state_dict()) for each in (loop.optimizer, loop.scaler)]
    schedule = copy.deepcopy(loop.scheduler.state_dict()) if hasattr(loop.scheduler, "state_dict") else None
    start = loop.counters.numbers()
    loop.raw.train()
    loop.optimizer.zero_grad(set_to_none=True)
    for micro in window[:-1]:
        loop.forward_backward(micro, total, False)
    first = next(parameter for parameter in named.values())
    with overflow(first):
        loop.forward_backward(window[-1], total, True)
    before = float(loop.scaler.get_scale())
    loop.step()
    since = loop.counters.since(start)
    after = {name: parameter.detach().cpu() for name, parameter in named.items()}
    moved = [name for name, old in weights.items() if not torch.equal(old, after[name])]
    found = {
        "stepped": since["optimizer_steps"] > 0,
        "ticks": since["scheduler_ticks"],
        "moved": moved,
        "bad": [name for name in moved if not bool(torch.isfinite(after[name]).all())],
        "before": before,
        "after": float(loop.scaler.get_scale()),
        "backoff": float(loop.scaler.get_backoff_factor()),
        "rows": window[-1].ids,
    }
    with torch.no_grad():
        for name in moved:
            named[name].copy_(weights[name])
    if found["stepped"] or moved:
        loop.optimizer.load_state_dict(kept[0])
    if since["scheduler_ticks"] and schedule is not None:
        loop.scheduler.load_state_dict(schedule)
    loop.scaler.load_state_dict(kept[1])
    return found
