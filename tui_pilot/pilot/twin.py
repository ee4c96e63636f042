"""The reference updates: run once by the uninterrupted twin, repeated by a resume, compared update by update."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from tui_pilot.events import schema
from tui_pilot.observe.random_streams import random_state
from tui_pilot.observe.tensors import state_hash, weights_hash
from tui_pilot.pilot.checkpoint import Saved
from tui_pilot.pilot.loop import Loop, Result
from tui_pilot.pilot.phase import Phase
from tui_pilot.pilot.rows import Microbatch
from tui_pilot.run_folder import RunFolder, write_json

MOST_ROWS = 100_000
FIRST_PLACES = 32


def reference_updates(loop: Loop, count: int, current: Phase, measured: bool) -> list[dict[str, Any]]:
    """Run ``count`` updates and trace each: random streams before it, rows, their tensors, rate, loss, weights.

    With ``measured`` the parts are timed too.
    """
    trace: list[dict[str, Any]] = []
    for number in range(count):
        streams = {name: state_hash(value) for name, value in random_state(loop.context.device).items()}
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
                "streams": streams,
                "data": state_hash([_tensors(micro) for micro in window]),
            }
        )
        current.progress(number + 1, count, "updates", f"loss {result.loss:.3f}")
        announce(loop, current.name, result, None)
    for entry in trace:
        entry["rows"] = [row for rank in entry["rows"] for row in rank]
    return trace


def _tensors(micro: Microbatch) -> dict[str, Any]:
    """The batch's tensors alone: what else stands in it may print an address that no other process has."""
    return {key: value for key, value in micro.batch.items() if isinstance(value, torch.Tensor)}


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


def position(loop: Loop) -> dict[str, Any]:
    """Where this rank stands in its data: rows seen in this epoch, rows and microbatches still to come."""
    cursor, split = loop.feed.cursor, loop.feed.split
    groups = loop.feed.look(cursor.epoch)
    seen = [place for group in groups[: cursor.microbatch] for place in group]
    rest = [place for group in groups[cursor.microbatch :] for place in group]
    ids = [split.ids[place] for place in rest]
    return {
        "rows_before": [split.ids[place] for place in seen][-MOST_ROWS:],
        "epoch": {
            "epoch": cursor.epoch,
            "rest": ids[:MOST_ROWS],
            "hash": state_hash(ids),
            "places": rest[:FIRST_PLACES],
            "batches": [len(groups) - cursor.microbatch, len(loop.feed.look(cursor.epoch + 1))],
        },
    }


def run_twin(
    loop: Loop, saved: Saved, states: dict[str, str], before: dict[str, Any], current: Phase
) -> list[dict[str, Any]]:
    """The reference updates of the uninterrupted run, right after the save, stored beside their peak.

    ``before`` is the ``position`` at the save.

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
    before: dict[str, Any],
    trace: list[dict[str, Any]],
    peak: int | None,
) -> None:
    """Store what a resume from this checkpoint must repeat."""
    context = loop.context
    everyone = context.gather({"states": states, **before})
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
