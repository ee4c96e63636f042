"""Hashes and sizes of tensors, bit for bit, without numpy."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

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


def changing(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """What training may change: trainable parameters and buffers, by name, tied ones once."""
    seen: set[int] = set()
    found: list[tuple[str, torch.Tensor]] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in seen:
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
