"""What was seen, on the conclusion's page: the comparison's table, and a line of figures for each run. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.report import outcome
from tui_pilot.sheet.markdown import bullets, paragraph, table
from tui_pilot.text import duration, size

Json = Mapping[str, Any]
SHOWN_POINTS = 8


def seen(document: Json) -> list[str]:
    """The comparison's table, then each run with its figures."""
    lines: list[str] = []
    for each in document["comparisons"]:
        lines += [*_compared(each), ""]
    lines += bullets(_of_run(run) for run in document["runs"])
    return lines


def _compared(each: Json) -> list[str]:
    better = "higher" if each["direction"] == "max" else "lower"
    said = f"Final {each['metric']} on validation, {better} is better; the baseline is {each['baseline']}."
    planned = each["planned"]
    if planned:
        rules = planned.get("stop") or {}
        stop = ", ".join(
            key if one is True else f"{key} {one}" for key, one in rules.items() if one not in (None, False)
        )
        said += (
            f" Fixed beforehand: {planned.get('updates')} updates, validation every {planned.get('validation_every')}"
        )
        said += f"; a trial stops at {stop}." if stop else "; no rule stops a trial."
    rows = []
    for entry in each["summary"]:
        final = entry.get("final") or {}
        apart = ", ".join(_names(entry.get("told_apart_from"))) or ("none" if entry.get("values") else "–")
        by_seed = ", ".join(f"{seed}: {outcome.number(one)}" for seed, one in (entry.get("values") or {}).items())
        mean = outcome.number(final.get("mean"))
        if final.get("spread") is not None:
            mean += f" ± {outcome.spread(final['spread'])}"
        rows.append((entry.get("id"), outcome.change(entry), by_seed or "none finished", mean, apart))
    head = ("setting", "what it sets", f"{each['metric']} by seed", "mean ± spread", "told apart from")
    lines = [*paragraph(said), "", *table(head, rows, (10, 18, 14, 12, 12))]
    cost = each["cost"] if isinstance(each["cost"], Mapping) else {}
    if cost.get("spent") is not None:
        asked = (cost.get("predicted") or {}).get("seconds")
        before = f"{duration(asked)} were predicted" if asked is not None else "nothing was predicted"
        lines += ["", *paragraph(f"It took {duration(cost['spent'])}; {before}.")]
    return lines


def _names(found: Any) -> list[str]:
    return [str(each.get("id") if isinstance(each, Mapping) else each) for each in found or ()]


def _of_run(run: Json) -> str:
    """One run's figures, each with how it is known."""
    parts = [f"{run['short']}" + (f" ({called(run)})" if run["trial"] else "") + f": {state(run)}"]
    said_by_row = any(row["text"] in run["text"] for row in run["failed"])
    if run["text"] and run["state"] != "finished" and not said_by_row:
        parts.append(str(run["text"]))
    counted = [(name, count) for name, count in run["verdicts"].items() if name != "not reached"]
    if counted and run["trial"] is None:
        parts.append("phases " + ", ".join(f"{count} {name}" for name, count in counted))
    told = [row for row in run["failed"] if not run["text"] or run["text"] not in row["text"] or run["trial"] is None]
    parts += [f"{row['phase']} FAIL: {row['text'] or 'no reason'}" for row in told]
    first, last = run["loss"]["first"], run["loss"]["last"]
    if first and last:
        parts.append(
            f"training loss {outcome.number(first[1])} at update {first[0]}, {outcome.number(last[1])} at {last[0]}"
        )
    points = _thinned(run["validation"])
    if points:
        parts.append("validation " + _points(points))
    if run["seconds"].get("update") is not None and run["trial"] is None:
        parts.append(f"{duration(run['seconds']['update'])} an update, median of those timed")
    if run["memory"]["bytes"] is not None and run["trial"] is None:
        parts.append(_memory(run["memory"]))
    answers = [answer.strip() for answer in run["control_outputs"] if answer.strip()]
    if answers and run["trial"] is None:
        parts.append(f"the reloaded artifact answers a control row with {answers[0]!r}")
    return "; ".join(parts)


def _thinned(points: Sequence[Any]) -> list[Any]:
    """At most ``SHOWN_POINTS``: the first, the last, and some between."""
    if len(points) <= SHOWN_POINTS:
        return list(points)
    step = (len(points) - 1) / (SHOWN_POINTS - 1)
    return [points[round(place * step)] for place in range(SHOWN_POINTS)]


def _points(points: Sequence[Any]) -> str:
    """``loss 3.72 at 50, 3.18 at 100``: one metric is named once."""
    names = {tuple(point[1]) if isinstance(point[1], Mapping) else () for point in points}
    if len(names) == 1 and len(only := next(iter(names))) == 1:
        (name,) = only
        return f"{name} " + ", ".join(f"{outcome.number(point[1][name])} at {point[0]}" for point in points)
    return ", ".join(f"{_metrics(point[1])} at {point[0]}" for point in points)


def _metrics(found: Any) -> str:
    if not isinstance(found, Mapping):
        return outcome.number(found)
    return " ".join(f"{name} {outcome.number(value)}" for name, value in found.items())


def _memory(found: Json) -> str:
    how = found["known"] if isinstance(found["known"], Mapping) else {}
    known = {"exact": "exact", "sampled": "sampled, so a floor"}.get(
        str(how.get("kind")), str(how.get("kind") or "unknown how")
    )
    counter = str(found["counter"]).removesuffix("_peak").replace("_", " ")
    return f"memory {size(found['bytes'])} {counter} at {found['phase']} ({known})"


def called(run: Json) -> str:
    """A run on the page: a trial by its setting and seed, any other by its short id."""
    trial = run["trial"]
    if trial is None:
        return str(run["short"])
    return f"{trial.get('id')}, seed {trial['seed']}" if trial.get("seed") is not None else str(trial.get("id"))


def state(run: Json) -> str:
    """How a run ended, with the update at which it diverged."""
    at = f" at update {run['diverged_at']}" if run["diverged_at"] is not None else ""
    return f"{run['state']}{at}"
