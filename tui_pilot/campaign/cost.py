"""What a comparison will cost, from what an earlier run of the same work measured; unknown is unknown, never 0."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tui_pilot.errors import RunFolderError
from tui_pilot.events import schema
from tui_pilot.events.reader import Reader
from tui_pilot.plan import model, variants
from tui_pilot.plan.model import Plan
from tui_pilot.run_folder import RunFolder, all_runs, short_id
from tui_pilot.store.fold import fold
from tui_pilot.text import duration, plural

#: Settings that another learning rate leaves alone and that set the pace: equal, or the seconds are another work's.
SAME_WORK = (
    "task", "model", "data", "batch", "precision", "memory", "evaluate.rows", "evaluate.micro",
    "evaluate.max_new_tokens", "device", "launch", "options", "optimizer.name", "optimizer.implementation", "export",
)  # fmt: skip
LEAST_UPDATES = 2


@dataclass(frozen=True)
class Measured:
    """Seconds as one run measured them: ``update`` is the median, 8 of 10 lie between ``low`` and ``high``."""

    run: str
    updates: int
    update: float
    low: float
    high: float
    evaluate: float | None
    save: float | None
    export: float | None
    setup: float | None


def measured(runs: Path, plan: Plan) -> Measured | None:
    """The newest run below ``runs`` that did the same work, and what it measured; None where there is none."""
    for folder in reversed(all_runs(runs)):
        try:
            other = model.from_json(folder.read_json(folder.plan_file)["plan"])
        except (RunFolderError, KeyError, TypeError, AttributeError):
            continue
        if not any(variants.under(key, SAME_WORK) for key in variants.differences(other, plan)):
            found = of_run(folder)
            if found is not None:
                return found
    return None


def of_run(folder: RunFolder) -> Measured | None:
    """One run's seconds from its own events; None where it made too few updates."""
    events = Reader(folder.events).poll()
    taken = [
        event for event in events if event["kind"] == schema.UPDATE and event.get("stage") in ("train", schema.TRIAL)
    ]
    seconds = [float(event["seconds"]) for event in taken if isinstance(event.get("seconds"), (int, float))]
    seconds = sorted(seconds[1:] if len(seconds) > LEAST_UPDATES else seconds)  # the first pays for allocation
    if len(seconds) < LEAST_UPDATES:
        return None
    known = (fold(events).facts.get("sizes") or {}).get("seconds") or {}
    return Measured(
        folder.id, len(seconds), _quantile(seconds, 0.5), _quantile(seconds, 0.1), _quantile(seconds, 0.9),
        known.get("evaluate"), known.get("save_first"), known.get("export"), _setup(events, taken),
    )  # fmt: skip


def _setup(events: Sequence[Mapping[str, Any]], updates: Sequence[Mapping[str, Any]]) -> float | None:
    """What a run spends before its first update in the stages that a trial has too: data, and building the model."""
    total = 0.0
    began: dict[str, float] = {}
    for event in events:
        stage, mono = str(event.get("stage")), event.get("mono")
        if event["kind"] == schema.STAGE_STARTED and isinstance(mono, float):
            began.setdefault(stage, mono)
        elif event["kind"] == schema.STAGE_ENDED and stage == "data" and stage in began and isinstance(mono, float):
            total += mono - began["data"]
    first = updates[0]
    start = began.get(str(first.get("stage")))
    if start is None or not isinstance(first.get("mono"), float):
        return None
    return total + max(0.0, float(first["mono"]) - start - float(first.get("seconds") or 0.0))


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def predicted(
    found: Measured | None, trials: int, updates: int, evaluations: int, saves: int, jobs: int
) -> dict[str, Any]:
    """``cost`` of the document before the first trial: seconds with their range, or why they are unknown."""
    if found is None:
        return {
            "predicted": None,
            "why": "no measurement yet: no earlier run of this plan; known after the first trial",
        }
    fixed = evaluations * (found.evaluate or 0.0) + saves * (found.save or 0.0)
    fixed += (found.setup or 0.0) + (found.export or 0.0)
    rounds = math.ceil(trials / max(1, jobs))

    def whole(per_update: float) -> float:
        return round(rounds * (updates * per_update + fixed), 2)

    unknown = [name for name in ("evaluate", "save", "setup") if getattr(found, name) is None]
    basis = (
        f"{short_id(found.run)} measured {plural(found.updates, 'update')}: {found.update:.3g} s each, 8 of 10 within "
        f"{found.low:.3g} to {found.high:.3g}; {plural(trials, 'trial')} x ({updates:,} updates, "
        f"{plural(evaluations, 'evaluation')} of {duration(found.evaluate)}, {plural(saves, 'save')} of "
        f"{duration(found.save)}, {duration(found.setup)} before the first update)"
    )
    basis += f"; without {', '.join(unknown)}: never measured" if unknown else ""
    return {
        "predicted": {
            "seconds": whole(found.update),
            "low": whole(found.low),
            "high": whole(found.high),
            "basis": basis,
        },
        "why": None,
    }
