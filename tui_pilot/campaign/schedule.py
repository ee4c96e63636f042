"""The document of ``schedule``: what fits into 3, 7 or 30 days of a rented machine, from what a pilot measured.

Time for evaluation, export and a margin is taken first; then jobs are packed (``packing.RULE``). Prices come from the
plan alone. Pure: runs come in as ``show --json`` documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tui_pilot.campaign import packing
from tui_pilot.campaign.jobs import PREDICTED, Job, Seconds, merged, of_run, seconds_of
from tui_pilot.plan.model import Plan
from tui_pilot.run_folder import short_id
from tui_pilot.text import duration, plural

Json = Mapping[str, Any]
Run = tuple[Json, Plan]

SAYS_NOTHING_OF = (
    "Hours hold for the machine that was measured: they foretell neither another GPU's nor a provider's speed.",
    "They say nothing about quality: whether so many updates are enough, only evaluation shows.",
    "One job at a time has the whole machine. No duration imposes a type of training.",
)


def packages(runs: Sequence[Run], others: Sequence[Run] = ()) -> list[dict[str, Any]]:
    """One document for each package that the first run's plan names."""
    days = runs[0][1].rental.packages if runs else ()
    return [document(runs, each, others) for each in days]


def document(runs: Sequence[Run], days: int, others: Sequence[Run] = (), restarts: int = 0) -> dict[str, Any]:
    """``schedule --json``. ``others``: runs that measured variants or trials of these. ``restarts``: pre-emptions to
    keep time for.

    The first run's plan says what is kept and what an hour costs.
    """
    rental = runs[0][1].rental
    jobs = merged([job for show, plan in runs for job in _named(of_run(show, plan, [*runs, *others]), show, runs)])
    restart = _restart(runs, restarts, max((job.updates or 0 for job in jobs), default=0))
    kept = packing.kept(
        days, rental.keep_for.evaluation_hours, rental.keep_for.export_hours, rental.time_margin,
        restart["hours"] or 0.0,
    )  # fmt: skip
    available = packing.left_for_jobs(days, kept.values())
    priced = [(job, job.hours) for job in jobs if job.hours is not None]
    packed = packing.pack([packing.Want(job.priority, hours) for job, hours in priced], available)
    gpus = runs[0][1].launch.processes * runs[0][1].launch.nodes
    return {
        "days": days,
        "hours": days * 24.0,
        "kept": {name: round(hours, 4) for name, hours in kept.items()},
        "available": round(available, 4),
        "packed": [_entry(priced[place][0]) for place in packed.taken],
        "left_out": [{**_entry(priced[n][0]), "lacks": round(lacks, 4)} for n, lacks in packed.lacks.items()],
        "unpriced": [{"id": job.id, "run": job.run, "why": job.why} for job in jobs if job.hours is None],
        "unused": round(packed.unused, 4),
        "restart": restart,
        "prices": [
            {"gpu": name, "an_hour": price, "gpus": gpus, "total": round(price * gpus * days * 24, 2)}
            for name, price in rental.prices.items()
        ],
        "rule": packing.RULE,
        "says_nothing_of": list(SAYS_NOTHING_OF),
    }


def _named(jobs: Sequence[Job], show: Json, runs: Sequence[Run]) -> list[Job]:
    """The jobs with their run's short name where several runs share a package."""
    if len(runs) == 1:
        return list(jobs)
    name = short_id(str(show.get("run") or ""))
    return [replace(job, id=name if job.kind == "base" else f"{name}, {job.id}") for job in jobs]


def _entry(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "kind": job.kind,
        "run": job.run,
        "priority": job.priority,
        "updates": job.updates,
        "hours": round(job.hours or 0.0, 6),
        "basis": job.basis,
        "scaled": job.scaled,
        "seconds": {name: round(value, 3) for name, value in job.parts.items()},
        "not_measured": list(job.missing),
    }


def _restart(runs: Sequence[Run], count: int, most: int) -> dict[str, Any]:
    """What one pre-emption costs at most: start again, load the checkpoint, and every update since the last save.

    ``most``: updates of the longest job; more than these cannot be lost.
    """
    costs: list[tuple[float, Seconds, int]] = []
    for show, plan in runs:
        known = seconds_of(show)
        if known.resume is not None and known.update is not None:
            lost = min(plan.checkpoint.every, most)
            costs.append(((known.setup or 0.0) + known.resume + lost * known.update, known, lost))
    if not costs:
        return {"count": count, "each_seconds": None, "hours": None, "resume_seconds": None, "updates_lost": None}
    worst, known, lost = max(costs, key=lambda each: each[0])
    return {
        "count": count,
        "each_seconds": round(worst, 3),
        "hours": round(worst * count / 3600, 6),
        "resume_seconds": known.resume,
        "updates_lost": lost,
    }


def lines(found: Json) -> Iterator[str]:
    """One package for people."""
    yield f"{plural(found['days'], 'day')}: {found['hours']:.1f} hours"
    for name, hours in found["kept"].items():
        yield f"  - {name:<12}{hours:>9.1f}"
    yield f"  = for jobs   {found['available']:>9.1f}"
    yield ""
    for entry in found["packed"]:
        yield f"  in   {_job_line(entry)}"
    for entry in found["left_out"]:
        yield f"  out  {_job_line(entry)}; lacks {hours_word(entry['lacks'])}"
    for entry in found["unpriced"]:
        yield f"  ?    {entry['id']}: {entry['why']}"
    yield f"  hours unused {found['unused']:>9.1f}"
    for price in found["prices"]:
        yield (
            f"{price['gpu']} at {price['an_hour']:,.2f} an hour, {plural(price['gpus'], 'GPU')}: {price['total']:,.2f} "
            "for the whole package (the plan's price)"
        )


def notes(found: Json) -> Iterator[str]:
    """What holds for every package of these runs: restarts, what was not measured, the rule, and its limits."""
    yield restart_line(found["restart"])
    if any(entry["basis"] == PREDICTED for entry in (*found["packed"], *found["left_out"])):
        yield "~ predicted from baseline: not measured; the baseline's seconds, scaled by the rows of an update alone."
    missing = sorted({each for entry in (*found["packed"], *found["left_out"]) for each in entry["not_measured"]})
    if missing:
        yield f"Not measured and so not in the hours: {', '.join(missing)}."
    yield f"Rule: {found['rule']}"
    yield from found["says_nothing_of"]


def _job_line(entry: Json) -> str:
    sign = "~" if entry["basis"] == PREDICTED else ""
    return (
        f"{entry['id']}: {sign}{hours_word(entry['hours'])}, {plural(entry['updates'], 'update')}, priority "
        f"{entry['priority']}, {entry['basis']}"
    )


def hours_word(hours: float) -> str:
    """``62.7 h``; what is shorter than a tenth of an hour in minutes and seconds."""
    return f"{hours:,.1f} h" if hours >= 0.1 else duration(hours * 3600)


def restart_line(restart: Json) -> str:
    """What a pre-emption costs, in a sentence."""
    if restart["each_seconds"] is None:
        return "A restart after a pre-emption cannot be priced: no resume was measured."
    kept = ""
    if restart["count"]:
        kept = f"; {plural(restart['count'], 'restart')} kept: {hours_word(restart['hours'])}"
    return (
        f"A restart after a pre-emption costs at most {duration(restart['each_seconds'])}: start, resume "
        f"({duration(restart['resume_seconds'])} measured) and {plural(restart['updates_lost'], 'update')} since the "
        f"last save{kept}."
    )
