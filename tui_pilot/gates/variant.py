"""A variant against its baseline: the same question must give the same result, another one is said to be another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.text import loss, plural

GRADIENT = {"fp32": 1e-3, "bf16": 0.05, "bf16-amp": 0.05, "fp16-amp": 0.05}
"""Relative distance of two gradients that only the order of sums and another kernel may make, by precision."""
LOSS = {"fp32": 1e-4, "bf16": 0.03, "bf16-amp": 0.03, "fp16-amp": 0.03}
"""The same of the control loss."""
LENGTH = 0.05
"""How far the length of the summed updates may differ: rounding turns single elements, not the length."""
UPDATE = {"fp32": 0.05, "bf16": 0.5, "bf16-amp": 0.5, "fp16-amp": 0.5}
"""Relative distance of the summed updates: a small gradient's rounding decides the sign of a whole step of AdamW."""


def judge(seen: Mapping[str, Any]) -> list[Reason]:
    """``seen``: the ``quality`` of a variant's run, with ``why`` it asks another question, where it does."""
    found = seen.get("variant")
    if not found:
        return []
    what = ", ".join(f"{key} {_word(old)} -> {_word(new)}" for key, (old, new) in found["changed"].items()) or "nothing"
    if found.get("control_loss") is None and found.get("grad_error") is None:
        text = f"{what}: {found['basis']}."
        return [reason("variant_not_compared", text)]
    where = {"rows": found["rows"]}
    if not found["same_question"]:
        why = " ".join(found["why"])
        text = f"Another experiment than its baseline: {why} {_numbers(found)}"
        return [reason("variant_compared", text, where)]
    reasons = _differences(found, what, where)
    if reasons:
        return reasons
    return [reason("variant_compared", f"The same result as its baseline ({what}). {_numbers(found)}", where)]


def _differences(found: Mapping[str, Any], what: str, where: dict[str, Any]) -> list[Reason]:
    precision = found["precision"][0]
    ahead = f"{what} must not change the result."
    error, most = found.get("grad_error"), GRADIENT[precision]
    if error is None or error > most:
        told = "is not finite" if error is None else f"is off by {error:.2g} (expected at most {most:g})"
        text = f"{ahead} The gradient over the same {plural(len(found['rows']), 'row')} {told}: {_shape(found)}."
        return [reason("variant_changes_result", text, where)]
    delta, value = found.get("control_loss_delta"), found.get("control_loss")
    if delta is not None and abs(delta) > LOSS[precision] * max(1e-6, abs(value - delta)):
        text = f"{ahead} The control loss at the same weights is {loss(value)}, the baseline's {loss(value - delta)}."
        return [reason("variant_changes_result", text)]
    ratio = found.get("update_ratio")
    moved = found.get("update_error")
    if ratio is None or abs(ratio - 1) > LENGTH or moved is None or moved > UPDATE[precision]:
        text = (
            f"{ahead} The gradients agree, but after the same updates the weights do not: they moved by "
            f"{ratio if ratio is None else f'{ratio:.3g}'} of the baseline's way, direction "
            f"{found['update_cosine']:.4f}."
        )
        return [reason("variant_changes_result", text, where)]
    return []


def _shape(found: Mapping[str, Any]) -> str:
    ratio = found.get("grad_ratio")
    length = "unknown" if ratio is None else f"{ratio:.3g}"
    return f"length {length} of the baseline's, direction {found['grad_cosine']:.4f}"


def _numbers(found: Mapping[str, Any]) -> str:
    said = []
    if found.get("control_loss") is not None and found.get("control_loss_delta") is not None:
        said.append(f"control loss {loss(found['control_loss'])} ({found['control_loss_delta']:+.2g})")
    if found.get("grad_cosine") is not None:
        said.append(f"gradient cosine {found['grad_cosine']:.6f}")
    if found.get("control_ids_changed") is not None:
        said.append(f"{found['control_ids_changed']} of {found['control_ids']} control answers changed")
    if found.get("control_loss_after_delta") is not None:
        said.append(f"control loss after the updates {found['control_loss_after_delta']:+.2g}")
    return f"At the same weights: {'; '.join(said)}." if said else ""


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_word(each)}" for key, each in value.items()) + "}"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
