"""Memory of a run without an accelerator: what torch allocated and what the process held. Pure.

A bar goes to the highest of the run; the number beside it is the selected phase's own peak, or what a running phase
reached so far.
"""

from __future__ import annotations

from dataclasses import dataclass

from tui_pilot.store.state import Row
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import units
from tui_pilot.ui.snapshot import Snapshot

MAX_BAR = 58
COUNTERS = (("allocated_peak", "allocated"), ("host_peak", "host"))


@dataclass(frozen=True)
class Level:
    """One counter: here and at its highest, bytes; ``phase`` is where the highest was."""

    name: str
    here: int | None
    highest: int
    phase: str
    unit: units.Unit


def levels(snapshot: Snapshot, row: Row) -> list[Level]:
    """The counters that anything is known of."""
    out = []
    for counter, name in COUNTERS:
        here = units.so_far(snapshot, row, counter) if row.running else units.peak(row, counter)
        peaks = [(units.peak(each, counter) or 0, each.phase) for each in snapshot.state.rows]
        highest, phase = max([*peaks, (here or 0, row.phase)], key=lambda item: item[0])
        if highest:
            out.append(Level(name, here, highest, phase, units.unit_for([highest])))
    return out


def legend(row: Row) -> str:
    """What the bars are of."""
    if row.running:
        return f"{row.phase} so far, live"
    return f"at the peak of {row.phase}" if row.memory else f"{row.phase} measured no memory"


def wide_lines(snapshot: Snapshot, row: Row, width: int) -> list[Line]:
    """``allocated [▆▆▆▆   ]  77.9 MiB   highest 109.3 in steady_step``."""
    bar = max(8, min(MAX_BAR, width - 62))
    return [
        (
            (f" {each.name:<10}", "text"),
            (f"[{_bar(each, bar)}]", "bar"),
            (f" {_here(each, row):>8} {each.unit.name}", "text"),
            (f"   highest {each.unit.show(each.highest)} in {each.phase}", "dim"),
        )
        for each in levels(snapshot, row)
    ]


def narrow_lines(snapshot: Snapshot, row: Row, width: int) -> list[Line]:
    """``alloc [▆▆▆▆   ]  77.9``, with the unit in the line above."""
    short = {"allocated": "alloc", "host": "host"}
    found = levels(snapshot, row)
    bar = max(4, width - 16)
    lines: list[Line] = [
        (
            (f"{short[each.name]:<6}", "text"),
            (f"[{_bar(each, bar)}]", "bar"),
            (f"{_here(each, row):>8}", "text"),
        )
        for each in found
    ]
    if found:
        name = found[-1].unit.name
        same = all(each.unit is found[-1].unit for each in found)
        how = f"{row.phase} so far" if row.running else f"peak of {row.phase}"
        unit = f", {name}" if same else ""
        lines.insert(0, ((f"{how}{unit}", "dim"),))
    return lines


def _here(level: Level, row: Row) -> str:
    unknown = "NA" if row.memory else "–"
    return level.unit.show(level.here, unknown)


def _bar(level: Level, width: int) -> str:
    return paint.bar((level.here or 0) / level.highest, width).ljust(width)
