"""A comparison below the list of runs: the curves of its settings, and what can be said of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.campaign import plot, words
from tui_pilot.run_folder import short_id
from tui_pilot.text import duration
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import curve

Document = Mapping[str, Any]
MOST_NAME = 16


def letters(document: Document) -> dict[str, str]:
    """Each setting's letter, the same in the list, the plot and the table."""
    return plot.letters([str(each["id"]) for each in document["summary"]])


def name(document: Document) -> str:
    return short_id(str(document["id"]))


def plot_lines(document: Document, width: int, height: int) -> list[Line]:
    """Training loss of every setting, the mean of its seeds; the scale is that of those that did not diverge.

    Capitals are validation, where the metric is a loss.
    """
    signs = letters(document)
    trials = [each for each in document["trials"] if each["counts"]]
    curves = {signs[id]: points for id, points in plot.curves(trials).items() if points and id in signs}
    gone = {signs[str(each["id"])] for each in trials if each["state"] == "diverged"}
    marks = {signs[id]: points for id, points in _validated(document).items() if id in signs and signs[id] not in gone}
    inside = [sign for sign in curves if sign not in gone]
    drawn = curve.lettered(curves, width, height, int(document["planned"]["updates"]), inside, marks)
    return drawn or [((" no update yet", "dim"),)]


def _validated(document: Document) -> dict[str, list[tuple[int, float]]]:
    """Each setting's validation loss: the mean of the seeds that count, at every update where it was looked at."""
    if str(document["metric"]) != "loss":
        return {}
    at: dict[str, dict[int, list[float]]] = {}
    for each in document["trials"]:
        for update, value in each["validation"] if each["counts"] else ():
            if isinstance(value, (int, float)):
                at.setdefault(str(each["id"]), {}).setdefault(int(update), []).append(float(value))
    return {
        id: [(update, sum(values) / len(values)) for update, values in sorted(found.items())]
        for id, found in at.items()
    }


def said_lines(document: Document, width: int) -> list[Line]:
    """How far it is, one line a setting, then the sentences: what diverged, what was not matched, what to do next."""
    base = str(document["baseline"])
    signs = letters(document)
    better = "lower" if document["direction"] == "min" else "higher"
    out: list[Line] = [((f" {document['state']}: {_counted(document)}", "head"),)]
    out += _table(document, signs, width)
    planned = document["planned"]
    often = f"every {planned['validation_every']} updates"
    if int(planned["validation_every"]) >= int(planned["updates"]):
        often = f"at update {planned['updates']}, the last"
    plotted = ", capitals in the plot" if _validated(document) else ""
    said = f"{better} is better. Validation {often}, set before the start{plotted}."
    out += _wrapped(said + " Curves are means of the seeds, spread is over seeds.", width)
    out += [line for text in _gone(document) for line in _wrapped(text, width, "text", "✗ ")]
    out += [line for text in document["not_matched"] for line in _wrapped(f"not matched: {text}", width, "warn", "! ")]
    told = (" is better.", " diverged at update ", " failed: ")
    rest = [text for text in document["said"] if not any(each in text for each in told)]
    out += [line for text in rest for line in _wrapped(text, width, "text")]
    out += [line for each in document["next"] for line in _wrapped(f"next: {each['text']}", width, "text")]
    held = f"held against {base}, and verified before the first trial: {', '.join(document['held'])}"
    out += _wrapped(held, width)
    cost = document["cost"]
    known = cost.get("predicted")
    of = f" of {duration(known['seconds'])} predicted" if known else ""
    return [*out, *_wrapped(f"cost {duration(cost.get('spent'))}{of}", width, "text")]


def _gone(document: Document) -> list[str]:
    """One sentence for each setting and reason: what diverged or failed, at which updates."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for each in document["trials"]:
        if each["state"] in ("diverged", "failed") and each["counts"]:
            key = str(each["id"]), str(each["state"]), str(each["stop_text"] or "no reason was written")
            at = f", at update {each['diverged_at']}" if each["diverged_at"] else ""
            found.setdefault(key, []).append(f"seed {each['seed']}{at}")
    return [f"{id} {state}: {text} ({'; '.join(seeds)})." for (id, state, text), seeds in found.items()]


def _table(document: Document, signs: Mapping[str, str], width: int) -> list[Line]:
    base, metric = str(document["baseline"]), str(document["metric"])[:10]
    label = min(MOST_NAME, max(len(str(each["id"])) for each in document["summary"]))
    out: list[Line] = [((f"   {'':<{label}} {f'val {metric}':>10} {'spread':>8}  against {base}", "dim"),)]
    for each in document["summary"]:
        figures = f"{_number(each['final']['mean']):>10} {_number(each['final']['spread']):>8}  "
        said = words.against(each, base)
        at = sorted(t["diverged_at"] for t in document["trials"] if t["id"] == each["id"] and t["diverged_at"])
        if at and each["final"]["mean"] is None:
            said = f"diverged at {', '.join(map(str, at))}"
        room = width - label - len(figures) - 4
        said = said if len(said) <= room else said.replace("not told apart", "not apart")
        role = "fail" if each["ended"].get("diverged") or each["ended"].get("failed") else "text"
        out.append(
            ((f" {signs[str(each['id'])]} {paint.left(str(each['id']), label)} {figures}", "text"), (said, role))
        )
    return out


def _wrapped(text: str, width: int, role: str = "dim", sign: str = "") -> list[Line]:
    rows = paint.wrap(text, max(8, width - 2 - len(sign)))
    return [((f" {sign if n == 0 else ' ' * len(sign)}{row}", role),) for n, row in enumerate(rows)]


def _counted(document: Document) -> str:
    states = [str(each["state"]) for each in document["trials"]]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, (int, float)) else "–"
