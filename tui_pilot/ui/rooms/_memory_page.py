"""The Memory room as lines: phases against GPUs or ranks, the selected one unfolded, how each is known. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tui_pilot.store.memory import binding_phase
from tui_pilot.store.state import Row, RunState
from tui_pilot.text import size
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import units
from tui_pilot.ui.parts.units import Unit

NAMES = {
    "allocated_peak": "allocated",
    "reserved_peak": "reserved",
    "device_used_peak": "used",
    "outside_torch": "outside torch",
    "host_peak": "host",
}
HEADS = {
    "allocated_peak": "alloc",
    "reserved_peak": "resvd",
    "device_used_peak": "used",
    "outside_torch": "outside",
    "host_peak": "host",
}
LONG = {
    "allocated_peak": "allocated: tensors",
    "reserved_peak": "reserved: what torch holds",
    "device_used_peak": "used: the whole device",
    "outside_torch": "outside torch",
    "host_peak": "host: resident memory",
}
NAME_WIDTH, LEAST_BAR = 15, 10
EMPTY = "Nothing measured yet: memory is read at the edges of each phase."


@dataclass(frozen=True)
class Page:
    """What is drawn: the counter that bars and ranks show, the selected phase and rank, the first rank shown."""

    width: int
    height: int
    state: RunState
    counter: str
    selected: int
    rank: int

    @property
    def row(self) -> Row:
        return self.state.rows[self.selected]


def counters(state: RunState) -> list[str]:
    """The counters that anything is known of, in nesting order."""
    return [name for name in NAMES if any(units.peak(row, name) is not None for row in state.rows)] or [
        "allocated_peak"
    ]


def ranks(state: RunState) -> int:
    """How many ranks the widest phase had."""
    return max((len(row.memory) for row in state.rows), default=0)


def need_text(state: RunState) -> str:
    """``needs 34.8 of 79.1 GiB, 56% free, set by resume``; on a CPU what was allocated at most."""
    binding = binding_phase(state.rows)
    if binding is None:
        return "nothing measured yet"
    used = max((units.peak(row, "device_used_peak") or 0 for row in state.rows), default=0)
    usable = [rank["device_usable"] for row in state.rows for rank in row.memory if rank.get("device_usable")]
    if used and usable:
        least = min(usable)
        unit = units.unit_for([least])
        free = f"{max(0.0, 1 - used / least):.0%} free"
        return f"needs {unit.show(used)} of {unit.show(least)} {unit.name}, {free}, set by {binding}"
    most = max((units.peak(row, "allocated_peak") or 0 for row in state.rows), default=0)
    return f"{size(most)} allocated at most, set by {binding}"


def draw(page: Page) -> list[Line]:
    """Table, then every reading of the selected phase; what does not fit is cut at the end."""
    if not any(row.memory for row in page.state.rows):
        return [paint.rule("memory", "", page.width), ((f" {EMPTY}", "text"),)]
    lines = table(page)
    return [*lines, *readings(page)][: max(1, page.height)]


@dataclass(frozen=True)
class _Columns:
    """Cells after the phase's name: ranks of the chosen counter, its highest, the other counters, a bar."""

    ranks: tuple[int, ...]
    others: tuple[str, ...]
    cell: int
    bar: int
    unit: Unit
    top: int


def _columns(page: Page) -> _Columns:
    known = counters(page.state)
    count = ranks(page.state)
    unit = units.unit_for(units.peak(row, name) for row in page.state.rows for name in known)
    cell = 7 if unit is units.GIBS else 9
    others = [name for name in known if name != page.counter] if count > 1 else known
    room = page.width - NAME_WIDTH - cell * (len(others) + (1 if count > 1 else 0)) - LEAST_BAR
    fits = max(1, min(count, room // cell)) if count > 1 else 0
    first = max(0, min(page.rank - fits + 1, count - fits)) if page.rank >= fits else 0
    bar = page.width - NAME_WIDTH - cell * (fits + len(others) + (1 if count > 1 else 0)) - 20
    top = max((units.peak(row, page.counter) or 0 for row in page.state.rows), default=0)
    return _Columns(tuple(range(first, first + fits)), tuple(others), cell, max(0, min(58, bar)), unit, top)


def table(page: Page) -> list[Line]:
    """The head and the phases; the selected one's parts stand below it."""
    columns = _columns(page)
    rows = page.state.rows
    known = counters(page.state)
    turn = known[(known.index(page.counter) + 1) % len(known)] if page.counter in known else known[0]
    hidden = ranks(page.state) - len(columns.ranks)
    legend = f"c: {NAMES[turn]}" if len(known) > 1 else ""
    if columns.ranks and hidden > 0:
        legend = f"←→ {hidden} more ranks   {legend}"
    title = f"{NAMES[page.counter]}, peak of each phase, {columns.unit.name}"
    lines: list[Line] = [paint.rule(title, legend, page.width), _head(page, columns)]
    binding = binding_phase(rows)
    for n, row in enumerate(rows):
        lines.append(_phase_line(page, row, columns, n == page.selected, row.phase == binding))
        if n == page.selected:
            lines += _part_lines(page, row, columns)
    return lines


def _head(page: Page, columns: _Columns) -> Line:
    def floor(name: str) -> str:
        return HEADS[name] + ("≥" if units.is_sampled(page.state.rows, name) else "")

    device = "gpu" if units.on_gpu(page.state.rows) else "rank"
    first = columns.ranks[0] if columns.ranks else 0
    cells = "".join(f"{f'{device} {n}' if n == first else n:>{columns.cell}}" for n in columns.ranks)
    cells += f"{'max':>{columns.cell}}" if columns.ranks else ""
    cells += "".join(f"{floor(name):>{columns.cell}}" for name in columns.others)
    of = ""
    if columns.bar:
        of = f"  {HEADS[page.counter]} of {columns.unit.show(columns.top)}, the highest"
    return ((paint.left(f"   phase{'':<{NAME_WIDTH - 8}}{cells}{of}", page.width), "dim"),)


def _phase_line(page: Page, row: Row, columns: _Columns, selected: bool, binds: bool) -> Line:
    sign, role = paint.glyph(row.verdict)
    cells = ""
    for rank in columns.ranks:
        value = row.memory[rank].get(page.counter) if rank < len(row.memory) else None
        unknown = "NA" if rank < len(row.memory) and page.counter in row.memory[rank] else "–"
        cells += f"{columns.unit.show(value, unknown):>{columns.cell}}"
    unknown = "NA" if row.memory else "–" if row.verdict not in (None, "not_run", "running") else ""
    highest = units.peak(row, page.counter)
    if columns.ranks:
        cells += f"{columns.unit.show(highest, unknown):>{columns.cell}}"
    cells += "".join(f"{columns.unit.show(units.peak(row, name), unknown):>{columns.cell}}" for name in columns.others)
    spans: Line = (
        (">" if selected else " ", "head"),
        (sign, role),
        (f" {row.phase:<{NAME_WIDTH - 3}}{cells}", "text" if row.memory else "dim"),
        (f"  {_bar(highest, columns)}", "bar"),
        ("  sets the need" if binds else "", "head"),
    )
    return paint.chosen(paint.fit(spans, page.width)) if selected else spans


def _part_lines(page: Page, row: Row, columns: _Columns) -> list[Line]:
    lines: list[Line] = []
    before = columns.cell * len(columns.ranks)
    shown = ((page.counter,) if columns.ranks else ()) + columns.others
    for name, part in row.parts.items():
        if not isinstance(part, Mapping):
            continue
        values = [part.get(each) for each in shown]
        cells = "".join(
            f"{columns.unit.show(value if isinstance(value, int) else None):>{columns.cell}}" for value in values
        )
        own = part.get(page.counter)
        bar = _bar(own if isinstance(own, int) else None, columns)
        label = paint.left(f"     {str(name).replace('_', ' ')}", NAME_WIDTH)
        lines.append(((f"{label}{'':<{before}}{cells}", "dim"), (f"  {bar}", "bar")))
    return lines


def _bar(value: int | None, columns: _Columns) -> str:
    return paint.bar(value / columns.top, columns.bar) if value and columns.top and columns.bar else ""


def readings(page: Page) -> list[Line]:
    """One rank of the selected phase: each counter before, at its peak and after, and how it is known."""
    row = page.row
    where = ""
    if row.memory:
        rank = row.memory[min(page.rank, len(row.memory) - 1)]
        where = f", rank {rank.get('rank', 0)} on {rank.get('device', 'an unknown device')}"
    lines = [paint.rule(f"{row.phase}{where}: every reading", "", page.width)]
    if not row.memory:
        said = "still runs: its peak is known at its end" if row.running else "has not been measured"
        return [*lines, ((f" {row.phase} {said}", "dim"),)]
    wide = page.width >= 110
    edges = f"{'before':>10}{'peak':>11}{'after':>11}{'bytes':>13}" if wide else f"{'peak':>11}"
    lines.append(((f"   {'counter':<27}{edges}   known", "dim"),))
    for name, long in LONG.items():
        if rank.get(name) is None and name not in (rank.get("known") or {}):
            continue
        value, stem = rank.get(name), name.removesuffix("_peak")
        figures = f"{size(value):>11}"
        if wide:
            before, after = (size(rank.get(f"{stem}_{edge}"), "–") for edge in ("before", "after"))
            exact = f"{value:,}" if isinstance(value, int) else "–"
            figures = f"{before:>10}{figures}{after:>11}{exact:>13}"
        role = "text" if value is not None else "dim"
        lines.append(((f"   {long:<27}{figures}", role), (f"   {units.how_known(rank, name)}", "dim")))
    return [*lines, *_notes(rank)]


def _notes(rank: Mapping[str, Any]) -> list[Line]:
    said = []
    if rank.get("alloc_retries"):
        said.append(f"{rank['alloc_retries']:,} times torch emptied its cache to find room")
    if rank.get("ooms"):
        said.append(f"{rank['ooms']:,} allocations failed")
    return [((f"   {', '.join(said)}", "warn"),)] if said else []
