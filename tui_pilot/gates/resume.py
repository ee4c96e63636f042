"""The ``resume`` gate: every state named apart, against an uninterrupted twin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import loss, plural, rate, size

Seen = Mapping[str, Any]


def judge(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: the checkpoint used, ``states`` equal or not, the twin's trace beside this process's trace."""
    reasons: list[Reason] = []
    for problem in seen.get("problems") or ():
        reasons.append(reason(problem["code"], problem["text"], problem.get("where")))
    for broken in seen.get("incomplete") or ():
        text = f"{broken['name']} is not whole ({broken['why']}); resumed from {seen.get('checkpoint')}."
        reasons.append(reason("newest_incomplete", text, {"file": broken["name"]}))
    if seen.get("left") is not None and seen["left"] <= 0:
        text = f"The checkpoint stands at update {seen.get('step')} of {seen.get('total')}: nothing is left to do."
        reasons.append(reason("nothing_left", text, {"update": seen.get("step")}))
    if seen.get("trainable_before") is not None and seen.get("trainable_after", 0) < seen["trainable_before"]:
        text = f"Trainable parameters {seen['trainable_before']:,} -> {seen['trainable_after']:,} after the resume."
        reasons.append(reason("trainable_lost", text))
    reasons += _states(seen.get("states") or {})
    reasons += _trace(seen, plan)
    for key, pair in (seen.get("environment") or {}).items():
        text = f"{key} was {pair[0]} in the twin and is {pair[1]} here: compared within {seen.get('tolerance', 0):.0e}."
        reasons.append(reason("environment_differs", text, {"key": key}))
    peak, trained = seen.get("peak"), seen.get("train_peak")
    if peak and trained and peak > trained * 1.02 + (1 << 20):
        text = f"Resuming peaks at {size(peak)}, training at {size(trained)}."
        reasons.append(reason("resume_peak_higher", text))
    seek, limit = seen.get("seek_estimate_s"), plan.gates.resume.max_seek_seconds
    if seek is not None and seek > limit:
        text = f"Reaching the last update's rows would take about {seek:,.0f} s, allowed {limit:,.0f} s."
        reasons.append(reason("seek_too_slow", text))
    return reasons


_STATE_CODES = {
    "weights": "weights_not_restored",
    "optimizer": "optimizer_not_restored",
    "scheduler": "scheduler_restarted",
    "scaler": "scaler_not_restored",
    "torch_rng": "rng_not_restored",
    "python_rng": "rng_not_restored",
    "numpy_rng": "rng_not_restored",
    "device_rng": "rng_not_restored",
}


def _states(states: Mapping[str, Mapping[str, Any]]) -> list[Reason]:
    reasons: list[Reason] = []
    for name, found in states.items():
        if found.get("equal", True):
            continue
        word = name.replace("_", " ").replace("rng", "random state")
        detail = f": {found['detail']}" if found.get("detail") else ""
        where = {"tensors": found["tensors"], "tensor": found["tensors"][0]} if found.get("tensors") else {"key": name}
        reasons.append(
            reason(_STATE_CODES[name], f"The {word} right after the load differs from the twin's{detail}.", where)
        )
    return reasons


def _trace(seen: Seen, plan: Plan) -> list[Reason]:
    twin: Sequence[Seen] = seen.get("twin") or ()
    here: Sequence[Seen] = seen.get("here") or ()
    for number, (left, right) in enumerate(zip(twin, here, strict=False)):
        update = left.get("update", number + 1)
        where = {"update": update}
        if left["rows"] != right["rows"]:
            return [_rows(left["rows"], right["rows"], where, seen)]
        if abs(left["lr"] - right["lr"]) > 1e-12 + 1e-9 * abs(left["lr"]):
            text = f"The learning rate of update {update} is {rate(right['lr'])}, the twin's was {rate(left['lr'])}."
            return [reason("scheduler_restarted", text, where)]
        if not _close(left["loss"], right["loss"], seen.get("tolerance", 0.0)):
            text = (
                f"The loss of update {update} is {_full(right['loss'])}, the twin's was {_full(left['loss'])} "
                f"(same rows, same rate)."
            )
            return [reason("loss_diverges", text, where)]
        if left.get("weights") != right.get("weights") and not seen.get("tolerance"):
            text = f"The weights after update {update} differ from the twin's although the losses are equal."
            return [reason("loss_diverges", text, where)]
    if twin and len(here) < len(twin):
        text = f"{plural(len(here), 'update')} repeated, the twin has {len(twin)}."
        return [reason("updates_left_differ", text)]
    return []


def _rows(want: Sequence[Any], have: Sequence[Any], where: dict[str, Any], seen: Seen) -> Reason:
    before = set(seen.get("rows_before") or ())
    shown = f"{', '.join(map(str, have[:6]))}, the twin's were {', '.join(map(str, want[:6]))}"
    place = {**where, "rows": list(have)}
    again = [row for row in have if row in before]
    if again:
        text = f"Rows {', '.join(map(str, again[:6]))} come again after the resume: next rows are {shown}."
        return reason("rows_repeated", text, place)
    if sorted(map(str, have)) == sorted(map(str, want)):
        return reason("order_differs", f"The next rows come in another order: {shown}.", place)
    return reason("rows_skipped", f"The next rows are {shown}.", place)


def _close(left: Any, right: Any, tolerance: float) -> bool:
    if isinstance(left, str) or isinstance(right, str):
        return bool(left == right)
    if not tolerance:
        return bool(left == right)
    return bool(abs(left - right) <= tolerance * max(1.0, abs(left), abs(right)))


def _full(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.9g} ({loss(value)})"
