"""Which loss is really in force: the calls of torch's losses, with what stood on both sides of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

CLASSES = ("cross_entropy", "nll_loss")
NUMBERS = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
PROBABILITIES = ("binary_cross_entropy_with_logits", "binary_cross_entropy")


@contextmanager
def watch_losses() -> Iterator[list[dict[str, Any]]]:
    """Collects ``{loss, input, target, input_dtype, target_dtype, sum, items, result}`` of every outermost torch loss.

    ``sum`` is that call's loss summed over its items, None where the loss works on numbers and not on class ids, or is
    left unreduced; ``items`` the targets that it does not ignore; ``result`` what the call gave, with its graph.
    """
    calls: list[dict[str, Any]] = []
    inside = [0]
    originals = {name: getattr(functional, name) for name in (*CLASSES, *NUMBERS, *PROBABILITIES)}

    def watched(name: str, original: Any) -> Any:
        def call(input: Any, target: Any, *args: Any, **keywords: Any) -> Any:
            inside[0] += 1
            try:
                result = original(input, target, *args, **keywords)
            finally:
                inside[0] -= 1
            if not inside[0] and isinstance(input, torch.Tensor) and isinstance(target, torch.Tensor):
                calls.append({**_facts(name, input, target), "result": result})
                if name in CLASSES:
                    calls[-1]["sum"] = _summed(original, result, input, target, args, keywords)
                    calls[-1]["items"] = int((target != keywords.get("ignore_index", -100)).sum())
            return result

        return call

    for name, original in originals.items():
        setattr(functional, name, watched(name, original))
    try:
        yield calls
    finally:
        for name, original in originals.items():
            setattr(functional, name, original)


def _facts(name: str, input: torch.Tensor, target: torch.Tensor) -> dict[str, Any]:
    return {
        "loss": name,
        "input": list(input.shape),
        "target": list(target.shape),
        "input_dtype": str(input.dtype).removeprefix("torch."),
        "target_dtype": str(target.dtype).removeprefix("torch."),
        "sum": None,
        "items": None,
    }


def _summed(original: Any, result: Any, input: Any, target: Any, args: Any, keywords: dict[str, Any]) -> float | None:
    if keywords.get("reduction") == "sum":
        return float(result.detach())
    if args or keywords.get("reduction") == "none":  # a reduction by place, or a mask that comes after
        return None
    with torch.no_grad():
        return float(original(input, target, **{**keywords, "reduction": "sum"}))
