"""Counts what really happened: optimizer steps, scheduler ticks and scaler calls, on the objects themselves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

KEPT_WINDOWS = 1000


@dataclass
class ScalerWindow:
    """What the scaler was asked between two steps: a scale per backward, and updates before the window was over."""

    scales: list[Any] = field(default_factory=list)
    unscales: int = 0
    updates_inside: int = 0


@dataclass
class Counters:
    """Calls seen since ``watch``. A scaler that skips a step never reaches the optimizer, so both counts matter."""

    optimizer_steps: int = 0
    scheduler_ticks: int = 0
    scaler_updates: int = 0
    scaler_steps: int = 0
    scaler_unscales: int = 0
    clips: int = 0
    clips_before_unscale: int = 0
    windows: deque[ScalerWindow] = field(default_factory=lambda: deque(maxlen=KEPT_WINDOWS), repr=False)
    open_window: ScalerWindow = field(default_factory=ScalerWindow, repr=False)

    @classmethod
    def watch(cls, optimizer: Any, scheduler: Any = None, scaler: Any = None) -> Counters:
        """Count the calls on these very objects; results and errors pass through untouched."""
        counters = cls()
        _count(optimizer, "step", counters, "optimizer_steps")
        if scheduler is not None:
            _count(scheduler, "step", counters, "scheduler_ticks")
        if scaler is not None:
            _watch_scaler(scaler, counters)
        return counters

    def numbers(self) -> dict[str, int]:
        """The counts alone."""
        return {name: value for name, value in vars(self).items() if isinstance(value, int)}

    def since(self, start: dict[str, int]) -> dict[str, int]:
        """The counts since ``start``, which ``numbers`` gave."""
        return {name: value - start.get(name, 0) for name, value in self.numbers().items()}

    @contextmanager
    def clipping(self) -> Iterator[None]:
        """Count the calls of torch's clipping, and those that find gradients which are still scaled."""
        places = [(torch.nn.utils, name) for name in ("clip_grad_norm_", "clip_grad_value_")]
        originals = [getattr(module, name) for module, name in places]

        def counted(original: Any) -> Any:
            def clip(*args: Any, **keywords: Any) -> Any:
                self.clips += 1
                self.clips_before_unscale += bool(self.open_window.scales) and not self.open_window.unscales
                return original(*args, **keywords)

            return clip

        for (module, name), original in zip(places, originals, strict=True):
            setattr(module, name, counted(original))
        try:
            yield
        finally:
            for (module, name), original in zip(places, originals, strict=True):
                setattr(module, name, original)


def scaler_facts(counters: Counters, start: dict[str, int], windows: int) -> dict[str, Any]:
    """What the gate wants to know of a scaler over the last ``windows`` windows; reads scales from the device."""
    since = counters.since(start)
    last = list(counters.windows)[-windows:] if windows else []
    found: dict[str, Any] = {
        "windows": windows,
        "updates": since["scaler_updates"],
        "steps": since["scaler_steps"],
        "unscales": since["scaler_unscales"],
        "clips": since["clips"],
        "clips_before_unscale": since["clips_before_unscale"],
    }
    for number, window in enumerate(last, 1):
        scales = list(dict.fromkeys(float(scale) for scale in window.scales))
        if scales:
            found["scale"] = scales[-1]
        if len(scales) > 1:
            found["changed"] = {"window": number, "scales": scales}
            break
    return found


def _watch_scaler(scaler: Any, counters: Counters) -> None:
    def scaled(_: Any) -> None:
        # No ``get_scale`` here: it waits for the device, and this runs in every microbatch.
        value = scaler._get_scale_async() if hasattr(scaler, "_get_scale_async") else scaler.get_scale()
        counters.open_window.scales.append(value.clone() if isinstance(value, torch.Tensor) else value)

    def updated(_: Any) -> None:
        counters.scaler_updates += 1
        counters.open_window.updates_inside += bool(counters.open_window.scales)

    def unscaled(_: Any) -> None:
        counters.scaler_unscales += 1
        counters.open_window.unscales += 1

    def stepped(_: Any) -> None:
        counters.scaler_steps += 1
        counters.windows.append(counters.open_window)
        counters.open_window = ScalerWindow()

    _after(scaler, {"scale": scaled, "update": updated, "unscale_": unscaled, "step": stepped})


def _count(target: Any, method: str, counters: Counters, name: str) -> None:
    def add(_: Any) -> None:
        setattr(counters, name, getattr(counters, name) + 1)

    if name == "optimizer_steps" and hasattr(target, "register_step_post_hook"):
        target.register_step_post_hook(lambda *_: add(None))
        return
    _after(target, {method: add})


def _after(target: Any, calls: dict[str, Any]) -> None:
    """Call each function after the method of its name has returned on this very object."""
    kind = type(target)
    methods: dict[str, Any] = {"__module__": kind.__module__}
    for method, call in calls.items():
        methods[method] = _followed(getattr(kind, method), call)
    # A subclass of its own and no attribute on the object: schedulers put every attribute into their state.
    target.__class__ = type(kind.__name__, (kind,), methods)


def _followed(original: Any, call: Any) -> Any:
    def method(self: Any, *args: Any, **keywords: Any) -> Any:
        result = original(self, *args, **keywords)
        call(self)
        return result

    return method
