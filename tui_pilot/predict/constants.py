"""Bytes that a GPU takes and no dispatcher sees, as named constants. Read from torch's source, not yet measured.

Each is marked ``unverified`` in the assumptions of a prediction. The CUDA context lies outside torch's allocator; NVML
shows it, and no guess is made here.
"""

from __future__ import annotations

from typing import Any

CUBLAS_WORKSPACE = 8_519_680
"""Through the caching allocator, once per handle and stream, kept; capability below 9."""
CUBLAS_WORKSPACE_FROM_9 = 32 << 20
FLASH_ROWS, FLASH_COLUMNS = 128, 32
"""The backward's accumulator is padded to these in length and head dimension."""
UNKNOWN = ("scratch of the cudnn and efficient attention backwards", "the CUDA context, which lies outside torch")

_PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm", "aten::addmv", "aten::mv"}
_FLASH_BACKWARD = "aten::_scaled_dot_product_flash_attention_backward"


def cublas_workspace(capability: tuple[int, int]) -> int:
    """Bytes of one cuBLAS workspace."""
    return CUBLAS_WORKSPACE_FROM_9 if capability[0] >= 9 else CUBLAS_WORKSPACE


class GpuScratch:
    """What kernels of a GPU take beside their outputs: a workspace at the first product of the forward's thread and at
    the first of autograd's, and the flash backward's accumulators."""

    def __init__(self, capability: tuple[int, int]) -> None:
        self.workspace = cublas_workspace(capability)
        self.backward = False
        self._have: set[bool] = set()

    def __call__(self, func: Any, args: tuple[Any, ...]) -> tuple[int, int]:
        """(bytes kept from here on, bytes while the operator runs)."""
        name = func._schema.name
        if name in _PRODUCTS and self.backward not in self._have:
            self._have.add(self.backward)
            return self.workspace, 0
        if name == _FLASH_BACKWARD:
            return 0, flash_backward(args[1], args[2])
        return 0, 0


def flash_backward(query: Any, key: Any) -> int:
    """The accumulators of flash attention's backward; queries ``(rows, heads, length, width)``."""
    rows, heads, length, width = query.shape
    length = -(-length // FLASH_ROWS) * FLASH_ROWS
    padded = -(-width // FLASH_COLUMNS) * FLASH_COLUMNS
    count = rows * heads * length * padded * 4 + rows * heads * length * 4
    if key.shape[1] != heads:  # grouped: gradients of keys and values per query head, summed afterwards
        count += 2 * rows * key.shape[2] * heads * width * query.element_size()
    return int(count)
