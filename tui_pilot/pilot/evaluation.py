"""Evaluation as a campaign runs it: every row once, loss per supervised item, the task's own metrics beside it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch

from tui_pilot.observe.memory import reachable_bytes
from tui_pilot.pilot.answers import batch_loss
from tui_pilot.pilot.audit import split_of
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.evaluation_check import MetricTwice, Untouched, numbers
from tui_pilot.pilot.kept import Kept, answers_of
from tui_pilot.pilot.lengths import longest
from tui_pilot.pilot.loop import Loop, autocast
from tui_pilot.pilot.phase import Phase
from tui_pilot.pilot.rank_check import scored_rows
from tui_pilot.pilot.rows import Feed, Microbatch, Split, chunks, rank_share, shape_of
from tui_pilot.tasks.base import defines

FEWEST_BATCHES = 4


@dataclass
class Scores:
    """Sums over the rows scored so far."""

    loss: float = 0.0
    items: int = 0
    rows: list[Any] = field(default_factory=list)
    predictions: list[dict[str, Any]] = field(default_factory=list)
    predicted: dict[str, Any] | None = None
    """Size of what ``predict`` gave, where that is numbers and not ids."""

    def metrics(self, context: Context) -> dict[str, Any]:
        """``loss`` per item over all ranks, and what the task makes of the predictions."""
        parts = context.gather((self.loss, self.items, self.predictions))
        loss, items = sum(part[0] for part in parts), sum(part[1] for part in parts)
        found: dict[str, Any] = {"loss": loss / items if items else math.nan}
        task = context.task()
        if defines(task, "metrics") and defines(task, "predict"):
            found |= numbers(task.metrics([one for part in parts for one in part[2]]))
        return found


def evaluation_feed(loop: Loop, split: Split) -> Feed:
    """Builds evaluation microbatches; the evaluation's own microbatch size, or the training one."""
    context = loop.context
    return Feed(context.task(), split, context.plan.batch, context.plan.seed, context.rank, context.world)


def micro_of(context: Context) -> int:
    return context.plan.evaluate.micro or context.plan.batch.micro


def places_for_rank(context: Context, split: Split, rows: int | None) -> list[int]:
    """This rank's validation rows, in file order; padding rows are left out, so that nothing is scored twice."""
    count = len(split) if rows is None else min(rows, len(split))
    share, padding = rank_share(list(range(count)), context.rank, context.world, drop_last=False)
    return share[: len(share) - padding] if padding else share


def score(loop: Loop, micro: Microbatch, scores: Scores) -> None:
    """One evaluation microbatch; predictions are kept as ids, never logits."""
    context = loop.context
    task = context.task()
    loop.at.update(rows=micro.ids, shape=shape_of(micro.batch), dtype=loop.dtype, part="evaluation")
    with torch.no_grad():
        total, count = batch_loss(context, loop.raw, micro.batch)
        scores.loss += total
        scores.items += count
        scores.rows += micro.ids
        if defines(task, "metrics") and defines(task, "predict"):
            with autocast(context):
                given, large = answers_of(context, loop.raw, micro.batch)
            scores.predicted = scores.predicted or large
            for row, predicted, label in zip(micro.ids, given, micro.batch["labels"].tolist(), strict=False):
                scores.predictions.append({"row": row, "predicted": predicted, "labels": label})


def evaluate(loop: Loop, rows: int | None) -> dict[str, Any]:
    """Metrics over the first ``rows`` validation rows, every row once; the model is left in training mode."""
    split = split_of(loop.context, "validation")
    feed = evaluation_feed(loop, split)
    scores = Scores()
    loop.raw.eval()
    for group in chunks(places_for_rank(loop.context, split, rows), micro_of(loop.context)):
        score(loop, feed.build(group), scores)
    loop.raw.train()
    return scores.metrics(loop.context)


def rehearse(loop: Loop, current: Phase) -> None:
    """The ``evaluate`` phase: memory at the longest microbatch, then time and metric over the planned rows."""
    context = loop.context
    loop.at.clear()
    split = split_of(context, "validation")
    if not split.records:
        current.seen["rows"] = 0
        return
    feed = evaluation_feed(loop, split)
    micro = micro_of(context)
    untouched, twice = Untouched(loop), MetricTwice(context.task(), context.plan.seed)
    loop.raw.eval()
    places = longest(context, split, micro * context.world)[context.rank :: context.world]
    biggest = feed.build(places)
    before = reachable_bytes(loop.raw, loop.optimizer)
    with current.measure("longest") as first:
        score(loop, biggest, Scores())
    scores = Scores()
    kept = Kept(context, len(split))
    groups = list(chunks(places_for_rank(context, split, context.plan.evaluate.rows), micro))
    for number, group in enumerate(groups):
        batch = feed.build(group)
        with current.measure("rows") as window:
            score(loop, batch, scores)
        kept.after(window, batch)
        twice.once(scores.predictions)
        if number % 10 == 0:
            current.progress(number, len(groups), "microbatches")
    metrics = scores.metrics(context)
    _until_growth_shows(loop, current, feed, groups, kept)
    if context.world > 1:
        current.seen["scored"] = scored_rows(context, split, scores.rows, context.plan.evaluate.rows)
    current.seen |= {"metric_again": twice.again(len(scores.rows)), "changed": untouched.changes()}
    loop.raw.train()
    every = Counter(row for rank in range(context.world) for row in _all_places(context, split, rank))
    repeated = [split.ids[place] for place, count in every.items() if count > 1]
    current.reachable = before
    current.seen |= {
        "rows": len(scores.rows),
        "metrics": metrics,
        "generation_not_rehearsed": context.plan.evaluate.max_new_tokens,
        "repeated": repeated,
        "predicted": scores.predicted,
        "allocated_before": first.memory.get("allocated_before"),
        "allocated_left": kept.allocated[-1] if kept.allocated else None,
        **kept.seen(),
    }
    seconds = sum(window.duration_s for window in current.parts.get("rows", ()))
    current.inputs |= {
        "rows": len(scores.rows),
        "longest_row_ids": biggest.ids,
        "shape": shape_of(biggest.batch),
        "micro": micro,
        "metrics": metrics,
        "max_new_tokens": context.plan.evaluate.max_new_tokens,
    }
    context.facts("seconds_evaluate", {"rows": len(scores.rows), "seconds": seconds, "all_rows": len(split)})


def _until_growth_shows(loop: Loop, current: Phase, feed: Feed, groups: list[list[int]], kept: Kept) -> None:
    """Score the last batch again where there are too few for a slope; every rank has as many."""
    for _ in range(FEWEST_BATCHES - len(kept.allocated) if groups else 0):
        batch = feed.build(groups[-1])
        with current.measure("again") as window:
            score(loop, batch, Scores())
        kept.after(window, batch)


def _all_places(context: Context, split: Split, rank: int) -> list[int]:
    share, padding = rank_share(list(range(len(split))), rank, context.world, drop_last=False)
    return share[: len(share) - padding] if padding else share
