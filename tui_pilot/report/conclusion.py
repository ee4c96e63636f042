"""The conclusion as one document: question, held constant, what ran, was seen, was decided, how sure, what stays open.

The page that people read is made from this document and adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.plan.model import Plan
from tui_pilot.report import outcome
from tui_pilot.report.gather import Gathered, by_hand, gather
from tui_pilot.report.run_facts import run_facts
from tui_pilot.report.settings import held
from tui_pilot.run_folder import RunFolder, short_id
from tui_pilot.sheet.build import plan_of
from tui_pilot.sheet.judged import word
from tui_pilot.text import plural
from tui_pilot.version import VERSION

Json = Mapping[str, Any]
SCHEMA = 1
LEFT_OUT_OF_TRIALS = ("skipped", "not_run")


def document(folders: Sequence[RunFolder], alone: bool = False) -> dict[str, Any]:
    """The conclusion over some runs, what they came from, and every trial of their comparison.

    ``alone``: no other run is read, for an archive; of a comparison its document alone. Raises where a given run cannot
    be read.
    """
    found = gather(folders, alone)
    runs = [run_facts(folder, show, found) for folder, show in found.shown]
    plans = {folder.id: plan_of(show) for folder, show in found.shown}
    compared = [run for run in runs if run["trial"] is not None] or runs
    same, apart = held(compared)
    acts = by_hand(folder for folder, _ in found.shown)
    comparisons = [_comparison(each) for each in found.comparisons]
    names = list(dict.fromkeys(str(run["name"]) for run in runs))
    return {
        "schema": SCHEMA,
        "tool": VERSION,
        "title": ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else ""),
        "question": _question(runs, comparisons, plans),
        "outcome": _outcome(runs, comparisons, acts),
        "held": {"same": same, "different": apart, "over": [run["run"] for run in compared]},
        "declared_held": [each["held"] for each in comparisons],
        "not_matched": [str(one) for each in comparisons for one in each["not_matched"]],
        "runs": runs,
        "comparisons": comparisons,
        "by_hand": acts,
        "how_sure": _how_sure(runs, comparisons),
        "software_checked": [{"run": run["run"], **run["software_checked"]} for run in runs],
        "open": _open(runs, comparisons, acts, found),
        "beside": found.beside,
        "unread": [{"run": run, "why": why} for run, why in found.unread],
    }


def _comparison(found: Json) -> dict[str, Any]:
    first = found["trials"][0].get("id") if found["trials"] else ""
    base, metric = str(found.get("baseline") or first), str(found.get("metric") or "metric")
    higher = found.get("direction") == "max"
    planned, plan = found.get("planned"), found.get("plan") or {}
    keys = sorted({str(key) for trial in found["trials"] for key in trial.get("set") or {}})
    found = {
        **found,
        "trials": [outcome.with_baseline(each, keys, plan) for each in found["trials"]],
        "summary": [outcome.with_baseline(each, keys, plan) for each in found.get("summary") or ()],
    }
    top = outcome.best(found, higher)
    return {
        "baseline": base,
        "metric": metric,
        "direction": "max" if higher else "min",
        "best": None if top is None else top.get("id"),
        "baseline_won": top is not None and str(top.get("id")) == base,
        "outcome": outcome.sentences(found, base, metric, higher),
        "edge": outcome.at_the_edge(found, higher),
        "ended_badly": outcome.ended_badly(found),
        "held": found.get("held") or {},
        "not_matched": list(found.get("not_matched") or ()),
        "trials": [dict(each) for each in found["trials"]],
        "summary": [dict(each) for each in found.get("summary") or ()],
        "next": list(found.get("next") or ()),
        "planned": dict(planned) if isinstance(planned, Mapping) else {},
        "verified": found.get("verified"),
        "said": [str(each) for each in found.get("said") or ()],
        "state": found.get("state"),
        "id": found.get("id"),
        "cost": found.get("cost"),
    }


def _question(runs: Sequence[Json], comparisons: Sequence[Json], plans: Mapping[str, Plan | None]) -> dict[str, Any]:
    plan = next((plan for plan in plans.values() if plan is not None), None)
    first = next((run for run in runs if run["settings"]), None)
    about = ""
    if first is not None:
        made = first["settings"]
        about = f"task {made['task']}, model {made['model']}, data {made['training data']}"
    text = "Does this configuration pass every operation of a campaign once, from load to the reloaded artifact?"
    if len(runs) > 1:
        text = "Which of these configurations passes every operation of a campaign, and what does each need?"
    if comparisons:
        each = comparisons[0]
        word_of = "highest" if each["direction"] == "max" else "lowest"
        changed = sorted({str(key) for trial in each["trials"] for key in trial.get("set") or {}})
        ids = list(dict.fromkeys(str(trial.get("id")) for trial in each["trials"]))
        text = (
            f"Which of {plural(len(ids), 'setting')} ({', '.join(ids)}) of {', '.join(changed) or 'the plan'} gives "
            f"the {word_of} {each['metric']} on validation, everything else held? The baseline is {each['baseline']}."
        )
    return {"text": text, "about": about, "expected": plan.expected if plan and plan.expected.strip() else None}


def _outcome(runs: Sequence[Json], comparisons: Sequence[Json], acts: Sequence[Json]) -> list[str]:
    """The whole page in a few sentences: decided, seen, what ended badly."""
    said = [*_decided(runs, acts)]
    for each in comparisons:
        said += [*each["outcome"], *each["ended_badly"], f"How sure: {outcome.seeds(each)[1]}."]
    if not comparisons:
        for run in runs:
            failed = ", ".join(str(row["phase"]) for row in run["failed"])
            verdict = f"verdict {word(run['verdict'])}" if run["verdict"] else "no verdict"
            at = f" at update {run['diverged_at']}" if run["diverged_at"] is not None else ""
            said.append(f"{run['short']} {run['state']}{at}, {verdict}" + (f" ({failed})." if failed else "."))
    return said


def _decided(runs: Sequence[Json], acts: Sequence[Json]) -> list[str]:
    words = {"retain": "retained", "reject": "rejected", "defer": "deferred"}
    last = {str(act["run"]): act for act in acts if act["what"] == "decision"}
    if not last:
        return ["Nothing is decided: nobody has retained, rejected or deferred any of these runs."]
    known = {str(run["run"]): run for run in runs}
    said = []
    for name, act in last.items():
        run = known.get(name, {})
        trial = (run.get("trial") or {}).get("id")
        what = f"{short_id(name)}" + (f" ({trial})" if trial else "")
        said.append(
            f"{what} is {words.get(str(act['value']), str(act['value']))}: {act['text'] or 'no reason was written'}"
        )
        if act["value"] == "retain" and run.get("why_not") and not run.get("trial"):
            said.append(f"The selection sheet does not retain it yet: {run['why_not'][0]}.")
    return said


def _how_sure(runs: Sequence[Json], comparisons: Sequence[Json]) -> list[str]:
    said = []
    for each in comparisons:
        said.append(f"Seeds: {outcome.seeds(each)[1]}.")
        said += [f"{told}." for told in outcome.differences(each, each["baseline"])]
        if each["state"] not in (None, "finished"):
            said.append(f"The comparison itself is {each['state']}: what it says may still change.")
    places: dict[str, list[str]] = {}
    for run in runs:
        checked = run["software_checked"]
        named = [f"{key} {value}" for key, value in checked["on"].items() if value]
        if checked["on"].get("gpu") is None:
            named.append("no GPU")
        state = "checked" if checked["value"] else "not checked"
        places.setdefault(f"{state} on {', '.join(named)}", []).append(str(run["short"]))
    for place, names in places.items():
        of = "all runs" if len(names) == len(runs) else ", ".join(names)
        elsewhere = "On a GPU" if place.endswith("no GPU") else "On any other GPU"
        said.append(f"Software stack of {of}: {place}. {elsewhere} it is not checked.")
    if not comparisons:
        said.append("No comparison ran: each run was looked at by itself, once.")
    return said


def _open(runs: Sequence[Json], comparisons: Sequence[Json], acts: Sequence[Json], found: Gathered) -> list[str]:
    questions: dict[str, list[str]] = {}
    for run in runs:
        for question in run["open"]:
            if run["trial"] is not None and any(f" is {verdict}" in question for verdict in LEFT_OUT_OF_TRIALS):
                continue  # a trial leaves phases out by its nature: the pilot has them
            questions.setdefault(str(question), []).append(str(run["short"]))
    said = [
        question if len(names) == len(runs) else f"{', '.join(names)}: {question}"
        for question, names in questions.items()
    ]
    for each in comparisons:
        said += [f"next: {_next(one)}" for one in each["next"]]
        said += [each["edge"]] if each["edge"] else []
    codes = {str(run["settings"].get("pilot-tui code")) for run in runs if run["trial"] is not None}
    if len(codes) > 1:
        said.append(
            f"the trials ran {len(codes)} different copies of pilot-tui's code (see Not the same): what lies between "
            "settings may come from that too"
        )
    said += [f"{run['short']} has not ended" for run in runs if run["state"] in ("running", "new")]
    if not any(act["what"] == "decision" for act in acts):
        said.append("nobody has decided: pilot-tui decide RUN retain, reject or defer, with the reason")
    said += [f"{run} could not be read: {why}" for run, why in found.unread]
    return said


def _next(one: Any) -> str:
    if isinstance(one, Mapping):
        text = one.get("text") or one.get("why")
        return str(text) if text else ", ".join(f"{key} {value}" for key, value in one.items())
    return str(one)
