"""A variant beside its baseline: the same rows and weights through both, one after the other, in one process.

Gradient over a few rows, the control rows' loss and answers, and the weights after a few updates. Either side is
built, asked and dropped before the other, so that a variant that was made to fit is not asked to hold both.
"""

from __future__ import annotations

import dataclasses
import gc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tui_pilot.observe.dropout import no_dropout
from tui_pilot.observe.gradients import Gradient, distance
from tui_pilot.observe.tensors import changing, hashes
from tui_pilot.pilot import control
from tui_pilot.pilot.audit import split_of
from tui_pilot.pilot.context import Context, absolute_paths
from tui_pilot.pilot.lengths import shortest_supervised
from tui_pilot.pilot.loop import Loop, build_loop, set_rate, trainable
from tui_pilot.pilot.out_of_memory import is_out_of_memory
from tui_pilot.pilot.phase import Phase
from tui_pilot.pilot.rows import Microbatch, chunks
from tui_pilot.pilot.scaler_check import SMALL, at_scale
from tui_pilot.plan.model import Plan, from_json
from tui_pilot.tasks.base import IGNORE

UPDATES = 3
MOST_ROWS = 16
KEPT = 1 << 20
"""Elements of one tensor that are kept for the comparison; of a larger one every n-th."""


class _NotComparable(Exception):
    """Why the two cannot be put side by side."""


@dataclass
class _Side:
    loss: float | None
    answers: Any
    gradient: Gradient
    update: Gradient
    hashes: dict[str, str]
    loss_after: float | None


def look(current: Phase) -> None:
    """Put ``quality`` on the row of a variant's run; nothing on any other."""
    context = current.context
    if not context.run.baseline_file.is_file() or not current.seen.get("steps"):
        return
    known = context.run.read_json(context.run.baseline_file)
    quality: dict[str, Any] = {
        "control_loss": None,
        "control_loss_delta": None,
        "grad_cosine": None,
        "control_ids_changed": None,
        "overfit_recovered": current.seen.get("recovered"),
        "basis": None,
        "same_question": bool(known["same_question"]),
        "changed": known["changed"],
    }
    current.progress(0, None, "baseline", "comparing with the baseline on the same rows and weights")
    try:
        quality |= _compare(current, absolute_paths(from_json(known["plan"]), context.folder))
    except _NotComparable as why:
        quality["basis"] = f"not compared: {why}"
    current.extra["quality"] = quality
    current.seen["variant"] = {**quality, "why": known["why"]}


def _compare(current: Phase, plan: Plan) -> dict[str, Any]:
    own = dataclasses.replace(current.context, world=1, rank=0, cache={})
    # The variant starts from the baseline's weights, whatever seed it trains with.
    own.plan = dataclasses.replace(own.plan, seed=plan.seed)
    base = dataclasses.replace(own, plan=plan, cache={})
    if (own.plan.task, own.plan.model.path) != (plan.task, plan.model.path):
        raise _NotComparable("another task or model has no weights in common with the baseline")
    with current.measure("baseline"):
        try:
            rows = _rows(base, own)
            batch = control.control_batch(base)
            want = _side(base, rows, batch, current)
        except _NotComparable:
            raise
        except Exception as broken:
            # a baseline that cannot run, here or at all, says nothing against the variant
            said = "it runs out of memory" if is_out_of_memory(broken) else str(broken).strip().split("\n")[0][:200]
            raise _NotComparable(f"the baseline does not run here: {said or type(broken).__name__}") from broken
    with current.measure("variant"):
        have = _side(own, rows, batch, current)
    shared = [name for name, each in want.update.items() if name in have.update and _alike(each, have, name)]
    if own.plan.precision == plan.precision:
        other = next((name for name in shared if want.hashes.get(name) != have.hashes.get(name)), None)
        if other is not None:
            raise _NotComparable(f"two builds with one seed start from other weights, first {other}")
    error, ratio, cosine = distance(_of(have.gradient, shared), _of(want.gradient, shared))
    moved_error, moved_ratio, moved_cosine = distance(_of(have.update, shared), _of(want.update, shared))
    changed, asked = changed_ids(have.answers, want.answers, batch.get("labels"))
    found: dict[str, Any] = {
        "control_loss": have.loss,
        "control_loss_delta": _difference(have.loss, want.loss),
        "grad_cosine": cosine if shared else None,
        "grad_error": _finite(error) if shared else None,
        "grad_ratio": _finite(ratio) if shared else None,
        "control_ids_changed": changed,
        "control_ids": asked,
        "update_error": _finite(moved_error) if shared else None,
        "update_ratio": _finite(moved_ratio) if shared else None,
        "update_cosine": moved_cosine if shared else None,
        "control_loss_after": have.loss_after,
        "control_loss_after_delta": _difference(have.loss_after, want.loss_after),
        "tensors_compared": len(shared),
        "rows": rows,
        "precision": [plan.precision, own.plan.precision],
    }
    found["basis"] = (
        f"the same {len(rows)} rows and weights (seed {plan.seed}), {UPDATES} updates at the planned rate, no dropout, "
        f"{len(shared)} tensors in common"
    )
    return found


def _rows(base: Context, own: Context) -> list[Any]:
    """Names of the shortest rows that both sides have, enough for two microbatches of either."""
    wanted = min(MOST_ROWS, 2 * max(base.plan.batch.micro, own.plan.batch.micro))
    split, other = split_of(base, "train"), split_of(own, "train")
    places = shortest_supervised(base, split, 4 * wanted)
    rows = [split.ids[place] for place in places if split.ids[place] in other.place][:wanted]
    if len(rows) < 2:
        raise _NotComparable("fewer than two supervised rows in common with the baseline")
    return rows


def _side(context: Context, rows: list[Any], batch: dict[str, Any], current: Phase) -> _Side:
    loop = build_loop(context, split=split_of(context, "train"))
    current.at = loop.at
    places = [loop.feed.split.place[row] for row in rows]
    window = [loop.feed.build(group) for group in chunks(places, context.plan.batch.micro)]
    start = hashes(changing(loop.raw))
    before = control.answers(context, loop.raw, batch)
    kept = {name: _thin(tensor) for name, tensor in trainable(loop.raw)}
    loop.raw.train()
    with no_dropout(loop.raw):
        first = _updates(loop, window)
    update = {name: _thin(tensor) - kept[name] for name, tensor in trainable(loop.raw)}
    after = control.answers(context, loop.raw, batch)
    del loop
    gc.collect()
    if context.device.type == "cuda":
        torch.cuda.empty_cache()
    return _Side(before.get("loss"), before["answers"], first, update, start, after.get("loss"))


def _updates(loop: Loop, window: list[Microbatch]) -> Gradient:
    """A few updates of the loop's own optimizer at the rate after warm-up; the first gradient, thinned."""
    total = loop.window_total(window)
    size = SMALL if loop.scaler is not None else 1.0
    loop.scaler = None  # the gradients below are unscaled already
    for group in loop.optimizer.param_groups:
        set_rate(group, float(group.get("initial_lr", group["lr"])))
    first: Gradient = {}
    for number in range(UPDATES):
        found = at_scale(loop, window, total, size)
        if not number:
            first = {name: _thin(tensor) for name, tensor in found.items()}
        for name, parameter in trainable(loop.raw):
            if name in found:
                parameter.grad = found[name].to(parameter.device, parameter.dtype)
        loop.apply()
    return first


def changed_ids(have: Any, want: Any, labels: Any) -> tuple[int | None, int | None]:
    """Answers that differ, of how many asked: where a label counts, one place before it (it predicts that place)."""
    if have is None or want is None:
        return None, None
    targets = labels.tolist() if hasattr(labels, "tolist") else labels
    pairs: list[bool] = []
    for row, (one, other) in enumerate(zip(have, want, strict=False)):
        if isinstance(one, list) and isinstance(other, list):
            target = targets[row] if isinstance(targets, list) and row < len(targets) else None
            places: Sequence[int] = range(len(one))
            if isinstance(target, list) and len(target) == len(one):
                places = [place - 1 for place in range(1, len(one)) if target[place] != IGNORE]
            pairs += [one[place] != other[place] for place in places if place < len(other)]
        else:
            pairs.append(one != other)
    return sum(pairs), len(pairs)


def _thin(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, math.ceil(flat.numel() / KEPT))].float().cpu().clone()


def _alike(tensor: torch.Tensor, other: _Side, name: str) -> bool:
    return tensor.shape == other.update[name].shape


def _of(tensors: Gradient, names: list[str]) -> Gradient:
    return {name: tensors[name] for name in names if name in tensors}  # no gradient is one of zeros


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
