"""Targets that one input has in several rows: a right model can give only one of them, and each is right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from tui_pilot.pilot.rows import Microbatch
from tui_pilot.tasks.base import IGNORE

Accepted = dict[int | None, set[Any]]
"""For one row, by place of the label (None: the row's one label): every target that its input has somewhere."""


def alternatives(micros: Sequence[Microbatch], targets: Sequence[tuple[bool, Sequence[Any]]]) -> list[list[Accepted]]:
    """One entry per row of each microbatch, empty where the input decides.

    Rows that begin alike and go on differently, one question with two answers, one text under two classes: for a
    language model (``targets`` says so) the input of a place is what stands before it, else it is the whole row.
    """
    known: dict[Any, set[Any]] = defaultdict(set)
    keys: list[list[dict[int | None, Any]]] = []
    for micro, (own, labels) in zip(micros, targets, strict=True):
        keys.append([])
        for row, target in enumerate(labels):
            places = dict(_places(target))
            at = _prefixes(micro, row, own and isinstance(target, list))
            found = {place: at(place) for place in places}
            for place, value in places.items():
                known[found[place]].add(value)
            keys[-1].append(found)
    return [[{place: known[key] for place, key in row.items() if len(known[key]) > 1} for row in rows] for rows in keys]


def _places(target: Any) -> list[tuple[int | None, Any]]:
    """Labels that count, by place. Numbers to come near to are not compared."""
    if not isinstance(target, list):
        return [] if isinstance(target, float) or target == IGNORE else [(None, target)]
    return [(place, label) for place, label in enumerate(target) if isinstance(label, int) and label != IGNORE]


def _prefixes(micro: Microbatch, row: int, own: bool) -> Any:
    """What decides a place of the row, as a key: hashes of its ids up to there, padding aside, and all else it has."""
    ids, labels = micro.batch.get("input_ids"), micro.batch["labels"]
    mask = micro.batch.get("attention_mask")
    plain = own and isinstance(ids, torch.Tensor) and ids.dim() == 2
    beside = []
    for name, value in micro.batch.items():
        if isinstance(value, torch.Tensor) and value is not labels and value.dim() and len(value) == len(labels):
            by_token = plain and value.shape == ids.shape  # type: ignore[union-attr]
            beside += [] if by_token else [(name, tuple(value[row].flatten().tolist()))]
    rest = hash(tuple(beside))
    if not plain:
        return lambda place: (rest, place)
    kept = mask[row].tolist() if isinstance(mask, torch.Tensor) and mask.shape == ids.shape else None  # type: ignore[union-attr]
    chain = [hash(())]
    for place, token in enumerate(ids[row].tolist()):  # type: ignore[index]
        chain.append(hash((chain[-1], token)) if kept is None or kept[place] else chain[-1])
    return lambda place: (rest, chain[min(place, len(chain) - 1)])
