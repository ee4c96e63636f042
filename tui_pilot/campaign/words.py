"""A comparison as lines for a terminal of 80 columns. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from tui_pilot.campaign import plot
from tui_pilot.text import cut, duration, plural

WIDTH = 80
PLOT_LINES = 14


def before(document: Mapping[str, Any]) -> list[str]:
    """What is fixed before the first trial: what is held, when is validated, what stops a trial, what it costs."""
    planned = document["planned"]
    stop = {key: value for key, value in planned["stop"].items() if value not in (None, False)}
    seeds = ", ".join(map(str, document["seeds"]))
    lines = [f"comparison {document['id']}: {plural(len(document['sets']), 'setting')}, seeds {seeds}"]
    lines += ["held, and verified before the first trial:"]
    lines += [line for aspect, text in document["held"].items() for line in _item(f"{aspect}: {text}")]
    lines += [line for text in document["not_matched"] for line in _item(f"not matched: {text}")]
    points = planned["validation_at"]
    at = ", ".join(map(str, points[:6])) + (f", ... {points[-1]}" if len(points) > 6 else "")
    rules = ", ".join(f"{key} {value if value is not True else ''}".strip() for key, value in stop.items()) or "none"
    way = "lower" if document["direction"] == "min" else "higher"
    lines += _item(f"validation at {at}: {document['metric']}, {way} is better", "")
    lines += _item(f"a trial stops by: {rules}; all of it set before the start", "")
    return [*lines, *cost(document)]


def cost(document: Mapping[str, Any]) -> list[str]:
    """What it costs, or why that is unknown."""
    known = document["cost"].get("predicted")
    if known is None:
        return _item(f"cost: {document['cost'].get('why')}", "")
    span = f"{duration(known['seconds'])} ({duration(known['low'])} to {duration(known['high'])})"
    return _item(f"cost: {span}: {known['basis']}", "")


def table(document: Mapping[str, Any], width: int = WIDTH) -> list[str]:
    """One line a setting: seeds, mean, spread, and how it stands to the baseline; then every seed's own line."""
    base, signs = document["baseline"], plot.letters([each["id"] for each in document["summary"]])
    label = max(len("setting"), *(len(each["id"]) for each in document["summary"])) + 2
    lines = [f"{'setting':<{label}} {'seeds':>5} {document['metric'][:10]:>10} {'spread':>8}  against {base}"]
    for each in document["summary"]:
        mean, spread = each["final"]["mean"], each["final"]["spread"]
        figures = f"{each['seeds']:>5} {_number(mean):>10} {_number(spread):>8}"
        lines.append(cut(f"{signs[each['id']]} {each['id']:<{label - 2}} {figures}  {against(each, base)}", width))
    lines.append("")
    for trial in document["trials"]:
        points = f"update {trial['updates']} of {document['planned']['updates']}"
        last = f"{document['metric']} {_number(trial['validation'][-1][1])}" if trial["validation"] else ""
        word = trial["state"] + (f" at {trial['diverged_at']}" if trial["diverged_at"] else "")
        word += "" if trial["counts"] else ", run again"
        run = trial["run"][-4:] if trial["run"] else "no run"
        name = f"{signs[trial['id']]} {trial['id']:<{label - 2}} seed {trial['seed']:<3}"
        lines.append(cut(f"{name} {word:<18} {points:<18} {last:<14} {run}", width))
        lines += [line for text in trial["not_matched"] for line in _item(f"not matched: {text}", "    ", width)]
    return lines


def against(each: Mapping[str, Any], base: str) -> str:
    """How a setting stands to the baseline, in a few words."""
    if each["id"] == base:
        return "the baseline"
    gone = {state: count for state, count in each["ended"].items() if state in ("diverged", "failed", "lost")}
    if each["final"]["mean"] is None:
        return ", ".join(f"{state} ({count})" for state, count in gone.items()) or "no value yet"
    pair = next((pair for pair in each["paired_differences"] if pair["against"] == base), None)
    if pair is None or not pair["differences"]:
        return "no seed in common"
    if pair["told_apart"]:
        return f"{'better' if pair['better'] else 'worse'} by {abs(pair['mean']):.4f}"
    return f"{pair['mean']:+.4f}, not told apart"


def pairs(document: Mapping[str, Any]) -> list[str]:
    """Every paired difference of every seed, against the baseline and between the others."""
    lines = []
    seen: set[frozenset[str]] = set()
    for each in document["summary"]:
        for pair in each["paired_differences"]:
            both = frozenset((each["id"], pair["against"]))
            if both in seen or not pair["differences"]:
                continue
            seen.add(both)
            listed = ", ".join(f"seed {seed} {value:+.4f}" for seed, value in pair["differences"].items())
            lines += _item(f"{each['id']} - {pair['against']}: {listed}; {pair['why']}")
    return ["differences, seed by seed:", *lines] if lines else []


def after(document: Mapping[str, Any]) -> list[str]:
    """The whole comparison: table, plot, differences, what can be said, what to do next, what it cost."""
    lines = [f"{document['id']}: {document['state']}", "", *table(document), ""]
    drawn = plot.draw(document["trials"], document["planned"]["updates"], WIDTH, PLOT_LINES)
    signs = plot.letters([each["id"] for each in document["summary"]])
    legend = "  ".join(f"{sign} {id}" for id, sign in signs.items())
    lines += [cut(f"training loss, mean of seeds: {legend}", WIDTH), *drawn, ""] if drawn else []
    lines += pairs(document)
    lines += [line for text in document["said"] for line in _item(text, "")]
    lines += [line for each in document["next"] for line in _item(f"next: {each['text']}", "")]
    spent = f"spent {duration(document['cost']['spent'])}"
    known = document["cost"].get("predicted")
    lines.append(f"{spent} of {duration(known['seconds'])} predicted" if known else spent)
    return lines


def _item(text: str, indent: str = "  ", width: int = WIDTH) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + "  ") or []


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:.4f}" if isinstance(value, (int, float)) else str(value)
