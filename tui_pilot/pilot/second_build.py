"""A second build with the same seed must give the same tensors: else equal seeds would give different runs."""

from __future__ import annotations

import sys
from pathlib import Path

from tui_pilot.observe.tensors import changing, hashes
from tui_pilot.pilot.context import Context, build_task, seed_everything
from tui_pilot.pilot.row_facts import is_own
from tui_pilot.tasks.base import Task


def differing(context: Context, first: dict[str, str]) -> list[str]:
    """Names of tensors that differ in a second build; only freshly made ones can, so big bases are not read twice."""
    if context.plan.model.path is not None and context.plan.model.adapter is None and context.plan.task == "sft":
        return []
    task = fresh_task(context)
    seed_everything(context.plan.seed)
    second = hashes(changing(task.build_model()))
    return [name for name, value in first.items() if second.get(name, value) != value]


def fresh_task(context: Context) -> Task:
    """A second task object, made while the streams stand elsewhere: what its own making draws comes before the seed."""
    if not is_own(context.task()):
        return context.task()
    name = Path(context.plan.task.rpartition(":")[0]).stem
    module = sys.modules.get(name)
    seed_everything(context.plan.seed + 1)
    try:
        return build_task(context.plan, context.folder)
    except Exception:  # a task that can be made only once is asked twice instead
        return context.task()
    finally:
        if module is not None:
            sys.modules[name] = module
