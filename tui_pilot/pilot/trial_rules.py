"""When a trial stops before its planned end, by rules fixed before it began. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tui_pilot.plan.model import StopRule

IN_A_ROW = 3
"""Losses above the limit, one after another: a single hard batch is no divergence."""


@dataclass(frozen=True)
class Stop:
    """Why and where a trial stopped. ``began`` is the first update of the stretch that the rule looks at."""

    code: str
    update: int
    text: str
    began: int

    @property
    def diverged(self) -> bool:
        return self.code in ("not_finite", "loss_above_start")

    def as_json(self) -> dict[str, Any]:
        return {"code": self.code, "update": self.update, "began": self.began, "text": self.text}


@dataclass
class Rules:
    """Looks at each loss and each validation point; the first rule that holds wins.

    ``not_finite``: a loss that is no finite number. ``loss_above_start``: so many times the first update's loss, in
    ``IN_A_ROW`` updates one after another. ``no_progress``: so many validation points without a new best.
    """

    rule: StopRule
    direction: str
    metric: str = "loss"
    start: float | None = None
    above: list[int] = field(default_factory=list)
    best: float | None = None
    best_at: int | None = None
    since_best: list[int] = field(default_factory=list)

    def loss(self, update: int, value: float) -> Stop | None:
        """After an update."""
        if not math.isfinite(value):
            if self.rule.not_finite:
                return Stop("not_finite", update, f"the loss is {value} at update {update}", update)
            return None
        if self.start is None:
            self.start = value
        factor = self.rule.loss_above_start
        if factor is None or value <= factor * self.start:
            self.above.clear()
            return None
        self.above.append(update)
        if len(self.above) < IN_A_ROW:
            return None
        text = (
            f"the loss is {value:.4g} at update {update}, the {IN_A_ROW}rd in a row above {factor:g} x {self.start:.4g}"
        )
        return Stop("loss_above_start", update, text, self.above[0])

    def validation(self, update: int, value: float) -> Stop | None:
        """After a validation point."""
        better = math.isfinite(value) and (
            self.best is None or (value < self.best if self.direction == "min" else value > self.best)
        )
        if better:
            self.best, self.best_at = value, update
            self.since_best.clear()
            return None
        self.since_best.append(update)
        patience = self.rule.no_progress
        if patience is None or len(self.since_best) < patience:
            return None
        best = "no best yet" if self.best is None else f"the best stays {self.best:.4g} of update {self.best_at}"
        text = f"{self.metric} gave no new best in {patience} validation points up to update {update}; {best}"
        return Stop("no_progress", update, text, self.since_best[0])


def validation_at(updates: int, every: int) -> list[int]:
    """The updates after which a trial validates: each ``every``-th and the last, known before it begins."""
    return sorted({*range(every, updates + 1, every), updates}) if updates > 0 else []
