"""What ranks compare with each other: the rows they take, the tensors they hold, the norms they clip by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.gates.ranks import overlap
from tui_pilot.observe.sums import bit_sums
from tui_pilot.observe.tensors import one_hash, state_hash
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.loop import Loop, Result, trainable
from tui_pilot.pilot.rows import Split, epoch_order, rank_share


def parting(context: Context, named: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first rank whose named values differ from rank 0's, and which; None where all agree."""
    if context.world == 1:
        return None
    words = context.gather(one_hash({name: str(value) for name, value in named.items()}))
    if len(set(words)) == 1:
        return None
    every = context.gather(dict(named))
    rank = next(number for number, word in enumerate(words) if word != words[0])
    own, first = every[rank], every[0]
    return {"rank": rank, "tensors": [name for name in {**first, **own} if own.get(name) != first.get(name)]}


class Ranks:
    """Looks at every timed update: the same weights everywhere, and which norm each rank clipped by."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.norms: list[float | None] = []
        self.first_ids: list[Any] | None = None
        self.drift: dict[str, Any] | None = None

    def after(self, result: Result) -> None:
        """One update. Every rank must call it."""
        self.norms.append(result.norm)
        if self.first_ids is None:
            self.first_ids = result.ids
        if self.drift is None and self.loop.context.world > 1:
            found = parting(self.loop.context, bit_sums(trainable(self.loop.raw)))
            self.drift = None if found is None else {**found, "update": result.update}

    def seen(self) -> dict[str, Any]:
        """What the gate judges; nothing with one process."""
        context = self.loop.context
        if context.world == 1:
            return {}
        norms = context.gather(self.norms)
        return {
            "drift": self.drift,
            "rank_norms": [list(per_rank) for per_rank in zip(*norms, strict=False)],
            "first_update": overlap(context.gather(self.first_ids or [])),
            "epoch_rows": epoch_rows(self.loop),
        }


def epoch_rows(loop: Loop) -> dict[str, Any] | None:
    """Rows of epoch 0 by rank, padding aside. Ranks that have one list in one order cannot overlap: None."""
    context, split = loop.context, loop.feed.split
    order = epoch_order(loop.task, split, 0, context.plan.seed)
    if alike(context, [split.ids[place] for place in order]):
        return None
    share, padding = rank_share(order, context.rank, context.world, context.plan.batch.drop_last)
    own = [split.ids[place] for place in (share[: len(share) - padding] if padding else share)]
    everything = [row for rows in context.gather(list(split.ids)) for row in rows]
    dropped = len(order) % context.world if context.plan.batch.drop_last else 0
    return {**overlap(context.gather(own), everything), "dropped": dropped}


def alike(context: Context, rows: list[Any]) -> bool:
    """Whether every rank has the same list."""
    return len(set(context.gather(state_hash(rows)))) == 1


def scored_rows(context: Context, split: Split, rows: list[Any], wanted: int) -> dict[str, Any]:
    """Rows that were scored, over all ranks; of the first ``wanted``, or of every rank's rows where these differ."""
    same = alike(context, list(split.ids))
    everything = split.ids[:wanted] if same else [row for own in context.gather(list(split.ids)) for row in own]
    return overlap(context.gather(rows), everything)
