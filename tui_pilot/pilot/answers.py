"""Asks a model in evaluation mode and compares its answers with the targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tui_pilot.pilot.context import Context
from tui_pilot.pilot.loop import autocast
from tui_pilot.pilot.rows import Microbatch, to_device
from tui_pilot.tasks.base import IGNORE, defines


@dataclass
class Recovery:
    """Shares of supervised items whose answer equals the target; ``shifted``: equals the target one place on."""

    items: int = 0
    right: int = 0
    shifted: int = 0
    wrong: dict[str, Any] | None = None

    @property
    def share(self) -> float:
        return self.right / self.items if self.items else 0.0

    @property
    def shifted_share(self) -> float:
        return self.shifted / self.items if self.items else 0.0


def ask(context: Context, model: nn.Module, batch: dict[str, Any]) -> Any:
    """``predict`` without gradients, as nested lists; None where the task defines no ``predict``."""
    task = context.task()
    if not defines(task, "predict"):
        return None
    with torch.no_grad(), autocast(context):
        found = task.predict(model, to_device(batch, context.device))
    return found.tolist() if hasattr(found, "tolist") else found


def batch_loss(context: Context, model: nn.Module, batch: dict[str, Any]) -> tuple[float, int]:
    """The summed loss and its count, without gradients."""
    task = context.task()
    with torch.no_grad(), autocast(context):
        out = task.loss(model, to_device(batch, context.device))
    if isinstance(out, tuple):
        return float(out[0]), int(out[1])
    return float(out), int(task.count(batch))


def recovery(context: Context, model: nn.Module, micros: Sequence[Microbatch]) -> Recovery | None:
    """How many targets of these rows come back in the model's present mode."""
    found = Recovery()
    for micro in micros:
        answers = ask(context, model, micro.batch)
        if answers is None:
            return None
        labels = micro.batch["labels"].tolist()
        for row, (given, target) in enumerate(zip(answers, labels, strict=False)):
            _compare(found, given, target, micro.ids[row] if row < len(micro.ids) else row)
    return found


def _compare(found: Recovery, given: Any, target: Any, row: Any) -> None:
    if not isinstance(target, list):
        if target == IGNORE:
            return
        found.items += 1
        right = abs(given - target) <= 0.1 * max(1.0, abs(target)) if isinstance(target, float) else given == target
        found.right += bool(right)
        if not right and found.wrong is None:
            found.wrong = {"row": row, "position": None}
        return
    if not isinstance(given, list):
        return
    if (
        target
        and all(item in (0, 1, 0.0, 1.0) for item in target)
        and len(given) == len(target)
        and len(set(map(type, target))) == 1
        and isinstance(target[0], float)
    ):
        found.items += 1
        found.right += [float(item) for item in given] == target
        return
    for place in range(1, len(target)):
        if target[place] == IGNORE or place - 1 >= len(given):
            continue
        found.items += 1
        if given[place - 1] == target[place]:
            found.right += 1
        elif found.wrong is None:
            found.wrong = {"row": row, "position": place}
        if place + 1 < len(target) and given[place - 1] == target[place + 1]:
            found.shifted += 1
