"""What can be changed after an out-of-memory, and what each change means. Pure; nothing here predicts bytes."""

from __future__ import annotations

from typing import Any

from tui_pilot.plan.model import Plan

WITHOUT_BATCH = ("load", "export", "reload")


def ways_out(plan: Plan, phase: str, rows: bool = True) -> list[dict[str, Any]]:
    """Variants of the plan that need less in this phase, as ``{set, same_experiment, changes}``, gentlest first.

    ``rows``: whether a batch was on the device. A save without one is not made smaller by a smaller batch.
    """
    batch = phase not in WITHOUT_BATCH and (rows or phase != "checkpoint")
    ways: list[dict[str, Any]] = []
    if phase == "evaluate":
        micro = plan.evaluate.micro or plan.batch.micro
        if micro > 1:
            ways.append(_way({"evaluate.micro": micro // 2}, True, "only how many rows are scored at once"))
        return ways
    if batch:
        micro, accumulation = plan.batch.micro, plan.batch.accumulation
        if micro > 1:
            smaller = max(part for part in range(1, micro) if micro * accumulation % part == 0)
            change = {"batch.micro": smaller, "batch.accumulation": micro * accumulation // smaller}
            ways.append(_way(change, True, f"nothing: the effective batch stays {plan.effective_batch}"))
        if not plan.memory.activation_checkpointing:
            change = {"memory.activation_checkpointing": True}
            ways.append(_way(change, True, "time: activations are computed again in backward"))
        if plan.optimizer.implementation in ("auto", "foreach") and plan.optimizer.name == "adamw":
            ways.append(
                _way({"optimizer.implementation": "fused"}, True, "nothing: the same update without temporaries")
            )
    if plan.precision == "fp32":
        ways.append(_way({"precision": "bf16-amp"}, False, "precision of the forward"))
    if plan.model.path is not None and plan.model.adapter is None:
        ways.append(_way({"model.adapter": {"kind": "lora"}}, False, "what is trained: an adapter, not every weight"))
    if plan.data.max_length and plan.data.max_length > 1 and batch:
        change = {"data.max_length": plan.data.max_length // 2}
        ways.append(_way(change, False, "the examples: rows that are cut lose their end"))
    return ways


def _way(change: dict[str, Any], same: bool, changes: str) -> dict[str, Any]:
    return {"set": change, "same_experiment": same, "changes": changes}


def sentence(ways: list[dict[str, Any]]) -> str:
    """The first few ways as one line of advice."""
    parts = []
    for way in ways[:4]:
        change = ", ".join(f"{key}: {value}" for key, value in way["set"].items())
        parts.append(f"{change} ({'same experiment' if way['same_experiment'] else 'changes ' + way['changes']})")
    return "Ways out: " + "; ".join(parts) + "." if parts else "A larger device, or a smaller model."
