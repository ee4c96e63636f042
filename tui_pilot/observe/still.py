"""Buffers that a forward moves, such as the vectors of a spectral norm, as they were before each forward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def same_buffers(model: nn.Module) -> Iterator[None]:
    """Every forward of ``model`` in here starts from the floating buffers of now, and so does what comes after."""
    kept = {name: buffer.clone() for name, buffer in model.named_buffers() if buffer.is_floating_point()}

    def put_back(*_: Any) -> None:
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                old = kept.get(name)
                if old is not None and old.shape == buffer.shape and not torch.equal(old, buffer):
                    buffer.copy_(old)

    hook = model.register_forward_pre_hook(put_back)
    try:
        yield
    finally:
        hook.remove()
        put_back()
