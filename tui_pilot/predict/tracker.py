"""Follows every storage that operators make, under fake tensors and real CPU tensors alike, into a ``Trace``.

One code path for both: what holds between fake and real on a CPU is then tested, and only the kernels' own scratch
stays unseen. A storage is known by its C++ identity and followed by a weak reference until it dies.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tui_pilot.predict.trace import Mark, Trace

_DEVICE = torch.ops.prim.device.default

Scratch = Callable[[Any, tuple[Any, ...]], tuple[int, int]]
"""Of an operator and its arguments: bytes that it takes for good, and bytes that it takes while it runs."""


class OtherDevice(RuntimeError):
    """A tensor was put on a device that is not here: under fake tensors that would end the process in its backward."""


@dataclass(frozen=True)
class Turn:
    """From event ``index`` on this kind of work is done: load, input, forward, backward, step, evaluate, export."""

    index: int
    kind: str


class Tracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode; ``mark`` says to which phase and part the events from here on belong.

    ``watch`` is called after each operator (a test reads the native counter there). Blocks that an operator's kernel
    takes unseen come from ``scratch``.
    """

    def __init__(self, scratch: Scratch | None = None, watch: Callable[[], None] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = Trace()
        self.turns: list[Turn] = []
        self.with_grad: list[bool] = []
        """Of each block: whether it was born where autograd records, as in a forward or a recomputation."""
        self.live = 0
        self.paused = self.closed = False
        self._scratch = scratch
        self._watch = watch
        self._known: dict[int, tuple[int, int, Any]] = {}

    def mark(self, phase: str, part: str | None, kind: str) -> None:
        """A new part begins here."""
        self.trace.marks.append(Mark(len(self.trace.events), phase, part))
        self.turn(kind)

    def turn(self, kind: str) -> None:
        """Another kind of work begins inside the part."""
        self.turns.append(Turn(len(self.trace.events), kind))

    def note(self, tensor: torch.Tensor) -> None:
        """Follow the storage of a tensor that no operator was seen to make."""
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:  # sparse and other layouts have none of their own
            return
        key, count = storage._cdata, storage.nbytes()
        known = self._known.get(key)
        if known is not None:
            if known[1] != count:  # resized in place
                self._event(known[0], -known[1])
                self._known[key] = (self._new(count), count, known[2])
            return
        if count:
            gone = weakref.ref(storage, functools.partial(self._gone, key))
            self._known[key] = (self._new(count), count, gone)

    def block_of(self, tensor: torch.Tensor) -> int | None:
        """The block that a tensor lies in."""
        known = self._known.get(tensor.untyped_storage()._cdata)
        return None if known is None else known[0]

    def blocks_of(self, tensors: Iterable[Any]) -> set[int]:
        """The blocks of those of ``tensors`` that are tensors and followed."""
        found = {self.block_of(each) for each in tensors if isinstance(each, torch.Tensor)}
        return {block for block in found if block is not None}

    def add(self, count: int) -> int:
        """A block of no tensor: what a library keeps for itself. Returns its number."""
        return self._new(count)

    def close(self, without: set[int]) -> None:
        """Record nothing any more; take the blocks ``without`` out of the trace, as if they had never been."""
        self.closed = True
        kept: list[tuple[int, int]] = []
        places: list[int] = []
        for event in self.trace.events:
            places.append(len(kept))
            if event[0] not in without:
                kept.append(event)
        places.append(len(kept))
        self.trace.events[:] = kept
        self.trace.marks[:] = [Mark(places[mark.index], mark.phase, mark.part) for mark in self.trace.marks]
        self.turns[:] = [Turn(places[turn.index], turn.kind) for turn in self.turns]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE:
            # Autograd and models ask this more often than they compute, and it makes nothing.
            device = getattr(args[0], "fake_device", None)
            return func(*args) if device is None else device
        if self.paused:
            return func(*args, **(kwargs or {}))
        taken = None
        if self._scratch is not None:
            kept, passing = self._scratch(func, args)
            if kept:
                self.add(kept)
            taken = (self._new(passing), passing) if passing else None
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor):
                self._follow(tensor)
            elif isinstance(tensor, (tuple, list)):
                for each in tensor:
                    if isinstance(each, torch.Tensor):
                        self._follow(each)
        if taken is not None:
            self._event(taken[0], -taken[1])
        if self._watch is not None:
            self._watch()
        return result

    def _follow(self, tensor: torch.Tensor) -> None:
        # A fake tensor is asked by attribute: its ``device`` would be one more operator, through every mode.
        device = getattr(tensor, "fake_device", None) or tensor.device
        if device.type == "cpu":
            self.note(tensor)
        elif device.type != "meta":
            raise OtherDevice(f"a tensor is put on {device} here")

    def _new(self, count: int) -> int:
        block = len(self.with_grad)
        self.with_grad.append(torch.is_grad_enabled())
        self._event(block, count)
        return block

    def _event(self, block: int, count: int) -> None:
        if not self.closed:
            self.trace.events.append((block, count))
        self.live += count

    def _gone(self, key: int, _: Any) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            self._event(known[0], -known[1])
