"""Two batch settings side by side, and the rules people use for a learning rate: shown, never applied. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tui_pilot.errors import PlanError
from tui_pilot.plan.batch import BatchAnswer, BatchQuestion, answer
from tui_pilot.text import rate

COUNTS = ("micro", "accumulation", "replicas", "examples")
ROWS = (
    ("micro", "microbatch, rows"), ("accumulation", "accumulation"), ("replicas", "replicas"),
    ("effective_batch", "effective batch"), ("updates", "updates"), ("epochs", "epochs"),
    ("examples_seen", "examples seen"), ("examples_dropped", "dropped"), ("examples_repeated", "repeated"),
    ("tokens_seen", "tokens seen"), ("tokens_per_update", "tokens in an update"),
)  # fmt: skip
NOT_APPLIED = "Rules that people use, shown and not applied: none of them is a law for your task."


def other(question: BatchQuestion, changes: Sequence[str]) -> BatchQuestion:
    """The setting with ``key=value`` changes; what is held constant stays."""
    found = question
    for change in changes:
        for part in change.replace(",", " ").split():
            key, _, value = part.partition("=")
            if key in COUNTS and value.isdigit():
                found = replace(found, **{key: int(value)})  # type: ignore[arg-type]
            elif key == "tail" and value in ("step", "drop"):
                found = replace(found, tail="drop" if value == "drop" else "step")
            elif key == "drop_last" and value in ("true", "false"):
                found = replace(found, drop_last=value == "true")
            else:
                allowed = ", ".join(f"{name}=N" for name in COUNTS) + ", drop_last=true|false, tail=step|drop"
                raise PlanError(f"{part!r} is no setting.", f"Allowed: {allowed}.", key="--against", value=part)
    return found


def effective(question: BatchQuestion) -> int:
    """Rows averaged by one whole update, also of a setting from which no run follows."""
    return answer(replace(question, drop_last=False, tail="step", held="updates", amount=1)).effective_batch


def keep(a: BatchQuestion, b: BatchQuestion) -> int | None:
    """The accumulation with which B averages as many rows as A; None where no whole number does."""
    whole, rest = divmod(effective(a), effective(replace(b, accumulation=1)))
    return None if rest else whole


def lr_options(lr: float, old: int, new: int) -> list[dict[str, Any]]:
    """Learning rates for another effective batch by the rules people use, each with its name; none is chosen."""
    ratio = new / old
    return [
        {"rule": "none", "lr": lr, "factor": 1.0},
        {"rule": "linear", "lr": lr * ratio, "factor": ratio},
        {"rule": "square root", "lr": lr * math.sqrt(ratio), "factor": math.sqrt(ratio)},
    ]


def document(a: BatchQuestion, b: BatchQuestion, lr: float | None) -> dict[str, Any]:
    """What ``calc --json`` adds for a second setting."""
    one, two = answer(a), answer(b)
    left, right = one.as_json(), two.as_json()
    found: dict[str, Any] = {
        "against": right,
        "differs": [key for key in left if left[key] != right[key]],
        "accumulation_that_keeps_the_batch": keep(a, b),
    }
    if lr is not None:
        found["lr_options"] = lr_options(lr, one.effective_batch, two.effective_batch)
    return found


def lines(one: BatchAnswer, two: BatchAnswer, lr: float | None) -> list[str]:
    """Both settings side by side."""
    left, right = one.as_json(), two.as_json()
    out = [f"{'':<22}{'A':>14}{'B':>14}"]
    for key, label in ROWS:
        if left[key] is None and right[key] is None:
            continue
        mark = "  !" if left[key] != right[key] else ""
        cells = (f"{value:,.0f}" if key.startswith("tokens") else f"{value:,}" for value in (left[key], right[key]))
        out.append(f"{label:<22}" + "".join(f"{cell:>14}" for cell in cells) + mark)
    if one.effective_batch == two.effective_batch:
        out.append(f"The effective batch is the same: {one.effective_batch:,} rows an update.")
        return out
    wanted = keep(one.question, two.question)
    out.append(
        "B is another experiment than A: each update averages another number of rows. "
        + (f"Accumulation {wanted} keeps {one.effective_batch:,}." if wanted else "No whole accumulation keeps it.")
    )
    if lr is not None:
        out.append(f"Learning rate {rate(lr)} in A. {NOT_APPLIED}")
        for each in lr_options(lr, one.effective_batch, two.effective_batch):
            out.append(f"  {each['rule']:<13}{each['lr']:.3g} (x {each['factor']:.3g})")
    else:
        out.append("A learning rate rule for another batch is your choice (--lr shows them); none is applied.")
    return out
