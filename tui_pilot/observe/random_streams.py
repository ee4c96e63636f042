"""The random streams that a loop draws from: Python's, torch's on host and device, and numpy's where it is loaded."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def random_state(device: torch.device) -> dict[str, Any]:
    """Every random stream a task may draw from, as tensors and numbers."""
    version, numbers, gauss = random.getstate()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": {"version": version, "numbers": list(numbers), "gauss": gauss},
    }
    if device.type == "cuda":
        state["device"] = torch.cuda.get_rng_state(device)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = {
            "name": name,
            "keys": [int(key) for key in keys],
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        }
    return state


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Set every stream back; done last, after everything that draws."""
    python = state["python"]
    random.setstate((python["version"], tuple(python["numbers"]), python["gauss"]))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "device" in state:
        torch.cuda.set_rng_state(state["device"], device)
    if "numpy" in state:
        try:
            import numpy
        except ImportError:
            return
        one = state["numpy"]
        keys = numpy.array(one["keys"], dtype=numpy.uint32)
        numpy.random.set_state((one["name"], keys, one["position"], one["has_gauss"], one["cached"]))


@contextmanager
def streams_kept(device: torch.device) -> Iterator[dict[str, Any]]:
    """What the body draws leaves no trace: every stream goes on from where it was. Gives the state at the start."""
    state = random_state(device)
    try:
        yield state
    finally:
        restore_random_state(state, device)
