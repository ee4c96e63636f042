"""The autocast rules of a GPU on CPU tensors: what it computes in fp32 and the CPU would leave in half precision.

The rules are kernels of the dispatcher, registered while the context is open, so that they hold in the recomputation
of activation checkpoints too. The lists are those of torch's autocast_mode.h for CUDA.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

IN_FP32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh",
    "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm",
    "rms_norm", "group_norm", "cosine_similarity", "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div",
    "l1_loss",
    "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss", "soft_margin_loss", "triplet_margin_loss",
    "multi_margin_loss", "binary_cross_entropy_with_logits", "dist", "cdist", "renorm", "logsumexp",
)  # fmt: skip
"""Arguments are cast up."""
RESULT_FP32 = (
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "sum", "sum.dim_IntList",
)  # fmt: skip
"""The result is asked in fp32; the input is not copied."""


@contextmanager
def gpu_rules() -> Iterator[None]:
    """Let ``torch.autocast("cpu", ...)`` cast as a GPU's does, and ``autocast("cuda")`` mean it."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    original = torch.amp.autocast_mode.autocast.__init__
    allowed = {"allow_override": True} if "allow_override" in inspect.signature(library.impl).parameters else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a rule of the CPU's own is replaced, as is meant
        _register(library, allowed)

    def here(self: Any, device_type: str, *args: Any, **keywords: Any) -> None:
        original(self, "cpu" if device_type == "cuda" else device_type, *args, **keywords)

    torch.amp.autocast_mode.autocast.__init__ = here  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.amp.autocast_mode.autocast.__init__ = original  # type: ignore[method-assign]
        library._destroy()


def _register(library: Any, allowed: dict[str, bool]) -> None:
    for names, make in ((IN_FP32, _cast_up), (RESULT_FP32, _result_up)):
        for name in names:
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
            if op is not None:
                library.impl(name, make(op), "AutocastCPU", **allowed)


def _outside() -> Any:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    return torch._C._ExcludeDispatchKeyGuard(keys)


def _up(value: Any) -> Any:
    half = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if half else value


def _cast_up(op: Any) -> Callable[..., Any]:
    def in_fp32(*args: Any, **keywords: Any) -> Any:
        with _outside():
            return op(*(_up(each) for each in args), **{name: _up(each) for name, each in keywords.items()})

    return in_fp32


def _result_up(op: Any) -> Callable[..., Any]:
    place = next((n for n, each in enumerate(op._schema.arguments) if each.name == "dtype"), None)

    def result_in_fp32(*args: Any, **keywords: Any) -> Any:
        given = keywords.get("dtype") or (args[place] if place is not None and len(args) > place else None)
        with _outside():
            if given is None and isinstance(args[0], torch.Tensor) and args[0].dtype in (torch.float16, torch.bfloat16):
                kept = args if place is None else args[:place]
                return op(*kept, **{**keywords, "dtype": torch.float32})
            return op(*args, **keywords)

    return result_in_fp32
