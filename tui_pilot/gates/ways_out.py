"""What can be changed after an out-of-memory, and what each change means. Pure; nothing here predicts bytes.

Whoever can predict hands ``predicted``: the figures of a change (``need_bytes``, ``fits``), which are put beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tui_pilot.plan.model import Plan

WITHOUT_BATCH = ("load", "export", "reload")
WITH_STEP = ("overfit", "first_step", "steady_step", "batch", "checkpoint", "resume")
TRAINS = ("overfit", "forward", "backward", *WITH_STEP)

Change = dict[str, Any]
Predicted = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


def ways_out(plan: Plan, phase: str, rows: bool = True, predicted: Predicted | None = None) -> list[dict[str, Any]]:
    """Variants of the plan that need less in this phase, as ``{set, same_experiment, changes}``, gentlest first.

    ``rows``: whether a batch was on the device. A save without one is not made smaller by a smaller batch. With
    ``predicted`` each way also has what is foretold of it, and one that would not fit is kept and says so.
    """
    batch = phase not in WITHOUT_BATCH and (rows or phase != "checkpoint")
    ways: list[dict[str, Any]] = []
    if phase == "evaluate":
        micro = plan.evaluate.micro or plan.batch.micro
        if micro > 1:
            ways.append(_way({"evaluate.micro": micro // 2}, True, "only how many rows are scored at once"))
    elif batch:
        ways += _same_question(plan, phase)
    if plan.precision == "fp32" and phase != "evaluate":
        # Mixed precision keeps the weights and what the optimizer holds as they are: it makes activations smaller.
        change = {"precision": "bf16-amp" if batch else "bf16"}
        what = "precision of the forward" if batch else "precision of the weights and of every update"
        ways.append(_way(change, False, what))
    if plan.model.path is not None and plan.model.adapter is None and phase in (*TRAINS, "checkpoint", "export"):
        ways.append(_way({"model.adapter": {"kind": "lora"}}, False, "what is trained: an adapter, not every weight"))
    if plan.data.max_length and plan.data.max_length > 1 and batch:
        cut: dict[str, Any] = {"data.max_length": plan.data.max_length // 2}
        ways.append(_way(cut, False, "the examples: rows that are cut lose their end"))
    if predicted is not None:
        for way in ways:
            way["predicted"] = predicted(way["set"])
    return ways


def _same_question(plan: Plan, phase: str) -> list[dict[str, Any]]:
    """Changes after which it is still the same experiment."""
    ways = []
    micro, accumulation = plan.batch.micro, plan.batch.accumulation
    if micro > 1:
        smaller = max(part for part in range(1, micro) if micro * accumulation % part == 0)
        change: Change = {"batch.micro": smaller, "batch.accumulation": micro * accumulation // smaller}
        ways.append(_way(change, True, f"nothing: the effective batch stays {plan.effective_batch}"))
    if not plan.memory.activation_checkpointing:
        change = {"memory.activation_checkpointing": True}
        ways.append(_way(change, True, "time: activations are computed again in backward"))
    if phase in WITH_STEP and plan.optimizer.implementation in ("auto", "foreach") and plan.optimizer.name == "adamw":
        ways.append(_way({"optimizer.implementation": "fused"}, True, "nothing: the same update without temporaries"))
    return ways


def _way(change: Change, same: bool, changes: str) -> dict[str, Any]:
    return {"set": change, "same_experiment": same, "changes": changes}


def sentence(ways: list[dict[str, Any]]) -> str:
    """The first few ways as one line of advice."""
    parts = []
    for way in ways[:4]:
        change = ", ".join(f"{key}: {value}" for key, value in way["set"].items())
        parts.append(f"{change} ({'same experiment' if way['same_experiment'] else 'changes ' + way['changes']})")
    return "Ways out: " + "; ".join(parts) + "." if parts else "A larger device, or a smaller model."
