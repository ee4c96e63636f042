"""The conclusion as one document: question, held constant, what ran, was seen, was decided, how sure, what stays open.

The page that people read is made from this document and adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tui_pilot.plan.model import Plan
from tui_pilot.report import outcome
from tui_pilot.report.gather import Gathered, by_hand, gather
from tui_pilot.report.settings import direction, held, settings
from tui_pilot.run_folder import RunFolder, short_id
from tui_pilot.sheet.build import configuration, plan_of
from tui_pilot.sheet.judged import sentence, word
from tui_pilot.text import plural
from tui_pilot.version import VERSION

Json = Mapping[str, Any]
SCHEMA = 1
LEFT_OUT_OF_TRIALS = ("skipped", "not_run")


def document(folders: Sequence[RunFolder], alone: bool = False) -> dict[str, Any]:
    """The conclusion over some runs, what they came from, and every trial of their comparison.

    ``alone``: from these runs' own folders only, for an archive. Raises where a given run cannot be read.
    """
    found = gather(folders, alone)
    runs = [_run(folder, show, found) for folder, show in found.shown]
    plans = {folder.id: plan_of(show) for folder, show in found.shown}
    compared = [run for run in runs if run["trial"] is not None] or runs
    same, apart = held(compared)
    acts = by_hand(folder for folder, _ in found.shown)
    comparisons = [_comparison(each, plans) for each in found.comparisons]
    names = list(dict.fromkeys(str(run["name"]) for run in runs))
    return {
        "schema": SCHEMA,
        "tool": VERSION,
        "title": ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else ""),
        "question": _question(runs, comparisons, plans, found),
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


def _run(folder: RunFolder, show: Json, found: Gathered) -> dict[str, Any]:
    item = configuration(show)
    plan = plan_of(show)
    trial = _trial(folder.id, found)
    facts = show.get("revisions") or {}
    metrics = show.get("metrics") or {}
    losses = metrics.get("loss") or []
    return {
        "run": folder.id,
        "short": short_id(folder.id),
        "name": item["name"],
        "kind": show.get("kind"),
        "demo": item["demo"],
        "variant": show.get("variant"),
        "trial": trial,
        "state": (trial or {}).get("state") or show.get("state"),
        "text": str((trial or {}).get("stop_reason") or show.get("text") or ""),
        "verdict": show.get("verdict"),
        "started": show.get("started"),
        "ended": show.get("ended"),
        "parent": show.get("parent"),
        "changed": dict(show.get("changed") or {}),
        "identity": facts.get("identity"),
        "settings": settings(plan, facts, bool(item["demo"])),
        "updates": losses[-1][0] if losses else None,
        "loss": {"first": losses[0] if losses else None, "last": losses[-1] if losses else None},
        "not_finite_at": _not_finite(losses),
        "diverged_at": (trial or {}).get("diverged_at", _not_finite(losses)),
        "validation": list(metrics.get("validation") or ()),
        "failed": [
            {"phase": row.get("phase"), "text": sentence(row), "mark": row.get("mark")}
            for row in show.get("phases") or ()
            if row.get("verdict") == "fail"
        ],
        "verdicts": _verdicts(show),
        "seconds": item["seconds"],
        "memory": _memory(item),
        "control_outputs": item["control_outputs"],
        "expected": item["expected_result"],
        "retained": item["retained"],
        "why_not": item["why_not"],
        "decision": item["decision"],
        "software": item["software"],
        "software_checked": _checked(folder, item),
        "open": item["open"],
    }


def _trial(run: str, found: Gathered) -> dict[str, Any] | None:
    entries = (dict(trial) for each in found.comparisons for trial in each["trials"] if trial.get("run") == run)
    return next(entries, None)


def _not_finite(losses: Iterable[Sequence[Any]]) -> int | None:
    return next((int(point[0]) for point in losses if isinstance(point[1], str)), None)


def _verdicts(show: Json) -> dict[str, int]:
    counted: dict[str, int] = {}
    for row in show.get("phases") or ():
        name = word(row.get("verdict"))
        counted[name] = counted.get(name, 0) + 1
    return counted


def _memory(item: Json) -> dict[str, Any]:
    """The peak of the phase that sets the need, by the widest counter that was read, and how it is known."""
    at = [entry for entry in item["memory"] if entry["phase"] == item["binding_phase"]]
    for counter in ("device_used_peak", "reserved_peak", "allocated_peak"):
        known = [entry for entry in at if entry.get(counter) is not None]
        if known:
            top = max(known, key=lambda entry: int(entry[counter]))
            how = (top.get("known") or {}).get(counter)
            return {"bytes": top[counter], "counter": counter, "phase": item["binding_phase"], "known": how}
    return {"bytes": None, "counter": None, "phase": item["binding_phase"], "known": None}


def _checked(folder: RunFolder, item: Json) -> dict[str, Any]:
    """Where the stack was checked. It says nothing of another GPU."""
    host = folder.read_json(folder.run_file).get("host")
    return {
        "value": item["software_checked"]["value"],
        "on": {"host": host, **item["software_checked"]["on"]},
        "elsewhere": False,
    }


def _comparison(found: Json, plans: Mapping[str, Plan | None]) -> dict[str, Any]:
    runs = [str(trial.get("run")) for trial in found["trials"]]
    plan = next((plan for run in runs if (plan := plans.get(run)) is not None), None)
    base = str(found.get("baseline") or (found["trials"][0].get("id") if found["trials"] else ""))
    higher = direction(plan) == "higher" if plan else False
    if found.get("direction") in ("min", "max"):
        higher = found["direction"] == "max"
    metric = str(found.get("metric") or (plan.evaluate.metric if plan else "metric"))
    top = outcome.best(found, higher)
    return {
        "baseline": base,
        "metric": metric,
        "direction": "max" if higher else "min",
        "best": None if top is None else top.get("id"),
        "baseline_won": top is not None and str(top.get("id")) == base,
        "outcome": outcome.sentences(found, base, metric, higher),
        "ended_badly": outcome.ended_badly(found),
        "held": found.get("held") or {},
        "not_matched": list(found.get("not_matched") or ()),
        "trials": [dict(each) for each in found["trials"]],
        "summary": [dict(each) for each in found.get("summary") or ()],
        "next": list(found.get("next") or ()),
        "stop": _stop(plan),
        "every": plan.evaluate.every if plan else None,
    }


def _stop(plan: Plan | None) -> dict[str, Any]:
    rule = plan.compare.stop if plan is not None and plan.compare is not None else None
    return {} if rule is None else {key: value for key, value in vars(rule).items() if value not in (None, False)}


def _question(
    runs: Sequence[Json], comparisons: Sequence[Json], plans: Mapping[str, Plan | None], found: Gathered
) -> dict[str, Any]:
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
        changed = sorted(_varied(found))
        ids = list(dict.fromkeys(str(trial.get("id")) for trial in each["trials"]))
        text = (
            f"Which of {plural(len(ids), 'setting')} ({', '.join(ids)}) of {', '.join(changed) or 'the plan'} gives "
            f"the {word_of} {each['metric']} on validation, everything else held? The baseline is {each['baseline']}."
        )
    return {"text": text, "about": about, "expected": plan.expected if plan and plan.expected.strip() else None}


def _varied(found: Gathered) -> set[str]:
    """The plan's keys that its trials set."""
    for _, show in found.shown:
        plan = plan_of(show)
        if plan is not None and plan.compare is not None and plan.compare.trials:
            return {key for trial in plan.compare.trials for key in trial.set}
    return set()


def _outcome(runs: Sequence[Json], comparisons: Sequence[Json], acts: Sequence[Json]) -> list[str]:
    """The whole page in a few sentences: decided, seen, what ended badly."""
    said = [*_decided(runs, acts)]
    for each in comparisons:
        said += [*each["outcome"], *each["ended_badly"], f"There is {outcome.seeds(each)[1]}."]
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
        if act["value"] == "retain" and run.get("why_not"):
            said.append(f"The selection sheet does not retain it yet: {run['why_not'][0]}.")
    return said


def _how_sure(runs: Sequence[Json], comparisons: Sequence[Json]) -> list[str]:
    said = []
    for each in comparisons:
        said.append(f"Seeds: {outcome.seeds(each)[1]}.")
        for entry in each["summary"]:
            found = outcome.differences(entry)
            if found:
                said.append(f"{entry.get('id')}, every paired difference: {'; '.join(found)}.")
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
        said.append(f"Software stack of {of}: {place}. On any other GPU it is not checked.")
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
