"""The conclusion as one Markdown page that a stranger can read; foreign text can neither break it nor become markup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tui_pilot.report.seen import called, seen, state
from tui_pilot.run_folder import short_id
from tui_pilot.sheet.markdown import bullets, foreign, paragraph, table

Json = Mapping[str, Any]


def render(document: Json) -> str:
    """The whole page, ending with a newline."""
    lines = [f"# Conclusion: {foreign(document['title'] or 'no run')}", "", *bullets(document["outcome"])]
    for title, part in (
        ("Question", _question(document)),
        ("Held constant", _held(document)),
        ("What ran", _ran(document)),
        ("What was seen", seen(document)),
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
    for each in document["comparisons"]:
        if each["held"]:
            lines += ["", "Declared as held, and verified before the first trial started:", ""]
            lines += table(
                ("held", "value"), [(key, ", ".join(_flat(one))) for key, one in each["held"].items()], (18, 55)
            )
        after = (each["verified"] or {}).get("after") if isinstance(each["verified"], Mapping) else None
        if after:
            lines += ["", "Differed when it ran:", "", *bullets(after)]
    if document["not_matched"]:
        lines += ["", "Not matched, so to be read with care:", "", *bullets(document["not_matched"])]
    return lines


def _different(found: Mapping[str, Mapping[str, str]], runs: Sequence[Json]) -> Iterator[str]:
    by_name = {str(run["run"]): run for run in runs}
    for item, values in found.items():
        if item == "seed" and all(by_name[name]["trial"] for name in values):
            yield f"seed: {', '.join(sorted(set(values.values())))}, each with every setting"
            continue
        by_value: dict[str, list[Json]] = {}
        for name, value in values.items():
            by_value.setdefault(value, []).append(by_name[name])
        everyone = [by_name[name] for name in values]
        yield f"{item}: " + "; ".join(f"{value} in {_together(group, everyone)}" for value, group in by_value.items())


def _together(group: Sequence[Json], everyone: Sequence[Json]) -> str:
    """Some runs, named by what they share: a setting with all its seeds, or a seed with all settings."""
    for key, words in (("id", "{}"), ("seed", "every setting with seed {}")):
        shared = {(run["trial"] or {}).get(key) for run in group}
        if None not in shared and len(group) == sum((run["trial"] or {}).get(key) in shared for run in everyone):
            return words.format(", ".join(str(each) for each in sorted(shared, key=str)))
    return ", ".join(called(run) for run in group)


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
        at = f", {run['updates']} updates" if run["updates"] and run["diverged_at"] is None else ""
        rows.append((run["short"], _kind(run), f"{state(run)}{at}"))
    lines = table(("run", "what it is", "how it ended"), rows, (25, 23, 22))
    times = sorted(str(at) for run in document["runs"] for at in (run["started"], run["ended"]) if at)
    if times:
        lines += ["", *paragraph(f"Between {_when(times[0])} and {_when(times[-1])} UTC.")]
    missing = [
        f"{trial.get('id')}, seed {trial.get('seed')}: {trial.get('state')}, run {trial.get('run') or 'not made'}"
        for each in document["comparisons"]
        for trial in each["trials"]
        if str(trial.get("run")) not in {str(run["run"]) for run in document["runs"]}
    ]
    if missing:
        lines += ["", "Told by the comparison's document alone:", "", *bullets(missing)]
    came: dict[str, list[str]] = {}
    for run in document["runs"]:
        if run["parent"]:
            words = f"from {short_id(str(run['parent']))}; changed: {_changes(run['changed'])}"
            came.setdefault(words, []).append(str(run["short"]))
    if came:
        lines += ["", "Where each came from:", ""]
        lines += bullets(f"{', '.join(names)} came {words}" for words, names in came.items())
    if document["beside"]:
        named = ", ".join(f"{short_id(each['run'])} ({each['kind']}, {each['state']})" for each in document["beside"])
        lines += ["", *paragraph(f"In the same folder, of the same plan's name, and not part of this page: {named}.")]
    return lines


def _kind(run: Json) -> str:
    if run["trial"] is not None:
        return f"trial {called(run)}"
    return f"variant {run['variant']}" if run["variant"] else str(run["kind"] or "run")


def _when(at: Any) -> str:
    return str(at)[:16].replace("T", " ") if at else "–"


def _changes(changed: Json) -> str:
    def was(pair: Any) -> str:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            return str(pair)
        old, new = (str(each)[:12] if isinstance(each, str) and len(each) == 64 else str(each) for each in pair)
        return f"{old}, now {new}"

    return "; ".join(f"{key} {was(pair)}" for key, pair in changed.items()) or "nothing in the plan, data or code"


def _decided(document: Json) -> list[str]:
    """Everything that was written by hand, in order; a later line takes an earlier one back, and both stay."""
    titles = {str(run["run"]): called(run) for run in document["runs"]}
    found = []
    for act in document["by_hand"]:
        run = short_id(str(act["run"]))
        name = f"{run} ({titles[act['run']]})" if titles.get(act["run"], run) != run else run
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
