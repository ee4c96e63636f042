"""What a plan may say and this version does not run: refused before anything starts, never ignored. Pure."""

from __future__ import annotations

from typing import Any

from tui_pilot.errors import PlanError, PlanErrors
from tui_pilot.plan.model import Plan

OWN_DATA = "Write task: sft, task: classification or my_file.py:MyTask."
BUILT_IN = ("demo", "sft", "classification")


def refuse(plan: Plan, file: str | None, *, run: bool = True) -> None:
    """Raise ``PlanErrors`` naming every value whose meaning would silently be lost.

    ``run=False``: the plan is predicted, not run; several nodes and sharding are then a model of their own.
    """
    found: list[tuple[str, Any, str, str]] = []
    if plan.task == "command":
        found.append(("task", plan.task, "a command of your own is not run by this version.", "Write a task file."))
    if run and plan.launch.strategy == "fsdp":
        found.append(("launch.strategy", "fsdp", "sharding is not run by this version.", "Allowed here: none, ddp."))
    for key in ("nodes", "tensor_parallel"):
        value = getattr(plan.launch, key)
        if value > 1 and (run or key == "tensor_parallel"):
            found.append((f"launch.{key}", value, "only 1 is run by this version.", "Use launch.processes with ddp."))
    if plan.data.packing != "none" and plan.task in BUILT_IN:
        advice = "Allowed here: none. A task of your own may pack in its encode."
        found.append(("data.packing", plan.data.packing, "rows are not packed by this version.", advice))
    if plan.task == "demo":
        given = {f"data.{key}": getattr(plan.data, key) for key in ("train", "validation", "test")}
        given |= {"model.path": plan.model.path, "model.adapter": plan.model.adapter}
        found += [
            (key, str(value), "task demo brings its own data and model and would not look at this.", OWN_DATA)
            for key, value in given.items()
            if value is not None
        ]
    if found:
        errors = [PlanError(text, advice, file=file, key=key, value=value) for key, value, text, advice in found]
        errors[-1].advice += " Nothing was run."
        raise PlanErrors("The plan asks for what this version does not run.", errors=errors)
