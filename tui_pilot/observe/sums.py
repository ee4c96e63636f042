"""Whether a state changed, cheaply: the sum of each tensor's bits, taken where the tensor lies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

PIECE = 1 << 24
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bit_sum(tensor: torch.Tensor) -> int:
    """The sum over a tensor's elements, each read as a whole number: another one as soon as a single bit differs."""
    own = tensor.detach()
    if not own.numel():
        return 0
    if own.is_complex():
        own = torch.view_as_real(own)
    words = own.contiguous().view(_WORDS.get(own.element_size(), torch.uint8)).flatten()
    # In pieces: a sum in another type may copy what it adds up.
    starts = range(0, words.numel(), PIECE)
    return sum(int(words[start : start + PIECE].sum(dtype=torch.int64).item()) for start in starts)


def bit_sums(named: Iterable[tuple[str, torch.Tensor]]) -> dict[str, int]:
    """A sum per name. Layouts that have no plain memory (sparse, quantized) are left out."""
    return {name: bit_sum(tensor) for name, tensor in named if tensor.layout == torch.strided}


def model_sums(model: nn.Module) -> dict[str, int]:
    """Every weight, trainable or frozen, and every floating buffer that is saved: what an evaluation must not touch.

    Counters and caches (whole numbers, buffers outside of the saved state) may move. A buffer's name carries its shape.
    """
    kept = model.state_dict()
    # A table with max_norm shortens the rows it is asked for, in any mode.
    tables = (module for module in model.modules() if isinstance(module, (nn.Embedding, nn.EmbeddingBag)))
    shortened = {id(table.weight) for table in tables if table.max_norm is not None}
    tensors: list[tuple[str, torch.Tensor]] = [(n, p) for n, p in model.named_parameters() if id(p) not in shortened]
    saved = ((name, b) for name, b in model.named_buffers() if name in kept and b.is_floating_point())
    tensors += [(f"{name} {tuple(buffer.shape)}", buffer) for name, buffer in saved]
    return bit_sums(tensors)


def optimizer_sums(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's tensors and numbers, by group and parameter."""
    found: dict[str, Any] = {}
    for place, values in enumerate(optimizer.state.values()):
        for name, value in values.items() if isinstance(values, Mapping) else ():
            found[f"{name} of parameter {place}"] = bit_sum(value) if isinstance(value, torch.Tensor) else repr(value)
    for number, group in enumerate(optimizer.param_groups):
        for name, value in group.items():
            if isinstance(value, (int, float)):
                found[f"{name} of group {number}"] = value
    return found


def gradient_sums(model: nn.Module) -> dict[str, int]:
    """What stands in ``grad`` and is not zero: it would be added to the next update."""
    taken = ((name, p.grad) for name, p in model.named_parameters() if p.grad is not None)
    return {name: value for name, value in bit_sums(taken).items() if value}


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Names whose sum differs, is new or is gone."""
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]
