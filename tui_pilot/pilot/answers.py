"""Asks a model in evaluation mode and compares its answers with the targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from tui_pilot.errors import PilotError
from tui_pilot.pilot.alternatives import Accepted, alternatives
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.loop import autocast
from tui_pilot.pilot.rows import Microbatch, to_device
from tui_pilot.tasks.base import IGNORE, defines

SHIFTS = (1, -1, 2)


@dataclass
class Recovery:
    """Supervised items whose answer equals the target, and those whose answer is another place's id.

    ``ahead``: how many places before its target an answer stands. ``shifts``: by how many places, ``[equal, compared]``
    over the places whose target differs from the supervised one there.
    """

    ahead: int = 1
    items: int = 0
    right: int = 0
    shifts: dict[int, list[int]] = field(default_factory=lambda: {by: [0, 0] for by in SHIFTS})
    wrong: dict[str, Any] | None = None
    rows: list[Any] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.right / self.items if self.items else 0.0

    @property
    def shift(self) -> int:
        """By how many places the answers are off, if they are."""
        return max(SHIFTS, key=self._share_at)

    @property
    def shifted_share(self) -> float:
        """The share of answers that equal the id ``shift`` places on."""
        return self._share_at(self.shift)

    def _share_at(self, by: int) -> float:
        equal, compared = self.shifts[by]
        return equal / compared if compared else 0.0


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
    if out is None or (isinstance(out, tuple) and out[0] is None):
        raise PilotError(
            "loss returned nothing in evaluation mode.",
            "Return the summed loss in every mode: selection and early stop work on it.",
            code="metric_missing",
            title="There is no evaluation loss",
        )
    if isinstance(out, tuple):
        return float(out[0]), int(out[1])
    return float(out), int(task.count(batch))


def recovery(context: Context, model: nn.Module, micros: Sequence[Microbatch]) -> Recovery | None:
    """How many targets of these rows come back in the model's present mode.

    Labels that are ids of the row itself are a language model's: the answer at a place is for the token after it,
    whatever shift the labels carry. Other labels, a class per token or a sequence of its own, may also stand where
    their answer stands; the better of both counts.
    """
    if any("labels" not in micro.batch for micro in micros):
        return None
    targets = [targets_of(micro.batch) for micro in micros]
    ways = [Recovery(1)] if all(own for own, _ in targets) else [Recovery(1), Recovery(0)]
    accepted = alternatives(micros, targets)
    for number, (micro, (_, labels)) in enumerate(zip(micros, targets, strict=True)):
        answers = ask(context, model, micro.batch)
        if answers is None:
            return None
        for found in ways:
            found.rows += micro.ids
            for row, (given, target) in enumerate(zip(answers, labels, strict=False)):
                name = micro.ids[row] if row < len(micro.ids) else row
                _compare(found, given, target, name, accepted[number][row])
    return max(ways, key=lambda found: found.share)


def targets_of(batch: dict[str, Any]) -> tuple[bool, list[Any]]:
    """Whether sequence labels are the row's own ids, and the labels at the places of the ids they name.

    Labels that the data shifted already are put back: only so does an answer two places on show as one.
    """
    ids, labels = batch.get("input_ids"), batch["labels"]
    if not isinstance(ids, torch.Tensor) or not isinstance(labels, torch.Tensor) or labels.dim() != 2:
        return True, labels.tolist()
    if labels.shape != ids.shape:
        return False, labels.tolist()
    counted = labels != IGNORE
    by = max((0, -1, 1, -2), key=lambda step: int(((labels == ids.roll(step, dims=1)) & counted).sum()))
    if 2 * int(((labels == ids.roll(by, dims=1)) & counted).sum()) < int(counted.sum()):
        return False, labels.tolist()
    moved = labels.roll(-by, dims=1)
    if by < 0:
        moved[:, :-by] = IGNORE
    elif by > 0:
        moved[:, -by:] = IGNORE
    return True, moved.tolist()


def _near(given: Any, target: float) -> bool:
    return isinstance(given, (int, float)) and abs(given - target) <= 0.1 * max(1.0, abs(target))


def _compare(found: Recovery, given: Any, target: Any, row: Any, accepted: Accepted) -> None:
    if not isinstance(target, list):
        if target == IGNORE:
            return
        found.items += 1
        others = accepted.get(None, (target,))
        right = _near(given, target) if isinstance(target, float) else any(given == each for each in others)
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
    if target and all(isinstance(item, float) for item in target) and len(given) == len(target):
        near = [_near(*pair) for pair in zip(given, target, strict=True)]
        found.items, found.right = found.items + len(near), found.right + sum(near)
        if found.wrong is None and not all(near):
            found.wrong = {"row": row, "position": near.index(False)}
        return
    for place in range(found.ahead, len(target)):
        answer = place - found.ahead
        if target[place] == IGNORE or answer >= len(given):
            continue
        found.items += 1
        if any(given[answer] == each for each in accepted.get(place, (target[place],))):
            found.right += 1
        elif found.wrong is None:
            found.wrong = {"row": row, "position": place}
        for by, counts in found.shifts.items():
            if 0 <= place + by < len(target) and target[place + by] not in (IGNORE, target[place]):
                counts[0] += given[answer] == target[place + by]
                counts[1] += 1
