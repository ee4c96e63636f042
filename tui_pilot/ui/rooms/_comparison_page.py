"""A comparison below the list of runs: the curves of its settings, and what can be said of them. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from tui_pilot.campaign import plot, words
from tui_pilot.run_folder import short_id
from tui_pilot.text import duration
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line

LEAST_HEIGHT = 8
MOST_HEIGHT = 20
PLOT_SHARE = 0.56


def pane(document: Mapping[str, Any], width: int, height: int) -> list[Line]:
    """At most ``height`` lines: curves at the left and words at the right, or words alone where it is narrow."""
    if height < LEAST_HEIGHT:
        return []
    height = min(height, MOST_HEIGHT)
    name = short_id(str(document["id"]))
    signs = plot.letters([str(each["id"]) for each in document["summary"]])
    legend = "  ".join(f"{sign} {id}" for id, sign in signs.items())
    if width < 100:
        return [
            paint.rule(f"{name}: {document['state']}", legend, width),
            *_body(document, width - 1, height - 1, signs),
        ]
    left = int(width * PLOT_SHARE)
    drawn = plot.draw(document["trials"], document["planned"]["updates"], left - 1, height - 1)
    lefts: list[Line] = [((f" {line}", "text"),) for line in drawn] or [((" no update yet", "dim"),)]
    head = paint.rule(f"{name}: training loss, mean of seeds", legend, width)
    return [head, *paint.beside(lefts, _body(document, width - left - 3, height - 1, signs), left)]


def _body(document: Mapping[str, Any], width: int, height: int, signs: Mapping[str, str]) -> list[Line]:
    """What is held, one line a setting, sentences, cost; the last lines are left out where there is no room."""
    out: list[Line] = [((f"{document['state']}: {_counted(document)}", "head"),)]
    held = "held, and verified before the first trial: " + ", ".join(document["held"])
    out += [((line, "dim"),) for line in textwrap.wrap(held, width)]
    for text in document["not_matched"]:
        out += [((line, "warn"),) for line in textwrap.wrap(f"not matched: {text}", width)]
    metric = str(document["metric"])[:9]
    out.append(((f"{'':<12}{metric:>9} {'spread':>7}  against {document['baseline']}", "dim"),))
    for each in document["summary"]:
        mean, spread = each["final"]["mean"], each["final"]["spread"]
        figures = f"{_number(mean):>9} {_number(spread):>7}  "
        said = words.against(each, str(document["baseline"]))
        said = said if len(said) + len(figures) + 12 <= width else said.replace("not told apart", "not apart")
        role = "fail" if each["ended"].get("diverged") or each["ended"].get("failed") else "text"
        out.append(((f"{signs[each['id']]} {each['id'][:9]:<10}{figures}", "text"), (said, role)))
    planned = document["planned"]
    sentences = [text for text in document["said"] if "diverged" in text or "Not what" in text]
    sentences += [text for text in document["said"] if text not in sentences and "not told apart:" not in text]
    sentences.append(f"Validation every {planned['validation_every']} updates, set before the start.")
    sentences += [f"next: {each['text']}" for each in document["next"][:1]]
    cost = document["cost"]
    known = cost.get("predicted")
    of = f" of {duration(known['seconds'])} predicted" if known else ""
    sentences.append(f"cost {duration(cost.get('spent'))}{of}")
    for text in sentences:
        wrapped = textwrap.wrap(paint.clean(text), width)
        out += [((line, "text"),) for line in wrapped]
    return out[:height]


def _counted(document: Mapping[str, Any]) -> str:
    states = [str(each["state"]) for each in document["trials"]]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, (int, float)) else "–"
