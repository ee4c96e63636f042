"""What a comparison holds equal, as a trial really has it: tensors, first weights, rows, order, windows, schedule.

The probe asks this of every trial before the first one starts; the trial stage notes the same while it runs.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from tui_pilot.observe.tensors import tensor_hash
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.rows import Feed, Microbatch, Split
from tui_pilot.plan.model import Plan
from tui_pilot.tasks.base import Task, encode

MARKS = 200
"""At most about so many updates of a run are compared one by one; the digest at each covers all before it."""
MOST_ENCODED = 20_000
"""Rows of a split that are encoded for the comparison; a longer split is compared by its first ones."""
LOOKED_WINDOWS = 3
FROZEN_SAMPLE = 4096


def marks(updates: int) -> list[int]:
    """The updates, counted from 1, at which order and rate are noted: first, last, and evenly between."""
    step = max(1, math.ceil(updates / MARKS))
    return sorted({1, updates, *range(step, updates + 1, step)}) if updates > 0 else []


def architecture(model: nn.Module) -> dict[str, Any]:
    """Every parameter's dtype, shape and whether it trains, and one digest over them."""
    tensors = {
        name: f"{str(each.dtype).removeprefix('torch.')} {tuple(each.shape)}{'' if each.requires_grad else ' frozen'}"
        for name, each in model.named_parameters()
    }
    counted = [each.numel() for each in model.parameters()]
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    return {"tensors": tensors, "elements": sum(counted), "trained": trained, "digest": digest(sorted(tensors.items()))}


def weights(model: nn.Module) -> dict[str, str]:
    """A hash per parameter and buffer; of frozen ones, elements spread through the tensor."""
    found = {}
    for name, each in (*model.named_parameters(), *model.named_buffers()):
        value = each.detach()
        if isinstance(each, nn.Parameter) and not each.requires_grad:
            flat = value.reshape(-1)
            value = flat[:: max(1, flat.numel() // FROZEN_SAMPLE)]
        found[name] = tensor_hash(value)
    return found


def digest(value: Any) -> str:
    """Sixteen hex digits over plain values."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


def encoded(task: Task, split: Split) -> dict[str, Any]:
    """The split as the loss gets it: how many rows, a digest of their ids, and one of every encoded row."""
    total = hashlib.blake2b(digest_size=8)
    looked = min(len(split), MOST_ENCODED)
    for place in range(looked):
        example = encode(task, split.records[place])
        total.update(json.dumps(_plain(example), sort_keys=True, default=str).encode())
    return {"rows": len(split), "ids": digest(split.ids), "encoded": total.hexdigest(), "looked_at": looked}


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tensor_hash(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


class Order:
    """A running digest over the row ids of each update, kept at the marks."""

    def __init__(self, updates: int) -> None:
        self.wanted = frozenset(marks(updates))
        self.kept: dict[int, str] = {}
        self.rows: Counter[int] = Counter()
        self.first: list[Any] = []
        self.update = 0
        self._total = hashlib.blake2b(digest_size=8)

    def add(self, ids: Sequence[Any]) -> None:
        """The rows of the next update, over all ranks."""
        self.update += 1
        self.rows[len(ids)] += 1
        self.first = self.first or list(ids)[:32]
        self._total.update(json.dumps(list(ids), default=str).encode() + b"\n")
        if self.update in self.wanted:
            self.kept[self.update] = self._total.hexdigest()[:12]

    def as_json(self) -> dict[str, Any]:
        """``at`` the digests by update, ``rows`` how many updates had how many rows, ``first`` the first update's."""
        return {
            "at": {str(update): value for update, value in self.kept.items()},
            "rows": {str(rows): times for rows, times in sorted(self.rows.items())},
            "first": self.first,
        }


def planned_order(task: Task, split: Split, plan: Plan, updates: int) -> Order:
    """The order of a whole run without encoding a row: every rank's windows, side by side."""
    found = Order(updates)
    feeds = [Feed(task, split, plan.batch, plan.seed, rank, plan.replicas) for rank in range(plan.replicas)]
    for groups in _windows(feeds, plan, updates):
        found.add([split.ids[place] for group in groups for place in group])
    return found


def _windows(feeds: Sequence[Feed], plan: Plan, updates: int) -> Iterator[list[list[int]]]:
    done, epoch = 0, 0
    while done < updates:
        every = [feed.microbatches_of(epoch) for feed in feeds]
        epoch += 1
        before = done
        for start in range(0, max(map(len, every), default=0), plan.batch.accumulation):
            taken = [groups[start : start + plan.batch.accumulation] for groups in every]
            if done >= updates or (len(taken[0]) < plan.batch.accumulation and plan.batch.tail == "drop"):
                break
            done += 1
            yield [group for groups in taken for group in groups]
        if done == before:
            return


def window_facts(window: Sequence[Microbatch]) -> dict[str, Any]:
    """What one update averages, counted in the tensors that the loss gets, whatever the plan says."""
    rows = 0
    for micro in window:
        sides = [
            int(value.shape[0]) for value in micro.batch.values() if isinstance(value, torch.Tensor) and value.dim()
        ]
        rows += max(sides, default=len(micro.ids))
    return {"rows": rows, "items": sum(micro.count for micro in window), "named": sum(len(m.ids) for m in window)}


def rates(optimizer: torch.optim.Optimizer, scheduler: Any, updates: int) -> list[float]:
    """The learning rate of every update, by running the schedule alone: no gradient is there, so no weight moves."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(updates):
            found.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            scheduler.step()
    return found


def schedule(rates: Sequence[float]) -> dict[str, Any]:
    """Warm-up as updates before the highest rate, its share of the run, the rate at the marks, and the shape."""
    if not rates:
        return {}
    peak = max(rates)
    first = next(number for number, rate in enumerate(rates) if rate >= peak * (1 - 1e-9))
    shape = [round(rate / peak, 6) if peak else 0.0 for rate in rates]
    return {
        "peak": peak,
        "warmup_updates": first,
        "warmup_share": round(first / len(rates), 6),
        "at": {str(update): rates[update - 1] for update in marks(len(rates))},
        "shape": digest(shape),
    }


def control_rows(context: Context, most: int = 8) -> tuple[str, Split, list[int]]:
    """The rows whose answers are kept at each validation: the first of validation, else of train."""
    from tui_pilot.pilot.audit import split_of

    for name in ("validation", "train"):
        split = split_of(context, name)
        if len(split):
            return name, split, list(range(min(most, len(split))))
    return "train", split_of(context, "train"), []
