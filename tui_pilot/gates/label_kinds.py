"""What the labels of a row are, where they do not stand at the places of its ids. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

IGNORE = -100
SHIFTS = (0, 1, -1, 2, -2)


def kind_of(labels: Any, ids: Sequence[int], spans: bool) -> str | None:
    """``none``, ``numbers`` to come near to, or a ``sequence`` of its own; None: one class, or at the places of ids.

    A decoder's target or two places in a text have a length of their own, a class for each token has the ids' length.
    Labels that are the row's ids, a few too few or too many, were meant to stand at their places. ``spans``: the task
    says which places of the ids are whose.
    """
    if labels is None:
        return "none"
    if not isinstance(labels, (list, tuple)) or (spans and len(labels) == len(ids)):
        return None
    if any(isinstance(label, (float, list, tuple)) for label in labels):
        return "numbers"
    counted = [place for place, label in enumerate(labels) if label != IGNORE]
    return None if not counted or any(_are_ids(labels, ids, counted, by) for by in SHIFTS) else "sequence"


def _are_ids(labels: Sequence[Any], ids: Sequence[int], counted: Sequence[int], by: int) -> bool:
    """Whether the labels are the ids at their places, ``by`` places on: at least half, or most in another length."""
    right = sum(1 for at in counted if 0 <= at + by < len(ids) and ids[at + by] == labels[at])
    return right >= (0.5 if len(labels) == len(ids) else 0.8) * len(counted)
