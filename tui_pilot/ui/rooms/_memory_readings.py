"""Every reading of the Memory room's selected phase. What the run as a whole needs is in ``_memory_said``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.text import size
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import units
from tui_pilot.ui.rooms._memory_page import Page, rank_of

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


def readings(page: Page, width: int, legend: str = "", focused: bool = False) -> list[Line]:
    """One rank of the selected phase: each counter before, at its peak and after, and how it is known."""
    row = page.row
    role = "running" if focused else "head"
    if row.running and page.snapshot.live:
        return _live(page, width, legend, role)
    where = ""
    rank: Mapping[str, Any] = {}
    if row.memory:
        rank = rank_of(page, row)
        where = f", rank {rank.get('rank', 0)} on {rank.get('device', 'an unknown device')}"
    lines = [paint.rule(f"{row.phase}{where}: every reading", legend, width, role)]
    if not rank:
        return [*lines, ((f" {row.phase} has not been measured", "dim"),)]
    wide = width >= 105
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
        if len(known) > width - 31 - len(figures):
            known = known.removeprefix("sampled ")  # its rate says so
        lines.append(((f"   {long:<26}{figures}", role), (f"  {known}", "dim")))
    return [*lines, *_notes(rank)]


def _live(page: Page, width: int, legend: str, role: str) -> list[Line]:
    """The running phase: what a rank holds since the last paint and at its highest so far."""
    row = page.row
    rank = next((each for each in page.snapshot.ranks if each.rank == page.rank), None)
    where = f", rank {rank.rank} on {rank.device or 'an unknown device'}" if rank is not None else ""
    lines = [paint.rule(f"{row.phase}{where}: live", legend, width, role)]
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
