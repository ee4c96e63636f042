"""Gates of the peak stage: load, forward, backward, first_step, steady_step, evaluate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from tui_pilot.gates import control, disk, evaluated, kept, precision, ranks, residue
from tui_pilot.gates.codes import reason
from tui_pilot.gates.overfit import fed_elsewhere, idle_experts, unfinite_rows
from tui_pilot.gates.trainable import trainable_set
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import loss, plural, size

Seen = Mapping[str, Any]
GROWTH_SHARE = 0.002
GROWTH_BYTES = 256 << 10
LEAK, LEAK_HALF = 1e-5, 1e-2
"""How far answers may move by arithmetic alone where nothing they see has changed: fp32, half precision."""


def load(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: dtypes per group, trainable set, hashes of two builds and of all ranks."""
    reasons = trainable_set(seen.get("trainable")) + disk.judge(seen.get("disk"))
    planned = {"bf16": "bfloat16"}.get(plan.precision, "float32")
    dtypes = seen.get("trainable_dtypes") or {}
    half = [name for name in ("float16", "bfloat16") if dtypes.get(name)]
    if plan.precision.endswith("-amp") and half:
        reasons += precision.half_under_scaler(dtypes, plan)
    elif not seen.get("adapter"):
        wrong = {name: names for name, names in dtypes.items() if name != planned and names}
        for name, names in wrong.items():
            text = f"{plural(len(names), 'trainable tensor')} in {name}, planned {planned}: {names[0]}."
            reasons.append(reason("dtype_differs", text, {"tensors": names, "tensor": names[0]}))
    elif plan.precision != "bf16" and half:
        names = dtypes[half[0]]
        text = f"{plural(len(names), 'adapter tensor')} in {half[0]}, planned float32: {names[0]}."
        reasons.append(reason("dtype_differs", text, {"tensors": names, "tensor": names[0]}))
    differing = seen.get("builds_differ") or []
    if differing:
        text = f"Two builds with seed {plan.seed} differ in {plural(len(differing), 'tensor')}: {differing[0]}."
        reasons.append(reason("seed_after_build", text, {"tensors": differing, "tensor": differing[0]}))
    return reasons + ranks.at_start(seen)


def forward(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: the loss of the longest microbatch, per-row finiteness, control loss."""
    reasons: list[Reason] = []
    reasons += unfinite_rows(seen.get("unfinite"))
    if seen.get("finite") is False and not reasons:
        bad = list(seen.get("bad_rows") or seen.get("row_ids") or ())
        text = f"The loss of the longest microbatch is {loss(seen.get('loss'))}, expected a finite number."
        reasons.append(reason("not_finite", text, {"rows": bad}))
    reasons += _packing(seen.get("packing"))
    reasons += control.judge(seen.get("control"))
    return reasons


def _packing(seen: Seen | None) -> list[Reason]:
    """Documents of one row must not see each other: a change in the first may not move what follows it."""
    if not seen:
        return []
    if seen.get("unknown"):
        text = "data.packing is set, and the task does not say where documents lie in a row: see tasks/base.py."
        return [reason("not_observed", text)]
    limit = (LEAK_HALF if seen["half"] else LEAK) * seen["scale"]
    if seen["moved"] <= limit:
        return []
    text = (
        f"Row {seen['row']} holds {seen['documents']} documents: one id changed in the first moves the {seen['by']} of "
        f"those after it by {seen['moved']:.2g}, expected at most {limit:.0e}."
    )
    where = {"row": seen["row"], "rows": seen["rows"], "position": seen["place"]}
    return [reason("packed_documents_leak", text, where)]


def backward(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: tensors without a gradient, those that other rows give one, tensors whose gradient is not finite."""
    reasons: list[Reason] = []
    fed, total = list(seen.get("elsewhere") or ()), seen.get("tensors", 0)
    none = [name for name in seen.get("no_gradient") or () if name not in fed]
    idle = idle_experts(none, list(seen.get("names") or ()))
    for group, severity in (([name for name in none if name not in idle], None), (idle, "note")):
        if group:
            text = f"{len(group)} of {plural(total, 'trainable tensor')} have no gradient after backward: {group[0]}."
            reasons.append(reason("no_gradient", text, {"tensors": group, "tensor": group[0]}, severity=severity))
    reasons += fed_elsewhere(fed, total)
    bad = list(seen.get("bad_gradient") or ())
    if bad and not seen.get("scaled"):
        text = f"{plural(len(bad), 'gradient')} not finite: {bad[0]}."
        reasons.append(reason("not_finite", text, {"tensors": bad, "rows": seen.get("row_ids")}))
    return reasons


def first_step(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: lr, whether parameters moved, optimizer state bytes, scaler."""
    reasons = precision.clipped_scaled(seen.get("scaler") or {})
    if seen.get("skipped"):
        text = "The first optimizer step was skipped by the scaler" + (
            f" {seen['skips']} times in a row." if seen.get("skips", 1) > 1 else "."
        )
        severity = "warn" if seen.get("skips", 1) < 5 else None
        reasons.append(reason("step_skipped", text, severity=severity))
    elif seen.get("lr", 0) > 0 and seen.get("moved") == 0 and seen.get("tensors"):
        severity = "note" if plan.precision == "bf16" else None
        text = f"No parameter changed in the first step at learning rate {seen['lr']:.2g}."
        reasons.append(reason("step_skipped", text, severity=severity))
    return reasons


def steady_step(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: allocated bytes after each update, losses, weights moved, skips in a row."""
    reasons: list[Reason] = []
    after = [value for value in seen.get("allocated_after") or () if value is not None]
    if len(after) >= 3:
        grown = [later - earlier for earlier, later in pairwise(after)]
        limit = max(GROWTH_BYTES, GROWTH_SHARE * after[0])
        if all(step > 0 for step in grown) and after[-1] - after[0] > limit:
            text = (
                f"Allocated memory grows with every update: {size(after[0])} to {size(after[-1])} over "
                f"{len(after)} updates on the same rows; expected flat."
            )
            reasons.append(reason("memory_grows", text, {"rows": seen.get("row_ids")}))
    losses = list(seen.get("losses") or ())
    bad = next((number for number, value in enumerate(losses) if not _finite(value)), None)
    if bad is not None:
        text = f"The loss of update {bad + 2} is {loss_word(losses[bad])}, expected a finite number."
        reasons.append(reason("not_finite", text, {"rows": seen.get("row_ids"), "update": bad + 2}))
    else:
        reasons += _stale(seen, losses)
    return reasons + precision.never_steps(seen.get("skips_in_row", 0))


def _stale(seen: Seen, losses: list[float]) -> list[Reason]:
    """Forwards that do not see what the optimizer wrote: by a probe of the weights, else by losses that stand still.

    Equal losses alone are no evidence where a probe was made: an update may be too small to show in them.
    """
    where = {"rows": seen.get("row_ids")}
    probe = seen.get("probe")
    if probe:
        now, turned, fresh = probe["now"], probe["turned"], probe["fresh"]
        if not all(_finite(value) for value in (now, fresh)):
            return []
        if now == turned and now == fresh:
            text = (
                f"The loss of the same rows stays {now:.9g} when the signs of half of the weights are turned in place."
            )
            return [reason("update_not_seen", text + " Forwards read other weights than the optimizer writes.", where)]
        if abs(now - fresh) > probe["tolerance"] * max(abs(now), abs(fresh), 1e-12):
            text = (
                f"The loss of the same rows is {now:.9g}, and {fresh:.9g} once autocast's cache is emptied: "
                f"forwards are served casts of weights that have been updated since."
            )
            return [reason("update_not_seen", text, where)]
        return []
    if seen.get("moved_share", 0) > 0 and len(losses) >= 2 and len(set(losses)) == 1 and not seen.get("no_lr"):
        text = f"Weights moved and the loss of the same rows stayed {loss_word(losses[0])} {len(losses)} times."
        return [reason("update_not_seen", text, where)]
    return []


def evaluate(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: rows scored, metric, memory per batch and what is left."""
    reasons: list[Reason] = []
    metrics = seen.get("metrics") or {}
    wanted = plan.evaluate.metric
    value = metrics.get(wanted)
    if not seen.get("rows"):
        return [reason("no_validation", "There are no validation rows, so evaluation was not rehearsed.")]
    if value is None:
        text = f"The first evaluation has no {wanted}; it has {', '.join(sorted(metrics)) or 'nothing'}."
        reasons.append(reason("metric_missing", text, {"key": "evaluate.metric"}))
    elif not _finite(value):
        reasons.append(reason("metric_missing", f"{wanted} is {value}, expected a finite number."))
    if seen.get("generation_not_rehearsed"):
        text = f"evaluate.max_new_tokens is {seen['generation_not_rehearsed']}, and generation was not rehearsed."
        reasons.append(reason("not_observed", text, {"key": "evaluate.max_new_tokens"}))
    repeated = list(seen.get("repeated") or ())
    if repeated:
        text = f"{plural(seen.get('repeated_count', len(repeated)), 'row')} scored more than once, expected each once."
        reasons.append(reason("rows_counted_twice", text, {"rows": repeated}))
    # What is kept of every batch is also what is left at the end: one fault, said once.
    reasons += kept.judge(seen) or residue.judge(seen.get("allocated_before"), seen.get("allocated_left"), "evaluation")
    return reasons + evaluated.judge(seen)


def loss_word(value: Any) -> str:
    """A loss that may be a number or the word for one that is not finite."""
    return value if isinstance(value, str) else loss(value)


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
