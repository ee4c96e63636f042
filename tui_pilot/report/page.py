"""The conclusion as one Markdown page that a stranger can read; foreign text can neither break it nor become markup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tui_pilot.report import outcome
from tui_pilot.run_folder import short_id
from tui_pilot.sheet.markdown import bullets, foreign, paragraph, table
from tui_pilot.text import duration, size

Json = Mapping[str, Any]
SHOWN_POINTS = 8


def render(document: Json) -> str:
    """The whole page, ending with a newline."""
    lines = [f"# Conclusion: {foreign(document['title'] or 'no run')}", "", *bullets(document["outcome"])]
    for title, part in (
        ("Question", _question(document)),
        ("Held constant", _held(document)),
        ("What ran", _ran(document)),
        ("What was seen", _seen(document)),
        ("What was decided, and by whom", _decided(document)),
        ("How sure", bullets(document["how_sure"])),
        ("What stays open", bullets(document["open"]) or ["Nothing."]),
        ("How to read this", _reading(document)),
    ):
        lines += ["", f"## {title}", "", *part]
    return "\n".join(lines) + "\n"


def _question(document: Json) -> list[str]:
    found = document["question"]
    lines = paragraph(found["text"])
    if found["about"]:
        lines += ["", *paragraph(f"About: {found['about']}.")]
    if found["expected"]:
        lines += ["", *paragraph(f"Expected beforehand: {found['expected']}")]
    if any(run["demo"] for run in document["runs"]):
        lines += ["", "The built-in demo's data and model: this says nothing about other data."]
    return lines


def _held(document: Json) -> list[str]:
    found = document["held"]
    one = len(found["over"]) < 2
    what = (
        "One run, so nothing was compared. What it was made of:"
        if one
        else f"The same in {len(found['over'])} runs compared:"
    )
    lines = [*paragraph(what), "", *table(("what", "value"), found["same"].items(), (18, 55))]
    if not found["same"]:
        lines = ["Nothing could be held against anything: no run has a plan that can be read."]
    if found["different"]:
        lines += ["", "Not the same:", "", *bullets(_different(found["different"], document["runs"]))]
    for each in document["declared_held"]:
        if each:
            lines += ["", *paragraph(f"Verified before the first trial started: {', '.join(_flat(each))}.")]
    if document["not_matched"]:
        lines += ["", "Not matched, so to be read with care:", "", *bullets(document["not_matched"])]
    return lines


def _different(found: Mapping[str, Mapping[str, str]], runs: Sequence[Json]) -> Iterator[str]:
    called = {str(run["run"]): _called(run) for run in runs}
    for item, values in found.items():
        by_value: dict[str, list[str]] = {}
        for run, value in values.items():
            by_value.setdefault(value, []).append(called.get(run, run))
        yield f"{item}: " + "; ".join(f"{value} in {', '.join(names)}" for value, names in by_value.items())


def _called(run: Json) -> str:
    trial = run["trial"]
    if trial is None:
        return str(run["short"])
    return f"{trial.get('id')}, seed {trial['seed']}" if trial.get("seed") is not None else str(trial.get("id"))


def _flat(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            told = inner if not isinstance(inner, (Mapping, list)) else ", ".join(_flat(inner))
            yield f"{key} {told}".rstrip() if inner is not True else str(key)
    elif isinstance(value, list):
        yield from (str(each) for each in value)
    else:
        yield str(value)


def _ran(document: Json) -> list[str]:
    rows = []
    for run in document["runs"]:
        rows.append((run["short"], _kind(run), _state(run), str(run["updates"] or "–"), _when(run["started"])))
    lines = table(("run", "what it is", "ended", "updates", "started, UTC"), rows, (20, 17, 18, 7, 16), right=(3,))
    changes = [
        f"{run['short']} came from {short_id(str(run['parent']))}; changed: {_changes(run['changed'])}"
        for run in document["runs"]
        if run["parent"]
    ]
    if changes:
        lines += ["", "Where each came from:", "", *bullets(changes)]
    if document["beside"]:
        named = ", ".join(f"{short_id(each['run'])} ({each['kind']}, {each['state']})" for each in document["beside"])
        lines += ["", *paragraph(f"In the same folder, of the same plan's name, and not part of this page: {named}.")]
    return lines


def _kind(run: Json) -> str:
    if run["trial"] is not None:
        return f"trial {_called(run)}"
    return f"variant {run['variant']}" if run["variant"] else str(run["kind"] or "run")


def _state(run: Json) -> str:
    at = f" at update {run['diverged_at']}" if run["diverged_at"] is not None else ""
    return f"{run['state']}{at}"


def _when(at: Any) -> str:
    return str(at)[:16].replace("T", " ") if at else "–"


def _changes(changed: Json) -> str:
    def was(pair: Any) -> str:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            return str(pair)
        old, new = (str(each)[:12] if isinstance(each, str) and len(each) == 64 else str(each) for each in pair)
        return f"{old}, now {new}"

    return "; ".join(f"{key} {was(pair)}" for key, pair in changed.items()) or "nothing: a replicate"


def _seen(document: Json) -> list[str]:
    lines: list[str] = []
    for each in document["comparisons"]:
        lines += [*_compared(each), ""]
    lines += bullets(_of_run(run) for run in document["runs"])
    return lines


def _compared(each: Json) -> list[str]:
    better = "higher" if each["direction"] == "max" else "lower"
    said = f"Final {each['metric']} on validation, {better} is better; the baseline is {each['baseline']}."
    if each["every"]:
        stop = ", ".join(f"{key} {value}" if value is not True else key for key, value in each["stop"].items())
        said += f" Fixed beforehand: validation every {each['every']} updates" + (f"; stop at {stop}." if stop else ".")
    rows = []
    for entry in each["summary"]:
        final = entry.get("final") or {}
        apart = ", ".join(_names(entry.get("told_apart_from"))) or "nobody"
        mean, spread = (final.get("mean"), final.get("spread")) if isinstance(final, Mapping) else (final, None)
        rows.append((entry.get("id"), entry.get("seeds"), outcome.number(mean), outcome.number(spread), apart))
    lines = [*paragraph(said), ""]
    lines += table(
        ("setting", "seeds", "mean", "spread", "told apart from"), rows, (16, 5, 10, 10, 30), right=(1, 2, 3)
    )
    if each["ended_badly"]:
        lines += ["", "Did not come to their end:", "", *bullets(each["ended_badly"])]
    return lines


def _names(found: Any) -> list[str]:
    return [str(each.get("id") if isinstance(each, Mapping) else each) for each in found or ()]


def _of_run(run: Json) -> str:
    """One run's figures, each with how it is known."""
    parts = [f"{run['short']}" + (f" ({_called(run)})" if run["trial"] else "") + f": {_state(run)}"]
    if run["text"] and run["state"] != "finished" and not any(row["text"] in run["text"] for row in run["failed"]):
        parts.append(str(run["text"]))
    counted = [(name, count) for name, count in run["verdicts"].items() if name != "not reached"]
    if counted and run["trial"] is None:
        parts.append("phases " + ", ".join(f"{count} {name}" for name, count in counted))
    parts += [f"{row['phase']} FAIL: {row['text'] or 'no reason'}" for row in run["failed"]]
    first, last = run["loss"]["first"], run["loss"]["last"]
    if first and last:
        parts.append(
            f"training loss {outcome.number(first[1])} at update {first[0]}, {outcome.number(last[1])} at {last[0]}"
        )
    points = _thinned(run["validation"])
    if points:
        parts.append("validation " + ", ".join(f"{_metrics(point[1])} at {point[0]}" for point in points))
    if run["seconds"].get("update") is not None:
        parts.append(f"{duration(run['seconds']['update'])} an update, median of those timed")
    if run["memory"]["bytes"] is not None and run["trial"] is None:
        parts.append(_memory(run["memory"]))
    answers = [answer.strip() for answer in run["control_outputs"] if answer.strip()]
    if answers:
        parts.append(f"the reloaded artifact answers a control row with {answers[0]!r}")
    return "; ".join(parts)


def _thinned(points: Sequence[Any]) -> list[Any]:
    """At most ``SHOWN_POINTS``: the first, the last, and some between."""
    if len(points) <= SHOWN_POINTS:
        return list(points)
    step = (len(points) - 1) / (SHOWN_POINTS - 1)
    return [points[round(place * step)] for place in range(SHOWN_POINTS)]


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


def _decided(document: Json) -> list[str]:
    """Everything that was written by hand, in order; a later line takes an earlier one back, and both stay."""
    called = {str(run["run"]): _called(run) for run in document["runs"]}
    found = []
    for act in document["by_hand"]:
        run = short_id(str(act["run"]))
        name = f"{run} ({called[act['run']]})" if called.get(act["run"], run) != run else run
        who = act["by"] or "somebody (no name was kept)"
        text = act["text"] or "no reason was written"
        if act["what"] == "decision":
            what = f"decided on {name}: {act['value']}, because: {text}"
        elif act["what"] == "mark":
            done = f"marked {act['value']}" if act["value"] else "took back the mark"
            what = f"{done} on {act['phase']} of {name}: {text}"
        else:
            what = f"noted on {name}" + (f", {act['phase']}" if act["phase"] else "") + f": {text}"
        found.append(f"{_when(act['at'])} UTC, {who} {what}")
    return bullets(found) or ["Nothing was decided, noted or marked by hand."]


def _reading(document: Json) -> list[str]:
    said = (
        "Every run that was given, every trial of its comparison and what each came from is listed, however it ended. "
        "Figures come from the runs' event logs: pilot-tui show RUN has each with how it is known, pilot-tui metrics "
        "RUN all of them as a table, pilot-tui sheet RUN what a configuration needs. Told apart needs three seeds, the "
        "same sign for each, and a mean difference above two standard errors."
    )
    ids = ", ".join(f"{run['short']} {str(run['identity'])[:12]}" for run in document["runs"] if run["identity"])
    lines = paragraph(said)
    if ids:
        lines += ["", *paragraph(f"Identities (digest of plan, data, code and model): {ids}.")]
    return [*lines, "", f"Written by pilot-tui {foreign(document['tool'])}."]
