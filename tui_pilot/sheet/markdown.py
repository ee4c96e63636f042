"""The sheet as plain markdown: tables at most 80 columns wide, so that a terminal and a forge both show them well.

Nothing is cut: a value longer than its cell goes on in the next table row, whose first cell is empty. Foreign text can
neither break a table nor become markup.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tui_pilot.sheet.judged import word
from tui_pilot.sheet.values import facts_of
from tui_pilot.text import duration, harmless, plural, size

Json = Mapping[str, Any]

WIDTH = 80
_SPECIAL = re.compile(r"([\\`*<>\[\]|~&$])")
# A number keeps its unit, and a word the number that ends the phrase.
_BLANK = re.compile(r" (?!(?:[KMG]i)?B\b|\d+(?:\.\d+)?(?:$|[;,]))")
_LEADING = re.compile(r"^(\s*)([#+=-]|\d+[.)])(?=\s|$)")


def render(document: Json) -> str:
    """The whole sheet, ending with a newline."""
    configurations = list(document.get("configurations") or ())
    lines = [f"# Selection sheet: {foreign(document.get('title') or 'no run')}", ""]
    lines += _summary(configurations)
    for number, item in enumerate(configurations, 1):
        lines += ["", *_configuration(number, item)]
    kept = document.get("seen_and_kept") or ()
    lines += ["", "## Seen and kept", ""]
    lines += bullets(f"{entry['short']}: {entry['text']}" for entry in kept) or ["Nothing failed, nothing was lost."]
    questions = document.get("open") or ()
    lines += ["", "## Open questions", ""]
    lines += bullets(questions) or ["None."]
    lines += ["", "## How to read this", "", *_reading(document)]
    return "\n".join(lines) + "\n"


def foreign(text: Any) -> str:
    """One line of text that is not ours: control characters visible, nothing of it markup."""
    return _SPECIAL.sub(r"\\\1", harmless(" ".join(str(text).split("\n"))))


def _summary(configurations: Sequence[Json]) -> list[str]:
    retained = [item for item in configurations if item["retained"]]
    if not configurations:
        return ["No run was given."]
    if retained:
        said = f"{plural(len(configurations), 'configuration')}, {len(retained)} retained."
        return [said]
    why = next((f"{item['why_not'][0]}, in {item['short']}" for item in configurations if item["why_not"]), "")
    return paragraph(f"Nothing is retained: {why}.")


def _configuration(number: int, item: Json) -> list[str]:
    name = foreign(item["name"])
    lines = [f"## {number}. {name}, run {foreign(item['short'])}: {'retained' if item['retained'] else 'not retained'}"]
    if item.get("demo"):
        lines += ["", "Built-in demo data and model: this says nothing about your own data."]
    if item["why_not"]:
        lines += ["", "Not retained, because", "", *bullets(item["why_not"])]
    if item["overrides"]:
        lines += ["", "Overridden by hand", ""]
        lines += bullets(
            f"{entry['phase']}: FAIL ({', '.join(entry['codes'])}), marked {entry['mark']}: {entry['note']}"
            for entry in item["overrides"]
        )
    lines += ["", *table(("item", "value"), [(key, value) for key, value in facts_of(item)], (16, 57))]
    lines += ["", "### Phases", "", *_phases(item)]
    if item["memory"]:
        lines += ["", "### Memory, highest of all ranks", "", *_memory(item)]
    gpus = _gpus(item)
    if gpus:
        lines += ["", f"### Memory per GPU, at {item['binding_phase']}", "", *gpus]
    notes = [
        f"{note['phase']}: {note.get('text')}" if note.get("phase") else str(note.get("text"))
        for note in item.get("notes") or ()
    ]
    if notes:
        lines += ["", "### Notes", "", *bullets(notes)]
    return lines


def _phases(item: Json) -> list[str]:
    rows = []
    for row in item["phases"]:
        said = row["text"] if row["verdict"] not in ("pass", "not_run") else ""
        by_hand = f"{row['mark']}" if row["mark"] else ""
        if row["note"]:
            said = "; ".join(part for part in (said, f"by hand: {row['note']}") if part)
        rows.append((row["phase"], word(row["verdict"]), by_hand, duration(row["duration_s"]), said))
    return table(("phase", "verdict", "mark", "time", "why"), rows, (11, 11, 5, 6, 31), right=(3,))


def _memory(item: Json) -> list[str]:
    def highest(entries: Sequence[Json], key: str) -> str:
        values = [entry[key] for entry in entries if entry.get(key) is not None]
        return size(max(values)) if values else "–"

    by_phase: dict[str, list[Json]] = {}
    for entry in item["memory"]:
        by_phase.setdefault(entry["phase"], []).append(entry)
    named = {"allocated_peak": "allocated", "reserved_peak": "reserved", "device_used_peak": "device used"}
    named["host_peak"] = "host"
    # On a CPU nothing is reserved and no device is used: columns of blanks would look like zeros.
    keys = list(named) if item["memory_measured_on"] == "gpu" else ["allocated_peak", "host_peak"]
    head = ["phase", "ranks", *(named[key] + _floor(item["memory"], key) for key in keys)]
    rows = [(phase, str(len(entries)), *(highest(entries, key) for key in keys)) for phase, entries in by_phase.items()]
    widths = (11, 5, *(12 if key != "device_used_peak" else 13 for key in keys))
    return table(head, rows, widths, right=range(1, len(head)))


def _floor(entries: Iterable[Json], key: str) -> str:
    """`` ≥`` where a column holds sampled peaks: each is then a floor."""
    known = ((entry.get("known") or {}).get(key) for entry in entries)
    return " ≥" if any(isinstance(how, Mapping) and how.get("kind") == "sampled" for how in known) else ""


def _gpus(item: Json) -> list[str]:
    found = [entry for entry in item["memory"] if entry["phase"] == item["binding_phase"]]
    if len(found) < 2 or item["memory_measured_on"] != "gpu":
        return []
    keys = ("allocated_peak", "reserved_peak", "device_used_peak", "device_usable")
    used = "device used" + _floor(found, "device_used_peak")
    rows = [(entry.get("device") or entry.get("rank"), *(size(entry.get(key)) for key in keys)) for entry in found]
    return table(("gpu", "allocated", "reserved", used, "usable"), rows, (8, 12, 12, 13, 12), (1, 2, 3, 4))


def _reading(document: Json) -> list[str]:
    lines = [
        "≥ is sampled, so a floor. NA could not be read, and is not 0. – does not apply. Memory is nested: allocated",
        "is part of reserved, reserved part of device used. A configuration is retained only if its software stack was",
        "checked and no fail is left that nobody answered for. No duration imposes a type of training.",
    ]
    return [*paragraph(" ".join(lines)), "", f"Written by pilot-tui {document.get('tool')}."]


def bullets(texts: Iterable[Any]) -> list[str]:
    lines: list[str] = []
    for text in texts:
        body = _wrap(_LEADING.sub(r"\1\\\2", foreign(text)), WIDTH - 2)
        lines += [f"- {body[0]}", *(f"  {more}" for more in body[1:])]
    return lines


def paragraph(text: str) -> list[str]:
    return _wrap(foreign(text), WIDTH)


def table(
    head: Sequence[str], rows: Iterable[Sequence[Any]], widths: Sequence[int], right: Iterable[int] = ()
) -> list[str]:
    """A padded table; ``widths`` are the most cells a column may take, ``right`` the columns of numbers."""
    numbers = set(right)
    body = [[_wrap(foreign(cell), widths[n]) for n, cell in enumerate(row)] for row in rows]
    most = [max([cells(head[n]), 3, *(cells(piece) for row in body for piece in row[n])]) for n in range(len(head))]

    def write(pieces: Sequence[str]) -> str:
        padded = [
            " " * (most[n] - cells(piece)) + piece if n in numbers else piece + " " * (most[n] - cells(piece))
            for n, piece in enumerate(pieces)
        ]
        return "| " + " | ".join(padded) + " |"

    lines = [write(head)]
    ruled = ["-" * (most[n] + 1) + ":" if n in numbers else "-" * (most[n] + 2) for n in range(len(head))]
    lines.append("|" + "|".join(ruled) + "|")
    for row in body:
        for deep in range(max(len(pieces) for pieces in row)):
            lines.append(write([pieces[deep] if deep < len(pieces) else "" for pieces in row]))
    return lines


def cells(text: str) -> int:
    """Terminal cells of a text: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def _wrap(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` cells, broken at blanks; a longer word is broken, but never behind a backslash."""
    lines: list[str] = []
    row = ""
    for whole in _BLANK.split(text):
        piece = whole
        grown = f"{row} {piece}" if row else piece
        if cells(grown) <= width:
            row = grown
            continue
        if row:
            lines.append(row)
        while cells(piece) > width:
            end = len(piece)
            while end > 1 and (cells(piece[:end]) > width or _odd_backslash(piece[:end])):
                end -= 1
            lines.append(piece[:end])
            piece = piece[end:]
        row = piece
    lines.append(row)
    return lines


def _odd_backslash(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1
