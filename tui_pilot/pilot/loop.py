"""The training loop that the pilot and later the compared runs share: one update at a time, nothing hidden.

An update prefetches a window of microbatches, sums their supervised items over window and ranks, and runs backward on
``loss_sum * replicas / total``, so that every supervised item weighs the same wherever it landed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tui_pilot.errors import PilotError
from tui_pilot.observe.counters import Counters
from tui_pilot.observe.tensors import watch_frozen
from tui_pilot.pilot.context import Context, seed_everything
from tui_pilot.pilot.rows import Feed, Microbatch, Split, shape_of, to_device
from tui_pilot.plan.batch import BatchAnswer, answer, question_of
from tui_pilot.tasks.base import Task


@dataclass
class Result:
    """What one update did. ``loss`` is per supervised item over all ranks; ``norm`` before clipping."""

    update: int
    loss: float
    lr: float
    items: int
    rows: int
    ids: list[Any]
    norm: float | None = None
    skipped: bool = False
    microbatches: int = 0
    scale: float | None = None
    bad_ids: list[Any] = field(default_factory=list)
    """Rows of the microbatches whose loss is not finite."""


@dataclass
class Loop:
    """Model, optimizer, schedule, scaler and data position of one training run in this process."""

    context: Context
    task: Task
    model: nn.Module
    raw: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: Any
    scaler: Any
    feed: Feed
    total_updates: int
    counters: Counters
    updates: int = 0
    at: dict[str, Any] = field(default_factory=dict)
    observers: list[Callable[[str, Any], None]] = field(default_factory=list)

    @property
    def device(self) -> torch.device:
        return self.context.device

    @property
    def dtype(self) -> str:
        return self.context.plan.precision

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """A fresh autocast block for one forward: a longer one would serve stale casts of updated weights."""
        return autocast(self.context)

    def forward_backward(self, micro: Microbatch, total: int, last: bool, part: str = "") -> float:
        """Forward and backward of one microbatch; returns its summed loss. ``total`` counts window and ranks."""
        loss_sum = self.forward(micro, part)
        self.backward(loss_sum, total, last)
        return float(loss_sum.detach())

    def forward(self, micro: Microbatch, part: str = "") -> torch.Tensor:
        """The summed loss of one microbatch."""
        batch = to_device(micro.batch, self.device)
        self.at.update(rows=micro.ids, shape=shape_of(batch), dtype=self.dtype, part=part or "forward")
        with self.autocast():
            out = self.task.loss(self.model, batch)
        loss_sum = out[0] if isinstance(out, tuple) else out
        if isinstance(out, tuple):
            self._notify("count", (micro, int(out[1])))
        return loss_sum  # type: ignore[no-any-return]

    def backward(self, loss_sum: torch.Tensor, total: int, last: bool) -> None:
        """Backward of one microbatch's share of the update; gradients of all ranks meet in the last one."""
        self.at.update(part="backward")
        scaled = loss_sum * (self.context.world / max(1, total))
        with contextlib.nullcontext() if last or self.context.world == 1 else self.model.no_sync():  # type: ignore[operator]
            (self.scaler.scale(scaled) if self.scaler is not None else scaled).backward()

    def step(self) -> tuple[float | None, bool]:
        """``apply`` and, unless that was skipped, one tick of the schedule."""
        norm, skipped = self.apply()
        if not skipped:
            self.scheduler.step()
        return norm, skipped

    def apply(self) -> tuple[float | None, bool]:
        """Unscale, clip, optimizer; returns the gradient norm and whether the optimizer was skipped."""
        self.at.update(part="optimizer.step")
        clip = self.context.plan.optimizer.clip
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        norm = None
        if clip is not None:
            parameters = [parameter for parameter in self.raw.parameters() if parameter.grad is not None]
            norm = float(torch.nn.utils.clip_grad_norm_(parameters, clip)) if parameters else 0.0
        self._notify("before_step", norm)
        before = self.counters.optimizer_steps
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        skipped = self.counters.optimizer_steps == before
        self.optimizer.zero_grad(set_to_none=True)
        return norm, skipped

    def window_total(self, window: list[Microbatch]) -> int:
        """Supervised items of the window on all ranks."""
        return int(self.all_sum(sum(micro.count for micro in window)))

    def all_sum(self, value: float) -> Any:
        """The value summed over ranks."""
        if self.context.world == 1:
            return value
        tensor = torch.tensor([float(value)], dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return type(value)(tensor.item())

    def update(self, window: list[Microbatch]) -> Result:
        """One whole update over a window."""
        self.model.train()
        total = self.window_total(window)
        lr = self.lr
        loss = 0.0
        bad: list[Any] = []
        for number, micro in enumerate(window):
            part = self.forward_backward(micro, total, number == len(window) - 1)
            bad += [] if math.isfinite(part) else micro.ids
            loss += part
            self._notify("microbatch", micro)
        loss = self.all_sum(loss) / max(1, total)
        norm, skipped = self.step()
        self.updates += 1
        rows = sum(len(micro.ids) for micro in window)
        ids = [row for micro in window for row in micro.ids]
        scale = self.scaler.get_scale() if self.scaler is not None else None
        return Result(self.updates, loss, lr, total, rows, ids, norm, skipped, len(window), scale, bad)

    @property
    def lr(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def _notify(self, kind: str, value: Any) -> None:
        for observer in self.observers:
            observer(kind, value)


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Another learning rate for a parameter group, of the kind it holds: a capturable optimizer's is a tensor."""
    group["lr"] = torch.tensor(rate) if isinstance(group["lr"], torch.Tensor) else rate


def autocast(context: Context) -> contextlib.AbstractContextManager[Any]:
    """The plan's autocast for one forward."""
    kinds = {"bf16-amp": torch.bfloat16, "fp16-amp": torch.float16}
    dtype = kinds.get(context.plan.precision)
    return torch.autocast(context.device.type, dtype=dtype) if dtype is not None else contextlib.nullcontext()


def planned_updates(context: Context, rows: int) -> BatchAnswer:
    """The plan's arithmetic over the rows that are really there."""
    return answer(question_of(context.plan, rows, context.cache.get("mean_tokens")))


def build_model(context: Context, seed: int | None = None) -> nn.Module:
    """The task's model, seeded before it is made, on the device and in training mode."""
    seed_everything(context.plan.seed if seed is None else seed)
    model = context.task().build_model()
    if not isinstance(model, nn.Module):
        raise PilotError(
            f"build_model returned {type(model).__name__}, expected a torch.nn.Module.",
            code="model_wrong",
            title="The model cannot be built",
        )
    model.to(context.device)
    model.train()
    return model


def build_loop(context: Context, model: nn.Module | None = None, split: Split | None = None) -> Loop:
    """Everything an update needs, in the order a campaign makes it."""
    task = context.task()
    raw = build_model(context) if model is None else model
    rows = split or Split.of(task, "train")
    watch_frozen(raw)
    wrapped = wrap(context, raw)
    optimizer = task.build_optimizer(raw)
    total = planned_updates(context, len(rows)).updates
    scheduler = task.build_scheduler(optimizer, total)
    scaler = torch.amp.GradScaler(context.device.type) if context.plan.precision == "fp16-amp" else None
    counters = Counters.watch(optimizer, scheduler, scaler)
    feed = Feed(task, rows, context.plan.batch, context.plan.seed, context.rank, context.world)
    return Loop(context, task, wrapped, raw, optimizer, scheduler, scaler, feed, total, counters)


def wrap(context: Context, model: nn.Module) -> nn.Module:
    """The model as several processes train it."""
    if context.world == 1:
        return model
    ids = [context.device.index] if context.device.type == "cuda" else None
    return nn.parallel.DistributedDataParallel(model, device_ids=ids)


def trainable(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Named parameters that take a gradient."""
    return ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)
