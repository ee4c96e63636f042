"""The ``Task`` protocol: what a loop needs to know of a person's data, model and loss.

Needed are ``records``, ``encode``, ``build_model`` and ``loss``. What a task does not define makes the check that
needs it ``unchecked``, never ``pass``; ``defines`` tells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tui_pilot.plan.model import Plan
from tui_pilot.tasks.units import Parents, parents_of, unit_of

IGNORE = -100
Record = Mapping[str, Any]
Example = dict[str, Any]
Batch = dict[str, Any]
Span = tuple[int, int, str, int]


class NotDefined(NotImplementedError):
    """The task leaves this out; the check that needs it is ``unchecked``."""


class Task:
    """Base of every task, built in or a person's own.

    Labels follow one convention: ``labels[i]`` names the token at place i, -100 is ignored, and the loss shifts.
    For classification ``labels`` is one class id per row.
    """

    response_marker: str | Sequence[int] | None = None
    """What the task looks for to find where a response begins, text or ids: named where it is not found."""

    _links: Parents | None = None

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    # -- data ------------------------------------------------------------------------------------------------------
    def records(self, split: str) -> Sequence[Record]:
        """The rows of ``train``, ``validation`` or ``test`` in file order; ``[]`` where there is no such split."""
        raise NotDefined("records")

    def row_id(self, record: Record) -> str | int | None:
        """A name for the row; None: its number in the split."""
        value = record.get("id") if isinstance(record, Mapping) else None
        return value if isinstance(value, (str, int)) and not isinstance(value, bool) else None

    def unit(self, record: Record) -> Any:
        """The unit that must stay on one side of a split, or a half-open interval ``(start, end)`` for windows.

        By default what ``data.unit`` of the plan says; without such a rule it is not defined.
        """
        rule = self.plan.data.unit
        if rule is None:
            raise NotDefined("unit")
        if self._links is None:
            self._links = parents_of(rule, *(self.records(split) for split in ("train", "validation", "test")))
        return unit_of(rule, record, self._links)

    def source_text(self, record: Record) -> str:
        """The source's own words that the model is meant to learn, for comparison with the decoded spans."""
        raise NotDefined("source_text")

    def encode(self, record: Record, max_length: int | None = None) -> Example:
        """One example: ``input_ids`` and ``labels`` lists, more keys as the model needs. None: untruncated.

        A row of several documents says where they lie, in the example or the batch: ``documents`` (one number per
        token), ``seq_lens``, ``cu_seqlens``, ``position_ids`` that begin again at 0, or spans whose turns do. Only then
        can the forward phase tell whether a document sees the one before it. A preference pair is ``chosen`` and
        ``rejected``, each with ``input_ids`` and ``labels``, or keys like ``chosen_input_ids``.
        """
        raise NotDefined("encode")

    def spans(self, record: Record, example: Example) -> Sequence[Span]:
        """Token ranges ``(start, end, role, turn)`` of the example, half open."""
        raise NotDefined("spans")

    def special_ids(self) -> dict[str, Any]:
        """``bos``, ``end`` (an id or several) and ``pad``."""
        raise NotDefined("special_ids")

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Pad by key: sequences to the longest with ``pad`` (ids), -100 (labels) or 0; scalars become a vector."""
        pad = 0
        if defines(self, "special_ids"):
            pad = int(self.special_ids().get("pad") or 0)
        batch: Batch = {}
        for key in examples[0]:
            values = [example[key] for example in examples]
            if all(isinstance(value, (list, tuple)) for value in values) and _is_flat(values):
                longest = max(len(value) for value in values)
                fill = pad if key == "input_ids" else IGNORE if key == "labels" else 0
                batch[key] = torch.tensor([[*value, *([fill] * (longest - len(value)))] for value in values])
            elif all(isinstance(value, torch.Tensor) for value in values):
                batch[key] = torch.stack(values)
            elif all(isinstance(value, (int, float)) for value in values):
                batch[key] = torch.tensor(values)
        if "input_ids" in batch and "attention_mask" not in batch:
            lengths = torch.tensor([len(example["input_ids"]) for example in examples])
            places = torch.arange(batch["input_ids"].shape[1])
            batch["attention_mask"] = (places[None, :] < lengths[:, None]).long()
        return batch

    def order(self, split: str, epoch: int, seed: int) -> list[Any] | None:
        """Row ids (or row numbers) in the order of one epoch; None: a permutation seeded by seed and epoch."""
        return None

    # -- model -----------------------------------------------------------------------------------------------------
    def build_model(self) -> nn.Module:
        """The model with its adapter, on the CPU, ready to train."""
        raise NotDefined("build_model")

    def count(self, batch: Batch) -> int:
        """Supervised items of a batch, known before the forward: shifted labels that are not -100."""
        labels = batch["labels"]
        if labels.dim() >= 2:
            labels = labels[:, 1:]
        if labels.is_floating_point():
            return int(labels.shape[0])
        return int((labels != IGNORE).sum())

    def loss(self, model: nn.Module, batch: Batch) -> Any:
        """The loss *summed* over supervised items (a tensor), or ``(sum, count)``."""
        raise NotDefined("loss")

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The plan's optimizer over the trainable parameters."""
        plan = self.plan.optimizer
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        how = plan.implementation
        flags: dict[str, Any] = {"auto": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}.get(
            how, {"foreach": False}
        )
        if plan.name == "sgd":
            return torch.optim.SGD(parameters, lr=plan.lr, weight_decay=plan.weight_decay, **flags)
        return torch.optim.AdamW(parameters, lr=plan.lr, weight_decay=plan.weight_decay, **flags)

    def build_scheduler(self, optimizer: torch.optim.Optimizer, updates: int) -> Any:
        """The plan's schedule: linear warm-up, then constant, linear or cosine down to 0 at ``updates``."""
        plan = self.plan.optimizer

        def factor(step: int) -> float:
            return schedule_factor(step, updates, plan.warmup, plan.schedule)

        return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)

    # -- answers ---------------------------------------------------------------------------------------------------
    def predict(self, model: nn.Module, batch: Batch) -> Any:
        """Language model: the arg max at each place, for the token after it. Classifier: the class id per row."""
        raise NotDefined("predict")

    def decode(self, ids: Sequence[int]) -> str:
        """Ids as text, special tokens visible."""
        raise NotDefined("decode")

    def metrics(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Metrics over ``{"predicted": ..., "labels": ...}`` of evaluated rows, beside the loop's own ``loss``."""
        raise NotDefined("metrics")

    def class_names(self) -> Sequence[str]:
        """Names by class id; ``[]`` where there are none."""
        return []

    def packages(self) -> Sequence[str] | Mapping[str, str]:
        """Import names of what this task needs to run, or each with one line of code that uses it.

        ``{"my_kernels": "my_kernels.add(1, 2)"}``: an extension may import well and fail at its first call. The line
        runs after ``import my_kernels`` in a process of its own; ``{device}`` in it becomes ``cpu`` or ``cuda``.
        """
        return []

    # -- close -----------------------------------------------------------------------------------------------------
    def save_artifact(self, model: nn.Module, folder: Path) -> None:
        """What evaluation will load: by default every weight, as tensors alone, in ``weights.pt``."""
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
        torch.save(state, Path(folder) / "weights.pt")

    def load_artifact(self, folder: Path) -> nn.Module:
        """The model from the artifact folder alone."""
        state = torch.load(Path(folder) / "weights.pt", map_location="cpu", weights_only=True)
        model = self.build_model()
        model.load_state_dict(state, strict=True)
        return model

    def control_inputs(self) -> Batch:
        """A few fixed rows, asked before export and after reload."""
        records = list(self.records("validation")) or list(self.records("train"))
        return self.collate([encode(self, record) for record in records[:4]])


def schedule_factor(step: int, updates: int, warmup: int, schedule: str) -> float:
    """The learning rate of 0-based update ``step`` as a share of the planned peak."""
    if step < warmup:
        return step / max(1, warmup)
    if schedule == "constant":
        return 1.0
    share = min(1.0, (step - warmup) / max(1, updates - warmup))
    if schedule == "linear":
        return 1.0 - share
    return 0.5 * (1.0 + math.cos(math.pi * share))


def defines(task: Task, name: str) -> bool:
    """Whether the task (or a built-in class under it) defines the method itself."""
    return getattr(type(task), name, None) is not getattr(Task, name, None)


def encode(task: Task, record: Record) -> Example:
    """An example at the plan's length; ``max_length`` is passed only to an ``encode`` that takes it."""
    if task.plan.data.max_length is not None and takes_max_length(task):
        return task.encode(record, max_length=task.plan.data.max_length)
    return task.encode(record)


def takes_max_length(task: Task) -> bool:
    """Whether the task's ``encode`` can be asked for another length."""
    code = getattr(type(task).encode, "__code__", None)
    return code is not None and ("max_length" in code.co_varnames or bool(code.co_flags & 0x08))


def _is_flat(values: Sequence[Sequence[Any]]) -> bool:
    return all(isinstance(item, (int, float)) for value in values for item in value[:1])


def row_names(task: Task, records: Sequence[Record]) -> list[str | int]:
    """Row ids of a split in file order: the task's own, else the row number."""
    names: list[str | int] = []
    for number, record in enumerate(records):
        name = task.row_id(record)
        names.append(number if name is None else name)
    return names


def shifted_targets(labels: Sequence[int]) -> Iterator[tuple[int, int]]:
    """``(place, target)`` for each supervised token, where the model's answer at ``place`` is for the token after."""
    for place in range(1, len(labels)):
        if labels[place] != IGNORE:
            yield place - 1, labels[place]
