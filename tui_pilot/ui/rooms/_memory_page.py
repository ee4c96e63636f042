"""The Memory room as lines: phases against GPUs or ranks, what was predicted beside what was measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tui_pilot.sheet import measured
from tui_pilot.store.memory import binding_phase
from tui_pilot.store.state import Row, RunState
from tui_pilot.text import size
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import units
from tui_pilot.ui.parts.units import Unit
from tui_pilot.ui.snapshot import Snapshot

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
NAME_WIDTH, LEAST_BAR = 15, 10
PREDICTED = ("allocated_peak", "reserved_peak")
ERROR_WIDTH = 8
EMPTY = "Nothing measured yet: memory is read at the edges of each phase."


@dataclass(frozen=True)
class Page:
    """What is drawn: the counter that bars and ranks show, the selected phase and rank.

    ``readings``: the selected phase's readings alone, for screens too low for both. ``predicted`` is by phase, as
    ``predict --json`` has it; empty where nothing was predicted of this run.
    """

    width: int
    height: int
    snapshot: Snapshot
    counter: str
    selected: int
    rank: int
    readings: bool = False
    predicted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def state(self) -> RunState:
        return self.snapshot.state

    @property
    def row(self) -> Row:
        return self.state.rows[self.selected]


def counters(state: RunState) -> list[str]:
    """The counters that anything is known of, in nesting order."""
    live = {"allocated_peak"} if state.live else set()
    if any(each.reserved is not None for each in state.live.values()):
        live.add("reserved_peak")
    found = [name for name in NAMES if name in live or any(units.peak(row, name) is not None for row in state.rows)]
    return found or ["allocated_peak"]


def ranks(state: RunState) -> int:
    """How many ranks the widest phase had."""
    return max((*(len(row.memory) for row in state.rows), *(rank + 1 for rank in state.live)), default=0)


def entries(state: RunState) -> list[dict[str, Any]]:
    """One entry a phase and rank, with its phase beside."""
    return [{**each, "phase": row.phase} for row in state.rows for each in row.memory]


def need_text(state: RunState) -> str:
    """``needs 34.8 of 79.1 GiB, 56% free, set by resume``; on a CPU what was allocated at most."""
    binding = binding_phase(state.rows)
    if binding is None:
        return "nothing measured yet"
    need = measured.need(entries(state))
    if need is not None and need["usable_bytes"]:
        unit = units.unit_for([need["usable_bytes"]])
        free = f"{max(0.0, need['margin']):.0%} free"
        of = f"{unit.show(need['bytes'])} of {unit.show(need['usable_bytes'])} {unit.name}"
        return f"needs {of}, {free}, set by {need['phase']}"
    if need is not None:
        return f"needs {size(need['bytes'])}, usable memory unknown, set by {need['phase']}"
    most = max((units.peak(row, "allocated_peak") or 0 for row in state.rows), default=0)
    return f"{size(most)} allocated at most, set by {binding}"


def value_of(page: Page, row: Row, counter: str, rank: int | None = None) -> int | None:
    """A counter's peak over all ranks or of one; while the phase runs the highest so far."""
    if row.running and page.snapshot.live:
        if rank is None:
            return units.so_far(page.snapshot, row, counter)
        live = page.state.live.get(rank)
        found = getattr(live, f"{counter.removesuffix('_peak')}_highest", None)
    elif rank is None:
        return units.peak(row, counter)
    else:
        found = row.memory[rank].get(counter) if rank < len(row.memory) else None
    return found if isinstance(found, int) else None


@dataclass(frozen=True)
class _Columns:
    """Cells after the phase's name: ranks of the chosen counter, its highest, the other counters, a bar."""

    ranks: tuple[int, ...]
    others: tuple[str, ...]
    cell: int
    bar: int
    unit: Unit
    top: int
    predicted: bool

    def width(self, name: str) -> int:
        """Cells of another counter: one more where its head would touch the one before."""
        return max(self.cell, len(HEADS[name]) + 2)


def _columns(page: Page) -> _Columns:
    known = counters(page.state)
    count = ranks(page.state)
    rows = page.state.rows
    unit = units.unit_for(value_of(page, row, name) for row in rows for name in known)
    cell = 7 if unit is units.GIBS else 9
    others = [name for name in known if name != page.counter] if count > 1 else known
    predicted = page.counter in PREDICTED and any(page.predicted.get(row.phase) for row in rows)
    extra = cell + ERROR_WIDTH if predicted else 0
    fixed = NAME_WIDTH + sum(max(cell, len(HEADS[name]) + 2) for name in others) + (cell if count > 1 else 0) + extra
    fits = max(1, min(count, (page.width - fixed - LEAST_BAR) // cell)) if count > 1 else 0
    first = max(0, min(page.rank - fits + 1, count - fits)) if page.rank >= fits else 0
    bar = page.width - fixed - cell * fits - 20
    top = max((value_of(page, row, page.counter) or 0 for row in rows), default=0)
    bar = max(0, min(58, bar))
    return _Columns(tuple(range(first, first + fits)), tuple(others), cell, bar, unit, top, predicted)


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
    cells += "".join(f"{floor(name):>{columns.width(name)}}" for name in columns.others)
    cells += f"{'pred':>{columns.cell}}{'error':>{ERROR_WIDTH}}" if columns.predicted else ""
    of = ""
    if columns.bar:
        of = f"  {HEADS[page.counter]} of {columns.unit.show(columns.top)}, the highest"
    return ((paint.left(f"   phase{'':<{NAME_WIDTH - 8}}{cells}{of}", page.width), "dim"),)


def _phase_line(page: Page, row: Row, columns: _Columns, selected: bool, binds: bool) -> Line:
    sign, role = paint.glyph(row.verdict)
    running = row.running and page.snapshot.live
    cells = ""
    absent = "–" if row.verdict not in (None, "not_run", "running") else ""
    for rank in columns.ranks:
        unknown = "NA" if rank < len(row.memory) and page.counter in row.memory[rank] else absent
        cells += f"{columns.unit.show(value_of(page, row, page.counter, rank), unknown):>{columns.cell}}"
    unknown = "NA" if row.memory else absent
    highest = value_of(page, row, page.counter)
    if columns.ranks:
        cells += f"{columns.unit.show(highest, unknown):>{columns.cell}}"
    cells += "".join(
        f"{columns.unit.show(value_of(page, row, name), unknown):>{columns.width(name)}}" for name in columns.others
    )
    cells += _predicted(page, columns, page.predicted.get(row.phase), highest if row.memory else None)
    said = ("  sets the need" if columns.bar else "  need") if binds else "  live" if running else ""
    spans: Line = (
        (">" if selected else " ", "head"),
        (sign, role),
        (f" {row.phase:<{NAME_WIDTH - 3}}{cells}", "text" if row.memory or running else "dim"),
        (f"  {_bar(highest, columns)}", "bar"),
        (said, "head" if binds else "dim"),
    )
    return paint.chosen(paint.fit(spans, page.width)) if selected else spans


def _predicted(page: Page, columns: _Columns, foretold: Any, value: int | None) -> str:
    """``~31.7  +0.6%``: what was predicted, and how far the measured figure lies above it."""
    if not columns.predicted:
        return ""
    figure = foretold.get(page.counter) if isinstance(foretold, Mapping) else None
    if not isinstance(figure, int):
        return f"{'–':>{columns.cell}}{'–':>{ERROR_WIDTH}}"
    error = f"{(value - figure) / figure:+.1%}" if value is not None and figure else "–"
    return f"{'~' + columns.unit.show(figure):>{columns.cell}}{error:>{ERROR_WIDTH}}"


def _part_lines(page: Page, row: Row, columns: _Columns) -> list[Line]:
    lines: list[Line] = []
    shown = [(page.counter, columns.cell)] if columns.ranks else []
    shown += [(name, columns.width(name)) for name in columns.others]
    foretold = (page.predicted.get(row.phase) or {}).get("parts")
    for name, part in row.parts.items():
        if not isinstance(part, Mapping):
            continue
        own = part.get("ranks")
        cells = ""
        for rank in columns.ranks:
            value = own[rank].get(page.counter) if isinstance(own, Sequence) and rank < len(own) else None
            cells += f"{columns.unit.show(value if isinstance(value, int) else None, ''):>{columns.cell}}"
        for each, width in shown:
            value = part.get(each)
            cells += f"{columns.unit.show(value if isinstance(value, int) else None):>{width}}"
        highest = part.get(page.counter)
        highest = highest if isinstance(highest, int) else None
        cells += _predicted(page, columns, foretold.get(name) if isinstance(foretold, Mapping) else None, highest)
        label = paint.left(f"     {str(name).replace('_', ' ')}", NAME_WIDTH)
        lines.append(((f"{label}{cells}", "dim"), (f"  {_bar(highest, columns)}", "bar")))
    return lines


def _bar(value: int | None, columns: _Columns) -> str:
    return paint.bar(value / columns.top, columns.bar) if value and columns.top and columns.bar else ""
