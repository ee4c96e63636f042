"""The two settings that the Batch room compares, and the moves on them. All arithmetic is ``plan/batch.py``'s. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tui_pilot.errors import PlanError
from tui_pilot.plan import batch_sides
from tui_pilot.plan.batch import QUANTITIES, BatchAnswer, BatchQuestion, Quantity, answer, question_of
from tui_pilot.plan.model import Plan

Field = Literal["micro", "accumulation", "replicas", "examples", "amount", "drop_last", "tail"]
FIELDS: tuple[Field, ...] = ("micro", "accumulation", "replicas", "examples", "amount", "drop_last", "tail")
COUNTS: tuple[Field, ...] = ("micro", "accumulation", "replicas", "examples")
STEPS = {"examples": 100, "updates": 10, "epochs": 1, "tokens": 100_000}
UNKNOWN_ROWS = 3200
MOST = 10**12


@dataclass(frozen=True)
class Sides:
    """A is the plan's setting, B the one to try; what is held constant is the same in both.

    ``rows_known`` is False while no phase has counted the training rows: the number shown is then only a start.
    ``trained`` are a row's supervised tokens (mean, min, max) where the audit counted them.
    """

    a: BatchQuestion
    b: BatchQuestion
    plan: BatchQuestion
    warmup: int = 0
    rows_known: bool = False
    trained: Mapping[str, Any] | None = None
    lr: float | None = None

    def side(self, name: str) -> BatchQuestion:
        return self.a if name == "a" else self.b

    @property
    def a_is_plan(self) -> bool:
        return self.a == self.plan

    @property
    def same(self) -> bool:
        return self.a == self.b


def from_plan(plan: Plan, facts: Mapping[str, Any]) -> Sides:
    """Both sides are the plan's own; rows and tokens come from what the run's phases counted."""
    examples = facts.get("examples")
    examples = examples if isinstance(examples, Mapping) else {}
    rows = examples.get("train_rows") or _planned_rows(facts)
    trained = examples.get("supervised_tokens")
    trained = trained if isinstance(trained, Mapping) and trained.get("mean") else None
    question = question_of(plan, int(rows or UNKNOWN_ROWS), _mean(facts, trained))
    return Sides(question, question, question, plan.optimizer.warmup, bool(rows), trained, plan.optimizer.lr)


def _planned_rows(facts: Mapping[str, Any]) -> Any:
    planned = (facts.get("batch") or {}).get("planned")
    return planned.get("examples") if isinstance(planned, Mapping) else None


def _mean(facts: Mapping[str, Any], trained: Mapping[str, Any] | None) -> float | None:
    """Tokens of a row as a budget in tokens counts them: the run's own figure first."""
    planned = (facts.get("batch") or {}).get("planned")
    if isinstance(planned, Mapping) and planned.get("mean_tokens"):
        return float(planned["mean_tokens"])
    return float(trained["mean"]) if trained else None


Outcome = BatchAnswer | PlanError


def solve(question: BatchQuestion) -> Outcome:
    """What follows, or why nothing does."""
    try:
        return answer(question)
    except PlanError as error:
        return error


def change(sides: Sides, name: str, field: Field, by: int) -> Sides:
    """One step up or down; a field of two words takes the other."""
    side = sides.side(name)
    if field == "drop_last":
        return put(sides, name, replace(side, drop_last=not side.drop_last))
    if field == "tail":
        return put(sides, name, replace(side, tail="step" if side.tail == "drop" else "drop"))
    step = STEPS.get(side.held if field == "amount" else field, 1)
    now = side.amount if field == "amount" else getattr(side, field)
    # Steps keep to round numbers, so that going up and down again comes back.
    wanted = (now // step + by) * step if now % step == 0 or by > 0 else now // step * step
    return enter(sides, name, field, max(1, wanted))


def enter(sides: Sides, name: str, field: Field, value: float) -> Sides:
    """A typed number; what is held constant is set in both sides."""
    value = min(value, MOST)
    if field == "amount":
        amount = int(value) if value == int(value) else value
        return replace(sides, a=replace(sides.a, amount=amount), b=replace(sides.b, amount=amount))
    number = max(1, int(value))
    side = sides.side(name)
    if field == "micro":
        side = replace(side, micro=number)
    elif field == "accumulation":
        side = replace(side, accumulation=number)
    elif field == "replicas":
        side = replace(side, replicas=number)
    elif field == "examples":
        side = replace(side, examples=number)
    return put(sides, name, side)


def put(sides: Sides, name: str, side: BatchQuestion) -> Sides:
    """The sides with one of them replaced."""
    return replace(sides, a=side) if name == "a" else replace(sides, b=side)


def hold_next(sides: Sides) -> Sides:
    """Hold the next quantity, at what A's setting makes of it now; tokens only where a row's tokens are known."""
    found = solve(sides.a)
    if isinstance(found, PlanError):
        # Nothing follows from what is held now (tokens of unknown rows, say): go on from one epoch.
        found = solve(replace(sides.a, held="epochs", amount=1))
    if isinstance(found, PlanError):
        return sides
    amounts: dict[Quantity, float | None] = {
        "updates": found.updates,
        "epochs": found.epochs,
        "examples": found.examples_seen,
        "tokens": found.tokens_seen,
    }
    start = QUANTITIES.index(sides.a.held)
    for n in range(1, len(QUANTITIES) + 1):
        held = QUANTITIES[(start + n) % len(QUANTITIES)]
        amount = amounts[held]
        if amount:
            return replace(
                sides, a=replace(sides.a, held=held, amount=amount), b=replace(sides.b, held=held, amount=amount)
            )
    return sides


def accumulation_to_keep(sides: Sides) -> int | None:
    """The accumulation with which B has A's effective batch; None where no whole number does."""
    return batch_sides.keep(sides.a, sides.b)


def keep_batch(sides: Sides) -> Sides:
    """B with A's effective batch, if a whole number of passes makes it; else as it was."""
    wanted = accumulation_to_keep(sides)
    return sides if wanted is None else replace(sides, b=replace(sides.b, accumulation=wanted))
