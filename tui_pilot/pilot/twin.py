"""The reference updates: run once by the uninterrupted twin, repeated by a resume, compared update by update."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from tui_pilot.events import schema
from tui_pilot.observe.tensors import weights_hash
from tui_pilot.pilot.checkpoint import Saved
from tui_pilot.pilot.loop import Loop, Result
from tui_pilot.pilot.phase import Phase
from tui_pilot.pilot.rows import Microbatch
from tui_pilot.run_folder import RunFolder, write_json

ROWS_BEFORE = 10_000


def reference_updates(loop: Loop, count: int, current: Phase, measured: bool) -> list[dict[str, Any]]:
    """Run ``count`` updates and trace each: rows, rate, loss, weights. With ``measured`` the parts are timed too."""
    trace: list[dict[str, Any]] = []
    for number in range(count):
        window = loop.feed.window()
        if window is None:
            break
        result = measured_update(loop, window, current) if measured else loop.update(window)
        trace.append(
            {
                "update": result.update,
                "rows": loop.context.gather(result.ids),
                "lr": result.lr,
                "loss": result.loss if math.isfinite(result.loss) else str(result.loss),
                "weights": weights_hash(loop.raw),
            }
        )
        current.progress(number + 1, count, "updates", f"loss {result.loss:.3f}")
        announce(loop, current.name, result, None)
    for entry in trace:
        entry["rows"] = [row for rank in entry["rows"] for row in rank]
    return trace


def measured_update(loop: Loop, window: list[Microbatch], current: Phase) -> Result:
    """One whole update with forward, backward and step as parts of the phase."""
    loop.model.train()
    total = loop.window_total(window)
    lr, loss = loop.lr, 0.0
    for place, micro in enumerate(window):
        with current.measure("forward"):
            value = loop.forward(micro)
        with current.measure("backward"):
            loop.backward(value, total, place == len(window) - 1)
        loss += float(value.detach())
        del value
    with current.measure("step"):
        norm, skipped = loop.step()
    loop.updates += 1
    ids = [row for micro in window for row in micro.ids]
    return Result(
        loop.updates, loop.all_sum(loss) / max(1, total), lr, total, len(ids), ids, norm, skipped, len(window)
    )


def announce(loop: Loop, phase: str, result: Result, seconds: float | None) -> None:
    """One update for curve and feed."""
    if loop.context.main:
        loop.context.emit(
            schema.UPDATE,
            phase=phase,
            update=result.update,
            loss=result.loss,
            lr=result.lr,
            items=result.items,
            rows=result.rows * loop.context.world,
            seconds=None if seconds is None else round(seconds, 4),
            skipped=result.skipped,
        )


def twin_file(run: RunFolder, saved: Saved) -> Path:
    """Where the twin's trace of a checkpoint stands."""
    return run.reference / f"{saved.path.name}.json"


def rows_before(loop: Loop) -> list[Any]:
    """Ids this rank has seen in the current epoch so far."""
    cursor = loop.feed.cursor
    if not cursor.microbatch:
        return []
    groups = loop.feed.microbatches_of(cursor.epoch)[: cursor.microbatch]
    return [loop.feed.split.ids[place] for group in groups for place in group][-ROWS_BEFORE:]


def run_twin(
    loop: Loop, saved: Saved, states: dict[str, str], before: list[Any], current: Phase
) -> list[dict[str, Any]]:
    """The reference updates of the uninterrupted run, right after the save, stored beside their peak.

    The window stands outside the phase's own: its peak is what a resume's peak is compared with.
    """
    with loop.context.meter.window() as aside:
        trace = reference_updates(loop, loop.context.plan.pilot.reference, current, measured=False)
    peak = aside.memory.get("reserved_peak") or aside.memory.get("allocated_peak")
    write_twin(loop, saved, states, before, trace, peak)
    return trace


def write_twin(
    loop: Loop,
    saved: Saved,
    states: dict[str, str],
    before: list[Any],
    trace: list[dict[str, Any]],
    peak: int | None,
) -> None:
    """Store what a resume from this checkpoint must repeat."""
    context = loop.context
    everyone = context.gather({"states": states, "rows_before": before})
    if context.main:
        write_json(
            twin_file(context.run, saved),
            {
                "schema": 1,
                "step": saved.step,
                "total_updates": loop.total_updates,
                "ranks": everyone,
                "trace": trace,
                "environment": context.cache.get("environment", {}),
                "trainable": saved.manifest.get("trainable"),
                "train_peak": peak,
            },
        )


def read_twin(path: Path) -> dict[str, Any]:
    """A stored trace."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found
