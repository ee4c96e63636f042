"""The sheet as blocks: headings, paragraphs, bullets and tables of plain words. Every page is made from these. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tui_pilot.campaign import schedule
from tui_pilot.sheet.judged import is_decided, standing, word
from tui_pilot.sheet.values import facts_of
from tui_pilot.text import duration, plural, size

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Heading:
    level: int
    text: str


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Bullets:
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """``widths``: the most cells of each column on a terminal; ``right``: columns of numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    widths: tuple[int, ...]
    right: tuple[int, ...] = ()


Block = Heading | Paragraph | Bullets | Table


def of(document: Json) -> Iterator[Block]:
    """The whole sheet, in reading order."""
    configurations = list(document.get("configurations") or ())
    yield Heading(1, f"Selection sheet: {document.get('title') or 'no run'}")
    yield Paragraph(_summary(configurations))
    for number, item in enumerate(configurations, 1):
        yield from _configuration(number, item)
    yield from _packages(list(document.get("packages") or ()))
    yield Heading(2, "Seen and kept")
    kept = [f"{entry['short']}: {entry['text']}" for entry in document.get("seen_and_kept") or ()]
    yield Bullets(tuple(kept)) if kept else Paragraph("Nothing failed, nothing was lost.")
    yield Heading(2, "Open questions")
    questions = [str(each) for each in document.get("open") or ()]
    yield Bullets(tuple(questions)) if questions else Paragraph("None.")
    yield Heading(2, "How to read this")
    yield Paragraph(READING)
    yield Paragraph(f"Written by pilot-tui {document.get('tool')}.")


READING = (
    "≥ is sampled, so a floor. NA could not be read, and is not 0. – does not apply. Memory is nested: allocated is "
    "part of reserved, reserved part of device used. A configuration may be retained only if its software stack was "
    "checked and no fail is left that nobody answered for; it is retained once somebody has decided so, with a reason. "
    "No duration imposes a type of training."
)


def _summary(configurations: Sequence[Json]) -> str:
    allowed = [item for item in configurations if item["retained"]]
    if not configurations:
        return "No run was given."
    if allowed:
        decided = sum(is_decided(item) for item in allowed)
        found, waiting = plural(len(configurations), "configuration"), len(allowed) - decided
        if decided == 0:
            may = "it" if len(configurations) == 1 else f"{waiting} of them"
            return f"{found}: {may} may be retained, nobody has decided yet."
        return f"{found}, {decided} retained" + (f", {waiting} may be: not decided yet." if waiting else ".")
    why = next(
        (f"{item['why_not'][0].rstrip('.')}, in {item['short']}" for item in configurations if item["why_not"]), ""
    )
    return f"Nothing is retained: {why}."


def _configuration(number: int, item: Json) -> Iterator[Block]:
    yield Heading(2, f"{number}. {item['name']}, run {item['short']}: {standing(item)}")
    if item.get("demo"):
        yield Paragraph("Built-in demo data and model: this says nothing about your own data.")
    if item["why_not"]:
        yield Paragraph("Not retained, because")
        yield Bullets(tuple(item["why_not"]))
    if item["overrides"]:
        yield Paragraph("Overridden by hand")
        yield Bullets(
            tuple(
                f"{entry['phase']}: FAIL ({', '.join(entry['codes'])}), marked {entry['mark']}: {entry['note']}"
                for entry in item["overrides"]
            )
        )
    yield table(("item", "value"), facts_of(item), (16, 57))
    yield Heading(3, "Phases")
    yield _phases(item)
    if item["fits"]:
        yield Heading(3, "GPUs, from the catalogue")
        yield _fits(item)
    if item["memory"]:
        yield Heading(3, "Memory, highest of all ranks")
        yield _memory(item)
    found = _per_gpu(item)
    if found is not None:
        yield Heading(3, f"Memory per GPU, at {item['binding_phase']}")
        yield found
    notes = [
        f"{note['phase']}: {note.get('text')}" if note.get("phase") else str(note.get("text"))
        for note in item.get("notes") or ()
    ]
    if notes:
        yield Heading(3, "Notes")
        yield Bullets(tuple(notes))


def table(
    head: Sequence[str], rows: Iterable[Sequence[Any]], widths: Sequence[int], right: Iterable[int] = ()
) -> Table:
    """A table of words, whatever its cells were."""
    body = tuple(tuple(str(cell) for cell in row) for row in rows)
    return Table(tuple(head), body, tuple(widths), tuple(right))


def _phases(item: Json) -> Table:
    rows = []
    for row in item["phases"]:
        said = row["text"] if row["verdict"] not in ("pass", "not_run") else ""
        if row["note"]:
            said = "; ".join(part for part in (said, f"by hand: {row['note']}") if part)
        rows.append((row["phase"], word(row["verdict"]), row["mark"] or "", duration(row["duration_s"]), said))
    return table(("phase", "verdict", "mark", "time", "why"), rows, (11, 11, 5, 6, 31), (3,))


def _fits(item: Json) -> Table:
    rows = []
    for each in item["fits"]:
        need, usable = each["need_bytes"], each["usable_bytes"]
        free = f"{each['margin']:.0%} free" if need <= usable else f"short {size(need - usable)}"
        price = f"{each['price_an_hour']:,.2f} an hour" if each.get("price_an_hour") is not None else None
        note = "; ".join(part for part in (price, each["basis"], each.get("note")) if part)
        rows.append((each["name"], "yes" if each["fits"] else "NO", size(usable), size(need), free, note))
    return table(("GPU", "fits", "usable", "need", "margin", "basis"), rows, (17, 4, 9, 9, 9, 13), (2, 3, 4))


def _memory(item: Json) -> Table:
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
    return table(head, rows, widths, range(1, len(head)))


def _floor(entries: Iterable[Json], key: str) -> str:
    """`` ≥`` where a column holds sampled peaks: each is then a floor."""
    known = ((entry.get("known") or {}).get(key) for entry in entries)
    return " ≥" if any(isinstance(how, Mapping) and how.get("kind") == "sampled" for how in known) else ""


def _per_gpu(item: Json) -> Table | None:
    found = [entry for entry in item["memory"] if entry["phase"] == item["binding_phase"]]
    if len(found) < 2 or item["memory_measured_on"] != "gpu":
        return None
    keys = ("allocated_peak", "reserved_peak", "device_used_peak", "device_usable")
    used = "device used" + _floor(found, "device_used_peak")
    rows = [(entry.get("device") or entry.get("rank"), *(size(entry.get(key)) for key in keys)) for entry in found]
    return table(("gpu", "allocated", "reserved", used, "usable"), rows, (8, 12, 12, 13, 12), (1, 2, 3, 4))


def _packages(found: Sequence[Json]) -> Iterator[Block]:
    """Hours of every package side by side: kept, each job in or out, what it lacks, and the plan's prices."""
    if not found:
        return
    yield Heading(2, "Packages of hours")
    rows = package_rows(found)
    columns = len(found) + 1
    head = ("", *(plural(each["days"], "day") for each in found))
    yield table(head, rows, (max(16, 78 - 12 * columns), *([9] * len(found))), range(1, columns))
    unpriced = [f"{each['id']} has no hours: {each['why']}" for each in found[0]["unpriced"]]
    yield Bullets((*unpriced, *schedule.notes(found[0])))


def package_rows(found: Sequence[Json]) -> list[tuple[str, ...]]:
    """The lines of the packages table; the screen draws the same ones."""
    rows: list[tuple[str, ...]] = [("hours", *(f"{each['hours']:,.1f}" for each in found))]
    for name in found[0]["kept"]:
        rows.append((f"- {name}", *(f"{each['kept'][name]:,.1f}" for each in found)))
    rows.append(("= for jobs", *(f"{each['available']:,.1f}" for each in found)))
    entries = {entry["id"]: entry for each in found for entry in (*each["packed"], *each["left_out"])}
    for id, entry in entries.items():
        about = "" if entry["basis"] == "measured" else "~"
        lacks = [next((out["lacks"] for out in each["left_out"] if out["id"] == id), None) for each in found]
        cells = ("in" if lack is None else "out" for lack in lacks)
        rows.append((f"{id}, {about}{schedule.hours_word(entry['hours'])}", *cells))
        if any(lack is not None for lack in lacks):
            rows.append(("  lacks", *("–" if lack is None else schedule.hours_word(lack) for lack in lacks)))
    rows.append(("hours unused", *(f"{each['unused']:,.1f}" for each in found)))
    for number, price in enumerate(found[0]["prices"]):
        label = f"{price['gpu']} at {price['an_hour']:,.2f} x {price['gpus']}"
        rows.append((label, *(f"{each['prices'][number]['total']:,.2f}" for each in found)))
    return rows
