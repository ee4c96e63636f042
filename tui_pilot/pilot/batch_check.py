"""Watches timed updates for the ``batch`` gate: counts, ticks, rates, orders, and two ways to one gradient."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

from tui_pilot.observe.counters import scaler_facts
from tui_pilot.observe.random_streams import streams_kept
from tui_pilot.pilot import gradient_check, scaler_check
from tui_pilot.pilot.config_sources import sources
from tui_pilot.pilot.evaluation_check import Untouched
from tui_pilot.pilot.loop import Loop, Result
from tui_pilot.pilot.phase import Phase
from tui_pilot.pilot.rank_check import Ranks
from tui_pilot.pilot.rows import Microbatch, epoch_order
from tui_pilot.pilot.schedule_check import counted, curve, rates_ahead
from tui_pilot.plan.batch import BatchAnswer, windows

SAME_ORDER_ROWS = 6
DRAWN = 0.2
"""A sampler that draws with replacement leaves at least this share of rows out of an epoch, and each time others."""


class Watch:
    """Collects what the gate judges; its own work stands outside the timed windows."""

    def __init__(self, loop: Loop, answer: BatchAnswer) -> None:
        self.loop, self.answer = loop, answer
        self.rows: list[int] = []
        self.items: list[int] = []
        self.microbatches = self.most_microbatches = 0
        self.disagree: list[dict[str, Any]] = []
        self.ranks = Ranks(loop)
        self.skipped = self.in_row = self.most_in_row = 0
        self.injected: dict[str, Any] | None = None
        self.ahead: list[float] = []
        self.rates: list[float] = []
        self.ticks = [0]
        self.bad: Result | None = None
        self.start = loop.counters.numbers()
        loop.observers.append(self._observe)

    def _observe(self, kind: str, value: Any) -> None:
        if kind == "count":
            micro, said = value
            if said != micro.count:
                self.disagree.append({"rows": micro.ids, "count": micro.count, "loss": said})

    def before(self, current: Phase) -> None:
        """Gradient comparison, learning-rate curve and orders: nothing here changes weights or random streams."""
        loop = self.loop
        with streams_kept(loop.device):
            untouched = Untouched(loop, trained=True)
            current.progress(0, None, "gradient", "comparing the accumulated gradient with the same rows one by one")
            current.seen["gradient"] = gradient_check.compare(loop)
            self.injected = scaler_check.inject(loop)
            self.disagree.clear()
            self.ahead = rates_ahead(loop)
            current.seen["curve"] = curve(loop, self.ahead)
            current.seen |= orders(loop)
            current.seen["changed"] = untouched.changes()
        self.start = loop.counters.numbers()

    def after(self, result: Result, window: list[Microbatch]) -> None:
        """One update's counts."""
        world = self.loop.context.world
        self.rows.append(self.loop.all_sum(result.rows) if world > 1 else result.rows)
        self.items.append(result.items)
        self.microbatches += len(window)
        self.most_microbatches = max(self.most_microbatches, len(window))
        self.ranks.after(result)
        self.rates.append(result.lr)
        self.ticks.append(self.loop.counters.since(self.start)["scheduler_ticks"])
        self.skipped += result.skipped
        self.in_row = self.in_row + 1 if result.skipped else 0
        self.most_in_row = max(self.most_in_row, self.in_row)
        if self.bad is None and not math.isfinite(result.loss):
            self.bad = result

    def counted(self) -> dict[str, Any]:
        """Counted numbers beside the planned ones, for JSON and screen."""
        since = self.loop.counters.since(self.start)
        return {
            "updates": len(self.rows),
            "rows_per_update": self.rows,
            "items_per_update": self.items,
            "microbatches": self.microbatches,
            "optimizer_steps": since["optimizer_steps"],
            "scheduler_ticks": since["scheduler_ticks"],
            "skipped": self.skipped,
            "effective_batch": max(self.rows, default=None),
        }

    def finish(self, current: Phase) -> None:
        """Everything the gate needs."""
        loop, context = self.loop, self.loop.context
        counts = self.counted()
        planned = [
            sum(sizes) * context.plan.replicas for sizes in islice(windows(self.answer.question), len(self.rows))
        ]
        current.seen |= {
            "planned": self.answer.as_json(),
            "planned_rows_per_update": planned,
            "rows_per_update": self.rows,
            "items_per_update": self.items,
            "optimizer_steps": counts["optimizer_steps"],
            "scheduler_ticks": counts["scheduler_ticks"],
            "skipped": self.skipped,
            "updates": len(self.rows),
            "sources": sources(context.plan, context.folder),
            "counted": {"effective": counts["effective_batch"], "accumulation": self.most_microbatches},
            "count_disagrees": self.disagree[:10],
        }
        if self.bad is not None:
            current.seen |= {"bad_update": self.bad.update, "bad_rows": self.bad.bad_ids or self.bad.ids}
        if loop.scaler is not None:
            facts = scaler_facts(loop.counters, self.start, len(self.rows))
            current.seen["scaler"] = {
                **facts,
                "skips_in_row": self.most_in_row,
                "sizes": current.seen["gradient"].get("sizes"),
                "injected": self.injected,
            }
            current.inputs["skipped"] = self.skipped
        current.seen |= self.ranks.seen()
        current.seen["curve"] = [*current.seen["curve"], *counted(self.ahead, self.rates, self.ticks[:-1])]
        loop.observers.remove(self._observe)
        gradient = current.seen["gradient"]
        current.inputs |= {
            "rows_per_update": self.rows,
            "items_per_update": self.items,
            "optimizer_steps": counts["optimizer_steps"],
            "scheduler_ticks": counts["scheduler_ticks"],
            "gradient_error": gradient.get("error"),
            "learning_rates": [point for point in current.seen["curve"]],
        }


def orders(loop: Loop) -> dict[str, Any]:
    """Whether the order depends on seed and epoch alone, changes with the epoch, and holds every row once."""
    task, split, seed = loop.task, loop.feed.split, loop.context.plan.seed
    first, again, second = (epoch_order(task, split, epoch, seed) for epoch in (0, 0, 1))
    found: dict[str, Any] = {"first_rows": [split.ids[place] for place in first[:8]]}
    if first != again:
        found["order_unstable"] = True
    elif first == second and len(first) >= SAME_ORDER_ROWS:
        found["same_order_each_epoch"] = True
    counts: dict[int, int] = {}
    for place in first:
        counts[place] = counts.get(place, 0) + 1
    twice = [split.ids[place] for place, count in counts.items() if count > 1]
    never = [split.ids[place] for place in range(len(split)) if place not in counts]
    if len(never) >= DRAWN * len(first) and set(first) != set(second):
        text = f"The order draws rows: epoch 0 holds {len(twice)} more than once and leaves {len(never)} out"
        text += ", epoch 1 others; right where that is meant."
        found["order_problem"] = {"text": text, "rows": (twice + never)[:100], "severity": "warn"}
    elif twice or never:
        text = f"The order of epoch 0 holds {len(twice)} rows twice and leaves {len(never)} out; expected each once."
        found["order_problem"] = {"text": text, "rows": (twice + never)[:100]}
    return found
