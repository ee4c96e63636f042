"""Which attention kernel a GPU takes, and the same kernel's memory on fake CPU tensors.

The order and conditions are read from torch's source (unverified on a GPU): capability 9 and 10 with a cuDNN above 9.15
prefer cudnn; all others flash, then efficient, then math. A mask rules flash out, so "is there a mask?" decides much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

HALF = (torch.float16, torch.bfloat16)
FLASH_WIDTH, CUDNN_WIDTH = 256, 128
aten = torch.ops.aten


def choose(
    capability: tuple[int, int],
    dtype: torch.dtype,
    widths: tuple[int, int],
    *,
    mask: bool,
    dims: int = 4,
    grad: bool = True,
) -> str:
    """``flash``, ``efficient``, ``cudnn`` or ``math`` for queries and keys of one width and values of another."""
    width, value_width = widths
    if dims != 4:
        return "math"
    half = dtype in HALF and capability >= (8, 0)
    flash = half and not mask and width == value_width <= FLASH_WIDTH
    if flash and grad and width > 192 and capability in ((8, 6), (8, 9), (12, 0), (12, 1)):
        flash = False
    if half and capability[0] in (9, 10) and max(widths) <= CUDNN_WIDTH and width % 8 == value_width % 8 == 0:
        return "cudnn"
    if flash:
        return "flash"
    if capability >= (5, 0) and (dtype in (torch.float32, torch.float16) or half):
        return "efficient"
    return "math"


def replacement(capability: tuple[int, int], seen: Counter[str], forced: str | None) -> Callable[..., Any]:
    """``scaled_dot_product_attention`` as that GPU runs it; ``seen`` counts the kernels by name."""

    def scaled_dot_product_attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cpu")
            query, key, value = (each.to(dtype) for each in (query, key, value))
            if attn_mask is not None and attn_mask.is_floating_point():
                attn_mask = attn_mask.to(dtype)
        grad = torch.is_grad_enabled() and any(each.requires_grad for each in (query, key, value))
        if forced == "flash":  # a flash package takes padding as lengths, never as a mask
            attn_mask = None
        path = choose(
            capability, query.dtype, (query.shape[-1], value.shape[-1]), mask=attn_mask is not None, dims=query.dim(),
            grad=grad,
        )  # fmt: skip
        path = "flash" if forced == "flash" and path == "cudnn" else path
        seen[path + (" with a mask" if attn_mask is not None else "")] += 1
        with torch.autocast("cpu", enabled=False):
            if path == "math":
                return aten._scaled_dot_product_attention_math(
                    query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
                )[0]
            return _fused(path, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, grad)

    return scaled_dot_product_attention


def _fused(
    path: str, query: Any, key: Any, value: Any, mask: Any, dropout: float, causal: bool, scale: Any, gqa: bool,
    grad: bool,
) -> Any:  # fmt: skip
    width = query.shape[-1]
    if path == "efficient" and gqa and key.shape[1] != query.shape[1]:
        key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], dim=1) for each in (key, value))
    if path in ("flash", "cudnn") and width % 8:
        scale = width**-0.5 if scale is None else scale
        query, key, value = (functional.pad(each, (0, 8 - width % 8)) for each in (query, key, value))
    if path == "flash":
        return aten._scaled_dot_product_flash_attention(query, key, value, dropout, causal, False, scale=scale)[0][
            ..., :width
        ]
    bias = _bias(mask, query, key)
    if path == "cudnn":
        return aten._scaled_dot_product_cudnn_attention(
            query, key, value, bias, grad, dropout, causal, False, scale=scale
        )[0]
    return aten._scaled_dot_product_efficient_attention(query, key, value, bias, grad, dropout, causal, scale=scale)[0]


def _bias(mask: Any, query: Any, key: Any) -> Any:
    """The additive mask that the kernel gets: made anew in every layer, its last side padded to 16 elements."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        zero = torch.zeros((), dtype=query.dtype)
        mask = torch.where(mask.logical_not(), torch.full_like(zero, float("-inf")), zero)
    length = mask.shape[-1]
    if length % 16:
        mask = functional.pad(mask, (0, 16 - length % 16))[..., :length]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def _dropout(original: Callable[..., Any]) -> Callable[..., Any]:
    """Dropout as a GPU keeps it: a mask of one byte an element."""

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if inplace or not training or not 0 < p < 1:
            return original(input, p, training, inplace)
        return aten.native_dropout(input, p, True)[0]

    return dropout


@contextmanager
def gpu_kernels(capability: tuple[int, int], seen: Counter[str], forced: str | None = None) -> Iterator[None]:
    """Attention and dropout as a GPU runs them, while the context is open."""
    originals = functional.scaled_dot_product_attention, functional.dropout
    functional.scaled_dot_product_attention = replacement(capability, seen, forced)
    functional.dropout = _dropout(functional.dropout)
    try:
        yield
    finally:
        functional.scaled_dot_product_attention, functional.dropout = originals
