"""Hashes and sizes of tensors, bit for bit, without numpy."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """The tensor's own bytes in memory order, copied to the host."""
    host = tensor.detach().cpu().contiguous()
    count = host.numel() * host.element_size()
    return ctypes.string_at(host.data_ptr(), count) if count else b""


def tensor_hash(tensor: torch.Tensor) -> str:
    """Sixteen hex digits over dtype, shape and bytes."""
    value = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), digest_size=8)
    value.update(tensor_bytes(tensor))
    return value.hexdigest()


def hashes(named: Iterable[tuple[str, torch.Tensor]]) -> dict[str, str]:
    """A hash per name."""
    return {name: tensor_hash(tensor) for name, tensor in named}


def one_hash(parts: Mapping[str, str]) -> str:
    """One hash over named hashes."""
    value = hashlib.blake2b(digest_size=8)
    for name in sorted(parts):
        value.update(f"{name}={parts[name]};".encode())
    return value.hexdigest()


class _Frozen:
    """What is known of a model's frozen parameters: a mark of each, and those that moved all the same."""

    def __init__(self, model: nn.Module) -> None:
        self.marks = {name: _mark(parameter) for name, parameter in _frozen(model)}
        self.moved: set[str] = set()


_FROZEN: WeakKeyDictionary[nn.Module, _Frozen] = WeakKeyDictionary()
_MARKED = 1024


def watch_frozen(model: nn.Module) -> None:
    """Mark the frozen parameters as they are now, so that ``note_moved`` finds those a loop moves by itself."""
    _FROZEN[model] = _Frozen(model)


def note_moved(model: nn.Module, names: Iterable[str] = ()) -> None:
    """From now on ``changing`` holds the frozen parameters that moved since ``watch_frozen``, and those of ``names``.

    An averaged copy of the weights takes no gradient and changes with every update.
    """
    known = _FROZEN.get(model)
    if known is not None:
        known.moved |= {name for name, each in _frozen(model) if known.marks.get(name, "") != _mark(each)}
        known.moved |= set(known.marks).intersection(names)


def _frozen(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, parameter) for name, parameter in model.named_parameters() if not parameter.requires_grad]


def _mark(tensor: torch.Tensor) -> str:
    """A hash over elements spread through the tensor: a whole big base would take long to read."""
    flat = tensor.detach().reshape(-1)
    return tensor_hash(flat[:: max(1, flat.numel() // _MARKED)])


def changing(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """What training changes: trainable parameters, frozen ones that moved, and buffers, by name, tied ones once."""
    known = _FROZEN.get(model)
    moved = known.moved if known is not None else frozenset[str]()
    seen: set[int] = set()
    found: list[tuple[str, torch.Tensor]] = []
    for name, parameter in model.named_parameters():
        if (parameter.requires_grad or name in moved) and id(parameter) not in seen:
            seen.add(id(parameter))
            found.append((name, parameter))
    found += [(name, buffer) for name, buffer in model.named_buffers() if buffer is not None]
    return found


def weights_hash(model: nn.Module) -> str:
    """One hash over what training may change."""
    return one_hash(hashes(changing(model)))


def state_hash(value: Any) -> str:
    """One hash over a nested state of tensors, numbers and strings."""
    digest = hashlib.blake2b(digest_size=8)
    _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        digest.update(tensor_hash(value).encode())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            digest.update(f"{key}:".encode())
            _feed(digest, value[key])
    elif isinstance(value, (list, tuple)):
        for item in value:
            _feed(digest, item)
    else:
        digest.update(repr(value).encode())
