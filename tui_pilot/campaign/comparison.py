"""The comparison document: what ``compare --json`` prints and ``runs/<comparison>/comparison.json`` holds. Pure.

It is rewritten whole at each change. A comparison's folder stands beside its runs and has no ``run.json``; its trials
are ordinary runs of kind ``trial`` whose ``run.json`` names it, ``{"comparison": id, "trial": "half", "seed": 0}``.

    {"schema": 1, "tool": "x.y", "id": "20261202-061500-demo-comparison-3f9a", "name": "demo", "demo": false,
     "identity": sha256, "created": "...Z", "state": "running|finished|stopped", "plan": {...plan.json's "plan"},
     "metric": "loss", "direction": "min", "baseline": "base", "seeds": [0, 1, 2],
     "planned": {"updates": 200, "validation_every": 50, "validation_at": [50, 100, 150, 200], "save_every": 100,
                 "stop": {"not_finite": true, "loss_above_start": 3.0, "no_progress": null}},
     "held": {"architecture": "12 tensors, 34,567 elements, ...", "data": "...", ...}, "not_matched": ["half: ..."],
     "verified": {"before": true, "after": ["what differed when it ran", ...]},
     "trials": [{"id": "half", "seed": 0, "label": "half", "set": {"optimizer.lr": 5e-05}, "run": "...",
                 "state": "waiting|running|finished|diverged|stopped|failed|lost", "counts": true, "diverged_at": null,
                 "stop_reason": null, "stop_text": null, "updates": 200, "examples_seen": 1600, "tokens_seen": 48000,
                 "metrics": {"loss": 1.2, ...last validation}, "best": {"update": 150, "value": 1.19},
                 "losses": [[1, 4.1], ...], "validation": [[50, 1.31], ...], "predictions": "path" or null,
                 "not_matched": ["..."], "cost": {"seconds": 61.2, "per_update": 0.21, "evaluate": 1.1, "save": 0.4}}],
     "summary": [{"id": "half", "label": "half", "set": {...}, "seeds": 3, "values": {"0": 1.2, ...},
                  "final": {"mean": 1.21, "spread": 0.02}, "ended": {"finished": 3, "diverged": 0, ...},
                  "paired_differences": [{"against": "base", "differences": {"0": 0.01, ...}, "mean": 0.01,
                                          "standard_error": 0.004, "told_apart": false, "better": null, "why": "..."}],
                  "told_apart_from": ["base"], "basis": "3 seeds"}],
     "next": [{"text": "...", "trials": ["base", "half"], "seeds": [3, 4]}],
     "said": ["sentences: what can be said"],
     "cost": {"predicted": {"seconds": 600.0, "low": 540.0, "high": 700.0, "basis": "..."} or null, "why": null,
              "spent": 123.0}}

Values that are not finite are the words ``nan``, ``inf``, ``-inf``. Every run of the comparison is in ``trials``, also
lost, stopped and failed ones; ``counts`` says which of several attempts at one trial and seed counts. ``spread`` is the
standard deviation over seeds, null for one. ``diverged_at`` is the update at which the rule stopped the trial.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tui_pilot.campaign import hold, stats
from tui_pilot.campaign.findings import next_steps, said, summaries
from tui_pilot.run_folder import RunFolder
from tui_pilot.store.state import RunState

FILE = "comparison.json"
ENDED = ("finished", "diverged", "failed")
AGAIN = ("lost", "stopped")
Key = tuple[str, int]


@dataclass(frozen=True)
class Seen:
    """One run of the comparison: what its ``run.json`` says and what its events make of it."""

    folder: RunFolder
    run: Mapping[str, Any]
    state: RunState

    @property
    def key(self) -> Key:
        return str(self.run.get("trial")), int(self.run.get("seed") or 0)


def state_of(seen: Seen) -> str:
    """How the trial stands: a rule's early end without divergence, and a person's stop, are both ``stopped``."""
    if seen.state.state == "new":
        return "running"
    if seen.state.state == "finished" and _stop(seen).get("code") == "no_progress":
        return "stopped"
    return seen.state.state


def must_run_again(seen: Seen) -> bool:
    """Whether this attempt says nothing of its setting: lost, stopped by a person, or killed from outside."""
    codes = {reason.get("code") for row in seen.state.rows if row.verdict == "fail" for reason in row.reasons}
    if seen.state.state == "failed":
        return codes == {"killed"}
    return seen.state.state in AGAIN


def counting(runs: Sequence[Seen]) -> dict[Key, Seen]:
    """For each trial and seed the attempt that counts: the first that ended by itself, else the one going on."""
    found: dict[Key, Seen] = {}
    for each in runs:
        if not must_run_again(each) and each.key not in found:
            found[each.key] = each
    return found


def build(record: Mapping[str, Any], runs: Sequence[Seen], now: bool = True) -> dict[str, Any]:
    """The document, from the record fixed before the start and its runs so far. ``now``: somebody follows it."""
    counted = counting(runs)
    keys: list[Key] = [(str(id), int(seed)) for id, seed in record["order"]]
    trials = []
    for key in keys:
        mine = [each for each in runs if each.key == key]
        trials += [_trial(record, each, counted.get(key) is each) for each in mine]
        if key not in counted:
            trials.append(_waiting(record, key))
    ended = [key for key in keys if key in counted and counted[key].state.state in ENDED]
    summary = summaries(record, trials)
    done = len(ended) == len(keys)
    after = [f"{each['id']}, seed {each['seed']}: {text}" for each in trials for text in each.pop("_after")]
    kept = {key: value for key, value in record.items() if key not in ("probes", "order")}
    document = {
        **kept,
        "state": "finished" if done else "running" if now else "stopped",
        "verified": {"before": True, "after": after},
        "trials": trials,
        "summary": summary,
        "next": next_steps(record, summary, done),
        "cost": {**(record.get("cost") or {}), "spent": math.fsum(each["cost"]["seconds"] or 0.0 for each in trials)},
    }
    document["said"] = said(document)
    return document


def _stop(seen: Seen) -> Mapping[str, Any]:
    found = seen.state.facts.get("stop")
    return found if isinstance(found, Mapping) else {}


def _trial(record: Mapping[str, Any], seen: Seen, counts: bool) -> dict[str, Any]:
    id, seed = seen.key
    facts = seen.state.facts.get("trial")
    facts = facts if isinstance(facts, Mapping) else {}
    stop, state = _stop(seen), state_of(seen)
    metric, direction = record["metric"], record["direction"]
    points = [(at, metrics[metric]) for at, metrics in seen.state.validation if metric in metrics]
    numbers = [(at, value) for at, value in points if isinstance(value, (int, float))]
    best = stats.best_of(numbers, direction)
    probe = (record.get("probes") or {}).get(f"{id}:{seed}")
    labels = [text.partition(": ")[2] for text in record["not_matched"] if text.startswith(f"{id}: ")]
    if state == "stopped" and stop:
        labels.append(f"updates: stopped at {stop.get('update')} by its rule")
    return {
        **_head(record, (id, seed)),
        "run": seen.folder.id,
        "state": state,
        "counts": counts,
        "diverged_at": stop.get("update") if state == "diverged" else None,
        "stop_reason": stop.get("code"),
        "stop_text": stop.get("text") or seen.state.text or None,
        "updates": seen.state.loss[-1][0] if seen.state.loss else 0,
        "examples_seen": facts.get("examples_seen"),
        "tokens_seen": facts.get("tokens_seen"),
        "metrics": dict(seen.state.validation[-1][1]) if seen.state.validation else {},
        "best": None if best is None else {"update": best[0], "value": best[1]},
        "losses": [list(point) for point in seen.state.loss],
        "validation": [list(point) for point in points],
        "predictions": f"{seen.folder.id}/{facts['predictions']}" if facts.get("predictions") else None,
        "not_matched": labels,
        "cost": cost_of(seen),
        "_after": hold.afterwards(probe, facts) if probe and facts and counts else [],
    }


def _head(record: Mapping[str, Any], key: Key) -> dict[str, Any]:
    return {"id": key[0], "seed": key[1], "label": key[0], "set": dict(record["sets"][key[0]])}


def _waiting(record: Mapping[str, Any], key: Key) -> dict[str, Any]:
    none = ("run", "diverged_at", "stop_reason", "stop_text", "examples_seen", "tokens_seen", "best", "predictions")
    return {
        **_head(record, key),
        "state": "waiting",
        "counts": True,
        **dict.fromkeys(none),
        "updates": 0,
        "metrics": {},
        "losses": [],
        "validation": [],
        "not_matched": [],
        "cost": {"seconds": None, "per_update": None, "evaluate": None, "save": None},
        "_after": [],
    }


def cost_of(seen: Seen) -> dict[str, float | None]:
    """Seconds of the whole run as far as it is known, and of one update, evaluation and save."""
    seconds = (seen.state.facts.get("sizes") or {}).get("seconds") or {}
    began, ended = seen.state.started_mono, seen.state.ended_mono or seen.state.last_mono
    whole = round(ended - began, 2) if began is not None and ended is not None and ended >= began else None
    return {
        "seconds": whole,
        "per_update": seconds.get("update"),
        "evaluate": seconds.get("evaluate"),
        "save": seconds.get("save_first"),
    }
