"""Picked runs side by side: what differs in plan, verdicts, memory and pace, and what may be said of it. Pure.

Single runs are never told apart: the statistics are those of ``campaign/stats.py``, over seeds, and one seed says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tui_pilot.campaign import stats
from tui_pilot.campaign.trials import known_direction
from tui_pilot.launch.revisions import changed_content
from tui_pilot.plan import variants
from tui_pilot.plan.model import Plan, as_json
from tui_pilot.run_folder import short_id
from tui_pilot.store.ledger import Entry
from tui_pilot.store.memory import binding_phase
from tui_pilot.store.state import Row
from tui_pilot.text import count, duration, plural, size
from tui_pilot.text import loss as loss_text
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import curve
from tui_pilot.ui.rooms import _changes
from tui_pilot.ui.rooms._ledger import batch_of, brief, need_of, pace_of

LETTERS = "abcdef"
"""As many runs as can be picked; a run's letter is its mark in the list, its column and its curve."""
UNSAID = ("name", "expected", "variants", "compare", "rental", "keep")
"""Keys of a plan that change nothing of a run."""
LEAST_COLUMN, MOST_COLUMN = 13, 30


@dataclass(frozen=True)
class Side:
    """One picked run; ``plan`` is None where it could not be read."""

    letter: str
    entry: Entry
    plan: Plan | None


def table(sides: Sequence[Side], width: int) -> list[Line]:
    """One line a fact; of plan and verdicts only those that differ. What stands as in the first run is ``=``."""
    rows: list[tuple[str, list[str]]] = [("", [f"{each.letter} {short_id(each.entry.folder.id)}" for each in sides])]
    briefs = [brief(each.entry) for each in sides]
    rows.append(("state, verdict", [f"{each.state} {each.word}" for each in briefs]))
    rows.append(("same experiment", [_same(sides[0], each) for each in sides]))
    rows += _differing(sides)
    rows += _verdicts(sides)
    rows.append(("need", [size(need_of(each.entry.state), "–") for each in sides]))
    binding = [binding_phase(each.entry.state.rows) or "–" for each in sides]
    if len(set(binding)) > 1:
        rows.append(("need, set by", binding))
    rows.append(("seconds an update", [_figure(pace_of(each.entry.state), lambda v: f"{v:.2f}") for each in sides]))
    batches = [count(batch_of(each.entry.state)) for each in sides]
    if len(set(batches)) > 1:
        rows.append(("effective batch", batches))
    rows.append(("updates", [count(each.updates or None) for each in briefs]))
    rows.append(("loss, last", [_last(each) for each in sides]))
    rows.append(("validation", [_validation_word(each) for each in sides]))
    rows.append(("took", [_took(each) for each in sides]))
    label = min(26, max(len(name) for name, _ in rows) + 1)
    column = max(LEAST_COLUMN, min(MOST_COLUMN, (width - 2 - label) // len(sides)))
    out: list[Line] = []
    for n, (name, cells) in enumerate(rows):
        said = "".join(paint.left(cell, column - 1) + " " for cell in cells)
        failed = any("FAIL" in cell for cell in cells)
        role = "head" if n == 0 else "fail" if failed and name != "state, verdict" else "text"
        out.append(((f" {paint.left(name, label)} ", "dim"), (said, role)))
    return out


def _differing(sides: Sequence[Side]) -> list[tuple[str, list[str]]]:
    """Keys of the plans, and contents behind them, in which any two of the runs differ."""
    plans = [each.plan for each in sides]
    found: dict[str, list[str]] = {}
    known = [plan for plan in plans if plan is not None]
    for plan in known[1:]:
        for key in variants.differences(known[0], plan):
            if not variants.under(key, UNSAID) and key not in found:
                found[key] = ["?" if each is None else _changes.value(key, _at(as_json(each), key)) for each in plans]
    rows = list(found.items())
    first = sides[0].entry.run.get("revisions") or {}
    contents: dict[str, dict[int, Any]] = {}
    for n, side in enumerate(sides[1:], 1):
        for key, (old, new) in changed_content(first, side.entry.run.get("revisions") or {}).items():
            contents.setdefault(key, {0: old})[n] = new
    for key, values in contents.items():
        cells = [_changes.value(key, values[n]) if n in values else "as a" for n in range(len(sides))]
        rows.append((key, cells))
    return rows or [("plan", ["no difference", *("=" for _ in sides[1:])])]


def _at(document: Any, key: str) -> Any:
    for part in key.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def _same(first: Side, side: Side) -> str:
    """Whether the run asks what the first one asks."""
    if side is first:
        return "–"
    if side.plan is None or first.plan is None:
        return "? plan unreadable"
    return "yes" if variants.keeps_question(first.plan, side.plan)[0] else "no"


def _verdicts(sides: Sequence[Side]) -> list[tuple[str, list[str]]]:
    """Phases whose verdicts differ; those that differ alike are one line."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for rows in zip(*(each.entry.state.rows for each in sides), strict=True):
        cells = tuple(_verdict(row) for row in rows)
        if len(set(cells)) > 1:
            alike.setdefault(cells, []).append(rows[0].phase)
    return [
        (phases[0] if len(phases) == 1 else f"{phases[0]}, {len(phases) - 1} more", list(cells))
        for cells, phases in alike.items()
    ]


def _verdict(row: Row) -> str:
    word = {"fail": "FAIL", None: "not run"}.get(row.verdict, str(row.verdict).replace("_", " "))
    codes = [str(each.get("code")) for each in row.reasons if each.get("severity") in ("fail", "warn", "unchecked")]
    return f"{word} {codes[0]}" if codes else word


def _figure(value: float | None, show: Callable[[float], str]) -> str:
    return "–" if value is None else show(value)


def _last(side: Side) -> str:
    points = side.entry.state.loss
    if not points:
        return "–"
    at, value = points[-1]
    return f"{loss_text(value) if isinstance(value, (int, float)) else value} at {at}"


def _metric(side: Side) -> str:
    return side.plan.evaluate.metric if side.plan is not None else "loss"


def _value(side: Side) -> tuple[int, float] | None:
    """The last finite validation value, and its update."""
    points = curve.validation(side.entry.state.validation, _metric(side))
    return points[-1] if points else None


def _validation_word(side: Side) -> str:
    found = _value(side)
    return "–" if found is None else f"{_metric(side)} {found[1]:.4f} at {found[0]}"


def _took(side: Side) -> str:
    state = side.entry.state
    known = state.started_mono is not None and state.ended_mono is not None
    return duration(state.ended_mono - state.started_mono) if known else "–"  # type: ignore[operator]


def plot_lines(sides: Sequence[Side], width: int, height: int) -> list[Line]:
    """Their training losses over each other; a diverged run does not make the scale. Capitals are validation."""
    curves = {each.letter: each.entry.state.loss for each in sides if curve.finite(each.entry.state.loss)}
    calm = [each.letter for each in sides if each.letter in curves and each.entry.state.state != "diverged"]
    marks = {each.letter: curve.validation(each.entry.state.validation) for each in sides if each.letter in curves}
    inside = {sign: found for sign, found in marks.items() if sign in calm or not calm}
    return curve.lettered(curves, width, height, scale_of=calm, marks=inside) or [((" no update to draw", "dim"),)]


def said_lines(sides: Sequence[Side], width: int) -> list[Line]:
    """Sentences: who asks another question and why, who diverged, and who is told apart from whom."""
    out: list[Line] = []
    for each in sides[1:]:
        first = sides[0]
        if each.plan is not None and first.plan is not None:
            same, why = variants.keeps_question(first.plan, each.plan)
            if not same:
                out += _wrapped(f"{each.letter} is another experiment than {first.letter}: {' '.join(why)}", width, "!")
    for each in sides:
        if each.entry.state.state in ("diverged", "failed", "lost", "stopped"):
            tail = f": {each.entry.state.text}" if each.entry.state.text else ""
            out += _wrapped(f"{each.letter} {each.entry.state.state}{tail}", width, "✗")
    for text in verdicts(sides):
        out += _wrapped(text, width, " ")
    return out


def verdicts(sides: Sequence[Side]) -> list[str]:
    """Whether the settings may be told apart by their last validation value. Runs of one setting are its seeds."""
    metrics = {_metric(each) for each in sides}
    if len(metrics) > 1:
        return [f"nothing is compared: they are measured by {' and '.join(sorted(metrics))}."]
    metric = metrics.pop()
    out = []
    counting = [each for each in sides if _value(each) is not None and each.entry.state.state == "finished"]
    for each in sides:
        if each not in counting:
            why = "no validation value" if _value(each) is None else f"it is {each.entry.state.state}"
            out.append(f"{each.letter} is left out of what follows: {why}.")
    ends = {value[0] for each in counting if (value := _value(each)) is not None}
    if len(ends) > 1:
        listed = ", ".join(f"{each.letter} at {value[0]}" for each in counting if (value := _value(each)) is not None)
        return [*out, f"not told apart: the last validation is not at the same update ({listed})."]
    groups = _settings(counting)
    first = next(iter(groups.values()), [])
    direction = known_direction(metric) or (sides[0].plan.evaluate.direction if sides[0].plan else "min")
    for found in groups.values():
        values = list(_seeds(found).values())
        if len(values) > 1:
            known = stats.spread(values)
            out.append(f"{_named(found)}: one setting, {plural(len(values), 'seed')}, spread {known['spread']:.4f}.")
    for others in list(groups.values())[1:]:
        pair = stats.paired(_seeds(others), _seeds(first), direction)
        gap = "" if pair.mean is None else f" by {pair.mean:+.4f}" if pair.told_apart else f", gap {pair.mean:+.4f}"
        word = "not told apart from" if pair.better is None else "better than" if pair.better else "worse than"
        out.append(f"{_named(others)}: {word} {_named(first)}{gap}: {pair.why}.")
    if groups and all(len(_seeds(found)) < stats.LEAST_SEEDS for found in groups.values()):
        needed = f"{stats.LEAST_SEEDS} seeds of each setting"
        out.append(f"Single runs are never told apart: {needed} are needed, as pilot-tui compare runs them.")
    return out


def _settings(sides: Sequence[Side]) -> dict[str, list[Side]]:
    """Runs that differ in nothing but the seed, together; a run whose plan cannot be read stands alone."""
    found: dict[str, list[Side]] = {}
    for each in sides:
        key = each.letter
        if each.plan is not None:
            kept = {name: value for name, value in as_json(each.plan).items() if name not in (*UNSAID, "seed")}
            key = json.dumps([kept, each.entry.run.get("revisions")], sort_keys=True, default=str)
        found.setdefault(key, []).append(each)
    return found


def _seeds(sides: Sequence[Side]) -> dict[int, float]:
    out: dict[int, float] = {}
    for n, each in enumerate(sides):
        value = _value(each)
        if value is not None:
            out.setdefault(each.plan.seed if each.plan is not None else -1 - n, value[1])
    return out


def _named(sides: Sequence[Side]) -> str:
    return " ".join(each.letter for each in sides)


def _wrapped(text: str, width: int, sign: str) -> list[Line]:
    role = {"!": "warn", "✗": "fail"}.get(sign, "text")
    return [
        ((f" {sign if n == 0 else ' '} ", role), (row, "text"))
        for n, row in enumerate(paint.wrap(text, max(8, width - 4)))
    ]
