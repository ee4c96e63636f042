"""Gradients as an optimizer sees them, kept on the host, and how far two of them are apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

Gradient = dict[str, torch.Tensor]


def gradient_of(model: nn.Module, scale: float = 1.0) -> Gradient:
    """Copies of the gradients that are there now, by parameter name, divided by ``scale``."""
    return {
        name: parameter.grad.detach().cpu().clone() / scale
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter.grad is not None
    }


class StepGradients:
    """The gradient of every optimizer step from now on, as the optimizer finds it: for a loop of any kind."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.steps: list[Gradient] = []
        self._hook = optimizer.register_step_pre_hook(lambda *_: self.steps.append(gradient_of(model)))

    def close(self) -> None:
        """Stop looking."""
        self._hook.remove()


def distance(real: Mapping[str, torch.Tensor], reference: Mapping[str, torch.Tensor]) -> tuple[float, float, float]:
    """``|g - r| / |r|``, ``|g| / |r|`` and the cosine between them, in double precision."""
    square = own = other = product = 0.0
    for name in reference.keys() | real.keys():
        known = reference[name] if name in reference else real[name]
        want = reference[name].double() if name in reference else torch.zeros_like(known, dtype=torch.float64)
        have = real[name].double() if name in real else torch.zeros_like(known, dtype=torch.float64)
        square += float(((have - want) ** 2).sum())
        own += float((have**2).sum())
        other += float((want**2).sum())
        product += float((have * want).sum())
    if other == 0:
        return (0.0, 1.0, 1.0) if own == 0 else (float("inf"), float("inf"), 0.0)
    return (square / other) ** 0.5, (own / other) ** 0.5, product / max(1e-300, (own * other) ** 0.5)


def comparison(real: Gradient, reference: Gradient, microbatches: int, rows: list[Any]) -> dict[str, Any]:
    """What the ``batch`` gate wants to know of two gradients over the same rows."""
    error, ratio, direction = distance(real, reference)
    return {"error": error, "ratio": ratio, "direction": direction, "microbatches": microbatches, "rows": rows}


@contextmanager
def overflow(parameter: nn.Parameter) -> Iterator[None]:
    """Backwards in here leave an inf in one parameter's gradient, as an overflow in half precision does."""
    hook = parameter.register_hook(lambda gradient: torch.full_like(gradient, float("inf")))  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        hook.remove()
