"""Watches what stays in memory from one evaluated batch to the next."""

from __future__ import annotations

from typing import Any

import torch

from tui_pilot.devices import host
from tui_pilot.observe.memory import Window
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.rows import Microbatch, to_device
from tui_pilot.tasks.base import defines

LARGE = 64 << 20
PYTHON_NUMBER = 32


class Kept:
    """One entry per batch: bytes allocated and resident after it, its rows, and its cells (rows x places)."""

    def __init__(self, context: Context, all_rows: int) -> None:
        self.context, self.all_rows = context, all_rows
        self.have = free_memory(context)
        self.allocated: list[int | None] = []
        self.resident: list[int | None] = []
        self.rows: list[int] = []
        self.cells: list[int] = []

    def after(self, window: Window, micro: Microbatch) -> None:
        """Note one batch that has just been scored."""
        self.allocated.append(window.memory.get("allocated_after"))
        self.resident.append(host.process_memory().rss_anon)
        self.rows.append(len(micro.ids))
        labels = micro.batch.get("labels")
        self.cells.append(labels.numel() if isinstance(labels, torch.Tensor) else len(micro.ids))

    def seen(self) -> dict[str, Any]:
        """What the gate judges."""
        return {
            "allocated_after": self.allocated,
            "resident_after": self.resident,
            "rows_after": self.rows,
            "cells": self.cells,
            "all_rows": self.all_rows,
            "have": self.have,
        }


def free_memory(context: Context) -> int | None:
    """Bytes that can still be had on the device; on a CPU within the container's limit."""
    if context.device.type == "cuda":
        return int(torch.cuda.mem_get_info(context.device)[0])
    group = host.cgroup_memory()
    inside = None
    if group.limit is not None and group.current is not None:
        inside = group.limit - group.current + (group.inactive_file or 0)
    found = [value for value in (host.memory_available(), inside) if value is not None]
    return min(found, default=None)


def answers_of(context: Context, model: Any, batch: dict[str, Any]) -> tuple[list[Any], dict[str, Any] | None]:
    """The task's answers as lists, and their size where they are numbers with one side more than the labels: logits.

    Large ones are reduced to ids at once: kept as Python's numbers they would take eight times their room.
    """
    task = context.task()
    if not defines(task, "predict"):
        return [], None
    found = task.predict(model, to_device(batch, context.device))
    if not isinstance(found, torch.Tensor):
        return list(found), None
    labels = batch.get("labels")
    if not found.is_floating_point() or not isinstance(labels, torch.Tensor) or found.dim() <= labels.dim():
        return found.tolist(), None
    facts = {
        "shape": list(found.shape[1:]),
        "dtype": str(found.dtype).removeprefix("torch."),
        "bytes_per_row": found[0].numel() * found.element_size(),
    }
    large = found.numel() * PYTHON_NUMBER > LARGE
    return (found.argmax(dim=-1) if large else found).tolist(), facts
