"""The fifteen phases as rows: glyph, word, the person's mark, time, memory and the first reason. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rich.cells import cell_len

from tui_pilot.store.state import Row
from tui_pilot.text import GIB, duration, loss, plural
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import facts, units
from tui_pilot.ui.parts.phases import SHORT
from tui_pilot.ui.snapshot import Snapshot

_LOSS = re.compile(r"\bloss (\d+\.\d{4,})")
SEEN_CELLS = 24  # a sentence cut shorter than this says nothing
SHORTEST = 7
ONE_OF = {"microbatches": "microbatch", "batches": "batch", "passes": "pass"}
MIBS_TO = 10 * GIB
_CLAUSE = re.compile(r"[,;:] ")
_LINKS = ("a", "and", "at", "by", "for", "from", "in", "of", "on", "than", "the", "to", "with", "x")
MARKS = {"pass": "p", "warn": "w", "fail": "f"}


@dataclass(frozen=True)
class Columns:
    """Which memory columns stand in the table: ``(head, counter)``, their width, and the unit they share."""

    memory: tuple[tuple[str, str], ...]
    unit: units.Unit
    reason: int
    cells: tuple[int, ...]

    @property
    def width(self) -> int:
        return 32 + sum(self.cells) + (1 + self.reason if self.reason else 2)


def columns(snapshot: Snapshot, compact: bool, reason: int) -> Columns:
    """GPU runs: allocated, reserved, used (compact: used alone). CPU runs: allocated and host."""
    rows = snapshot.state.rows
    if units.on_gpu(rows) or (snapshot.gpus and not any(row.memory for row in rows)):
        wanted = ["device_used_peak"] if compact else ["allocated_peak", "reserved_peak", "device_used_peak"]
        names = {"allocated_peak": "alloc", "reserved_peak": "resvd", "device_used_peak": "used≥"}
    else:
        wanted = ["allocated_peak", "host_peak"]
        names = {"allocated_peak": "alloc", "host_peak": "host"}
    unit = units.unit_for(_memory(row, counter, snapshot) for row in rows for counter in wanted)
    heads = []
    for counter in wanted:
        floor = "≥" if counter != "device_used_peak" and units.is_sampled(rows, counter) else ""
        heads.append((names[counter] + floor, counter))
    if "host_peak" in wanted:
        highest = max((_memory(row, counter, snapshot) or 0 for row in rows for counter in wanted), default=0)
        unit = units.MIBS if highest < MIBS_TO else unit  # a small model's phases would all be 0.1 GiB
        heads[-1] = (f"{heads[-1][0]} {unit.name}", heads[-1][1])
        return Columns(tuple(heads), unit, reason, (8, 10))
    return Columns(tuple(heads), unit, reason, (6 if unit is units.GIBS else 8,) * len(heads))


def head(table: Columns) -> Line:
    """Column names, with the unit of the memory columns."""
    names = "".join(f"{name:>{cell}}" for (name, _), cell in zip(table.memory, table.cells, strict=True))
    start = "   phase       verdict mark time"
    named = "reason, or what it saw" if table.reason >= SEEN_CELLS else "reason"
    rest = f" {named:<{table.reason}}" if table.reason else "  "
    return ((start + names + rest, "dim"),)


def row_line(row: Row, table: Columns, selected: bool, snapshot: Snapshot) -> Line:
    """One phase. Reverse video and ``>`` where it is selected; a phase not reached is dim and wordless while live."""
    word, role = _word(row)
    sign, sign_role = paint.glyph("lost" if is_lost(row) else row.verdict)
    quiet = row.verdict in (None, "not_run")
    mark = MARKS.get(row.mark or "", " ")
    seconds = row.duration_s
    if row.running and row.started_mono is not None and not _other_clock(row, snapshot):
        seconds = max(0.0, snapshot.now_mono - row.started_mono)
    time_text = duration(seconds, "") if not quiet else ""
    blank = "" if quiet or row.running else "–"
    figures = "".join(
        f"{table.unit.show(_memory(row, counter, snapshot), blank):>{cell}}"
        for (_, counter), cell in zip(table.memory, table.cells, strict=True)
    )
    main = "dim" if quiet else "text"
    name_role = "running" if row.running else main  # of a fail its glyph and its word are loud, nothing else
    reason = f" {_said(row, table.reason)}" if table.reason else "  "
    spans: Line = (
        (">" if selected else " ", "head" if selected else main),
        (sign, sign_role),
        (f" {row.phase:<12}", name_role),
        (f"{word:<10}", role),
        (f"{mark} ", "head" if row.mark else main),
        (f"{time_text:>5}{figures}", main),
        (reason, "dim" if row.verdict == "pass" else main),
    )
    return paint.chosen(spans) if selected else spans


def _said(row: Row, width: int) -> str:
    """Why the verdict is what it is; of a pass what was seen, where that can be said in the column."""
    why = reasons(row)
    if why or row.verdict != "pass" or width < SEEN_CELLS:
        return _cut_reasons(why, width)
    return paint.left(gist(facts.sentence(row.phase, row.inputs), width - 1), width)


def gist(text: str, width: int) -> str:
    """As much of a sentence as stands alone in ``width`` cells: whole clauses, else whole words, never a cut word."""
    clean = paint.clean(text)
    if cell_len(clean) <= width:
        return clean
    ends = [found.start() for found in _CLAUSE.finditer(clean) if cell_len(clean[: found.start()]) <= width]
    if ends and ends[-1] >= SHORTEST:
        return clean[: ends[-1]]
    words = paint.wrap(clean, width)[0].split(" ")
    while len(words) > 1 and words[-1].strip(",;:") in _LINKS:
        words.pop()
    return " ".join(words).rstrip(",;:")


def _memory(row: Row, counter: str, snapshot: Snapshot) -> int | None:
    """The phase's peak; while it runs the highest so far."""
    return units.so_far(snapshot, row, counter) if row.running and snapshot.live else units.peak(row, counter)


def ahead_head(width: int) -> Line:
    """Column names of the list before anything ran."""
    return ((paint.left("   phase       what it looks at", width), "dim"),)


def ahead_line(row: Row, width: int, selected: bool) -> Line:
    """One phase before anything ran: its name and what it looks at, in place of empty columns."""
    spans: Line = ((">" if selected else " ", "head"), ("·", "dim"), (f" {row.phase:<12}", "text"))
    spans = (*spans, (paint.left(SHORT[row.phase], width - 15), "dim"))
    return paint.chosen(spans) if selected else spans


def reasons(row: Row) -> str:
    """The codes of a phase's reasons, worst first, notes left out; what a running phase is at."""
    if row.running and row.progress:
        return counted_text(row) or progress_text(row)
    codes = [str(each.get("code", "")) for each in row.reasons if each.get("severity") != "note"]
    more = f" +{len(codes) - 1}" if len(codes) > 1 else ""
    again = f"attempt {row.attempt}" if row.attempt > 1 else ""
    return (codes[0] + more) if codes else again


def short_reason(row: Row) -> str:
    """``end token unsupervised in 351 rows, 2 more reasons``: the worst reason where its sentence is too long."""
    named = [each for each in row.reasons if each.get("severity") != "note"]
    if not named:
        return "nothing found"
    rows = (named[0].get("where") or {}).get("rows_count")
    said = str(named[0].get("code", "")).replace("_", " ") + (
        f" in {plural(rows, 'row')}" if isinstance(rows, int) else ""
    )
    return said + (f", {plural(len(named) - 1, 'more reason')}" if len(named) > 1 else "")


def _cut_reasons(text: str, width: int) -> str:
    """The code is cut before the number of further reasons is."""
    code, sign, more = text.rpartition(" +")
    if not sign:
        return paint.left(text, width)
    return paint.left(f"{paint.left(code, min(len(code), width - len(more) - 2))} +{more}", width)


def counted_text(row: Row) -> str:
    """``update 3 of 5``; empty where nothing is counted."""
    progress = row.progress or {}
    done, total, unit = progress.get("done"), progress.get("total"), progress.get("unit")
    if not isinstance(done, int) or not isinstance(total, int):
        return ""
    if not unit:
        return f"{done:,} of {total:,}"
    one = ONE_OF.get(str(unit)) or (str(unit)[:-1] if str(unit).endswith("s") else str(unit))
    return f"{one} {done:,} of {total:,}" if total < 100 else f"{done:,} of {total:,} {unit}"


def progress_text(row: Row) -> str:
    """``update 3 of 5, loss 4.686``: what is counted, then what the phase says of itself."""
    return ", ".join(part for part in (counted_text(row), said_text(row)) if part)


def said_text(row: Row) -> str:
    """What the phase says of itself now; losses with three decimals, as everywhere."""
    text = str((row.progress or {}).get("text") or "")
    return _LOSS.sub(lambda found: f"loss {loss(float(found[1]))}", text)


def is_lost(row: Row) -> bool:
    """Whether the phase was open when the run was lost."""
    return row.verdict == "unchecked" and any(each.get("code") == "lost" for each in row.reasons)


def _word(row: Row) -> tuple[str, str]:
    if is_lost(row):
        return "LOST", "fail"
    if row.verdict is None:
        return "", "dim"
    if row.verdict == "fail":
        return "FAIL", "fail"
    if row.verdict == "not_run":
        return "not run", "dim"
    role = {"running": "running", "warn": "warn", "unchecked": "warn", "skipped": "dim"}.get(row.verdict, "text")
    return row.verdict, role


def _other_clock(row: Row, snapshot: Snapshot) -> bool:
    """A monotonic clock of another boot or machine cannot be compared with this one's."""
    return row.started_mono is None or row.started_mono > snapshot.now_mono + 1
