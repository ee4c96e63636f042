"""Below the Memory room's table: every reading of the selected phase, and what the run as a whole needs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.sheet import measured
from tui_pilot.store.state import RunState
from tui_pilot.text import duration, size
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import units
from tui_pilot.ui.rooms import _memory_page
from tui_pilot.ui.rooms._memory_page import Page

LONG = {
    "allocated_peak": "allocated: tensors",
    "reserved_peak": "reserved: what torch holds",
    "active_peak": "active: blocks in use",
    "device_used_peak": "used: the whole device",
    "outside_torch": "outside torch",
    "reachable": "reachable: model and state",
    "host_peak": "host: resident memory",
    "rss_anon_peak": "host: its own pages",
    "rss_file_peak": "host: mapped files",
    "pinned_peak": "host: pinned by torch",
}
LIVE = "live, 10 looks a second: a floor until the phase ends"


def draw(page: Page) -> list[Line]:
    """Table, every reading of the selected phase, the run's need; what does not fit is cut at the end."""
    if not any(row.memory for row in page.state.rows) and not page.state.live:
        return [paint.rule("memory", "", page.width), ((f" {_memory_page.EMPTY}", "text"),)]
    table = _memory_page.table(page)
    if not fits(page) and not page.readings:
        return table[: max(1, page.height)]
    above = [*(table if fits(page) else ()), *readings(page)]
    foretold, below = filled(page), whole(page)
    if len(above) + len(foretold) + len(below) > page.height:
        foretold = []  # what was measured stands before what was foretold
    return [*above, *foretold, *below][: max(1, page.height)]


def fits(page: Page) -> bool:
    """Whether table and readings stand below each other, at least the table and the run's need."""
    return page.height >= len(page.state.rows) + 2 + 10


def readings(page: Page) -> list[Line]:
    """One rank of the selected phase: each counter before, at its peak and after, and how it is known."""
    row = page.row
    if row.running and page.snapshot.live:
        return _live(page)
    where = ""
    rank: Mapping[str, Any] = {}
    if row.memory:
        rank = row.memory[min(page.rank, len(row.memory) - 1)]
        where = f", rank {rank.get('rank', 0)} on {rank.get('device', 'an unknown device')}"
    legend = "" if fits(page) else "enter: back to the phases"
    lines = [paint.rule(f"{row.phase}{where}: every reading", legend, page.width)]
    if not rank:
        return [*lines, ((f" {row.phase} has not been measured", "dim"),)]
    wide = page.width >= 110
    edges = f"{'before':>10}{'peak':>11}{'after':>11}{'bytes':>16}" if wide else f"{'peak':>11}"
    lines.append(((f"   {'counter':<26}{edges}  known", "dim"),))
    for name, long in LONG.items():
        if rank.get(name) is None and name not in (rank.get("known") or {}):
            continue
        value, stem = rank.get(name), name.removesuffix("_peak")
        figures = f"{size(value):>11}"
        if wide:
            before, after = (size(rank.get(f"{stem}_{edge}"), "–") for edge in ("before", "after"))
            exact = f"{value:,}" if isinstance(value, int) else "–"
            figures = f"{before:>10}{figures}{after:>11}{exact:>16}"
        role = "text" if value is not None else "dim"
        known = units.how_known(rank, name)
        if len(known) > page.width - 31 - len(figures):
            known = known.removeprefix("sampled ")  # its rate says so
        lines.append(((f"   {long:<26}{figures}", role), (f"  {known}", "dim")))
    return [*lines, *_notes(rank)]


def filled(page: Page) -> list[Line]:
    """What the selected phase's peak is made of, by prediction; nothing where none was made."""
    found = (page.predicted.get(page.row.phase) or {}).get("at_peak")
    held = {name: count for name, count in (found or {}).items() if isinstance(count, int) and count > 0}
    if not held:
        return []
    unit, top = units.unit_for(held.values()), max(held.values())
    lines = [paint.rule(f"~ at the peak of {page.row.phase}, {unit.name}", "predicted", page.width)]
    for name, count in held.items():
        bar = paint.bar(count / top, max(4, min(40, page.width - 40)))
        figures = f"   {name.replace('_', ' '):<26}{unit.show(count):>11}  "
        lines.append(((figures, "text"), (bar, "bar")))
    return lines


def _live(page: Page) -> list[Line]:
    """The running phase: what a rank holds since the last paint and at its highest so far."""
    row = page.row
    legend = "" if fits(page) else "enter: back to the phases"
    rank = next((each for each in page.snapshot.ranks if each.rank == page.rank), None)
    where = f", rank {rank.rank} on {rank.device or 'an unknown device'}" if rank is not None else ""
    lines = [paint.rule(f"{row.phase}{where}: live", legend, page.width)]
    if rank is None:
        return [*lines, ((f" {row.phase} runs and has said nothing yet: its peak is known at its end", "dim"),)]
    lines.append(((f"   {'counter':<26}{'now':>11}{'so far':>11}  known", "dim"),))
    figures = [
        ("allocated_peak", rank.allocated, rank.allocated_highest),
        ("reserved_peak", rank.reserved, rank.reserved_highest),
    ]
    for name, now, highest in figures:
        if highest is not None:
            lines.append(((f"   {LONG[name]:<26}{size(now):>11}{size(highest):>11}", "text"), (f"  {LIVE}", "dim")))
    used = units.so_far(page.snapshot, row, "device_used_peak")
    if used is not None:
        known = "the highest GPU, sampled by NVML: a floor"
        lines.append(((f"   {LONG['device_used_peak']:<26}{'':>11}{size(used):>11}", "text"), (f"  {known}", "dim")))
    host = units.so_far(page.snapshot, row, "host_peak")
    if host is not None:
        known = "the largest rank, the kernel's mark seen once a second"
        lines.append(((f"   {LONG['host_peak']:<26}{'':>11}{size(host):>11}", "text"), (f"  {known}", "dim")))
    return lines


def _notes(rank: Mapping[str, Any]) -> list[Line]:
    said = []
    if rank.get("alloc_retries"):
        said.append(f"{rank['alloc_retries']:,} times torch emptied its cache to find room")
    if rank.get("ooms"):
        said.append(f"{rank['ooms']:,} allocations failed")
    return [((f"   {', '.join(said)}", "warn"),)] if said else []


def whole(page: Page) -> list[Line]:
    """What the run needs of a GPU, what it took of the host, and what a save took and left."""
    said = [each for each in (need(page.state), host(page.state), *saves(page.state)) if each]
    lines: list[Line] = [((f" {row}", "text"),) for text in said for row in paint.wrap(text, page.width - 2)]
    return [((" " * page.width, "text"),), *lines] if lines and fits(page) else lines


def need(state: RunState) -> str:
    """``need = reserved 33.2 + outside torch 1.6 = 34.8 GiB of 79.1 usable``, with the phase that sets it."""
    found = measured.need(_memory_page.entries(state))
    if found is None:
        return (
            "No GPU was measured: pilot-tui predict says what one would need."
            if any(r.memory for r in state.rows)
            else ""
        )
    unit = units.unit_for([found["bytes"]])
    rank = next(
        each
        for each in _memory_page.entries(state)
        if each["phase"] == found["phase"] and each.get("uuid") == found["uuid"]
    )
    reserved, outside = rank.get("reserved_peak"), rank.get("outside_torch") or 0
    if reserved is not None and reserved + outside == found["bytes"]:
        how = f"reserved {unit.show(reserved)} + outside torch {unit.show(outside)} = {unit.show(found['bytes'])}"
    else:
        how = f"the highest used, sampled: {unit.show(found['bytes'])}"
    text = f"Need: {how} {unit.name}, set by {found['phase']}"
    if found["usable_bytes"]:
        left = max(0.0, found["margin"])
        text += f"; {unit.show(found['usable_bytes'])} usable, {left:.0%} free"
    return f"{text}. On another GPU what is outside torch differs: repeat the pilot there."


def host(state: RunState) -> str:
    """``Host: peak 41.2 GiB of 503.0 GiB (cgroup limit), 2.1 GiB pinned``, all ranks of the phase together."""
    best: tuple[int, Any] | None = None
    for row in state.rows:
        peaks = [each["host_peak"] for each in row.memory if isinstance(each.get("host_peak"), int)]
        if peaks and (best is None or sum(peaks) > best[0]):
            best = (sum(peaks), row)
    if best is None:
        return ""
    total, row = best
    many = f" over {len(row.memory)} ranks" if len(row.memory) > 1 else ""
    text = f"Host: peak {size(total)}{many} in {row.phase}"
    rank = row.memory[0]
    if isinstance(rank.get("host_limit"), int):
        source = str(((rank.get("known") or {}).get("host_limit") or {}).get("source", "limit"))
        text += f" of {size(rank['host_limit'])} ({source})"
    pinned = [each["pinned_peak"] for each in row.memory if isinstance(each.get("pinned_peak"), int)]
    return text + (f", {size(sum(pinned))} pinned." if pinned else ".")


def saves(state: RunState) -> list[str]:
    """The first and the second save apart, and what the second left above the first's beginning."""
    parts = state.row("checkpoint").parts
    first, second = parts.get("first"), parts.get("second")
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return []
    said = [f"{name} {duration(part.get('duration_s'))}" for name, part in (("first", first), ("second", second))]
    before, after = first.get("allocated_before"), second.get("allocated_after")
    left = ""
    if isinstance(before, int) and isinstance(after, int):
        left = f", {size(after - before)} left over after" if after > before else ", nothing left over after"
    return [f"Save: {', '.join(said)}{left}."]
