"""The peak stage: how much memory. One window of the longest real rows, repeated; nothing of it is kept."""

from __future__ import annotations

import math
from typing import Any

import torch

from tui_pilot.gates.codes import reason
from tui_pilot.gates.precision import NEVER_STEPS
from tui_pilot.observe.counters import scaler_facts
from tui_pilot.observe.memory import reachable_bytes
from tui_pilot.observe.tensors import changing, hashes, weights_hash
from tui_pilot.pilot import control, disk, evaluation, packing, second_build, stale_check
from tui_pilot.pilot.audit import split_of
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.elsewhere import fed_elsewhere
from tui_pilot.pilot.finite import unfinite
from tui_pilot.pilot.lengths import longest
from tui_pilot.pilot.loop import Loop, build_loop, build_model, trainable
from tui_pilot.pilot.phase import Phase, PhaseBroken, phase, skip
from tui_pilot.pilot.rank_check import parting
from tui_pilot.pilot.row_facts import is_own
from tui_pilot.pilot.rows import Microbatch, chunks, shape_of
from tui_pilot.pilot.trainable_set import NothingTrains, is_adapter, trainable_facts

PHASES = ("load", "forward", "backward", "first_step", "steady_step", "evaluate")


class Peak:
    """What the phases of this stage hand to each other."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.loop: Loop | None = None
        self.window: list[Microbatch] = []
        self.total = 0
        self.loss: torch.Tensor | None = None
        self.skips = 0

    @property
    def ready(self) -> Loop:
        if self.loop is None:
            raise PhaseBroken("load")
        return self.loop


def run(context: Context) -> None:
    """The six memory phases in the order a campaign meets them."""
    peak = Peak(context)
    bodies = {
        "load": load,
        "forward": forward,
        "backward": backward,
        "first_step": first_step,
        "steady_step": steady_step,
        "evaluate": evaluate,
    }
    broken: str | None = None
    for name in PHASES:
        if broken is not None:
            why = reason("needs_model", f"{broken} did not end, and {name} needs what it leaves.")
            skip(context, name, "not_run", why)
            continue
        if name in context.skipped and name in ("evaluate", "steady_step"):
            skip(context, name)
            continue
        try:
            with phase(context, name) as current:
                if peak.loop is not None:
                    current.at = peak.loop.at
                bodies[name](peak, current)
        except PhaseBroken:
            if context.world > 1:
                raise
            broken = name


def load(peak: Peak, current: Phase) -> None:
    """Model, adapter, wrapping and optimizer; a second build with the same seed must give the same tensors."""
    context = peak.context
    split = split_of(context, "train")
    with current.measure():
        model = build_model(context)
    facts = trainable_facts(context, model)
    if not facts["names_count"]:
        raise NothingTrains(facts["tensors"])
    # Before wrapping copies rank 0's tensors over the others', and after everything is in place.
    built = parting(context, hashes(trainable(model)) if context.world > 1 else {})
    with current.measure():
        peak.loop = build_loop(context, model, split)
    start = parting(context, hashes(trainable(model)) if context.world > 1 else {})
    names = dict(model.named_parameters())
    dtypes: dict[str, list[str]] = {}
    for name, parameter in names.items():
        if parameter.requires_grad:
            dtypes.setdefault(str(parameter.dtype).removeprefix("torch."), []).append(name)
    first = hashes((name, tensor) for name, tensor in changing(model))
    current.reachable = reachable_bytes(model)
    current.seen |= {
        "trainable": facts,
        "disk": disk.exact(context, peak.loop),
        "trainable_dtypes": dtypes,
        "adapter": any(is_adapter(name) for names_ in dtypes.values() for name in names_),
        "builds_differ": [] if built else second_build.differing(context, first),
        "built_differs": None if built is None else {**built, "seed": context.plan.seed},
        "start_differs": start,
    }
    current.inputs |= {
        "device": str(context.device),
        "precision": context.plan.precision,
        "parameters": facts["total"],
        "trainable_parameters": facts["elements"],
        "dtypes": {name: len(each) for name, each in dtypes.items()},
        "parameter_bytes": sum(p.numel() * p.element_size() for p in model.parameters()),
    }


def forward(peak: Peak, current: Phase) -> None:
    """The longest microbatch of the campaign's own shape."""
    context, loop = peak.context, peak.ready
    per_rank = context.plan.batch.micro * context.plan.batch.accumulation
    places = longest(context, loop.feed.split, per_rank * context.world)[context.rank :: context.world]
    peak.window = [loop.feed.build(group) for group in chunks(places, context.plan.batch.micro)]
    peak.total = loop.window_total(peak.window)
    micro = peak.window[0]
    current.inputs |= describe(micro, loop)
    locked = control.locked_control(context, loop.raw)
    if locked is not None:
        current.seen["control"] = locked
        current.inputs["control_loss"], current.inputs["control_loss_locked"] = locked["now"], locked["stored"]
    packed = packing.probe(loop, peak.window) if is_own(loop.task) else None
    if packed is not None:
        current.seen["packing"] = packed
        current.inputs["packed_documents"] = packed.get("documents")
    loop.model.train()
    with current.measure():
        peak.loss = loop.forward(micro)
    value = float(peak.loss.detach())
    current.reachable = reachable_bytes(loop.raw)
    current.seen |= {"loss": value / max(1, micro.count), "finite": math.isfinite(value), "row_ids": micro.ids}
    if not math.isfinite(value):
        current.seen["unfinite"] = unfinite(loop, micro)
        current.seen["bad_rows"] = _bad_rows(loop, micro)
    current.inputs["loss"] = value / max(1, micro.count)


def _bad_rows(loop: Loop, micro: Microbatch) -> list[Any]:
    bad = []
    for place, row in zip(micro.places, micro.ids, strict=True):
        with torch.no_grad():
            if not math.isfinite(float(loop.forward(loop.feed.build([place])))):
                bad.append(row)
    return bad or micro.ids


def backward(peak: Peak, current: Phase) -> None:
    """The backward of that microbatch."""
    loop = peak.ready
    micro = peak.window[0]
    current.inputs |= describe(micro, loop)
    loss, peak.loss = peak.loss, None
    if loss is None:
        raise PhaseBroken("forward")
    with current.measure():
        loop.backward(loss, peak.total, len(peak.window) == 1)
        del loss
    names = dict(trainable(loop.raw))
    none = [name for name, tensor in names.items() if tensor.grad is None]
    current.reachable = reachable_bytes(loop.raw)
    current.seen |= {
        "row_ids": micro.ids,
        "tensors": len(names),
        "names": list(names),
        "no_gradient": none,
        "elsewhere": fed_elsewhere(loop, none, names),
        "bad_gradient": [name for name, t in names.items() if t.grad is not None and not bool(t.grad.isfinite().all())],
        "scaled": loop.scaler is not None,
    }


def first_step(peak: Peak, current: Phase) -> None:
    """The rest of the window, clipping, and the optimizer step that allocates the optimizer's state."""
    loop = peak.ready
    before = hashes(changing(loop.raw))
    lr = loop.lr
    rest = peak.window[1:]
    with current.measure("window"):
        for number, micro in enumerate(rest):
            loop.forward_backward(micro, peak.total, number == len(rest) - 1)
    start = loop.counters.numbers()
    with current.measure("step"), loop.counters.clipping():
        norm, skipped = loop.step()
        loop.updates += 1
    after = hashes(changing(loop.raw))
    peak.skips = 1 if skipped else 0
    current.reachable = reachable_bytes(loop.raw, loop.optimizer)
    current.seen |= {
        "lr": lr,
        "skipped": skipped,
        "skips": peak.skips,
        "scaler": scaler_facts(loop.counters, start, 1) if loop.scaler is not None else None,
        "tensors": len(before),
        "moved": sum(1 for name in before if before[name] != after.get(name)),
    }
    current.inputs |= {
        "lr": lr,
        "microbatches": len(peak.window),
        "gradient_norm": norm,
        "optimizer": context_optimizer(loop),
        "optimizer_state_bytes": optimizer_bytes(loop.optimizer),
        "row_ids": [r for m in peak.window for r in m.ids],
    }


def steady_step(peak: Peak, current: Phase) -> None:
    """Complete updates 2..k on the same window, forward, backward and step apart."""
    context, loop = peak.context, peak.ready
    updates = max(2, context.plan.pilot.steady)
    losses: list[float] = []
    after: list[int | None] = []
    skips = in_row = peak.skips
    first_hash = weights_hash(loop.raw)
    rates: list[float] = []
    current.inputs |= {
        **describe(peak.window[0], loop),
        "updates": updates,
        "row_ids": [r for m in peak.window for r in m.ids],
    }
    number = 0
    # A scaler that has only skipped so far may still be looking for its scale: that is not known after two updates.
    while number < updates or 0 < in_row < NEVER_STEPS:
        rates.append(loop.lr)
        loss = 0.0
        for place, micro in enumerate(peak.window):
            with current.measure("forward"):
                value = loop.forward(micro)
            with current.measure("backward"):
                loop.backward(value, peak.total, place == len(peak.window) - 1)
            loss += float(value.detach())
            del value
        with current.measure("step") as window:
            _, skipped = loop.step()
        after.append(window.memory.get("allocated_after"))
        in_row = in_row + 1 if skipped else 0
        skips = max(skips, in_row)
        losses.append(loop.all_sum(loss) / max(1, peak.total))
        number += 1
        current.progress(number, max(updates, number), "updates", f"loss {losses[-1]:.3f}")
    current.reachable = reachable_bytes(loop.raw, loop.optimizer)
    current.seen |= {
        "probe": stale_check.probe(loop, peak.window[0]),
        "allocated_after": after,
        "losses": losses,
        "row_ids": current.inputs["row_ids"],
        "skips_in_row": skips,
        "moved_share": float(weights_hash(loop.raw) != first_hash),
        "no_lr": not any(rates[:-1]),
    }
    current.inputs["losses"] = losses


def evaluate(peak: Peak, current: Phase) -> None:
    """The longest validation microbatch, then the planned rows once, without training state being dropped."""
    evaluation.rehearse(peak.ready, current)


def describe(micro: Microbatch, loop: Loop) -> dict[str, Any]:
    """What a person wants to know of a microbatch."""
    return {
        "row_ids": micro.ids,
        "shape": shape_of(micro.batch),
        "dtype": loop.dtype,
        "supervised": micro.count,
        "lengths": micro.lengths,
    }


def context_optimizer(loop: Loop) -> str:
    """The optimizer's class and the implementation it chose."""
    group = loop.optimizer.param_groups[0]
    how = "fused" if group.get("fused") else "foreach" if group.get("foreach") else "loop"
    if not group.get("fused") and group.get("foreach") is None:
        how = "foreach" if loop.device.type == "cuda" else "loop"
    return f"{type(loop.optimizer).__name__}, {how}"


def optimizer_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of all tensors in the optimizer's state."""
    return sum(
        value.numel() * value.element_size()
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor)
    )
