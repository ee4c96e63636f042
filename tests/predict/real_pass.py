"""The predictor's pass on real CPU tensors, with torch's own byte counter read after every operator."""

from __future__ import annotations

import gc
from typing import Any

from tui_pilot.observe.native import open_native
from tui_pilot.predict import passes
from tui_pilot.predict.inputs import Rows, rows_of
from tui_pilot.predict.passes import Pass, Target
from tui_pilot.tasks.base import Task

CPU = Target(None)


class CounterMissing(RuntimeError):
    """This torch has no counter that can be read; the text says why."""


def peaks(done: Pass, unit: int = 1) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in done.rows(unit):
        found[row.phase] = max(row.peak, found.get(row.phase, 0))
    return found


def batch_bytes(rows: Rows) -> tuple[int, int]:
    """Bytes of the training window and of the evaluation's microbatch."""

    def count(micro: Any) -> int:
        return sum(each.nbytes for each in micro.batch.values())

    return sum(count(micro) for micro in rows.window), count(rows.evaluation) if rows.evaluation else 0


def measured(task: Task, count: int) -> tuple[Pass, dict[str, int]]:
    """The real pass, and the native counter's highest reading after any operator of a phase."""
    counter, why = open_native()
    if counter is None:
        raise CounterMissing(why)
    gc.collect()
    base = counter.read()
    rows = rows_of(task, count)
    window, evaluation = batch_bytes(rows)
    readings: dict[str, int] = {}

    def watch(phase: str) -> None:
        # The rows lie in memory from the beginning here, and from their phase on in the pass.
        early = evaluation + (window if phase == "load" else 0) if phase not in ("evaluate", "export") else 0
        readings[phase] = max(readings.get(phase, 0), counter.read() - base - early)

    return passes.run(task, rows, CPU, fake=False, watch=watch), readings
