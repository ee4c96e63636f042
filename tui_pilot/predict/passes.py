"""One pass of a plan's task through the memory phases, in the order and with the lifetimes of the pilot's own loop.

The same code runs under fake tensors (a prediction) and on real CPU tensors (what a prediction is tested against): the
only difference is whether a fake mode is given.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from tui_pilot.plan.model import Plan
from tui_pilot.predict import attention, autocast, patches, peaks
from tui_pilot.predict.constants import GpuScratch
from tui_pilot.predict.inputs import Micro, Rows
from tui_pilot.predict.tracker import Tracker
from tui_pilot.tasks.base import Task, defines

NEEDS = {
    "forward": "load", "backward": "forward", "first_step": "backward", "steady_step": "first_step",
    "evaluate": "first_step", "export": "first_step",  # the optimizer's state is held through both
}  # fmt: skip
_HALF = {"bf16-amp": torch.bfloat16, "fp16-amp": torch.float16}
_EXPORT = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_EXPORT |= {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Target:
    """Where the plan would run: a GPU of some capability, or (``capability`` None) this CPU itself."""

    capability: tuple[int, int] | None = (8, 0)

    @property
    def gpu(self) -> bool:
        return self.capability is not None


@dataclass
class Pass:
    """What a pass left: the trace, blocks by category, the kernels taken, and the phases that could not run."""

    tracker: Tracker
    known: dict[int, str] = field(default_factory=dict)
    kernels: Counter[str] = field(default_factory=Counter)
    missed: dict[str, Exception] = field(default_factory=dict)
    optimizer: str = ""
    mapped_bytes: int = 0
    """On a CPU: weights that are read where their files are mapped; no part of any figure."""
    model: Any = None
    on_host: set[int] = field(default_factory=set)
    """Blocks that are not in the measured memory: on the host when the target is a GPU, mapped files on a CPU."""

    def rows(self, unit: int) -> list[peaks.PartPeak]:
        """Peaks of every part, blocks rounded to ``unit``."""
        trace = self.tracker.trace
        found = peaks.categories(trace, self.tracker.turns, self.tracker.with_grad, self.known)
        return peaks.peaks_of(trace, found, unit)


def run(task: Task, rows: Rows, target: Target, fake: bool = True, watch: Callable[[str], None] | None = None) -> Pass:
    """The whole pass. ``watch`` is called with the phase after each operator and at each phase's end."""
    scratch = GpuScratch(target.capability) if target.capability is not None else None
    step = _Step(task, rows, target, scratch)
    step.tracker = Tracker(scratch, (lambda: watch(step.phase)) if watch is not None else None)
    step.done = Pass(step.tracker)
    with contextlib.ExitStack() as stack:
        if target.capability is not None:
            forced = "flash" if task.plan.model.attention.startswith("flash") else None
            stack.enter_context(attention.gpu_kernels(target.capability, step.done.kernels, forced))
            stack.enter_context(autocast.gpu_rules())
        else:
            stack.enter_context(patches.random_states(step.tracker.note))
        if fake:
            from tui_pilot.predict.quick import QuickFakeMode

            mapped = None if target.gpu else step.mapped.append
            stack.enter_context(patches.fakeable(target.gpu, lambda: _paused(step.tracker), mapped))
            step.mode = stack.enter_context(QuickFakeMode())
        stack.enter_context(step.tracker)
        for phase in ("load", "forward", "backward", "first_step", "steady_step", "evaluate", "export"):
            step.phase = phase
            if NEEDS.get(phase) in step.done.missed:
                step.done.missed[phase] = step.done.missed[NEEDS[phase]]
                continue
            try:
                getattr(step, phase)()
            except Exception as error:
                step.done.missed[phase] = error
                step.loss = None
            if watch is not None:
                watch(phase)
    step.done.model = step.model
    step.tracker.close(step.done.on_host)
    return step.done


class _Step:
    """The loop's pieces, each as the pilot's own stage runs it."""

    tracker: Tracker
    done: Pass

    def __init__(self, task: Task, rows: Rows, target: Target, scratch: GpuScratch | None) -> None:
        self.task, self.plan, self.target, self.scratch = task, task.plan, target, scratch
        self.mode: Any = None
        self.phase = "load"
        self.model: Any = None
        self.optimizer: Any = None
        self.scaler: Any = None
        self.rows = rows
        self.window: list[Micro] = []
        self.total = 1
        self.loss: Any = None
        self.checked: Micro | None = None
        self.mapped: list[torch.Tensor] = []
        """On a CPU: weights that stay where their file is mapped, and that torch's allocator never sees."""

    # -- phases ----------------------------------------------------------------------------------------------------
    def load(self) -> None:
        torch.manual_seed(self.plan.seed)
        if self.target.gpu:  # built on the host; what reaches the device are its parameters and buffers
            with _paused(self.tracker):
                model = self.task.build_model()
            self.tracker.mark("load", None, "load")
            library: Any = model
            library._apply(lambda tensor: tensor.clone())
        else:
            self.tracker.mark("load", None, "load")
            model = self.task.build_model()
        model.train()
        self.model = model
        self._walk_model()
        self.optimizer = self.task.build_optimizer(model)
        self.done.optimizer = how(self.optimizer, self.target)
        if self.plan.precision == "fp16-amp":
            self.scaler = torch.amp.GradScaler("cpu")

    def forward(self) -> None:
        self.tracker.mark("forward", None, "input")
        self.window = [self._placed(micro) for micro in self.rows.window]
        self.total = max(1, sum(micro.count for micro in self.window))
        self.loss = self._forward(self.window[0])

    def backward(self) -> None:
        self.tracker.mark("backward", None, "backward")
        loss, self.loss = self.loss, None
        self._backward(loss)
        del loss

    def first_step(self) -> None:
        rest = self.window[1:]
        self.tracker.mark("first_step", "window", "input")
        for micro in rest:
            self._both(micro)
        self.tracker.mark("first_step", "step", "step")
        self._update()

    def steady_step(self) -> None:
        for micro in self.window:
            self.tracker.mark("steady_step", "forward", "input")
            value = self._forward(micro)
            self.tracker.mark("steady_step", "backward", "backward")
            self._backward(value)
            del value
        self.tracker.mark("steady_step", "step", "step")
        self._update()

    def evaluate(self) -> None:
        if self.rows.evaluation is None:
            return
        self.model.eval()
        self.tracker.mark("evaluate", "longest", "input")
        micro = self.checked = self._placed(self.rows.evaluation)
        self.tracker.turn("evaluate")
        with torch.no_grad():
            self._score(micro)
            if defines(self.task, "metrics") and defines(self.task, "predict"):
                with self._autocast():
                    self.task.predict(self.model, self._on_device(micro))
        self.model.train()

    def export(self) -> None:
        """A full export in another dtype copies on the device; an adapter is written as it is, a merge is another
        process."""
        self.tracker.mark("export", "save", "export")
        dtype = _EXPORT.get(self.plan.export.dtype or "")
        if self.plan.export.kind == "full" and dtype is not None and self.plan.task in ("sft", "classification"):
            state = {name: value.detach() for name, value in self.model.state_dict().items()}
            copies: dict[Any, Any] = {}
            for value in state.values():
                if value.is_floating_point():
                    copies.setdefault((self.tracker.block_of(value), value.shape), value.to(dtype))
            del copies

    # -- pieces ----------------------------------------------------------------------------------------------------
    def _placed(self, micro: Micro) -> Micro:
        """The microbatch under the fake mode, its values kept; on a CPU target it lies in the measured memory."""
        batch = {name: self._known(value) for name, value in micro.batch.items()}
        if not self.target.gpu:
            for value in batch.values():
                if isinstance(value, torch.Tensor):
                    self.tracker.note(value)
        return Micro(batch, micro.count)

    def _known(self, value: Any) -> Any:
        if self.mode is None or not isinstance(value, torch.Tensor):
            return value
        fake = self.mode.from_tensor(value)
        fake.constant = value
        return fake

    def _on_device(self, micro: Micro) -> dict[str, Any]:
        if not self.target.gpu:
            return micro.batch
        return {
            name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in micro.batch.items()
        }

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        dtype = _HALF.get(self.plan.precision)
        return contextlib.nullcontext() if dtype is None else torch.autocast("cpu", dtype=dtype)

    def _forward(self, micro: Micro) -> Any:
        if self.scratch is not None:
            self.scratch.backward = False
        batch = self._on_device(micro)
        self.tracker.turn("forward")
        with self._autocast():
            out = self.task.loss(self.model, batch)
        return out[0] if isinstance(out, tuple) else out

    def _backward(self, loss: Any) -> None:
        if self.scratch is not None:
            self.scratch.backward = True
        scaled = loss * (1 / self.total)
        (self.scaler.scale(scaled) if self.scaler is not None else scaled).backward()
        self._note("gradients", (each.grad for each in self.model.parameters()))

    def _both(self, micro: Micro) -> None:
        loss = self._forward(micro)
        self.tracker.turn("backward")
        self._backward(loss)

    def _update(self) -> None:
        clip = self.plan.optimizer.clip
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if clip is not None:
            parameters = [each for each in self.model.parameters() if each.grad is not None]
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        states = [value for state in self.optimizer.state.values() for value in state.values()]
        self._note("optimizer_state", states)
        if self.target.gpu and not self.optimizer.param_groups[0].get("fused"):
            # Step counts stay on the host but for the fused kernel.
            counts = [state.get("step") for state in self.optimizer.state.values()]
            self.done.on_host |= self.tracker.blocks_of(counts)
        self.optimizer.zero_grad(set_to_none=True)

    def _score(self, micro: Micro) -> None:
        with self._autocast():
            self.task.loss(self.model, self._on_device(micro))

    def _walk_model(self) -> None:
        held = [*self.model.parameters(), *self.model.buffers()]
        for tensor in held:
            self.tracker.note(tensor)
        self._note("parameters", held)
        self.done.on_host |= self.tracker.blocks_of(self.mapped)
        self.done.mapped_bytes = sum(each.nbytes for each in {id(each): each for each in self.mapped}.values())
        self.mapped.clear()

    def _note(self, category: str, tensors: Any) -> None:
        for block in self.tracker.blocks_of(tensors):
            self.done.known.setdefault(block, category)


@contextmanager
def _paused(tracker: Tracker) -> Iterator[None]:
    """Operators in here are not followed."""
    before, tracker.paused = tracker.paused, True
    try:
        yield
    finally:
        tracker.paused = before


def how(optimizer: torch.optim.Optimizer, target: Target) -> str:
    """``AdamW, foreach``: the class and the implementation it takes on the target."""
    group = optimizer.param_groups[0]
    name = "fused" if group.get("fused") else "foreach" if group.get("foreach") else "loop"
    if not group.get("fused") and group.get("foreach") is None and "foreach" in group:
        name = "foreach" if target.gpu else "loop"
    return f"{type(optimizer).__name__}, {name}"


def parameter_bytes(model: nn.Module) -> int:
    """Bytes of the distinct parameters."""
    return sum(each.numel() * each.element_size() for each in model.parameters())


def planned(plan: Plan) -> int:
    """Microbatches of a window that are run: the second finds gradients there, and a third would find no more."""
    return min(2, plan.batch.accumulation)
