"""What a microbatch of another size would allocate, from the prediction of the plan's own. An estimate. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

UNMOVED = ("load", "evaluate", "checkpoint", "export")
"""Phases whose rows are not the training microbatch's."""


def peak(predicted: Mapping[str, Mapping[str, Any]], ratio: float) -> int | None:
    """Allocated at the peak, bytes, with ``ratio`` times the plan's rows in a microbatch; None without a prediction.

    Activations are taken to follow the rows, and temporaries with them where they belong to the forward and backward;
    parameters, gradients and optimizer state stay.
    """
    found = [
        _scaled(held, 1.0 if phase in UNMOVED else ratio) for phase, row in predicted.items() for held in _parts(row)
    ]
    return max(found, default=None)


def _parts(row: Mapping[str, Any]) -> Iterator[Mapping[str, int]]:
    parts = row.get("parts")
    for each in (row, *(parts.values() if isinstance(parts, Mapping) else ())):
        held = each.get("at_peak") if isinstance(each, Mapping) else None
        if isinstance(held, Mapping) and all(isinstance(value, int) for value in held.values()):
            yield held


def _scaled(held: Mapping[str, int], ratio: float) -> int:
    activations, temporary = held.get("activations", 0), held.get("temporary", 0)
    moving = activations + (temporary if activations > temporary else 0)
    return round(sum(held.values()) - moving + moving * ratio)
