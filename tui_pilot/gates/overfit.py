"""The ``overfit`` gate: finite, falling, the right ids back in evaluation mode, every planned tensor moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import loss, plural, rate

Seen = Mapping[str, Any]


def judge(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: steps, lr, losses, recovered share in both modes, gradients and movement by tensor."""
    reasons: list[Reason] = []
    rows = list(seen.get("row_ids") or ())
    if seen.get("bad_step") is not None:
        where = {"rows": rows, "update": seen["bad_step"]}
        reasons.append(
            reason("not_finite", f"The loss is {loss(seen.get('last_loss'))} at step {seen['bad_step']}.", where)
        )
    reasons += trainable_set(seen)
    if seen.get("items") == 0:
        text = "The chosen rows hold no supervised item: the loss is 0 because nothing counts."
        return [*reasons, reason("zero_loss_zero_gradient", text, {"rows": rows})]
    if not seen.get("steps"):
        return reasons
    none, zero = list(seen.get("no_gradient") or ()), list(seen.get("untouched") or ())
    total = seen.get("tensors", 0)
    if none:
        text = f"{len(none)} of {plural(total, 'trainable tensor')} never got a gradient: {none[0]}."
        reasons.append(reason("no_gradient", text, {"tensors": none, "tensor": none[0]}))
    still = [name for name in zero if name not in none]
    below = list(seen.get("below_precision") or ())
    still = [name for name in still if name not in below]
    if still:
        text = f"{len(still)} of {plural(total, 'trainable tensor')} did not move in {seen['steps']} steps: {still[0]}."
        reasons.append(reason("untouched_tensor", text, {"tensors": still, "tensor": still[0]}))
    if below:
        text = (
            f"At the planned rate {rate(plan.optimizer.lr)} {seen.get('below_share', 1):.0%} of the weights of "
            f"{below[0]} stay bit-equal after {seen.get('below_steps')} steps: the update is below their precision."
        )
        reasons.append(reason("update_below_precision", text, {"tensors": below, "tensor": below[0]}))
    rounded = [name for name in seen.get("rounded_away") or () if name not in below]
    if rounded:
        text = (
            f"{len(rounded)} of {plural(total, 'trainable tensor')} got gradients and did not move in "
            f"{seen['steps']} steps: every update was below their precision, first {rounded[0]}."
        )
        where = {"tensors": rounded, "tensor": rounded[0]}
        reasons.append(reason("update_below_precision", text, where, severity="warn"))
    reasons += _recovery(seen, rows)
    return reasons


def _recovery(seen: Seen, rows: list[Any]) -> list[Reason]:
    share, first, last = seen.get("recovered"), seen.get("first_loss"), seen.get("last_loss")
    steps, lr = seen["steps"], rate(seen.get("lr"))
    if seen.get("trained_rows") is not None and set(seen["trained_rows"]) != set(seen.get("evaluated_rows") or ()):
        text = "The rows evaluated are not the rows trained on."
        return [reason("evaluated_other_rows", text, {"rows": seen.get("evaluated_rows")})]
    if share is None:
        text = "The task defines no predict, so whether the right ids come back could not be looked at."
        return [reason("not_observed", text)]
    if share >= 1.0:
        return []
    if seen.get("shifted") is not None and seen["shifted"] > max(0.9, share):
        text = (
            f"The model gives the id one place further on {seen['shifted']:.0%} of the places and the right one on "
            f"{share:.0%}: labels are shifted twice."
        )
        return [reason("recovers_shifted_ids", text, {"rows": rows})]
    train_share = seen.get("recovered_train_mode")
    if train_share is not None and train_share >= 0.99 and share < 0.95:
        text = (
            f"{train_share:.0%} of the ids come back in training mode, {share:.0%} in evaluation mode; "
            f"expected all in both."
        )
        return [reason("train_eval_gap", text, {"rows": rows})]
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


def trainable_set(seen: Seen) -> list[Reason]:
    """What trains against what the plan says trains: adapter, head, everything."""
    found = seen.get("trainable")
    if not found:
        return []
    if not found.get("names_count"):
        return [reason("trainable_set_differs", "Nothing is trainable: 0 parameters take a gradient.")]
    if found.get("plan") == "adapter":
        if not found.get("adapter_count"):
            text = f"Planned: an adapter. Trainable: {found['first']} and no adapter tensor."
            return [reason("trainable_set_differs", text, {"tensors": found.get("others")})]
        others = found.get("others") or []
        if others:
            text = (
                f"Planned: an adapter. {len(others)} tensors outside it are trainable too: {others[0]} "
                f"({found.get('others_share', 0):.0%} of all parameters)."
            )
            return [reason("trainable_set_differs", text, {"tensors": others, "tensor": others[0]})]
    if found.get("plan") == "full" and found.get("frozen"):
        text = f"Planned: every weight. {len(found['frozen'])} tensors are frozen: {found['frozen'][0]}."
        return [reason("trainable_set_differs", text, {"tensors": found["frozen"]}, severity=found.get("severity"))]
    return []
