"""``judge(phase, observation, plan) -> Verdict``: pure, the same for a task and for a command."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tui_pilot.gates import artifact, batch, close, examples, memory_phases, overfit, resume, splits, stack, variant
from tui_pilot.gates.codes import CODES, reason
from tui_pilot.gates.verdict import Reason, Verdict, settle
from tui_pilot.plan.model import Plan

Judge = Callable[[Mapping[str, Any], Plan], list[Reason]]

JUDGES: dict[str, Judge] = {
    "stack": stack.judge,
    "examples": examples.judge,
    "splits": splits.judge,
    "overfit": lambda seen, plan: [*overfit.judge(seen, plan), *variant.judge(seen)],
    "load": memory_phases.load,
    "forward": memory_phases.forward,
    "backward": memory_phases.backward,
    "first_step": memory_phases.first_step,
    "steady_step": memory_phases.steady_step,
    "evaluate": memory_phases.evaluate,
    "batch": batch.judge,
    "checkpoint": close.checkpoint,
    "export": artifact.export,
    "resume": resume.judge,
    "reload": artifact.reload,
}


def judge(phase: str, seen: Mapping[str, Any], plan: Plan) -> Verdict:
    """The verdict of what a phase saw. ``gates.severity`` of the plan has the last word on a code's severity."""
    found = JUDGES[phase](seen, plan) if seen else [reason("not_observed", f"Nothing was seen of {phase}.")]
    reasons = [
        dataclasses.replace(each, severity=plan.gates.severity[each.code]) if each.code in plan.gates.severity else each
        for each in found
    ]
    return settle(reasons, thresholds(phase, plan))


def thresholds(phase: str, plan: Plan) -> dict[str, Any]:
    """The numbers this phase was judged by, for the row."""
    if phase == "examples":
        return {"max_truncated": plan.gates.examples.max_truncated}
    if phase == "overfit":
        return {"steps": plan.gates.overfit.steps, "recovered": 1.0}
    if phase == "batch":
        return {"relative_gradient_error": batch.tolerance(plan)}
    if phase == "steady_step":
        return {"growth_bytes": memory_phases.GROWTH_BYTES, "growth_share": memory_phases.GROWTH_SHARE}
    if phase == "resume":
        return {"max_seek_seconds": plan.gates.resume.max_seek_seconds}
    if phase == "reload":
        return {"relative_loss": plan.gates.reload.relative_loss or dict(artifact.OUTPUT_TOLERANCE)}
    return {}


def known(code: str) -> bool:
    """Whether a code is in the table."""
    return code in CODES
