"""A comparison in sentences: which setting came out best, whether that is told apart, what diverged when. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.text import plural, rate

Json = Mapping[str, Any]
ENDED = ("finished", "completed")


def value(found: Any) -> float | None:
    """A number, whatever it was written as; None where it is none or not finite."""
    try:
        number = float(found)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def number(found: Any) -> str:
    """Five digits that count; words stay words."""
    known = value(found)
    return f"{known:.5g}" if known is not None else "–" if found is None else str(found)


def best(comparison: Json, higher: bool) -> Json | None:
    """The summary entry with the best mean; None where no setting has one."""
    known = [entry for entry in comparison.get("summary") or () if mean(entry) is not None]
    if not known:
        return None
    chosen: Json = (max if higher else min)(known, key=lambda entry: mean(entry) or 0.0)
    return chosen


def mean(entry: Json) -> float | None:
    """The mean of a setting's final metric over its seeds."""
    final = entry.get("final")
    return value(final.get("mean")) if isinstance(final, Mapping) else value(final)


def told_apart(entry: Json, other: str) -> bool:
    """Whether the comparison tells the two settings apart."""
    names = entry.get("told_apart_from") or ()
    return any(other == (each.get("id") if isinstance(each, Mapping) else each) for each in names)


def sentences(comparison: Json, baseline: str, metric: str, higher: bool) -> list[str]:
    """The outcome: the baseline's win is said as plainly as any other, and a lead that means nothing is no win."""
    summary = {str(entry.get("id")): entry for entry in comparison.get("summary") or ()}
    top = best(comparison, higher)
    if top is None:
        return ["No setting reached a final validation: nothing can be said of which is better."]
    name, word = str(top.get("id")), "highest" if higher else "lowest"
    others = [key for key, entry in summary.items() if key != name and mean(entry) is not None]
    apart = [key for key in others if told_apart(top, key) or told_apart(summary[key], name)]
    near = [key for key in others if key not in apart]
    said = []
    if name == baseline:
        said.append(f"The baseline {name} won: its final {metric} is the {word}, {number(mean(top))} ({change(top)}).")
    else:
        before = mean(summary[baseline]) if baseline in summary else None
        beside = f" ({number(before)} of the baseline {baseline})" if before is not None else ""
        said.append(f"{name} ({change(top)}) has the {word} final {metric}: {number(mean(top))}{beside}.")
    if apart:
        said.append(f"{name} is told apart from {', '.join(apart)}.")
    if near:
        held = "keep the baseline" if name != baseline and baseline in near else "the order may be chance"
        said.append(f"{name} is not told apart from {', '.join(near)}: {held}.")
    return said


def at_the_edge(comparison: Json, higher: bool) -> str | None:
    """Where one number was varied and the best setting has the largest or smallest of those with a result: what lies
    beyond it was not tried, or did not come to its end."""
    top = best(comparison, higher)
    entries = list(comparison.get("summary") or ())
    keys = {key for entry in entries for key in entry.get("set") or {}}
    if top is None or len(keys) != 1:
        return None
    (key,) = keys
    of = {str(entry.get("id")): value((entry.get("set") or {}).get(key)) for entry in entries}
    ended = [of[str(entry.get("id"))] for entry in entries if mean(entry) is not None]
    known = [each for each in ended if each is not None]
    mine = of[str(top.get("id"))]
    if mine is None or len(known) < 2 or mine not in (min(known), max(known)):
        return None
    largest = mine == max(known)
    beyond = sorted(each for each in of.values() if each is not None and (each > mine if largest else each < mine))
    shown = {each: rate(each) if _is_rate(key, each) else f"{each:g}" for each in (mine, *beyond)}
    side = "largest" if largest else "smallest"
    text = f"the best {key}, {shown[mine]}, is the {side} of those that came to their end"
    if beyond:
        return f"{text}: nothing between it and {shown[beyond[0] if largest else beyond[-1]]} was tried"
    return f"{text}: a {'larger' if largest else 'smaller'} one was not tried"


def ended_badly(comparison: Json) -> list[str]:
    """A sentence for each setting with a trial that did not come to its end: which seed, at which update, and why."""
    found: dict[tuple[str, str], list[str]] = {}
    for trial in comparison.get("trials") or ():
        state = str(trial.get("state") or "unknown")
        if state in ENDED:
            continue
        at = trial.get("diverged_at")
        where = f" at update {at}" if at is not None else ""
        if at is None and state in ("stopped", "failed", "lost") and trial.get("updates"):
            where = f" after update {trial['updates']}"
        reason = str(trial.get("stop_text") or trial.get("stop_reason") or "").rstrip(".")
        seed = f" with seed {trial['seed']}" if trial.get("seed") is not None else ""
        more = "" if trial.get("counts", True) else ", another attempt counts"
        told = f"{seed}{where}".strip() + (f" ({reason}{more})" if reason or more else "")
        found.setdefault((f"{trial.get('id')} ({change(trial)})", _state(state)), []).append(told)
    return [f"{who} {state} {'; '.join(each)}".rstrip() + "." for (who, state), each in found.items()]


def _state(state: str) -> str:
    words = {"running": "is still running", "lost": "was lost", "stopped": "was stopped", "waiting": "was not started"}
    return words.get(state, state)


def seeds(comparison: Json) -> tuple[int, str]:
    """The fewest seeds that a setting with a result has, and what that allows to say."""
    counts = [int(entry.get("seeds") or 0) for entry in comparison.get("summary") or () if mean(entry) is not None]
    fewest = min(counts, default=0)
    if not counts:
        return 0, "no result for any setting"
    if fewest <= 1:
        return fewest, "one seed for each setting: no difference counts as told apart"
    if fewest < 3:
        return fewest, f"{plural(fewest, 'seed')} for each setting, and three are needed to tell settings apart"
    return fewest, (
        f"{plural(fewest, 'seed')} for each setting; told apart means the same sign for every seed and a mean "
        "difference above two standard errors"
    )


def differences(comparison: Json, baseline: str) -> Sequence[str]:
    """Each two settings once, against the baseline first: the difference of every seed, their mean, told apart or not.

    Two settings that share no seed with a result have none.
    """
    found: dict[frozenset[str], str] = {}
    entries = sorted(comparison.get("summary") or (), key=lambda entry: entry.get("id") == baseline)
    for wanted in (True, False):
        for entry in entries:
            for pair in entry.get("paired_differences") or ():
                two = frozenset((str(entry.get("id")), str(pair.get("against"))))
                if pair.get("differences") and two not in found and (pair.get("against") == baseline) is wanted:
                    found[two] = _difference(entry, pair)
    return list(found.values())


def _difference(entry: Json, pair: Json) -> str:
    told = ", ".join(f"seed {seed} {signed(one)}" for seed, one in pair["differences"].items())
    middle = f"; mean {signed(pair['mean'])}" if pair.get("mean") is not None else ""
    error = f", standard error {spread(pair['standard_error'])}" if pair.get("standard_error") is not None else ""
    apart = "told apart" if pair.get("told_apart") else "not told apart"
    why = f" ({pair['why']})" if pair.get("why") else ""
    return f"{entry.get('id')} less {pair.get('against')}: {told}{middle}{error}: {apart}{why}"


def spread(found: Any) -> str:
    """Two digits: more would say something of chance."""
    known = value(found)
    return f"{known:.2g}" if known is not None else number(found)


def signed(found: Any) -> str:
    """A difference with its sign."""
    known = value(found)
    return f"{known:+.3g}" if known is not None else number(found)


def change(entry: Json) -> str:
    """What a trial or setting sets: ``optimizer.lr 5.0e-5``; of a baseline what the plan has there."""
    sets = entry.get("set")
    if not isinstance(sets, Mapping) or not sets:
        return "as the plan"
    return ", ".join(f"{key} {rate(one) if _is_rate(key, one) else one}" for key, one in sets.items())


def _is_rate(key: Any, found: Any) -> bool:
    return str(key).rpartition(".")[2] == "lr" and isinstance(found, (int, float)) and not isinstance(found, bool)


def with_baseline(entry: Json, keys: Sequence[str], plan: Json) -> dict[str, Any]:
    """The entry with every varied key, so that a baseline says what it is; ``plan``: the plan before any trial."""
    given = entry.get("set")
    sets = dict(given) if isinstance(given, Mapping) else {}
    for key in keys:
        place: Any = plan
        for part in key.split("."):
            place = place.get(part) if isinstance(place, Mapping) else None
        if key not in sets and place is not None:
            sets[key] = place
    return {**entry, "set": sets}
