"""Which rows a loop takes, in which order, on which rank: names, permutations, microbatches and windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tui_pilot.plan.model import Batch as BatchPlan
from tui_pilot.tasks.base import Batch, Example, Task, encode, row_names


@dataclass
class Split:
    """The rows of one split in file order, with their names and the way from a name to its place."""

    name: str
    records: Sequence[Any]
    ids: list[Any]
    place: dict[Any, int] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, name: str) -> Split:
        """Read the split; equal names keep the first place (the splits gate lists duplicates)."""
        records = task.records(name)
        ids = row_names(task, records)
        place: dict[Any, int] = {}
        for number, row in enumerate(ids):
            place.setdefault(row, number)
        return cls(name, records, ids, place)

    def __len__(self) -> int:
        return len(self.records)


def epoch_order(task: Task, split: Split, epoch: int, seed: int) -> list[int]:
    """Places of the split's rows in the order of one epoch, before ranks take their share.

    A task's own ``order`` may name rows by id or by number. The default permutation depends on seed and epoch alone,
    so that a new process finds the same one.
    """
    own = task.order(split.name, epoch, seed)
    if own is not None:
        return [split.place[row] if row in split.place else int(row) for row in own]
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
    return [int(place) for place in torch.randperm(len(split), generator=generator)]


def rank_share(order: Sequence[int], rank: int, replicas: int, drop_last: bool) -> tuple[list[int], int]:
    """One rank's places of an epoch and how many of them are padding (rows seen twice so that ranks stay equal)."""
    if drop_last:
        whole = len(order) // replicas * replicas
        return list(order[:whole][rank::replicas]), 0
    padded = list(order)
    missing = -len(order) % replicas
    for extra in range(missing):
        padded.append(order[extra % len(order)])
    share = padded[rank::replicas]
    return share, 1 if missing and rank >= replicas - missing else 0


@dataclass
class Microbatch:
    """Rows of one forward and backward, collated on the CPU, with the supervised items they hold."""

    places: list[int]
    ids: list[Any]
    batch: Batch
    count: int
    padding: int = 0
    lengths: list[int] = field(default_factory=list)


@dataclass
class Cursor:
    """Where the loop stands in its data: the epoch and the next microbatch in it. This is what a checkpoint keeps."""

    epoch: int = 0
    microbatch: int = 0


class Feed:
    """Yields windows of microbatches in campaign order and can start anywhere without replaying rows."""

    def __init__(self, task: Task, split: Split, plan: BatchPlan, seed: int, rank: int, replicas: int) -> None:
        self.task, self.split, self.plan = task, split, plan
        self.seed, self.rank, self.replicas = seed, rank, replicas
        self.cursor = Cursor()
        self._orders: dict[int, list[list[int]]] = {}

    def microbatches_of(self, epoch: int) -> list[list[int]]:
        """Places of each microbatch of one epoch on this rank."""
        if epoch not in self._orders:
            self._orders = {epoch: self.look(epoch)}
        return self._orders[epoch]

    def look(self, epoch: int) -> list[list[int]]:
        """The same for any epoch, without the loop's own being put aside for it."""
        if epoch in self._orders:
            return self._orders[epoch]
        order = epoch_order(self.task, self.split, epoch, self.seed)
        share, _ = rank_share(order, self.rank, self.replicas, self.plan.drop_last)
        micro = self.plan.micro
        groups = [share[start : start + micro] for start in range(0, len(share), micro)]
        if self.plan.drop_last and groups and len(groups[-1]) < micro:
            groups.pop()
        return groups

    def window(self) -> list[Microbatch] | None:
        """The next window, encoded and collated; None if the data yields no window at all (zero updates)."""
        for _ in range(2):
            groups = self.microbatches_of(self.cursor.epoch)
            start = self.cursor.microbatch
            taken = groups[start : start + self.plan.accumulation]
            complete = len(taken) == self.plan.accumulation
            if taken and (complete or self.plan.tail == "step"):
                self.cursor = Cursor(self.cursor.epoch, start + len(taken))
                if self.cursor.microbatch >= len(groups):
                    self.cursor = Cursor(self.cursor.epoch + 1, 0)
                return [self.build(places) for places in taken]
            self.cursor = Cursor(self.cursor.epoch + 1, 0)
        return None

    def build(self, places: Sequence[int]) -> Microbatch:
        """Encode and collate the rows at ``places``."""
        examples = [encode(self.task, self.split.records[place]) for place in places]
        return collate(self.task, examples, list(places), [self.split.ids[place] for place in places])


def collate(task: Task, examples: Sequence[Example], places: list[int], ids: list[Any]) -> Microbatch:
    """A microbatch of encoded examples, with its supervised count."""
    batch = task.collate(list(examples))
    lengths = [len(example["input_ids"]) for example in examples if "input_ids" in example]
    return Microbatch(places, ids, batch, int(task.count(batch)), lengths=lengths)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch's tensors on the device; anything else as it is."""
    return {
        key: value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) else value
        for key, value in batch.items()
    }


def shape_of(batch: Batch) -> str:
    """``rows x tokens`` of a batch, for people."""
    for key in ("input_ids", *batch):
        value = batch.get(key)
        if isinstance(value, torch.Tensor):
            return " x ".join(f"{side:,}" for side in value.shape)
    return "unknown shape"


def chunks(places: Sequence[int], size: int) -> Iterator[list[int]]:
    """Consecutive groups of at most ``size`` places."""
    for start in range(0, len(places), size):
        yield list(places[start : start + size])
