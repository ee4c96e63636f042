"""Batches in tokens, from the real lengths of rows: supervised tokens of an update, padding, what packing would give.

Pure and standard library only. Lengths are those after the cut, in tokens; rows come in the file's order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tui_pilot.errors import PlanError
from tui_pilot.plan.batch import BatchQuestion, windows


@dataclass(frozen=True)
class Row:
    """One training row: tokens that stand in the batch, and those that the loss counts."""

    length: int
    supervised: int


@dataclass(frozen=True)
class Packing:
    """Best fit, longest rows first, into sequences of ``capacity`` tokens; rows are never cut."""

    capacity: int
    sequences: int
    padding_share: float
    rows_a_sequence: float

    def as_json(self) -> dict[str, Any]:
        return {
            "capacity": self.capacity,
            "sequences": self.sequences,
            "padding_share": round(self.padding_share, 4),
            "rows_a_sequence": round(self.rows_a_sequence, 3),
        }


@dataclass(frozen=True)
class TokenView:
    """Of one pass in a shuffled order: supervised tokens of whole updates, and padding among all tokens of batches.

    ``least_possible`` and ``most_possible`` bound any order: the shortest and the longest rows in one update.
    """

    updates: int
    mean: float
    least: int
    most: int
    least_possible: int
    most_possible: int
    padding_share: float
    packed: Packing | None

    def as_json(self) -> dict[str, Any]:
        return {
            "updates": self.updates,
            "supervised_per_update": {"mean": round(self.mean, 3), "min": self.least, "max": self.most},
            "possible": {"min": self.least_possible, "max": self.most_possible},
            "padding_share": round(self.padding_share, 4),
            "packing": None if self.packed is None else self.packed.as_json(),
        }


def view(question: BatchQuestion, rows: Sequence[Row], capacity: int | None = None, seed: int = 0) -> TokenView:
    """The token view of a setting; rows beyond the first ``question.examples`` are left out.

    The order is a shuffle of ``seed`` by the standard library: as a campaign's, not the campaign's own.
    """
    known = list(rows[: question.examples])
    order = random.Random(seed).sample(known, len(known))
    one = BatchQuestion(
        question.micro, question.accumulation, len(known), question.replicas, question.drop_last, question.tail
    )
    taken = updates_of(one, order)
    totals = [sum(row.supervised for micro in update for row in micro) for update in taken]
    sizes = [sum(len(micro) for micro in update) for update in taken]
    full = [total for total, size in zip(totals, sizes, strict=True) if size == max(sizes)]
    padded = sum(max(row.length for row in micro) * len(micro) for update in taken for micro in update)
    real = sum(row.length for update in taken for micro in update for row in micro)
    ordered = sorted(row.supervised for row in known)
    most = min(max(sizes), len(ordered))
    return TokenView(
        updates=len(taken), mean=sum(full) / len(full), least=min(full), most=max(full),
        least_possible=sum(ordered[:most]), most_possible=sum(ordered[-most:]),
        padding_share=1 - real / padded if padded else 0.0,
        packed=pack([row.length for row in known], capacity or max((row.length for row in known), default=0)),
    )  # fmt: skip


def updates_of(question: BatchQuestion, order: Sequence[Row]) -> list[list[list[Row]]]:
    """Microbatches of every update of one pass, of all replicas; short replicas take rows from the start again."""
    each = -(-len(order) // question.replicas)
    shares = [
        [order[n % len(order)] for n in range(rank, each * question.replicas, question.replicas)]
        for rank in range(question.replicas)
    ]
    places = [0] * question.replicas
    found = []
    for sizes in windows(question):
        update = []
        for rank, share in enumerate(shares):
            for size in sizes:
                update.append(share[places[rank] : places[rank] + size])
                places[rank] += size
        found.append(update)
    return found


def pack(lengths: Sequence[int], capacity: int) -> Packing | None:
    """What packing whole rows into sequences of ``capacity`` would give; None where there is no row or no room."""
    if not lengths or capacity < max(lengths) or max(lengths) < 1:
        return None
    # Sequences counted by the room that is left in them: the fullest one that still takes the row.
    by_room: list[int] = [0] * (capacity + 1)
    made = 0
    for length in sorted(lengths, reverse=True):
        room = next((room for room in range(length, capacity) if by_room[room]), None)
        if room is None:
            made, room = made + 1, capacity
        else:
            by_room[room] -= 1
        by_room[room - length] += 1
    total = sum(lengths)
    return Packing(capacity, made, 1 - total / (made * capacity), len(lengths) / made)


def explain(found: TokenView) -> list[str]:
    """The view in sentences."""
    lines = [
        f"Supervised tokens of a whole update, by the rows' real lengths: mean {found.mean:,.0f}, "
        f"min {found.least:,}, max {found.most:,} in one shuffled pass of {found.updates:,} updates; in any order "
        f"between {found.least_possible:,} and {found.most_possible:,}.",
        f"Padding: {found.padding_share:.1%} of the tokens in batches.",
    ]
    if found.packed is not None:
        packed = found.packed
        lines.append(
            f"Packing whole rows into {packed.capacity:,} tokens would give {packed.sequences:,} sequences, "
            f"{packed.rows_a_sequence:.1f} rows each, {packed.padding_share:.1%} padding. An update then "
            "averages other rows: another experiment."
        )
    return lines


@dataclass(frozen=True)
class Spread:
    """Supervised tokens of the updates of one shuffled pass, in its order; the last one may be incomplete."""

    totals: tuple[int, ...]
    whole: int

    @property
    def mean(self) -> float:
        """Of whole updates, as ``least`` and ``most`` are."""
        return sum(self._whole) / len(self._whole)

    @property
    def least(self) -> int:
        return min(self._whole)

    @property
    def most(self) -> int:
        return max(self._whole)

    @property
    def _whole(self) -> tuple[int, ...]:
        return self.totals[: self.whole] or self.totals


def spread(question: BatchQuestion, supervised: Sequence[int], seed: int = 0) -> Spread | None:
    """Tokens of each update without looking at microbatches: one addition a row; None without a row or an update.

    The rows of a replica are every n-th of the order, so an update of all of them is one stretch of it.
    """
    known = list(supervised[: question.examples])
    if not known:
        return None
    order = random.Random(seed).sample(known, len(known))
    one = BatchQuestion(
        question.micro, question.accumulation, len(known), question.replicas, question.drop_last, question.tail
    )
    totals, at, whole = [], 0, 0
    try:
        for sizes in windows(one):
            rows = sum(sizes) * question.replicas
            # Replicas that run short take rows from the start again.
            totals.append(sum(order[at : at + rows]) + sum(order[: max(0, at + rows - len(order))]))
            whole += rows == question.micro * question.accumulation * question.replicas
            at += rows
    except PlanError:
        return None
    return Spread(tuple(totals), whole)
