"""Loss scalers and half-precision tensors, judged alike in every phase that meets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import plural, rate

Seen = Mapping[str, Any]
NEVER_STEPS = 5
"""Updates skipped in a row from which on a scaler is not looking for its scale any more."""
SCALE_ERROR = 0.1
MANY = 0.5
BF16_STEP = 2.0**-9
"""Half the distance of two neighbouring bf16 numbers, at the top of a power of two, as a share of the number."""


def half_under_scaler(dtypes: Mapping[str, Sequence[str]], plan: Plan) -> list[Reason]:
    """Trainable fp16 or bf16 tensors where the plan wants fp32 ones: a scaler refuses the first, amp doubts both."""
    if not plan.precision.endswith("-amp"):
        return []
    for name in ("float16", "bfloat16"):
        names = list(dtypes.get(name) or ())
        if names:
            listed = ", ".join(names[:4]) + (f", {len(names) - 4} more" if len(names) > 4 else "")
            text = f"{plural(len(names), 'trainable tensor')} in {name} under {plan.precision}: {listed}"
            text += "; expected float32."
            return [reason("trainable_half_precision", text, {"tensors": names, "tensor": names[0]})]
    return []


def update_below(seen: Seen, plan: Plan) -> list[Reason]:
    """Updates at the planned rate that rounding swallows: whole tensors, most of the weights, or weight decay."""
    reasons: list[Reason] = []
    lr, steps = plan.optimizer.lr, seen.get("below_steps")
    below = list(seen.get("below_precision") or ())
    share = seen.get("below_all", 0.0)
    if below:
        text = (
            f"At the planned rate {rate(lr)} {seen.get('below_share', 1):.0%} of the weights of {below[0]} stay "
            f"bit-equal after {steps} steps: the update is below their precision."
        )
        reasons.append(reason("update_below_precision", text, {"tensors": below, "tensor": below[0]}))
    elif share >= MANY:
        text = (
            f"At the planned rate {rate(lr)} {share:.0%} of the weights that a gradient pushes stay bit-equal after "
            f"{steps} steps; expected fewer than {MANY:.0%}."
        )
        reasons.append(reason("update_below_precision", text, severity="warn"))
    rounded = [name for name in seen.get("rounded_away") or () if name not in below]
    if rounded:
        text = (
            f"{len(rounded)} of {plural(seen.get('tensors', 0), 'trainable tensor')} got gradients and did not move in "
            f"{seen['steps']} steps: every update was below their precision, first {rounded[0]}."
        )
        where = {"tensors": rounded, "tensor": rounded[0]}
        reasons.append(reason("update_below_precision", text, where, severity="warn"))
    decay = lr * plan.optimizer.weight_decay
    half = list((seen.get("trainable_dtypes") or {}).get("bfloat16") or ())
    if half and plan.precision == "bf16" and 0 < decay < BF16_STEP:
        text = (
            f"Weight decay takes {decay:.1e} of a weight per update; a bf16 weight moves by {BF16_STEP:.1e} of itself "
            f"or not at all, so it has no effect on {plural(len(half), 'tensor')}."
        )
        where = {"tensors": half, "key": "optimizer.weight_decay"}
        reasons.append(reason("update_below_precision", text, where, severity="warn"))
    return reasons


def scaler(found: Seen | None) -> list[Reason]:
    """``found``: calls per window, scales inside a window, clips while scaled, and the window with an injected inf."""
    if not found:
        return []
    reasons: list[Reason] = []
    windows, updates = found.get("windows", 0), found.get("updates", 0)
    if updates != windows:
        text = f"The scaler was updated {updates} times in {plural(windows, 'window')}; expected once each."
        reasons.append(reason("scaler_updated_in_window", text))
    changed = found.get("changed")
    if changed:
        scales = " to ".join(f"{scale:,.0f}" for scale in changed["scales"])
        text = f"The scale went from {scales} inside window {changed['window']}; expected one scale per window."
        reasons.append(reason("scale_changed_in_window", text, {"update": changed["window"]}))
    reasons += clipped_scaled(found)
    reasons += _sizes(found.get("sizes"))
    reasons += _injected(found.get("injected"))
    reasons += never_steps(found.get("skips_in_row", 0))
    return reasons


def clipped_scaled(found: Seen) -> list[Reason]:
    """Gradients clipped while they were still multiplied by the scale: nearly everything is cut away."""
    early, clips = found.get("clips_before_unscale", 0), found.get("clips", 0)
    if not early:
        return []
    scale = f" by {found['scale']:,.0f}" if found.get("scale") else ""
    text = f"{early} of {plural(clips, 'clip')} came before unscale_: the gradients were still multiplied{scale}."
    return [reason("clip_before_unscale", text)]


def never_steps(in_row: int) -> list[Reason]:
    """Skipping is how a scaler finds its scale; skipping on and on is training that does not happen."""
    if in_row < NEVER_STEPS:
        return []
    text = f"{in_row} updates in a row were skipped by the scaler; expected fewer than {NEVER_STEPS}."
    return [reason("scaler_never_steps", text)]


def _sizes(found: Seen | None) -> list[Reason]:
    """The unscaled gradient of the same rows at two scales: what cuts scaled gradients makes them differ."""
    if not found or not found["small"] or abs(found["large"] / found["small"] - 1.0) <= SCALE_ERROR:
        return []
    scales = found["scales"]
    text = (
        f"The same rows give a gradient of length {found['small']:.3g} at scale {scales[0]:,.0f} and "
        f"{found['large']:.3g} at {scales[1]:,.0f}, both unscaled; expected one: something cuts gradients before that."
    )
    return [reason("clip_before_unscale", text, {"rows": found.get("rows")})]


def _injected(found: Seen | None) -> list[Reason]:
    """One window with an inf in its last microbatch: the whole update is skipped, no tick, the scale halves once."""
    if not found:
        return []
    reasons: list[Reason] = []
    where: dict[str, Any] = {"rows": found.get("rows")}
    moved = list(found.get("moved") or ())
    if found.get("stepped") or moved:
        bad = list(found.get("bad") or ())
        told = f"{len(bad)} are not finite now, first {bad[0]}" if bad else f"{plural(len(moved), 'tensor')} moved"
        text = f"A window with an inf in its last microbatch was applied all the same: {told}; expected no update."
        reasons.append(reason("inf_applied", text, {**where, "tensors": bad or moved}))
    ticks = found.get("ticks", 0)
    if ticks and not found.get("stepped"):
        text = f"The schedule ticked {ticks} times for an update that the scaler skipped: ticks {ticks} > updates 0."
        reasons.append(reason("scheduler_ticks", text, where))
    before, after = found.get("before"), found.get("after")
    if before and after is not None and abs(after - before * found.get("backoff", 0.5)) > 1e-6 * before:
        text = (
            f"After an inf in the last microbatch the scale went from {before:,.0f} to {after:,.0f}; expected "
            f"{before * found.get('backoff', 0.5):,.0f}, one step down."
        )
        reasons.append(reason("scaler_updated_in_window", text, where))
    return reasons
