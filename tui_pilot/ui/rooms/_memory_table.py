"""The Memory room's table: phases against GPUs or ranks, what was predicted beside what was measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tui_pilot.store.state import Row
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import units
from tui_pilot.ui.parts.units import Unit
from tui_pilot.ui.rooms import _memory_page
from tui_pilot.ui.rooms._memory_page import NAMES, PANES, Page, counters, ranks, shown_rows, value_of

HEADS = {
    "allocated_peak": "alloc",
    "reserved_peak": "resvd",
    "device_used_peak": "used",
    "outside_torch": "outside",
    "host_peak": "host",
}
NAME_WIDTH, ERROR_WIDTH, LEAST_CELL = 15, 7, 5
MOST_BAR, SAID_WIDTH = 58, 18
PREDICTED = ("allocated_peak", "reserved_peak")
FOLD_ABOVE, ALIKE = 8, 0.01
Group = tuple[int, int]


@dataclass(frozen=True)
class _Columns:
    """Cells after the phase's name: ranks of the chosen counter, their highest, the other counters, a bar."""

    groups: tuple[Group, ...]
    more_left: int
    more_right: int
    others: tuple[str, ...]
    cells: Mapping[str, int]
    units: Mapping[str, Unit]
    bar: int
    top: int
    predicted: bool

    @property
    def unit(self) -> Unit:
        return self.units["shown"]


def groups(page: Page, all_shown: bool = False) -> list[Group]:
    """Ranks as columns: above eight neighbours within 1% of each other in every phase are one (first, last)."""
    count = ranks(page.state)
    if count <= FOLD_ABOVE or all_shown:
        return [(n, n) for n in range(count)]
    found: list[Group] = []
    for n in range(count):
        if found and _alike(page, found[-1][0], n):
            found[-1] = (found[-1][0], n)
        else:
            found.append((n, n))
    return found


def _alike(page: Page, one: int, other: int) -> bool:
    for row in page.state.rows:
        a, b = (value_of(page, row, page.counter, rank) for rank in (one, other))
        if (a is None) != (b is None) or (a is not None and b is not None and abs(a - b) > ALIKE * max(a, b)):
            return False
    return True


def step(page: Page, across: int) -> int:
    """The rank that ←→ goes to: the first of the next column."""
    known = groups(page, page.alone)
    at = next((n for n, (first, last) in enumerate(known) if first <= page.rank <= last), 0)
    return known[max(0, min(len(known) - 1, at + across))][0] if known else 0


def highest_rank(row: Row, counter: str) -> int:
    """The rank that holds most of a counter in a phase: the one that decides; 0 where nothing was measured."""
    held = {int(each.get("rank") or 0): each[counter] for each in row.memory if isinstance(each.get(counter), int)}
    return max(held, key=lambda rank: (held[rank], -rank), default=0)


def _columns(page: Page, width: int) -> _Columns:
    known, count = counters(page.state), ranks(page.state)
    many = count > 1
    others = tuple(name for name in known if name != page.counter) if many else tuple(known)
    rows = [page.state.rows[n] for n in shown_rows(page)]
    foretold = [page.predicted.get(row.phase) or {} for row in rows]
    predicted = page.counter in PREDICTED and any(foretold)
    said = [one.get(page.counter) for one in foretold if isinstance(one.get(page.counter), int)] if predicted else []
    shown = [value_of(page, row, page.counter) for row in rows]
    unit = units.unit_for([*shown, *said])
    each = {name: _unit_of([value_of(page, row, name) for row in rows], unit) for name in others}
    gap = 1 if many else 2
    cell = max([LEAST_CELL, *(len(unit.show(value)) + 1 for value in shown)])
    cells = {"max": cell + 1 if many else 0}
    for name in others:
        texts = [each[name].show(value_of(page, row, name)) for row in rows]
        cells[name] = max(len(_floor(page, name)), *(len(text) for text in texts)) + gap
    cells["pred"] = max([4, *(len(unit.show(value)) + 1 for value in said)]) + gap if predicted else 0
    cells["error"] = ERROR_WIDTH if predicted else 0
    folded = groups(page, page.alone)
    cell = max([cell, *(len(_name(group)) + 1 for group in folded)])
    if many:  # what c shows as well gives way to a column for every rank
        for name in reversed(others[2:]):
            if NAME_WIDTH + sum(cells.values()) + cell * len(folded) > width:
                others = tuple(other for other in others if other != name)
                del cells[name]
    fixed = NAME_WIDTH + sum(cells.values())
    cells["rank"] = cell
    # A bar stands where it has room: beside one rank always, beside several never.
    fits = max(1, min(len(folded), (width - fixed) // cells["rank"])) if many else 0
    at = next((n for n, (first, last) in enumerate(folded) if first <= page.rank <= last), 0)
    first = max(0, min(at - fits // 2, len(folded) - fits)) if many else 0
    bar = 0 if many else max(0, min(MOST_BAR, width - fixed - SAID_WIDTH))
    return _Columns(
        groups=tuple(folded[first : first + fits]),
        more_left=first,
        more_right=len(folded) - first - fits if many else 0,
        others=others,
        cells=cells,
        units={"shown": unit, **each},
        bar=bar,
        top=max((value or 0 for value in shown), default=0),
        predicted=predicted,
    )


def _unit_of(values: Sequence[int | None], unit: Unit) -> Unit:
    """The table's unit, unless all its figures would read 0.x in it: then MiB, and the head says so."""
    most = max((value for value in values if value is not None), default=0)
    return (
        units.MIBS
        if unit is units.GIBS and 0 < most < units.GIBS.bytes // 2
        else units.GIBS
        if (unit is units.MIBS and most >= 10 * units.GIBS.bytes)
        else unit
    )


def _floor(page: Page, name: str) -> str:
    return HEADS[name] + ("≥" if units.is_sampled(page.state.rows, name) else "")


def _name(group: Group) -> str:
    return str(group[0]) if group[0] == group[1] else f"{group[0]}-{group[1]}"


def table(page: Page, width: int, height: int, legend: str = "", focused: bool = False) -> list[Line]:
    """The head and the phases; the selected one's parts stand below it, and it stays in view on a low screen."""
    columns = _columns(page, width)
    known = counters(page.state)
    turn = known[(known.index(page.counter) + 1) % len(known)] if page.counter in known else known[0]
    keys = [legend] if legend else []
    if columns.more_left or columns.more_right:
        keys.insert(0, f"←→ {columns.more_left + columns.more_right} more")
    if len(known) > 1:
        keys.insert(0, f"c: {NAMES[turn]}")
    other = {HEADS[name]: unit for name, unit in columns.units.items() if name != "shown" and unit is not columns.unit}
    units_said = f", {columns.unit.name}" + "".join(f", {name} in {unit.name}" for name, unit in other.items())
    role = "running" if focused else "head"
    titles = (f"{NAMES[page.counter]}, peak of each phase{units_said}", f"{NAMES[page.counter]} peak{units_said}")
    asked = [(title, keys[n:]) for n in range(len(keys)) for title in titles]
    # What does not fit is shortened, so that the pane's number is never lost.
    title, kept = next(((t, k) for t, k in asked if len(t) + len("   ".join(k)) + 11 <= width), (titles[1], []))
    lines: list[Line] = [paint.rule(title, "   ".join(kept), width, role), _head(page, columns, width)]
    binds = _memory_page.binding(page)
    body: list[Line] = []
    at = 0
    for n in shown_rows(page):
        row = page.state.rows[n]
        if n == page.selected:
            at = len(body)
        body.append(_phase_line(page, row, columns, n == page.selected, row.phase == binds, width))
        if n == page.selected:
            body += _part_lines(page, row, columns)
    room = max(1, height - len(lines))
    if len(body) > room:
        first = max(0, min(at - 1, len(body) - room))
        body = body[first : first + room]
    return [*lines, *body]


def _head(page: Page, columns: _Columns, width: int) -> Line:
    device = _memory_page.device_word(page.state)
    out: list[paint.Span] = [(f"   phase{'':<{NAME_WIDTH - 8}}", "dim")]
    for n, group in enumerate(columns.groups):
        name = f"{device} {_name(group)}" if n == 0 else _name(group)
        text = f"{name:>{columns.cells['rank']}}"
        if n == 0 and len(text) > columns.cells["rank"]:  # the word takes blanks that stand before it
            text = name
            out[0] = (out[0][0][: NAME_WIDTH + columns.cells["rank"] - len(name)], "dim")
        blank = len(text) - len(text.lstrip())
        chosen = group[0] <= page.rank <= group[1]
        out += [(text[:blank], "dim"), (text[blank:], "head+underline" if chosen else "dim")]
    cells = f"{'max':>{columns.cells['max']}}" if columns.groups else ""
    cells += "".join(f"{_floor(page, name):>{columns.cells[name]}}" for name in columns.others)
    cells += f"{'pred':>{columns.cells['pred']}}{'error':>{ERROR_WIDTH}}" if columns.predicted else ""
    of = f"  {HEADS[page.counter]} of {columns.unit.show(columns.top)}" if columns.bar and columns.top else ""
    return paint.fit((*out, (cells + of, "dim")), width)


def _phase_line(page: Page, row: Row, columns: _Columns, selected: bool, binds: bool, width: int) -> Line:
    sign, role = paint.glyph(row.verdict)
    running = row.running and page.snapshot.live
    absent = "–" if row.verdict not in (None, "not_run", "running") else ""
    unknown = "NA" if row.memory else absent
    cells = ""
    for first, last in columns.groups:
        asked = [rank for rank in range(first, last + 1) if rank < len(row.memory) and page.counter in row.memory[rank]]
        found = [value_of(page, row, page.counter, rank) for rank in range(first, last + 1)]
        most = max((value for value in found if value is not None), default=None)
        cells += f"{columns.unit.show(most, 'NA' if asked else absent):>{columns.cells['rank']}}"
    highest = value_of(page, row, page.counter)
    if columns.groups:
        cells += f"{columns.unit.show(highest, unknown):>{columns.cells['max']}}"
    cells += "".join(
        f"{columns.units[name].show(value_of(page, row, name), unknown):>{columns.cells[name]}}"
        for name in columns.others
    )
    cells += _predicted(page, columns, page.predicted.get(row.phase), highest if row.memory else None)
    said = "  live" if running else "  not run" if row.verdict == "not_run" and columns.bar else ""
    if binds:
        said = "  sets the need" if columns.bar else ""
    name = f" {row.phase:<{NAME_WIDTH - 3}}"
    if selected:
        block = paint.fit(((f">{sign}{name}{cells}", "text"),), width if not columns.bar else NAME_WIDTH + len(cells))
        beside: Line = ((f"  {_bar(highest, columns)}", "bar"), (said, "head")) if columns.bar else ()
        return (*paint.chosen(block), *beside)
    return (
        (" ", "text"),
        (sign, role),
        (f"{name}{cells}", "text" if row.memory or running else "dim"),
        (f"  {_bar(highest, columns)}" if columns.bar else "", "bar"),
        (said, "head" if binds else "dim"),
    )


def _predicted(page: Page, columns: _Columns, foretold: Any, value: int | None) -> str:
    """``~31.7  +0.6%``: what was predicted, and how far the measured figure lies above it."""
    if not columns.predicted:
        return ""
    figure = foretold.get(page.counter) if isinstance(foretold, Mapping) else None
    if not isinstance(figure, int):
        return f"{'–':>{columns.cells['pred']}}{'–':>{ERROR_WIDTH}}"
    error = f"{(value - figure) / figure:+.1%}" if value is not None and figure else "–"
    error = "0.0%" if error in ("+0.0%", "-0.0%") else error
    return f"{'~' + columns.unit.show(figure):>{columns.cells['pred']}}{error:>{ERROR_WIDTH}}"


def _part_lines(page: Page, row: Row, columns: _Columns) -> list[Line]:
    lines: list[Line] = []
    foretold = (page.predicted.get(row.phase) or {}).get("parts")
    for name, part in row.parts.items():
        if not isinstance(part, Mapping):
            continue
        own = part.get("ranks")
        by_rank = {each.get("rank", n): each for n, each in enumerate(own if isinstance(own, Sequence) else ()) if each}
        cells = ""
        for first, last in columns.groups:
            found = [_whole((by_rank.get(rank) or {}).get(page.counter)) for rank in range(first, last + 1)]
            most = max((value for value in found if value is not None), default=None)
            cells += f"{columns.unit.show(most, ''):>{columns.cells['rank']}}"
        highest = _whole(part.get(page.counter))
        if columns.groups:
            cells += f"{columns.unit.show(highest):>{columns.cells['max']}}"
        for each in columns.others:
            cells += f"{columns.units[each].show(_whole(part.get(each))):>{columns.cells[each]}}"
        cells += _predicted(page, columns, foretold.get(name) if isinstance(foretold, Mapping) else None, highest)
        label = paint.left(f"     {str(name).replace('_', ' ')}", NAME_WIDTH)
        lines.append(((f"{label}{cells}", "dim"), (f"  {_bar(highest, columns)}" if columns.bar else "", "bar")))
    return lines


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _bar(value: int | None, columns: _Columns) -> str:
    return (
        paint.bar(value / columns.top, columns.bar).ljust(columns.bar) if value and columns.top else " " * columns.bar
    )


def tall(page: Page) -> int:
    """Lines of the whole table."""
    parts = sum(isinstance(part, Mapping) for part in page.row.parts.values())
    return 2 + len(shown_rows(page)) + parts


def tsv(page: Page) -> str:
    """The table as tab-separated values, bytes: a line a phase and rank, every counter."""
    lines = ["\t".join(("phase", "rank", "device", *NAMES, "predicted_allocated_peak"))]
    for row in page.state.rows:
        foretold = (page.predicted.get(row.phase) or {}).get("allocated_peak")
        for n, each in enumerate(row.memory):
            figures = [each.get(name) for name in NAMES]
            cells = (row.phase, each.get("rank", n), each.get("device", ""), *figures, foretold)
            lines.append("\t".join("" if cell is None else paint.clean(str(cell)) for cell in cells))
    return "\n".join(lines)


__all__ = ["PANES", "groups", "step", "table", "tall", "tsv"]
