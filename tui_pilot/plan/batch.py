"""Batch arithmetic, the one implementation: the calculator, the batch gate and the screen all ask here.

Standard library only, because the batch gate runs in the training interpreter and compares what it counted with this.
All replicas draw the same number of rows, so one list of microbatch sizes describes each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tui_pilot.errors import PlanError
from tui_pilot.plan.batch_question import (
    QUANTITIES,
    BatchQuestion,
    Quantity,
    check,
    question_of,
    refuse_zero,
    replicas_of,
)
from tui_pilot.text import plural


@dataclass(frozen=True)
class LastUpdate:
    """The run's last update: rows over all replicas, microbatches of each replica."""

    examples: int
    microbatches: int


@dataclass(frozen=True)
class BatchAnswer:
    """What follows, for the whole run unless the name says ``per_epoch``.

    ``examples_seen`` counts rows that entered an update, each time they did. In whole epochs
    ``seen = examples x epochs - dropped + repeated``; rows that an unfinished last epoch did not reach are not dropped.
    Microbatches are per replica. ``epochs`` is what was passed, in updates: 150 updates of 100 an epoch are 1.5.
    """

    question: BatchQuestion
    effective_batch: int
    updates: int
    updates_per_epoch: int
    microbatches_per_epoch: int
    examples_seen: int
    examples_dropped: int
    examples_repeated: int
    last_update: LastUpdate
    epochs: float
    tokens_seen: int | None
    tokens_per_update: float | None

    def as_json(self) -> dict[str, Any]:
        """The document of ``calc --json``, without ``schema`` and ``tool``."""
        ask = self.question
        return {
            "effective_batch": self.effective_batch,
            "updates": self.updates,
            "updates_per_epoch": self.updates_per_epoch,
            "microbatches_per_epoch": self.microbatches_per_epoch,
            "examples_seen": self.examples_seen,
            "examples_dropped": self.examples_dropped,
            "examples_repeated": self.examples_repeated,
            "last_update": {"examples": self.last_update.examples, "microbatches": self.last_update.microbatches},
            "held": ask.held,
            "amount": int(ask.amount) if ask.amount == int(ask.amount) else ask.amount,
            "epochs": self.epochs,
            "micro": ask.micro,
            "accumulation": ask.accumulation,
            "replicas": ask.replicas,
            "examples": ask.examples,
            "drop_last": ask.drop_last,
            "tail": ask.tail,
            "mean_tokens": ask.mean_tokens,
            "tokens_seen": self.tokens_seen,
            "tokens_per_update": self.tokens_per_update,
        }


@dataclass(frozen=True)
class _Epoch:
    """One pass of one replica: ``rows`` that enter updates, in ``microbatches``, of which ``updates`` are made."""

    rows: int
    microbatches: int
    updates: int


def answer(question: BatchQuestion) -> BatchAnswer:
    """Everything that follows from a question; zero updates is a PlanError that says why."""
    epoch = _epoch(question)
    window = question.micro * question.accumulation
    updates = _updates(question, epoch)
    whole, rest = divmod(updates, epoch.updates)
    seen_per_epoch = epoch.rows * question.replicas
    seen = whole * seen_per_epoch + rest * window * question.replicas
    if rest:
        last = LastUpdate(window * question.replicas, question.accumulation)
    else:
        rows = epoch.rows - (epoch.updates - 1) * window
        last = LastUpdate(rows * question.replicas, math.ceil(rows / question.micro))
    passed = Fraction(updates, epoch.updates)
    effective = window * question.replicas
    mean = question.mean_tokens
    return BatchAnswer(
        question=question,
        effective_batch=effective,
        updates=updates,
        updates_per_epoch=epoch.updates,
        microbatches_per_epoch=epoch.microbatches,
        examples_seen=seen,
        examples_dropped=whole * max(0, question.examples - seen_per_epoch),
        examples_repeated=whole * max(0, seen_per_epoch - question.examples),
        last_update=last,
        epochs=int(passed) if passed.denominator == 1 else round(float(passed), 6),
        tokens_seen=None if mean is None else round(seen * mean),
        tokens_per_update=None if mean is None else effective * mean,
    )


def windows(question: BatchQuestion) -> Iterator[list[int]]:
    """For every update of the run, the sizes of the microbatches that each replica runs, in order.

    The gate compares these with what it counted; take only as many as were run.
    """
    epoch = _epoch(question)
    window = question.micro * question.accumulation
    for number in range(_updates(question, epoch)):
        rows = min(window, epoch.rows - number % epoch.updates * window)
        full, short = divmod(rows, question.micro)
        yield [question.micro] * full + ([short] if short else [])


def explain(found: BatchAnswer) -> list[str]:
    """The arithmetic in sentences, for people."""
    ask = found.question
    amount = f"{ask.amount:,g}" if ask.amount < 1e6 else f"{ask.amount:,.0f}"
    lines = [
        f"One update averages {plural(found.effective_batch, 'row')}: {ask.micro} in a microbatch x "
        f"{ask.accumulation} accumulated x {plural(ask.replicas, 'replica')}.",
        f"{plural(ask.examples, 'row')} make {plural(found.microbatches_per_epoch, 'microbatch', 'microbatches')} per "
        f"replica and {plural(found.updates_per_epoch, 'update')} an epoch.",
        f"Held constant: {ask.held} {amount}. So the run makes {plural(found.updates, 'update')} and sees "
        f"{plural(found.examples_seen, 'row')} ({plural_epochs(found.epochs)}).",
    ]
    if found.examples_dropped:
        lines.append(f"Dropped: {plural(found.examples_dropped, 'row')} that fill no whole batch.")
    if found.examples_repeated:
        lines.append(f"Repeated: {plural(found.examples_repeated, 'row')}, so that every replica has as many.")
    last = found.last_update
    if last.examples != found.effective_batch:
        lines.append(
            f"The last update is smaller: {plural(last.examples, 'row')} in "
            f"{plural(last.microbatches, 'microbatch', 'microbatches')} per replica."
        )
    if found.tokens_seen is not None and found.tokens_per_update is not None:
        lines.append(f"About {found.tokens_seen:,} tokens in all, {found.tokens_per_update:,.0f} in an update.")
    return lines


def plural_epochs(epochs: float) -> str:
    """``1 epoch``, ``1.5 epochs``."""
    return f"{epochs:,g} epoch" + ("" if epochs == 1 else "s")


def _epoch(question: BatchQuestion) -> _Epoch:
    check(question)
    micro, accumulation = question.micro, question.accumulation
    if question.drop_last:
        microbatches = question.examples // question.replicas // micro
        rows = microbatches * micro
    else:
        rows = -(-question.examples // question.replicas)
        microbatches = -(-rows // micro)
    updates = microbatches // accumulation if question.tail == "drop" else -(-microbatches // accumulation)
    if updates == 0:
        refuse_zero(question, microbatches)
    return _Epoch(rows=min(rows, updates * accumulation * micro), microbatches=microbatches, updates=updates)


def _updates(question: BatchQuestion, epoch: _Epoch) -> int:
    amount = _exact(question.amount)
    if question.held == "updates":
        return int(amount)
    if question.held == "epochs":
        return math.ceil(amount * epoch.updates)
    if question.held == "tokens":
        if question.mean_tokens is None:
            raise PlanError(
                "A budget in tokens needs the mean number of tokens in a row.",
                "Give --mean-tokens, or run check once: it counts them.",
                key="mean_tokens",
            )
        amount /= _exact(question.mean_tokens)
    per_epoch = epoch.rows * question.replicas
    wanted = math.ceil(amount)
    whole, rest = divmod(wanted, per_epoch)
    effective = question.micro * question.accumulation * question.replicas
    return whole * epoch.updates + -(-rest // effective)


def _exact(value: float) -> Fraction:
    """The number as it was written: 0.1 is one tenth here, or ten times 0.1 epochs would be one update too many."""
    return Fraction(str(value))


__all__ = [
    "QUANTITIES",
    "BatchAnswer",
    "BatchQuestion",
    "LastUpdate",
    "Quantity",
    "answer",
    "explain",
    "question_of",
    "replicas_of",
    "windows",
]
