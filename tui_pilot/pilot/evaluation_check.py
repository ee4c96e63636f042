"""What an evaluation or a probe must leave as it was, and a metric that depends on the predictions alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.observe.sums import bit_sums, changed, gradient_sums, model_sums, optimizer_sums
from tui_pilot.pilot.context import seed_everything
from tui_pilot.pilot.loop import Loop, trainable
from tui_pilot.tasks.base import Task, defines

EQUAL = 1e-6


class Untouched:
    """The state before; ``changes`` names what is another one later. ``trained`` looks at trainable weights alone:
    in training mode a loss may rightly move buffers and a frozen teacher."""

    def __init__(self, loop: Loop, trained: bool = False) -> None:
        self.loop, self.trained = loop, trained
        self.before = self._sums()

    def _sums(self) -> dict[str, dict[str, Any]]:
        weights = bit_sums(trainable(self.loop.raw)) if self.trained else model_sums(self.loop.raw)
        gradients = gradient_sums(self.loop.raw)
        return {"weights": weights, "gradients": gradients, "optimizer": optimizer_sums(self.loop.optimizer)}

    def changes(self) -> dict[str, list[str]]:
        """Names by ``weights``, ``gradients`` and ``optimizer``, empty where nothing moved."""
        now = self._sums()
        found = {kind: changed(self.before[kind], sums) for kind, sums in now.items()}
        # A buffer that came, went or grew is a cache.
        both = [name for name in found["weights"] if name in self.before["weights"] and name in now["weights"]]
        return found | {"weights": [name.partition(" ")[0] for name in both]}


class MetricTwice:
    """The metric of the same predictions, asked twice with other rows scored between: equal if it keeps no sums."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task, self.seed = task, seed
        self.asked = False
        self.predictions: list[Mapping[str, Any]] = []
        self.first: dict[str, Any] = {}

    def once(self, predictions: Sequence[Mapping[str, Any]]) -> None:
        """Ask for the first time; later calls change nothing."""
        if self.asked or not predictions or not defines(self.task, "metrics"):
            return
        self.asked = True
        self.predictions = [dict(each) for each in predictions]
        try:
            self.first = self._ask()
        except Exception:  # some scores need more rows, or every class; the whole evaluation asks again
            self.predictions = []

    def again(self, scored: int) -> dict[str, Any] | None:
        """The first metric that came out differently after ``scored`` rows; None where all agree."""
        if not self.predictions:
            return None
        second = self._ask()
        for name, value in self.first.items():
            other = second.get(name)
            if not _equal(value, other):
                rows = [each.get("row") for each in self.predictions]
                return {"name": name, "first": value, "second": other, "rows": rows, "between": scored - len(rows)}
        return None

    def _ask(self) -> dict[str, Any]:
        seed_everything(self.seed)
        return numbers(self.task.metrics([dict(each) for each in self.predictions]))


def numbers(found: Any) -> dict[str, Any]:
    """What ``metrics`` returned, with one-element tensors and library scalars as plain numbers; ``{}`` for nothing."""
    if not isinstance(found, Mapping):
        return {}
    return {str(name): _number(value) for name, value in found.items()}


def _number(value: Any) -> Any:
    if isinstance(value, (int, float, str, bool, type(None))) or not hasattr(value, "item"):
        return float(value) if isinstance(value, float) else value
    try:
        return value.item()
    except (ValueError, RuntimeError):
        return str(value)


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right or abs(left - right) <= EQUAL * max(1.0, abs(left))
    return bool(left == right)
