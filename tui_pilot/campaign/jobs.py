"""What a campaign would run, each with its hours: the plan itself, its trials, its variants. Pure.

Hours come from seconds that a run measured. Of a plan that no run measured they are foretold from the baseline's,
scaled by the rows of an update alone, and say so: what a longer row or another precision changes nobody knows yet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tui_pilot.errors import PlanError
from tui_pilot.plan.batch import answer, question_of
from tui_pilot.plan.model import Plan
from tui_pilot.plan.variants import differences, with_set

Json = Mapping[str, Any]

MEASURED = "measured"
PREDICTED = "predicted from baseline"
#: Parts of a plan that change neither what is run nor how long it takes.
NAMES = ("name", "expected", "variants", "compare", "rental", "gates", "pilot", "keep")
SETUP = ("stack", "examples", "splits")


@dataclass(frozen=True)
class Seconds:
    """Seconds as one run measured them; None was not measured. ``update`` alone is needed to price a job."""

    update: float | None = None
    evaluation: float | None = None
    save_first: float | None = None
    save: float | None = None
    export: float | None = None
    load: float | None = None
    setup: float | None = None
    resume: float | None = None

    @property
    def missing(self) -> list[str]:
        """What a job's hours leave out because nothing measured it."""
        named = {"evaluation": self.evaluation, "save": self.save_first, "export": self.export}
        named |= {"load": self.load, "setup": self.setup}
        return [name for name, value in named.items() if value is None]


@dataclass(frozen=True)
class Job:
    """One training from its first update to its export, alone on the machine. ``hours`` None: it cannot be priced."""

    id: str
    kind: str
    run: str
    priority: int
    updates: int | None
    hours: float | None
    basis: str
    parts: Mapping[str, float]
    scaled: float = 1.0
    why: str = ""
    missing: tuple[str, ...] = ()
    plan: Plan | None = None


def seconds_of(show: Json) -> Seconds:
    """A run's seconds from its ``show --json`` document."""
    facts = show.get("facts") or {}
    timed = (facts.get("sizes") or {}).get("seconds") or {}
    rows = {row.get("phase"): row for row in show.get("phases") or ()}

    def phase(name: str) -> float | None:
        row = rows.get(name) or {}
        value = row.get("duration_s")
        return float(value) if value is not None and row.get("verdict") in ("pass", "warn", "unchecked") else None

    def first(*values: Any) -> float | None:
        return next((float(value) for value in values if value is not None), None)

    setup = [value for value in map(phase, SETUP) if value is not None]
    first_save = first(timed.get("save_first"))
    return Seconds(
        update=first(timed.get("update")),
        evaluation=first(timed.get("evaluate"), phase("evaluate")),
        save_first=first_save,
        save=first(timed.get("save_second"), first_save),
        export=first(timed.get("export"), phase("export")),
        load=phase("load"),
        setup=sum(setup) if setup else None,
        resume=first((facts.get("resume") or {}).get("load_seconds"), phase("resume")),
    )


def rows_of(show: Json) -> tuple[int | None, float | None]:
    """Training rows, and tokens of a row as a budget in tokens counts them."""
    facts = show.get("facts") or {}
    examples = facts.get("examples") or {}
    planned = (facts.get("batch") or {}).get("planned") or {}
    mean = planned.get("mean_tokens") or (examples.get("supervised_tokens") or {}).get("mean")
    return examples.get("train_rows") or planned.get("examples"), mean


def times(plan: Plan, updates: int) -> dict[str, int]:
    """How often a training of so many updates evaluates and saves: each time it is due, and at the end."""
    return {
        "evaluations": math.ceil(updates / max(1, plan.evaluate.every)),
        "saves": math.ceil(updates / max(1, plan.checkpoint.every)),
    }


def parts_of(plan: Plan, updates: int, known: Seconds, scaled: float = 1.0) -> dict[str, float]:
    """Seconds of each part of one training; ``scaled`` times the measured seconds of an update."""
    often = times(plan, updates)
    later = max(0, often["saves"] - 1)
    return {
        "setup": known.setup or 0.0,
        "load": known.load or 0.0,
        "updates": updates * (known.update or 0.0) * scaled,
        "evaluations": often["evaluations"] * (known.evaluation or 0.0),
        "saves": (known.save_first or 0.0) + later * (known.save or 0.0) if often["saves"] else 0.0,
        "export": known.export or 0.0,
    }


def same_work(one: Plan, other: Plan) -> bool:
    """Whether two plans train the same thing the same way, whatever they are called."""
    return all(key.split(".")[0] in NAMES for key in differences(one, other))


def of_run(show: Json, plan: Plan, others: Sequence[tuple[Json, Plan]] = ()) -> list[Job]:
    """The jobs of one run's plan: what is left of the plan, its trials at each seed, its variants.

    ``others`` are further runs: one with a job's very plan is where that job was measured. Several jobs that would do
    the same work are one.
    """
    known = [(show, plan), *others]
    base = _base(show, plan)
    found = [base]
    for trial in plan.compare.trials:
        for seed in plan.compare.seeds:
            label = trial.id if len(plan.compare.seeds) == 1 else f"{trial.id}, seed {seed}"
            found.append(_job(label, "trial", 1, plan, {**trial.set, "seed": seed}, known))
    for variant in plan.variants:
        found.append(_job(variant.id, "variant", variant.priority, plan, variant.set, known))
    return merged([job for job in found if job.updates != 0])


def merged(jobs: Sequence[Job]) -> list[Job]:
    """Each piece of work once, under the first name it has, at the highest priority that it was given."""
    kept: list[Job] = []
    for job in jobs:
        twin = next(
            (n for n, each in enumerate(kept) if each.plan and job.plan and same_work(each.plan, job.plan)), None
        )
        if twin is None:
            kept.append(job)
        elif job.priority < kept[twin].priority:
            kept[twin] = replace(kept[twin], priority=job.priority)
    return kept


def _base(show: Json, plan: Plan) -> Job:
    job = _job("base" if show.get("kind") == "pilot" else str(show.get("name") or plan.name), "base", 1, plan, {},
               [(show, plan)])  # fmt: skip
    made = _made(show)
    if not made or job.updates is None or job.hours is None:
        return job
    left = max(0, job.updates - made)
    parts = parts_of(plan, left, seconds_of(show)) if left else {}
    return replace(job, updates=left, hours=sum(parts.values()) / 3600, parts=parts)


def _made(show: Json) -> int:
    """Updates that need not be made again: those of a trial. What a pilot trained is thrown away."""
    if show.get("kind") != "trial":
        return 0
    losses = (show.get("metrics") or {}).get("loss") or ()
    return max((int(point[0]) for point in losses), default=0)


def _job(id: str, kind: str, priority: int, plan: Plan, changes: Json, known: Sequence[tuple[Json, Plan]]) -> Job:
    show, base = known[0]
    run = str(show.get("run") or "")

    def unpriced(why: str, wanted: Plan | None = None) -> Job:
        return Job(id, kind, run, priority, None, None, "unknown", {}, why=why, plan=wanted)

    try:
        wanted = with_set(plan, changes)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        return unpriced(f"its changes make no plan: {error}")
    own = next((each for each in known if same_work(each[1], wanted) and seconds_of(each[0]).update), None)
    source = own[0] if own else show
    seconds = seconds_of(source)
    rows, mean = rows_of(source)
    if seconds.update is None:
        return unpriced("no update was measured: run its pilot to the end of phase batch", wanted)
    if rows is None and wanted.budget.held[0] != "updates":
        return unpriced("the training rows were not counted", wanted)
    try:
        updates = answer(question_of(wanted, int(rows or 1), mean)).updates
    except PlanError as error:
        return unpriced(error.text, wanted)
    scaled = 1.0 if own else _rows(wanted) / _rows(base)
    parts = parts_of(wanted, updates, seconds, scaled)
    return Job(
        id, kind, str(source.get("run") or ""), priority, updates, sum(parts.values()) / 3600,
        MEASURED if own else PREDICTED, parts, scaled, missing=tuple(seconds.missing), plan=wanted,
    )  # fmt: skip


def _rows(plan: Plan) -> int:
    """Rows that one replica takes through one update."""
    return plan.batch.micro * plan.batch.accumulation
