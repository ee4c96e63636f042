"""Two ways to one gradient: the loop's accumulated window against the same rows one by one."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import torch
from torch import nn

from tui_pilot.observe.dropout import no_dropout
from tui_pilot.observe.gradients import Gradient, comparison, gradient_of
from tui_pilot.observe.losses import watch_losses
from tui_pilot.observe.random_streams import random_state, restore_random_state
from tui_pilot.observe.still import same_buffers
from tui_pilot.pilot.drawn_rows import Once, still
from tui_pilot.pilot.lengths import shortest_supervised
from tui_pilot.pilot.loop import Loop
from tui_pilot.pilot.loss_parts import additive, explained
from tui_pilot.pilot.rows import Microbatch, chunks, to_device
from tui_pilot.pilot.scaler_check import LARGE, SMALL, FixedScale, at_scale, length_of
from tui_pilot.tasks.base import Task

MOST_MICROBATCHES = 4
NOT_ARITHMETIC = 1e-5


def compare(loop: Loop) -> dict[str, Any]:
    """Relative error, length ratio and direction of the two gradients over the shortest rows, and the loss in force.

    The reference sums the loss over rows at micro 1 and divides by the window's count: never a batch larger than
    planned. Gradients of the reference live on the host. Weights are not touched.
    """
    context = loop.context
    kinds = (nn.modules.batchnorm._BatchNorm,)
    if any(isinstance(module, kinds) for module in loop.raw.modules()):
        return {"why": "the model has batch normalization, whose gradient depends on the microbatch by design."}
    plan = context.plan.batch
    parts = min(plan.accumulation, MOST_MICROBATCHES)
    wanted = max(2, plan.micro * parts) * context.world  # one row alone compares with nothing
    places = shortest_supervised(context, loop.feed.split, wanted)
    if len(places) < max(2, context.world):
        return {"why": "fewer than two supervised rows."}
    # Longest against shortest inside a microbatch: unequal counts are what a mean of means gets wrong.
    share = places[context.rank :: context.world]
    build = Once(loop.feed)
    window = [build(group) for group in chunks(share, plan.micro)]
    rows = [row for micro in window for row in micro.ids]
    loop.raw.train()
    with no_dropout(loop.raw), same_buffers(loop.raw):
        total = loop.window_total(window)
        if total == 0:
            return {"why": "the chosen rows hold no supervised item."}
        if not still(loop, build, window[0].places):
            loop.raw.train()
            return {"why": "the loss of the same rows is drawn anew each time (noise, masks, augmentation)."}
        saved, size = loop.scaler, LARGE if loop.scaler is not None else 1.0
        try:
            real = at_scale(loop, window, total, size)
            found: dict[str, Any] = {}
            if saved is not None:
                other = at_scale(loop, window, total, SMALL)
                small, large = length_of(other), length_of(real)
                if math.isfinite(large):
                    found["sizes"] = {"small": small, "large": large, "scales": [SMALL, LARGE], "rows": rows}
                else:  # the larger scale overflows half precision, as a scaler's first guess may
                    real, size = other, SMALL
            loop.scaler = FixedScale(size)
            reference = _one_by_one(loop, build, places, total, size)
            loop.scaler = None
            found |= comparison(real, reference, len(window), rows)
            found["together"] = additive(loop, build, places)
            if any(context.gather(max(found["error"], found["together"]["error"]) > NOT_ARITHMETIC)):
                found["together"] |= explained(loop, build, places)
            found["in_force"] = _in_force(loop, window[0])
        finally:
            loop.scaler = saved
            loop.optimizer.zero_grad(set_to_none=True)
            loop.raw.train()
    return {**found, "rows_per_micro": len(window[0].ids), "items": total}


def _one_by_one(loop: Loop, build: Once, places: list[int], total: int, size: float) -> Gradient:
    world = loop.context.world
    loop.optimizer.zero_grad(set_to_none=True)
    for place in places:
        loss = loop.forward(build([place])) * (size / total)
        # Every rank runs all rows alone, so nothing is reduced and the sum is divided once.
        if world > 1:
            with loop.model.no_sync():  # type: ignore[operator]
                loss.backward()  # type: ignore[no-untyped-call]
        else:
            loss.backward()  # type: ignore[no-untyped-call]
    return gradient_of(loop.raw, size)


def _in_force(loop: Loop, micro: Microbatch) -> dict[str, Any]:
    """The torch losses that one microbatch goes through, beside what the task returned and the labels it was given."""
    with torch.no_grad(), watch_losses() as calls:
        returned = float(loop.forward(micro))
    labels = micro.batch.get("labels")
    known = [call["sum"] for call in calls]
    return {
        "calls": [{key: value for key, value in call.items() if key != "result"} for call in calls[:8]],
        "count": micro.count,
        "returned": returned,
        "accumulation": _under_another_accumulation(loop, micro),
        "summed": sum(known) if known and None not in known else None,
        "labels": str(labels.dtype).removeprefix("torch.") if isinstance(labels, torch.Tensor) else None,
        "classes": len(loop.task.class_names()),
        "rows": micro.ids,
    }


def _under_another_accumulation(loop: Loop, micro: Microbatch) -> dict[str, Any] | None:
    """The same loss asked of a task whose plan accumulates another number of microbatches: it must not know.

    None where the loss of the same rows is another one each time.
    """
    context, plan = loop.context, loop.context.plan
    streams = random_state(context.device)
    steps = 2 * plan.batch.accumulation + 1
    changed = copy.copy(loop.task)
    changed.plan = dataclasses.replace(plan, batch=dataclasses.replace(plan.batch, accumulation=steps))
    batch = to_device(micro.batch, context.device)

    def ask(task: Task) -> float:
        restore_random_state(streams, context.device)
        with torch.no_grad(), loop.autocast():
            out = task.loss(loop.model, batch)
        return float(out[0] if isinstance(out, tuple) else out)

    once, again, other = ask(loop.task), ask(loop.task), ask(changed)
    if once != again:
        return None
    return {"planned": plan.batch.accumulation, "here": once, "other": steps, "returned": other}
