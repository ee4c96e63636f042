"""What each run was made of, in words that can be compared: the same in all runs, or not. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from tui_pilot.plan.model import Held, Plan
from tui_pilot.text import plural, rate

Json = Mapping[str, Any]
UNKNOWN = "unknown"


def settings(plan: Plan | None, revisions: Json, demo: bool) -> dict[str, str]:
    """Everything that can change a run's result, by its name, each as one short text."""
    if plan is None:
        return {}
    demo = demo or plan.task == "demo"
    optimizer, batch, held = plan.optimizer, plan.batch, plan.budget.held
    adapter = plan.model.adapter
    decay = f", weight decay {optimizer.weight_decay:g}" if optimizer.weight_decay else ""
    clip = f", clip {optimizer.clip:g}" if optimizer.clip is not None else ""
    schedule = "" if optimizer.schedule == "constant" else f", {optimizer.schedule}"
    tail = ", the rest dropped" if batch.drop_last else ""
    return {
        "task": _task(plan, revisions),
        "model": _model(plan, revisions, demo),
        "trained": "every weight"
        if adapter is None
        else f"{adapter.kind} r{adapter.r}, alpha {adapter.alpha:g}, {', '.join(adapter.targets) or 'default modules'}",
        "training data": _data(plan.data.train, "train", revisions, demo),
        "validation data": _data(plan.data.validation, "validation", revisions, demo),
        "maximum length": "not set" if plan.data.max_length is None else f"{plan.data.max_length:,} tokens",
        "effective batch": f"{plan.effective_batch:,} rows an update{tail}",
        "made up of": f"{batch.micro} micro x {batch.accumulation} accumulation x {plural(plan.replicas, 'replica')}",
        "budget": f"{held[1]:,g} {held[0].removesuffix('s') if held[1] == 1 else held[0]}",
        "learning rate": rate(optimizer.lr),
        "schedule": f"warm-up {optimizer.warmup} updates{schedule}",
        "optimizer": f"{optimizer.name}{decay}{clip}",
        "precision": plan.precision,
        "loss": f"label smoothing {plan.loss.label_smoothing:g}" if plan.loss.label_smoothing else "no smoothing",
        "seed": str(plan.seed),
        "validation": f"{plan.evaluate.metric}, {direction(plan)} is better, {plan.evaluate.rows} rows",
        "options": json.dumps(dict(plan.options), sort_keys=True) if plan.options else "none",
        "pilot-tui code": _digest(revisions.get("code")),
    }


def direction(plan: Plan) -> str:
    """``lower`` or ``higher``."""
    return "higher" if plan.evaluate.direction == "max" else "lower"


def held(runs: Sequence[Json]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """What is the same in all runs, and what is not: ``{item: {run: value}}``. A run without a plan is unknown."""
    names = list(dict.fromkeys(name for run in runs for name in run["settings"]))
    same: dict[str, str] = {}
    apart: dict[str, dict[str, str]] = {}
    for name in names:
        values = {str(run["run"]): str(run["settings"].get(name, UNKNOWN)) for run in runs}
        if len(set(values.values())) == 1:
            same[name] = next(iter(values.values()))
        else:
            apart[name] = values
    return same, apart


def _task(plan: Plan, revisions: Json) -> str:
    file, separator, kind = plan.task.rpartition(":")
    if not separator:
        return plan.task
    entry = revisions.get("task_file")
    return f"{PurePath(file).name}:{kind}, file {_digest(entry.get('sha256') if isinstance(entry, Mapping) else None)}"


def _model(plan: Plan, revisions: Json, demo: bool) -> str:
    found = revisions.get("model")
    if plan.model.path is None:
        return "the demo's own small model" if demo else "built by the task"
    files = found.get("files") if isinstance(found, Mapping) else None
    if not files:
        return PurePath(plan.model.path).name
    whole = hashlib.sha256(json.dumps(dict(files), sort_keys=True).encode()).hexdigest()
    return f"{PurePath(plan.model.path).name}, {len(files)} files {whole[:12]}"


def _data(value: Any, name: str, revisions: Json, demo: bool) -> str:
    if isinstance(value, Held):
        return f"{value.fraction:.0%} of train held out in whole units, seed {value.seed}"
    if not isinstance(value, str):
        return "built in" if demo else "from the task" if value is None else str(value)
    files = revisions.get("data")
    entry = files.get(name) if isinstance(files, Mapping) else None
    return f"{PurePath(value).name} {_digest(entry.get('sha256') if isinstance(entry, Mapping) else None)}"


def _digest(value: Any) -> str:
    return str(value)[:12] if value else UNKNOWN
