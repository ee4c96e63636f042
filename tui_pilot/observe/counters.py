"""Counts what really happened: optimizer steps, scheduler ticks and scaler calls, on the objects themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Counters:
    """Calls seen since ``watch``. A scaler that skips a step never reaches the optimizer, so both counts matter."""

    optimizer_steps: int = 0
    scheduler_ticks: int = 0
    scaler_updates: int = 0
    scaler_steps: int = 0
    scaler_unscales: int = 0

    @classmethod
    def watch(cls, optimizer: Any, scheduler: Any = None, scaler: Any = None) -> Counters:
        """Count the calls on these very objects; results and errors pass through untouched."""
        counters = cls()
        _count(optimizer, "step", counters, "optimizer_steps")
        if scheduler is not None:
            _count(scheduler, "step", counters, "scheduler_ticks")
        if scaler is not None:
            _count(scaler, "update", counters, "scaler_updates")
            _count(scaler, "step", counters, "scaler_steps")
            _count(scaler, "unscale_", counters, "scaler_unscales")
        return counters

    def as_json(self) -> dict[str, int]:
        return dict(vars(self))


def _count(target: Any, method: str, counters: Counters, name: str) -> None:
    if name == "optimizer_steps" and hasattr(target, "register_step_post_hook"):

        def hook(*_: Any) -> None:
            counters.optimizer_steps += 1

        target.register_step_post_hook(hook)
        return
    kind = type(target)
    original = getattr(kind, method)

    def counted(self: Any, *args: Any, **keywords: Any) -> Any:
        result = original(self, *args, **keywords)
        setattr(counters, name, getattr(counters, name) + 1)
        return result

    # A subclass of its own and no attribute on the object: schedulers put every attribute into their state.
    target.__class__ = type(kind.__name__, (kind,), {method: counted, "__module__": kind.__module__})
