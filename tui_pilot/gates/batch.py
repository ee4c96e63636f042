"""The ``batch`` gate: what was counted against what the plan's arithmetic says, and two ways to one gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import plural, rate

Seen = Mapping[str, Any]
TOLERANCE = {"fp32": 1e-4, "bf16": 3e-2, "bf16-amp": 3e-2, "fp16-amp": 3e-2}


def judge(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: planned and counted numbers, the LR trace, the gradient comparison, row ids per rank."""
    reasons: list[Reason] = []
    if seen.get("no_update"):
        return [reason("no_update", f"The campaign would end without an update: {seen['no_update']}")]
    reasons += _counts(seen, plan)
    reasons += _ticks(seen)
    reasons += _curve(seen)
    reasons += _scaler(seen)
    reasons += _gradient(seen.get("gradient"), plan)
    reasons += _rows(seen)
    return reasons


def _counts(seen: Seen, plan: Plan) -> list[Reason]:
    reasons: list[Reason] = []
    planned = seen.get("planned_rows_per_update") or []
    counted = seen.get("rows_per_update") or []
    for number, (want, have) in enumerate(zip(planned, counted, strict=False)):
        if want != have:
            text = (
                f"Update {number + 1} saw {plural(have, 'row')}, planned {want} = micro {plan.batch.micro} x "
                f"accumulation {plan.batch.accumulation} x replicas {plan.replicas}."
            )
            reasons.append(reason("effective_batch_differs", text, {"update": number + 1}))
            break
    for disagreement in seen.get("count_disagrees") or ():
        text = (
            f"count says {disagreement['count']} supervised items, loss says {disagreement['loss']} "
            f"for rows {', '.join(str(row) for row in disagreement['rows'][:4])}."
        )
        reasons.append(reason("sources_disagree", text, {"rows": disagreement["rows"]}))
        break
    answer = seen.get("planned") or {}
    dropped, total = answer.get("examples_dropped", 0), answer.get("examples_seen", 0)
    if dropped:
        text = f"drop_last and tail leave {plural(dropped, 'row')} out ({total:,} are seen)."
        reasons.append(reason("rows_dropped", text))
    last, effective = (answer.get("last_update") or {}).get("examples"), answer.get("effective_batch")
    if last and effective and last < effective:
        text = f"The last update of the run averages {plural(last, 'row')} instead of {effective}."
        reasons.append(reason("last_window", text, severity="note"))
    return reasons


def _ticks(seen: Seen) -> list[Reason]:
    steps, ticks, done = seen.get("optimizer_steps"), seen.get("scheduler_ticks"), seen.get("updates")
    if steps is None or ticks is None or done is None:
        return []
    if ticks != steps:
        text = f"The schedule ticked {ticks} times in {plural(steps, 'optimizer step')}; expected one tick per step."
        return [reason("scheduler_ticks", text)]
    return []


def _curve(seen: Seen) -> list[Reason]:
    curve = seen.get("curve")
    if not curve:
        return []
    for point in curve:
        want, have = point["planned"], point["seen"]
        if abs(want - have) > 1e-3 * max(abs(want), abs(have), 1e-12) + 1e-12:
            text = (
                f"The learning rate at update {point['update']} ({point['name']}) is {rate(have)}, "
                f"planned {rate(want)}."
            )
            return [reason("lr_curve_differs", text, {"update": point["update"]}, severity=point.get("severity"))]
    return []


def _scaler(seen: Seen) -> list[Reason]:
    scaler = seen.get("scaler")
    if not scaler:
        return []
    reasons: list[Reason] = []
    if scaler.get("updates", 0) != scaler.get("windows", 0):
        windows = plural(scaler["windows"], "window")
        text = f"The scaler was updated {scaler['updates']} times in {windows}; expected once each."
        reasons.append(reason("scaler_updated_in_window", text))
    return reasons


def _gradient(found: Seen | None, plan: Plan) -> list[Reason]:
    if found is None:
        return []
    if found.get("why"):
        return [reason("not_observed", f"Gradients were not compared: {found['why']}")]
    limit = tolerance(plan)
    error, ratio, parts = found["error"], found["ratio"], found["microbatches"]
    if error <= limit:
        together = found.get("together")
        if together and together["error"] > max(1e-3, limit):
            text = (
                f"The loss of two rows in one microbatch is {together['whole']:.4g}, of each alone together "
                f"{together['apart']:.4g}: it is a mean, not a sum over supervised items."
            )
            return [reason("loss_not_token_weighted", text, {"rows": found.get("rows")})]
        return []
    text = (
        f"The update's gradient differs from the same rows one by one: relative error {error:.2g}, "
        f"expected at most {limit:.0e}; length ratio {ratio:.3g} over {plural(parts, 'microbatch', 'microbatches')}."
    )
    where = {"rows": found.get("rows")}
    scales = [float(parts), 1.0 / parts, float(found.get("rows_per_micro") or 1), float(plan.replicas)]
    if found.get("direction", 0) > 0.999 and any(_near(ratio, scale) for scale in scales if scale != 1.0):
        return [reason("gradient_scaled", text, where)]
    return [reason("loss_not_token_weighted", text, where)]


def tolerance(plan: Plan) -> float:
    """The relative gradient error allowed: the plan's word, else by precision."""
    given = plan.gates.batch.gradient_error
    return TOLERANCE.get(plan.precision, 1e-4) if given is None else given


def _near(value: float, target: float) -> bool:
    return abs(value - target) <= 0.03 * target


def _rows(seen: Seen) -> list[Reason]:
    reasons: list[Reason] = []
    shared: Sequence[Any] = seen.get("shared_between_ranks") or ()
    if shared:
        text = f"{plural(len(shared), 'row')} seen by more than one rank in the first update; expected 0."
        reasons.append(reason("ranks_see_same_rows", text, {"rows": list(shared)}))
    if seen.get("same_order_each_epoch"):
        text = "Epoch 0 and epoch 1 have the same order, expected another permutation."
        reasons.append(reason("order_differs", text, {"rows": seen.get("first_rows")}))
    if seen.get("order_unstable"):
        text = "Asked twice, the order of epoch 0 differs: a resumed run could not find its place."
        reasons.append(reason("order_differs", text, {"rows": seen.get("first_rows")}))
    odd = seen.get("order_problem")
    if odd:
        reasons.append(reason("order_differs", odd["text"], {"rows": odd.get("rows", [])}))
    hashes = seen.get("rank_hashes") or []
    if len(set(hashes)) > 1:
        rank = next(number for number, value in enumerate(hashes) if value != hashes[0])
        text = f"Weights of rank {rank} differ from rank 0 after {plural(seen.get('updates', 0), 'update')}."
        reasons.append(reason("replicas_drift", text, {"rank": rank}))
    norms = [norm for norm in seen.get("rank_norms") or () if norm is not None]
    if norms and max(norms) - min(norms) > 1e-4 * max(norms):
        text = f"Ranks clip by different norms: {min(norms):.4g} to {max(norms):.4g}; expected one."
        reasons.append(reason("norm_local", text))
    if seen.get("bad_update") is not None:
        text = f"The loss of update {seen['bad_update']} is not finite."
        where = {"update": seen["bad_update"], "rows": seen.get("bad_rows")}
        reasons.append(reason("not_finite", text, where))
    return reasons
