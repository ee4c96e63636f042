"""What fills memory, by category, from the tensors that Python objects still hold: for a phase that ran out of it."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

PARAMETERS, GRADIENTS, OPTIMIZER, TENSORS, REST = (
    "parameters",
    "gradients",
    "optimizer state",
    "other tensors in reach",
    "activations and temporaries",
)


def categories(device: torch.device, allocated: int | None) -> dict[str, int]:
    """Bytes on ``device`` by category, largest first, none that is 0.

    Every live tensor is found through the garbage collector, so a model that was being built when memory ran out is
    counted too. Each storage counts once. What the allocator gave out and no Python object reaches is held by the
    autograd graph or by kernels: activations and temporaries.
    """
    parameters: list[Any] = []
    others: list[Any] = []
    states: list[Any] = []
    for each in gc.get_objects():
        # By type and not by isinstance: a lazy module's ``__class__`` may import half a library when it is looked at.
        kind = type(each)
        if issubclass(kind, torch.Tensor):
            (parameters if issubclass(kind, nn.Parameter) else others).append(each)
        elif issubclass(kind, torch.optim.Optimizer):
            states += [value for state in each.state.values() if isinstance(state, dict) for value in state.values()]
    taken: set[int] = set()
    found = {
        PARAMETERS: _bytes(parameters, device, taken),
        GRADIENTS: _bytes((each.grad for each in parameters), device, taken),
        OPTIMIZER: _bytes(states, device, taken),
        TENSORS: _bytes(others, device, taken),
    }
    if allocated is not None:
        found[REST] = max(0, allocated - sum(found.values()))
    return dict(sorted(((name, size) for name, size in found.items() if size), key=lambda pair: -pair[1]))


def _bytes(tensors: Iterable[Any], device: torch.device, taken: set[int]) -> int:
    """Bytes of the storages on ``device`` that were not counted before."""
    total = 0
    for tensor in tensors:
        try:
            if not isinstance(tensor, torch.Tensor) or tensor.device != device:
                continue
            storage = tensor.untyped_storage()
            key, size = storage.data_ptr(), storage.nbytes()
        except (RuntimeError, NotImplementedError):  # a subclass without a storage of its own
            continue
        if size and key not in taken:
            taken.add(key)
            total += size
    return total
