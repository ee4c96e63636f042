"""What a comparison's trials say, and how sure: final values, pairs told apart or not, seeds to add. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.campaign import stats
from tui_pilot.text import plural


def final_of(trial: Mapping[str, Any]) -> float | None:
    """The value a trial is compared by: its last validation point, if it came to its end and the value is finite."""
    if not trial["counts"] or trial["state"] not in ("finished", "stopped") or not trial["validation"]:
        return None
    value = trial["validation"][-1][1]
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def summaries(record: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each setting: every seed's value, spread, and each paired difference with every other setting."""
    values: dict[str, dict[int, float]] = {id: {} for id in record["sets"]}
    for each in trials:
        final = final_of(each)
        if final is not None:
            values[each["id"]][each["seed"]] = final
    found = []
    for id, own in values.items():
        pairs = [
            stats.paired(own, others, record["direction"], other) for other, others in values.items() if other != id
        ]
        mine = [each for each in trials if each["id"] == id]
        listed = [own[seed] for seed in sorted(own)]
        states = [each["state"] for each in mine]
        found.append(
            {
                "id": id,
                "label": id,
                "set": dict(record["sets"][id]),
                "seeds": len(own),
                "values": {str(seed): own[seed] for seed in sorted(own)},
                "final": stats.spread(listed),
                "ended": {state: states.count(state) for state in dict.fromkeys(states)},
                "paired_differences": [pair.as_json() for pair in pairs],
                "told_apart_from": [pair.against for pair in pairs if pair.told_apart],
                "basis": _basis(len(own)),
            }
        )
    return found


def _basis(seeds: int) -> str:
    return "no seed came to its end" if seeds == 0 else "one seed" if seeds == 1 else f"{seeds} seeds"


def next_steps(record: Mapping[str, Any], summary: Sequence[Mapping[str, Any]], done: bool) -> list[dict[str, Any]]:
    """Seeds to add for each pair that is not told apart and has a value on both sides, each pair once."""
    if not done:
        return []
    found = []
    for number, one in enumerate(summary):
        for pair in one["paired_differences"]:
            other = next(place for place, each in enumerate(summary) if each["id"] == pair["against"])
            if other >= number or pair["told_apart"] or not pair["differences"]:
                continue
            known = stats.Paired(
                pair["against"], {int(seed): value for seed, value in pair["differences"].items()}, pair["mean"],
                pair["standard_error"], False, None, pair["why"],
            )  # fmt: skip
            names = [pair["against"], one["id"]]
            wanted = stats.seeds_wanted(known)
            if wanted is None:
                text = (
                    f"{names[0]} and {names[1]}: not told apart, and more than {stats.MOST_SEEDS} seeds would be needed"
                )
                found.append({"text": text, "trials": names, "seeds": []})
                continue
            seeds = stats.new_seeds(record["seeds"], wanted)
            listed = ", ".join(map(str, seeds))
            word = "seed" if len(seeds) == 1 else "seeds"
            text = f"{names[0]} and {names[1]}: not told apart; add {word} {listed} to compare.seeds and compare again"
            found.append({"text": text, "trials": names, "seeds": seeds})
    return found


def said(document: Mapping[str, Any]) -> list[str]:
    """Sentences on what the comparison shows, and how sure; diverged and failed trials are among them."""
    metric, better = document["metric"], "lower" if document["direction"] == "min" else "higher"
    out = [f"{metric}: {better} is better."]
    base = document["baseline"]
    for each in document["summary"]:
        gone = [trial for trial in document["trials"] if trial["id"] == each["id"] and trial["counts"]]
        out += [
            f"{each['id']}, seed {trial['seed']}, diverged at update {trial['diverged_at']} of "
            f"{document['planned']['updates']}: {trial['stop_text']}."
            for trial in gone
            if trial["state"] == "diverged"
        ]
        out += [
            f"{each['id']}, seed {trial['seed']}, failed: {trial['stop_text']}."
            for trial in gone
            if trial["state"] == "failed"
        ]
        if each["id"] == base or each["final"]["mean"] is None:
            continue
        pair = next(pair for pair in each["paired_differences"] if pair["against"] == base)
        if not pair["differences"]:
            continue
        gap = f"{pair['mean']:+.4f}"
        if pair["told_apart"]:
            word = "better" if pair["better"] else "worse"
            out.append(f"{each['id']} is {word} than {base} by {abs(pair['mean']):.4f} ({pair['why']}).")
        else:
            out.append(f"{each['id']} and {base} are not told apart: {gap}, {pair['why']}.")
    best = [each for each in document["summary"] if each["final"]["mean"] is not None]
    if best:
        sign = 1 if document["direction"] == "min" else -1
        first = min(best, key=lambda each: sign * each["final"]["mean"])
        apart = len(best) > 1 and len(first["told_apart_from"]) == len(best) - 1
        sure = "told apart from every other" if apart else "not told apart from every other"
        over = plural(first["seeds"], "seed")
        out.append(f"Best mean: {first['id']}, {metric} {first['final']['mean']:.4f} over {over}, {sure}.")
    if document["verified"]["after"]:
        out.append("Not what was verified: " + "; ".join(document["verified"]["after"]) + ".")
    return out
