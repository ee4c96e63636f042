"""A comparison in sentences: which setting came out best, whether that is told apart, what diverged when. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.text import plural

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
        said.append(f"The baseline {name} won: its final {metric} is the {word}, {number(mean(top))}.")
    else:
        before = mean(summary[baseline]) if baseline in summary else None
        beside = f" ({number(before)} of the baseline {baseline})" if before is not None else ""
        said.append(f"The {word} final {metric} has {name}: {number(mean(top))}{beside}.")
    if apart:
        said.append(f"It is told apart from {', '.join(apart)}.")
    if near:
        held = "keep the baseline" if name != baseline and baseline in near else "the order may be chance"
        said.append(f"It is not told apart from {', '.join(near)}: {held}.")
    return said


def ended_badly(comparison: Json) -> list[str]:
    """A sentence for each trial that did not come to its end, with the update where it stopped."""
    found = []
    for trial in comparison.get("trials") or ():
        state = str(trial.get("state") or "unknown")
        if state in ENDED:
            continue
        seed = f", seed {trial['seed']}" if trial.get("seed") is not None else ""
        at = trial.get("diverged_at")
        where = f" at update {at}" if at is not None else ""
        why = f": {trial['stop_reason']}" if trial.get("stop_reason") else ""
        found.append(f"{trial.get('id')}{seed} {_state(state)}{where}{why}.")
    return found


def _state(state: str) -> str:
    words = {"running": "is still running", "lost": "was lost", "stopped": "was stopped", "new": "was not started"}
    return words.get(state, state)


def seeds(comparison: Json) -> tuple[int, str]:
    """The fewest seeds that a setting with a result has, and what that allows to say."""
    counts = [int(entry.get("seeds") or 0) for entry in comparison.get("summary") or () if mean(entry) is not None]
    fewest = min(counts, default=0)
    if fewest <= 1:
        return fewest, "one seed for each setting: no difference counts as told apart"
    if fewest < 3:
        return fewest, f"{plural(fewest, 'seed')} for each setting, and three are needed to tell settings apart"
    return fewest, (
        f"{plural(fewest, 'seed')} for each setting; told apart means the same sign for every seed and a mean "
        "difference above two standard errors"
    )


def differences(entry: Json) -> Sequence[str]:
    """Paired differences of a setting, seed by seed, as texts."""
    found = []
    for each in entry.get("paired_differences") or ():
        if isinstance(each, Mapping):
            other = each.get("from") or each.get("to") or each.get("id") or each.get("of") or each.get("baseline")
            inner = each.get("differences")
            if isinstance(inner, Mapping):
                told = ", ".join(f"seed {seed}: {number(one)}" for seed, one in inner.items())
            elif isinstance(inner, Sequence) and not isinstance(inner, str):
                told = ", ".join(
                    f"seed {one.get('seed')}: {number(one.get('difference'))}"
                    if isinstance(one, Mapping)
                    else number(one)
                    for one in inner
                )
            else:
                seed = f"seed {each['seed']}: " if each.get("seed") is not None else ""
                told = f"{seed}{number(each.get('difference', each.get('value')))}"
            found.append(f"{told} from {other}" if other else told)
        else:
            found.append(number(each))
    return found
