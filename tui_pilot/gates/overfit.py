"""The ``overfit`` gate: finite, falling, the right ids back in evaluation mode, every planned tensor moved."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.gates import precision
from tui_pilot.gates.codes import reason
from tui_pilot.gates.trainable import trainable_set
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import loss, plural, rate

Seen = Mapping[str, Any]
_EXPERT = re.compile(r"expert", re.IGNORECASE)
IDLE = " The rows of this test sent them no token; others of their kind did get one."
CONSTANT = " It cancels out of the loss, as one constant under two scores that are compared does."


def judge(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: steps, lr, losses, recovered share in both modes, gradients and movement by tensor."""
    reasons: list[Reason] = []
    rows = list(seen.get("row_ids") or ())
    reasons += unfinite_rows(seen.get("unfinite"))
    if seen.get("bad_step") is not None and not reasons:
        where = {"rows": rows, "update": seen["bad_step"]}
        reasons.append(
            reason("not_finite", f"The loss is {loss(seen.get('last_loss'))} at step {seen['bad_step']}.", where)
        )
    reasons += trainable_set(seen.get("trainable"))
    reasons += precision.half_under_scaler(seen.get("trainable_dtypes") or {}, plan)
    if seen.get("items") == 0:
        text = "The chosen rows hold no supervised item: the loss is 0 because nothing counts."
        return [*reasons, reason("zero_loss_zero_gradient", text, {"rows": rows})]
    if not seen.get("steps"):
        return reasons
    none, zero = list(seen.get("no_gradient") or ()), list(seen.get("untouched") or ())
    total = seen.get("tensors", 0)
    if none and len(none) == total and not seen.get("first_loss", 1.0):
        text = f"The loss of {plural(seen.get('items', 0), 'supervised item')} is 0 and so is every gradient."
        return [*reasons, reason("zero_loss_zero_gradient", text, {"rows": rows})]
    reasons += _gradients(none, seen)
    still = [name for name in zero if name not in none]
    below = list(seen.get("below_precision") or ())
    still = [name for name in still if name not in below]
    if still:
        text = f"{len(still)} of {plural(total, 'trainable tensor')} did not move in {seen['steps']} steps: {still[0]}."
        reasons.append(reason("untouched_tensor", text, {"tensors": still, "tensor": still[0]}))
    reasons += precision.update_below(seen, plan)
    reasons += _recovery(seen, rows)
    return reasons


def _gradients(none: list[str], seen: Seen) -> list[Reason]:
    """Trainable tensors that never got a gradient: adapters counted apart. Less than a fault are tensors that other
    rows feed (a note), experts that met no token, and a constant that cancels out of the loss (both a warning)."""
    zero, fed = set(seen.get("zero_gradient") or ()), set(seen.get("elsewhere") or ())
    total, adapters, names = seen.get("tensors", 0), list(seen.get("adapters") or ()), list(seen.get("names") or ())
    none = [name for name in none if name not in fed]
    idle = idle_experts(none, names)
    constant = [name for name in none if name in zero and _weight_moves(name, names, none)]
    left = [name for name in none if name not in idle and name not in constant]
    reasons = []
    for group, severity, why in ((left, None, ""), (idle, "warn", IDLE), (constant, "warn", CONSTANT)):
        if not group:
            continue
        how = "a gradient that is not all zero" if set(group) <= zero else "a gradient"
        lost = [name for name in group if name in adapters]
        text = f"{len(group)} of {plural(total, 'trainable tensor')} never got {how}: {_listed(group)}."
        if lost:
            text += f" Adapters without gradient: {len(lost)} of {len(adapters)} tensors."
        where = {"tensors": group, "tensor": group[0]}
        reasons.append(reason("no_gradient", text + why, where, severity=severity))
    return reasons + fed_elsewhere(list(seen.get("elsewhere") or ()), total)


def fed_elsewhere(names: list[str], total: int) -> list[Reason]:
    """Tensors without a gradient here that other rows of train give one: nothing is wrong with them."""
    if not names:
        return []
    text = f"{len(names)} of {plural(total, 'trainable tensor')} get no gradient from these rows, and from others of "
    text += f"train they do: {_listed(names)}."
    return [reason("no_gradient", text, {"tensors": names, "tensor": names[0]}, "Nothing to do.", severity="note")]


def idle_experts(none: Sequence[str], names: Sequence[str]) -> list[str]:
    """Experts without a gradient that have others of their kind with one."""
    served = {_family(name) for name in set(names) - set(none)}
    return [name for name in none if _EXPERT.search(name) and _family(name) in served]


def _weight_moves(name: str, names: list[str], none: list[str]) -> bool:
    """Whether a tensor is the bias of a layer whose weight does get gradients."""
    layer, _, last = name.rpartition(".")
    weight = f"{layer}.weight" if layer else "weight"
    return last == "bias" and weight in names and weight not in none


def unfinite_rows(found: Sequence[Seen] | None) -> list[Reason]:
    """Rows with a NaN or inf on a token of their own, with how they were padded."""
    if not found:
        return []
    first = found[0]
    rows = list(dict.fromkeys(one["row"] for one in found))
    text = f"{plural(len(rows), 'row')} whose own tokens get a NaN or inf: {first['row']}"
    if first.get("side"):
        width = (first.get("length") or 0) + first["padded"]
        text += f", {first['padded']} of {width} places padded on the {first['side']}"
    text += f", first at place {first['position']}" if first.get("position") is not None else ""
    where = {"rows": rows, "row": first["row"], "position": first.get("position")}
    advice = (
        "A place that may look at no key has no softmax: give padding one, or mask its answer."
        if first.get("side")
        else None
    )
    return [reason("not_finite", text + "; expected finite numbers.", where, advice=advice)]


def _family(name: str) -> str:
    """A tensor's name without its numbers: experts of one kind share it."""
    return re.sub(r"\d+", "#", name)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f", {len(names) - 3} more" if len(names) > 3 else "")


def _recovery(seen: Seen, rows: list[Any]) -> list[Reason]:
    share, first, last = seen.get("recovered"), seen.get("first_loss"), seen.get("last_loss")
    steps, lr = seen["steps"], rate(seen.get("lr"))
    asked = seen.get("evaluated_rows")
    if asked is not None and seen.get("trained_rows") is not None and set(seen["trained_rows"]) != set(asked):
        trained = ", ".join(str(row) for row in list(seen["trained_rows"])[:5])
        text = f"Trained on rows {trained}; evaluated {', '.join(str(row) for row in list(asked)[:5])}."
        return [reason("evaluated_other_rows", text, {"rows": list(asked)})]
    gap = _mode_gap(seen, rows)
    if gap:
        return gap
    if share is None:
        text = "The task defines no predict, so whether the right ids come back could not be looked at."
        return [reason("not_observed", text)]
    if share >= 1.0:
        return []
    if seen.get("shifted") is not None and seen["shifted"] > max(0.9, share + 0.2):
        return [_shifted(seen, share, rows)]
    if seen.get("bad_step") is not None:
        return []
    if last is not None and first is not None and not last < first:
        text = f"The loss does not fall: {loss(first)} to {loss(last)} in {steps} steps at {lr}."
        return [reason("loss_not_falling", text, {"rows": rows})]
    wrong = seen.get("wrong") or {}
    text = (
        f"{share:.1%} of {seen.get('items', 0):,} target ids came back after {steps} steps at {lr} "
        f"(loss {loss(first)} to {loss(last)}); expected all."
    )
    where: dict[str, Any] = {"rows": rows}
    if wrong:
        where |= {"row": wrong.get("row"), "position": wrong.get("position")}
    return [reason("not_recovered", text, where)]


_SHIFTS = {
    1: ("one place further on", "labels are shifted twice", None),
    2: ("two places further on", "labels are shifted three times", None),
    -1: (
        "of the place itself, which it was just given",
        "nothing shifts the labels",
        "Shift once: the answer at a place is for the token after it.",
    ),
}


def _shifted(seen: Seen, share: float, rows: list[Any]) -> Reason:
    where, why, advice = _SHIFTS[seen.get("shift", 1)]
    text = (
        f"The model gives the id {where} on {seen['shifted']:.0%} of the places that can tell, and the right one on "
        f"{share:.0%} of all: {why}."
    )
    return reason("recovers_shifted_ids", text, {"rows": rows}, advice=advice)


def _mode_gap(seen: Seen, rows: list[Any]) -> list[Reason]:
    """Right in training mode and wrong in evaluation mode: by the answers, and where there are none by the losses."""
    share, trained = seen.get("recovered"), seen.get("recovered_train_mode")
    losses = seen.get("mode_losses") or {}
    mine, other = losses.get("training"), losses.get("evaluation")
    said = f" Loss {loss(mine)} and {loss(other)}." if mine is not None and other is not None else ""
    if share is not None and share < 1.0 and trained is not None and trained >= 0.9 and trained - share > 0.05:
        text = f"{trained:.0%} of the ids come back in training mode, {share:.0%} in evaluation mode; expected all."
        return [reason("train_eval_gap", text + said, {"rows": rows})]
    first = seen.get("first_loss") or 0.0
    if share is None and mine is not None and other is not None and other > 2 * mine + 0.1 * abs(first):
        text = f"The loss of the same rows is {loss(mine)} in training mode and {loss(other)} in evaluation mode."
        return [reason("train_eval_gap", text, {"rows": rows})]
    return []
