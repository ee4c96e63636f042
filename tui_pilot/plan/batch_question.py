"""What batch arithmetic is asked, and which questions have no answer. Standard library only, as ``batch`` is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tui_pilot.errors import PlanError
from tui_pilot.plan.model import Plan
from tui_pilot.text import plural

Quantity = Literal["updates", "epochs", "examples", "tokens"]
QUANTITIES: tuple[Quantity, ...] = ("updates", "epochs", "examples", "tokens")


@dataclass(frozen=True)
class BatchQuestion:
    """What is asked: the loop's settings, the rows of one pass, and the one quantity that is held constant.

    ``held`` and ``amount`` say when the loop ends; it always ends after a whole update:

    - ``updates``: after ``amount`` updates, crossing epoch edges as often as needed;
    - ``epochs``: after ``amount`` passes; a fraction of a pass is rounded up to a whole update;
    - ``examples``: after the first update by which at least ``amount`` rows were seen;
    - ``tokens``: the same for tokens, a row counted as ``mean_tokens`` of them.
    """

    micro: int
    accumulation: int
    examples: int
    replicas: int = 1
    drop_last: bool = False
    tail: Literal["step", "drop"] = "step"
    held: Quantity = "epochs"
    amount: float = 1
    mean_tokens: float | None = None


def question_of(plan: Plan, examples: int, mean_tokens: float | None = None) -> BatchQuestion:
    """The plan's own question, once the number of training rows is known."""
    held, amount = plan.budget.held
    return BatchQuestion(
        micro=plan.batch.micro,
        accumulation=plan.batch.accumulation,
        examples=examples,
        replicas=plan.replicas,
        drop_last=plan.batch.drop_last,
        tail=plan.batch.tail,
        held=held,
        amount=amount,
        mean_tokens=mean_tokens,
    )


def replicas_of(world: int, tensor_parallel: int = 1, pipeline_parallel: int = 1, context_parallel: int = 1) -> int:
    """Data replicas of ``world`` processes. Model-parallel ranks share their rows, so they never multiply the batch."""
    parts = {
        "world": world,
        "tensor_parallel": tensor_parallel,
        "pipeline_parallel": pipeline_parallel,
        "context_parallel": context_parallel,
    }
    for key, value in parts.items():
        _positive(key, value)
    shared = tensor_parallel * pipeline_parallel * context_parallel
    if world % shared:
        raise PlanError(
            f"{world} processes do not divide into groups of {shared} "
            f"(tensor {tensor_parallel} x pipeline {pipeline_parallel} x context {context_parallel}).",
            f"Use a multiple of {shared} processes.",
            key="world",
            value=world,
        )
    return world // shared


def check(question: BatchQuestion) -> None:
    """Refuse a question that has no answer, with the option to blame and what is allowed."""
    for key in ("micro", "accumulation", "replicas"):
        _positive(key, getattr(question, key))
    if question.examples < 1:
        raise PlanError(
            "0 updates: there are no training rows.",
            "Give at least one row.",
            key="examples",
            value=question.examples,
        )
    if question.held not in QUANTITIES:
        raise PlanError(
            f"{question.held!r} cannot be held constant.",
            "Allowed: " + ", ".join(QUANTITIES) + ".",
            key="held",
            value=question.held,
        )
    if question.tail not in ("step", "drop"):
        raise PlanError(f"{question.tail!r} is not allowed.", "Allowed: step, drop.", key="tail", value=question.tail)
    amounts: dict[str, float] = {question.held: question.amount}
    if question.mean_tokens is not None:
        amounts["mean_tokens"] = question.mean_tokens
    for key, value in amounts.items():
        if not math.isfinite(value) or value <= 0:
            what = f"0 updates: {key} {value}" if value == 0 else f"{key} {value} is not allowed"
            raise PlanError(f"{what}.", "Allowed: a number above 0.", key=key, value=value)
    if question.held in ("updates", "examples") and question.amount != int(question.amount):
        raise PlanError(
            f"{question.held} {question.amount} is not allowed.",
            "Allowed: a whole number from 1.",
            key=question.held,
            value=question.amount,
        )


def _positive(key: str, value: int) -> None:
    if value < 1:
        raise PlanError(f"{key} {value} is not allowed.", "Allowed: a whole number from 1.", key=key, value=value)


def refuse_zero(question: BatchQuestion, microbatches: int) -> None:
    """Say why a pass of ``microbatches`` ends without one update."""
    rows = plural(question.examples, "row")
    on = "" if question.replicas == 1 else f" on each of {question.replicas} replicas"
    if microbatches == 0:
        raise PlanError(
            f"0 updates: {rows} fill no whole microbatch of {question.micro}{on}, and drop_last drops the rest.",
            "Keep the last batch (drop_last: false), or take a smaller microbatch.",
            key="drop_last",
            value=question.drop_last,
        )
    made = plural(microbatches, "microbatch", "microbatches")
    raise PlanError(
        f"0 updates: {rows} make {made}{on}, an update needs {question.accumulation}, "
        "and tail: drop drops the incomplete window.",
        "Step on the incomplete window (tail: step), or accumulate less.",
        key="tail",
        value=question.tail,
    )
