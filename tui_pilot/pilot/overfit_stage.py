"""The overfit stage: a few short real rows until their own ids come back. Mechanics, not generalization."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from tui_pilot.observe.dropout import no_dropout
from tui_pilot.observe.memory import reachable_bytes
from tui_pilot.observe.tensors import hashes
from tui_pilot.pilot import variant_check
from tui_pilot.pilot.answers import batch_loss, recovery
from tui_pilot.pilot.audit import split_of
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.elsewhere import fed_elsewhere
from tui_pilot.pilot.finite import padded_pair, unfinite
from tui_pilot.pilot.half_check import HALF, STEPS, Halves
from tui_pilot.pilot.lengths import shortest_supervised
from tui_pilot.pilot.loop import Loop, build_loop, build_model, set_rate, trainable
from tui_pilot.pilot.phase import Phase, PhaseBroken, phase, skip
from tui_pilot.pilot.rows import Microbatch, chunks
from tui_pilot.pilot.trainable_set import dtypes_of, is_adapter, trainable_facts

LOOK_EVERY = 5
ON_ITS_WAY, FALLING, TIMES = 0.8, 0.9, 3
"""From this share of answers on, and while a quarter of the steps brings the loss down by a tenth, slow is not wrong:
half as many steps more, up to ``TIMES`` as many."""


@dataclass
class Met:
    """What the updates met: their rows, tensors with some gradient, and those with one that is not all zero."""

    rows: list[Any] = field(default_factory=list)
    some: set[str] = field(default_factory=set)
    nonzero: set[str] = field(default_factory=set)


def run(context: Context) -> None:
    """The one phase of this stage."""
    if "overfit" in context.skipped:
        skip(context, "overfit")
        return
    try:
        with phase(context, "overfit") as current:
            overfit(current)
            variant_check.look(current)
    except PhaseBroken:
        return


def overfit(current: Phase) -> None:
    """Train on the shortest supervised rows and ask for their ids."""
    context = current.context
    split = split_of(context, "train")
    places = shortest_supervised(context, split, context.plan.gates.overfit.rows)
    with current.measure("load"):
        model = build_model(context)
        facts = current.seen["trainable"] = trainable_facts(context, model)
        if not facts["names_count"]:  # an optimizer over nothing cannot even be made
            current.seen["row_ids"] = [split.ids[place] for place in places]
            return
        loop = build_loop(context, model, split)
    current.at = loop.at
    micros = [loop.feed.build(group) for group in chunks(places, context.plan.batch.micro)]
    ids = [row for micro in micros for row in micro.ids]
    items = sum(micro.count for micro in micros)
    lr = learning_rate(context)
    steps = context.plan.gates.overfit.steps
    current.inputs |= {
        "rows": len(ids),
        "row_ids": ids,
        "items": items,
        "lr": lr,
        "steps_limit": steps,
        "lengths": [length for micro in micros for length in micro.lengths],
    }
    current.seen |= {
        "row_ids": ids,
        "items": items,
        "lr": lr,
        "steps": 0,
        "tensors": sum(1 for _ in trainable(model)),
        "trainable_dtypes": dtypes_of(model),
        "names": [name for name, _ in trainable(model)],
        "adapters": [name for name, _ in trainable(model) if is_adapter(name)],
    }
    if not items or refused_by_scaler(current.seen["trainable_dtypes"], loop):
        return
    pair = padded_pair(loop, context)
    for micro in [*micros, *([pair] if pair is not None else [])]:
        current.seen.setdefault("unfinite", []).extend(unfinite(loop, micro))
    for group in loop.optimizer.param_groups:
        group["weight_decay"] = 0.0
    with no_dropout(model), current.measure("train"):
        _train(current, loop, model, micros, lr, steps)
    current.reachable = reachable_bytes(model, loop.optimizer)


def _train(current: Phase, loop: Loop, model: nn.Module, micros: list[Microbatch], lr: float, steps: int) -> None:
    seen, context = current.seen, current.context
    names = dict(trainable(model))
    before = hashes(names.items())
    halves: Halves | None = Halves(names) if any(tensor.dtype in HALF for tensor in names.values()) else None
    met = Met()
    _set_rate(loop, context.plan.optimizer.lr if halves else lr)
    step, limit, losses = 0, steps, list[float]()
    while step < limit:
        step += 1
        if step == STEPS + 1 and halves is not None:
            seen |= halves.facts()
            halves = None
            _set_rate(loop, lr)
        value = _one(loop, micros, names, met, halves)
        seen["steps"] = step
        seen.setdefault("first_loss", value)
        seen["last_loss"] = value
        losses.append(value)
        if not math.isfinite(value):
            seen["bad_step"] = step
            break
        if step % LOOK_EVERY == 0 or step == limit:
            model.eval()
            found = recovery(context, model, micros)
            model.train()
            current.progress(step, limit, "steps", f"loss {value:.3f}" + (f", {found.share:.0%} back" if found else ""))
            if found is not None:
                seen["recovered"], seen["wrong"] = found.share, found.wrong
                seen["shifted"], seen["shift"] = found.shifted_share, found.shift
                seen["evaluated_rows"] = found.rows
                if found.share >= 1.0 and step >= min(10, steps):
                    break
            elif value < 0.01 * max(1e-9, seen["first_loss"]):
                break
        if step == limit < TIMES * steps and _on_its_way(seen.get("recovered"), losses, steps):
            limit += max(1, steps // 2)
    if seen.get("recovered", 0.0) < 1.0:
        found = recovery(context, model, micros)
        seen["recovered_train_mode"] = found.share if found else None
        seen["mode_losses"] = {"training": _loss(context, model, micros), "evaluation": None}
        model.eval()
        seen["mode_losses"]["evaluation"] = _loss(context, model, micros)
        model.train()
    after = hashes(names.items())
    seen["trained_rows"] = met.rows
    seen["no_gradient"] = [name for name in names if name not in met.nonzero] if step >= 3 else []
    seen["elsewhere"] = fed_elsewhere(loop, seen["no_gradient"], names)
    seen["zero_gradient"] = [name for name in seen["no_gradient"] if name in met.some]
    still = [name for name in names if before[name] == after[name]]
    rounded = [name for name in still if names[name].dtype in HALF and name in met.nonzero]
    seen["rounded_away"] = rounded if step >= 3 else []
    seen["untouched"] = [name for name in still if name not in rounded] if step >= 3 else []
    current.inputs |= {
        "steps": step,
        "first_loss": seen.get("first_loss"),
        "last_loss": seen.get("last_loss"),
        "recovered": seen.get("recovered"),
    }


def _on_its_way(share: float | None, losses: list[float], steps: int) -> bool:
    """Whether nearly every answer is back and the loss still falls."""
    before = losses[-1 - max(1, steps // 4)] if len(losses) > max(1, steps // 4) else losses[0]
    return share is not None and share >= ON_ITS_WAY and losses[-1] < FALLING * before


def _loss(context: Context, model: nn.Module, micros: list[Microbatch]) -> float:
    """Loss per item over all rows in the model's present mode."""
    parts = [batch_loss(context, model, micro.batch) for micro in micros]
    return sum(part[0] for part in parts) / max(1, sum(part[1] for part in parts))


def _one(loop: Loop, micros: list[Microbatch], names: dict[str, Any], met: Met, halves: Halves | None = None) -> float:
    """One update over all rows; notes which tensors got a gradient, and which one that is not all zero."""
    met.rows = [row for micro in micros for row in micro.ids]
    total = sum(micro.count for micro in micros)
    loss = 0.0
    for number, micro in enumerate(micros):
        loss += loop.forward_backward(micro, total, number == len(micros) - 1)
    for name, tensor in names.items():
        if tensor.grad is not None and name not in met.nonzero:
            met.some.add(name)
            if bool((tensor.grad != 0).any()):
                met.nonzero.add(name)
    if halves is not None:
        halves.note()
    loop.apply()
    return loss / max(1, total)


def _set_rate(loop: Loop, lr: float) -> None:
    for group in loop.optimizer.param_groups:
        set_rate(group, lr)


def refused_by_scaler(dtypes: dict[str, list[str]], loop: Loop) -> bool:
    """Whether the first unscale would raise: the gate names the tensors before that happens."""
    return loop.scaler is not None and "float16" in dtypes


def learning_rate(context: Context) -> float:
    """The rate of this test: as the plan says, else 20x the plan's for adapters and up to 10x for full tuning."""
    asked = context.plan.gates.overfit.lr
    if asked != "auto":
        return float(asked)
    planned = context.plan.optimizer.lr
    if context.plan.model.adapter is not None:
        return max(planned, min(20 * planned, 5e-3))
    return max(planned, min(10 * planned, 1e-3 if context.plan.optimizer.name == "adamw" else 1.0))
