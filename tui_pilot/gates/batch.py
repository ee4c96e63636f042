"""The ``batch`` gate: what was counted against what the plan's arithmetic says, and two ways to one gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.gates import evaluated, precision, ranks, sources
from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import plural, rate

Seen = Mapping[str, Any]
TOLERANCE = {"fp32": 1e-4, "bf16": 3e-2, "bf16-amp": 3e-2, "fp16-amp": 3e-2}
BY_DESIGN = "See that batch.micro is what the loss should see, and that the part is weighed once per update."
PARALLEL = 0.99999
"""Cosine from which on two gradients that differ do so by a factor alone."""


def judge(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: planned and counted numbers, the LR trace, the gradient comparison, row ids per rank."""
    if seen.get("no_update"):
        return [reason("no_update", f"The campaign would end without an update: {seen['no_update']}")]
    reasons: list[Reason] = []
    reasons += _no_step(seen)
    reasons += _counts(seen, plan)
    reasons += sources.judge(seen.get("sources") or (), seen.get("counted") or {}, plan)
    reasons += _ticks(seen)
    reasons += _curve(seen)
    reasons += precision.scaler(seen.get("scaler"))
    reasons += _gradient(seen.get("gradient"), plan)
    reasons += _in_force((seen.get("gradient") or {}).get("in_force"), plan)
    reasons += _rows(seen)
    reasons += ranks.judge(seen, plan)
    reasons += evaluated.state(seen.get("changed"), "The comparison of gradients")
    return reasons


def _no_step(seen: Seen) -> list[Reason]:
    """A loop that ran and never stepped, without a scaler that skipped: it would end as finished, untrained."""
    steps, micros = seen.get("optimizer_steps"), seen.get("microbatches")
    if steps is None or micros is None or steps + (seen.get("skipped") or 0) > 0:
        return []
    text = f"The loop ended without an optimizer step: 0 updates in {plural(micros, 'microbatch', 'microbatches')}"
    if seen.get("rows_used") is not None:
        text += f" of {plural(seen['rows_used'], 'row')}"
    if seen.get("rows_before_filter") is not None:
        text += f", {seen['rows_before_filter']:,} before the filter"
    return [reason("no_update", text + f"; expected at least {max(1, seen.get('planned_updates') or 1)}.")]


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
    items = seen.get("items_per_update") or ()
    empty = [number + 1 for number, count in enumerate(items) if not count]
    if empty:
        text = (
            f"{len(empty)} of {plural(len(items), 'update')} held no supervised item, first update {empty[0]}: "
            "loss 0 and no gradient, but the schedule goes on."
        )
        severity = None if len(empty) == len(items) else "warn"
        reasons.append(reason("zero_loss_zero_gradient", text, {"update": empty[0]}, severity=severity))
    return reasons


def _ticks(seen: Seen) -> list[Reason]:
    steps, ticks = seen.get("optimizer_steps"), seen.get("scheduler_ticks")
    if steps is None or ticks is None or ticks == steps:
        return []
    skipped = seen.get("skipped") or 0
    told = f" and {plural(skipped, 'skipped one')}" if skipped else ""
    sign = ">" if ticks > steps else "<"
    text = (
        f"The schedule ticked {plural(ticks, 'time')} in {plural(steps, 'optimizer step')}{told}: ticks {ticks} "
        f"{sign} updates {steps}; expected one tick per step."
    )
    return [reason("scheduler_ticks", text)]


def _curve(seen: Seen) -> list[Reason]:
    curve = seen.get("curve")
    if not curve:
        return []
    found: list[Reason] = []
    for point in curve:
        want, have = point["planned"], point["seen"]
        if abs(want - have) > 1e-3 * max(abs(want), abs(have), 1e-12) + 1e-12:
            text = (
                f"The learning rate at update {point['update']} ({point['name']}) is {rate(have)}, "
                f"planned {rate(want)}."
            )
            where = {"update": point["update"]}
            found.append(reason("lr_curve_differs", text, where, severity=point.get("severity")))
    return sorted(found, key=lambda each: each.severity != "fail")[:1]


def _gradient(found: Seen | None, plan: Plan) -> list[Reason]:
    if found is None:
        return []
    if found.get("why"):
        return [reason("not_observed", f"Gradients were not compared: {found['why']}")]
    limit = tolerance(plan)
    error, ratio, parts = found["error"], found["ratio"], found["microbatches"]
    together = found.get("together") or {}
    by_design = _of_the_microbatch(together)
    if by_design and max(error, together["error"]) > limit:
        return [reason("not_observed", f"Gradients were not compared: {by_design}", advice=BY_DESIGN)]
    if error <= limit:
        if together and together["error"] > max(1e-3, limit):
            text = (
                f"The loss of two rows in one microbatch is {together['whole']:.4g}, of each alone together "
                f"{together['apart']:.4g}: it is a mean, not a sum over supervised items."
            )
            return [reason("loss_not_token_weighted", text, {"rows": found.get("rows")})]
        return []
    where = {"rows": found.get("rows")}
    scales = [float(parts), 1.0 / parts, float(found.get("rows_per_micro") or 1), float(plan.replicas)]
    text = (
        f"The update's gradient differs from the same rows one by one: relative error {error:.2g}, "
        f"expected at most {limit:.0e}; length ratio {ratio:.3g} over {plural(parts, 'microbatch', 'microbatches')}"
    )
    direction = found.get("direction", 0)
    by_a_factor = direction > PARALLEL and abs(ratio - 1.0) > 0.5 * error
    if by_a_factor or (direction > 0.999 and any(_near(ratio, scale) for scale in scales if scale != 1.0)):
        text += ": not divided by them." if ratio > 1 else ": divided twice." if _near(ratio, 1.0 / parts) else "."
        return [reason("gradient_scaled", text, where)]
    return [reason("loss_not_token_weighted", text + ".", where)]


def _of_the_microbatch(together: Seen) -> str | None:
    """A loss that rightly depends on which rows stand in one microbatch, in words."""
    if together.get("compares_rows"):
        return "the loss compares the rows of one microbatch with each other, and accumulation does not add to them."
    if together.get("beside"):
        return (
            f"beside the sum over its items the loss has a part of {together['beside']:.3g} that depends on which rows "
            "stand in one microbatch, as a balance of experts does."
        )
    return None


def _in_force(found: Seen | None, plan: Plan) -> list[Reason]:
    """The loss that one microbatch really went through: its size, and the labels it was given."""
    if not found:
        return []
    where = {"rows": found.get("rows")}
    summed, returned = found.get("summed"), found.get("returned")
    other = found.get("accumulation") or {}
    if other and not _near(other["returned"], other["here"], 1e-3):
        text = (
            f"The loss of the same rows is {other['here']:.4g} with accumulation {other['planned']} and "
            f"{other['returned']:.4g} with {other['other']}: the task scales it itself, and the loop divides once more."
        )
        return [reason("gradient_scaled", text, where)]
    if summed and returned is not None:
        ratio, parts = returned / summed, plan.batch.accumulation
        names = {float(parts): "multiplied by", 1.0 / parts: "divided once more by"}
        heads = len(found.get("calls") or ())  # a mean over several heads divides by them, rightly
        told = next((words for scale, words in names.items() if scale != 1.0 and _near(ratio, scale)), None)
        told = None if heads > 1 and _near(ratio, 1.0 / heads) else told
        if told:
            # A weight of the task's own may have that value by chance.
            text = f"The loss returned is {returned:.4g}, its items sum to {summed:.4g}"
            text += f": {told} the accumulation ({parts})?"
            return [reason("gradient_scaled", text, where, severity="warn")]
        items, count = _only_items(found), found.get("count")
        if items is not None and _near(ratio, 1.0) and items != count:
            text = f"count says {count} supervised items, and the loss in force works on {items} targets."
            return [reason("sources_disagree", text, where)]
    for call in found.get("calls") or ():
        wrong = _mismatch(call, found)
        if wrong:
            return [reason("loss_mismatch", wrong, where)]
    return []


def _only_items(found: Seen) -> int | None:
    """Targets of the one loss that a microbatch goes through; None for several, such as one for each head."""
    calls: Sequence[Seen] = found.get("calls") or ()
    return calls[0].get("items") if len(calls) == 1 else None


def _mismatch(call: Seen, found: Seen) -> str | None:
    name, labels = call["loss"], found.get("labels")
    given, wanted = call["input"], call["target"]
    numbers = name not in ("cross_entropy", "nll_loss")
    if numbers and _multiplies(given, wanted):
        shapes = f"{' x '.join(map(str, given)) or '1'} answers against {' x '.join(map(str, wanted)) or '1'} labels"
        return f"{name} is in force on {shapes}: every answer is compared with every label; expected one shape."
    alone = all(each["loss"] == name for each in found.get("calls") or ())
    if numbers and alone and not name.startswith("binary") and found.get("classes", 0) > 1:
        return f"{name} is in force on {labels} labels, and the task names {found['classes']} classes."
    return None


def _multiplies(left: Sequence[int], right: Sequence[int]) -> bool:
    """Whether two shapes broadcast to more items than either has."""
    size = max(len(left), len(right))
    padded = [[1] * (size - len(each)) + list(each) for each in (left, right)]
    together: int = math.prod(max(pair) for pair in zip(*padded, strict=True))
    return together > max(int(math.prod(left)), int(math.prod(right)))


def tolerance(plan: Plan) -> float:
    """The relative gradient error allowed: the plan's word, else by precision."""
    given = plan.gates.batch.gradient_error
    return TOLERANCE.get(plan.precision, 1e-4) if given is None else given


def _near(value: float, target: float, share: float = 0.03) -> bool:
    return abs(value - target) <= share * abs(target)


def _rows(seen: Seen) -> list[Reason]:
    reasons: list[Reason] = []
    if seen.get("same_order_each_epoch"):
        text = "Epoch 0 and epoch 1 have the same order, expected another permutation."
        reasons.append(reason("order_differs", text, {"rows": seen.get("first_rows")}))
    if seen.get("order_unstable"):
        text = "Asked twice, the order of epoch 0 differs: a resumed run could not find its place."
        reasons.append(reason("order_differs", text, {"rows": seen.get("first_rows")}))
    odd = seen.get("order_problem")
    if odd:
        where = {"rows": odd.get("rows", [])}
        reasons.append(reason("order_differs", odd["text"], where, severity=odd.get("severity")))
    if seen.get("bad_update") is not None:
        text = f"The loss of update {seen['bad_update']} is not finite."
        where = {"update": seen["bad_update"], "rows": seen.get("bad_rows")}
        reasons.append(reason("not_finite", text, where))
    return reasons
