"""Checks of single values that types cannot say: counts above zero, shares between 0 and 1, finite rates. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from tui_pilot.plan import keys
from tui_pilot.plan.keys import Path
from tui_pilot.plan.model import Plan
from tui_pilot.plan.problems import Problems, shown

Rule = tuple[Callable[[Any], bool], str]

COUNT: Rule = (lambda value: value >= 1, "a whole number from 1")
COUNT_OR_ZERO: Rule = (lambda value: value >= 0, "a whole number from 0")
SEED: Rule = (lambda value: 0 <= value < 2**32, "a whole number from 0 to 4,294,967,295")
ABOVE_ZERO: Rule = (lambda value: math.isfinite(value) and value > 0, "a finite number above 0")
FROM_ZERO: Rule = (lambda value: math.isfinite(value) and value >= 0, "a finite number from 0")
BETWEEN: Rule = (lambda value: 0 < value < 1, "a number between 0 and 1, both excluded")
BELOW_ONE: Rule = (lambda value: 0 <= value < 1, "a number from 0 to below 1")
SHARE: Rule = (lambda value: 0 <= value <= 1, "a number from 0 to 1")
TEXT: Rule = (lambda value: bool(value.strip()), "text that is not empty")

RULES: dict[str, Rule] = {
    "name": TEXT,
    "model.attention": TEXT,
    "model.adapter.r": COUNT,
    "model.adapter.alpha": ABOVE_ZERO,
    "model.adapter.dropout": BELOW_ONE,
    "data.validation.fraction": BETWEEN,
    "data.validation.seed": SEED,
    "data.max_length": COUNT,
    "data.workers": COUNT_OR_ZERO,
    "data.unit.time.gap": FROM_ZERO,
    "loss.label_smoothing": BELOW_ONE,
    "batch.micro": COUNT,
    "batch.accumulation": COUNT,
    "budget.updates": COUNT,
    "budget.epochs": ABOVE_ZERO,
    "budget.examples": COUNT,
    "budget.tokens": COUNT,
    "optimizer.lr": ABOVE_ZERO,
    "optimizer.weight_decay": FROM_ZERO,
    "optimizer.clip": ABOVE_ZERO,
    "optimizer.warmup": COUNT_OR_ZERO,
    "evaluate.every": COUNT,
    "evaluate.micro": COUNT,
    "evaluate.rows": COUNT,
    "evaluate.metric": TEXT,
    "evaluate.max_new_tokens": COUNT_OR_ZERO,
    "checkpoint.every": COUNT,
    "checkpoint.keep": COUNT,
    "launch.processes": COUNT,
    "launch.nodes": COUNT,
    "launch.tensor_parallel": COUNT,
    "seed": SEED,
    "pilot.steady": COUNT,
    "pilot.timed": COUNT,
    "pilot.reference": COUNT,
    "gates.overfit.rows": COUNT,
    "gates.overfit.steps": COUNT,
    "gates.overfit.lr": ABOVE_ZERO,
    "gates.examples.max_truncated": SHARE,
    "gates.resume.max_seek_seconds": FROM_ZERO,
    "keep.checkpoints": COUNT_OR_ZERO,
    "compare.stop.loss_above_start": ABOVE_ZERO,
    "compare.stop.no_progress": COUNT,
    "rental.keep_for.evaluation_hours": FROM_ZERO,
    "rental.keep_for.export_hours": FROM_ZERO,
    "rental.memory_margin": BELOW_ONE,
    "rental.time_margin": BELOW_ONE,
}
EACH: dict[str, Rule] = {
    "compare.seeds": SEED,
    "rental.packages": COUNT,
    "rental.gpus": TEXT,
    "model.adapter.targets": TEXT,
    "rental.prices": FROM_ZERO,
}


def check_ranges(plan: Plan, problems: Problems) -> None:
    """Every number of the plan against its range; a value of a wrong type was already said and is left alone."""
    for path, value in keys.leaves(plan):
        key = keys.dotted(path)
        if key in RULES and value is not None:
            _check(RULES[key], path, value, problems)
        elif key in EACH:
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for name, item in items:
                _check(EACH[key], (*path, name), item, problems)
    for number, variant in enumerate(plan.variants):
        _check(COUNT, ("variants", number, "priority"), variant.priority, problems)
    try:
        json.dumps(plan.options, allow_nan=False)
    except ValueError:
        text = "holds nan or an infinite number; JSON has no such number."
        problems.add(("options",), text, "Write it as text.", plan.options)


def _check(rule: Rule, path: Path, value: Any, problems: Problems) -> None:
    good, allowed = rule
    if value == "auto" or problems.touches(path) or good(value):
        return
    problems.add(path, f"{shown(value)} is not allowed.", f"Allowed: {allowed}.", value)
