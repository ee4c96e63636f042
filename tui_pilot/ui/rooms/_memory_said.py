"""What the Memory room says of a run as a whole: what it needs, which phase sets it, the host, the saves. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.events.schema import PHASES_OF
from tui_pilot.sheet import measured
from tui_pilot.store.memory import binding_phase
from tui_pilot.store.state import RunState
from tui_pilot.text import MIB, duration, size
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import units
from tui_pilot.ui.rooms import _memory_page
from tui_pilot.ui.rooms._memory_page import Page


def whole(page: Page, width: int) -> list[Line]:
    """What the run needs of a GPU, what it took of the host, what a save took and left, and why cells are empty."""
    state = page.state
    said = [each for each in (need(state), host(state), *saves(state), alone(state)) if each]
    return [((f" {row}", "text"),) for text in said for row in paint.wrap(text, max(20, width - 2))]


def need(state: RunState) -> str:
    """``Need: reserved 33.2 + outside torch 1.6 = 34.8 GiB, set by resume``, and how far below the next phase is."""
    entries = _memory_page.entries(state)
    found = measured.need(entries)
    if found is None:
        return _of_a_cpu(state)
    unit = units.unit_for([found["bytes"]])
    rank = next(each for each in entries if each["phase"] == found["phase"] and each.get("uuid") == found["uuid"])
    reserved, outside = rank.get("reserved_peak"), rank.get("outside_torch") or 0
    if reserved is not None and abs(reserved + outside - found["bytes"]) < MIB:
        how = f"reserved {unit.show(reserved)} + outside torch {unit.show(outside)} = {unit.show(found['bytes'])}"
    else:
        how = f"the highest used, sampled: {unit.show(found['bytes'])}"
    text = f"Need: {how} {unit.name}, set by {found['phase']}"
    second = measured.need([each for each in entries if each["phase"] != found["phase"]])
    if second is not None:
        text += f"; {second['phase']} {_below(unit.show(found['bytes'] - second['bytes']))}"
    if found["usable_bytes"]:
        left = max(0.0, found["margin"])
        text += f". {unit.show(found['usable_bytes'])} usable, {left:.0%} free"
    return f"{text}. On another GPU what is outside torch differs: repeat the pilot there."


def _below(figure: str) -> str:
    return "needs as much" if float(figure.replace(",", "")) == 0 else f"is {figure} below"


def _of_a_cpu(state: RunState) -> str:
    """Which phase allocated most; a GPU's need is a prediction's."""
    peaks = {
        row.phase: peak
        for row in state.rows
        if row.phase not in (*PHASES_OF["data"], *measured.DIAGNOSTIC)
        and (peak := units.peak(row, "allocated_peak")) is not None
    }
    binding = binding_phase(state.rows)
    if not peaks or binding not in peaks:
        return _no_gpu(state) if any(peaks) else ""
    unit = units.unit_for(peaks.values())
    rest = {phase: peak for phase, peak in peaks.items() if phase != binding}
    text = f"Most is allocated in {binding}: {unit.show(peaks[binding])} {unit.name}"
    if rest:
        second = max(rest, key=lambda phase: rest[phase])
        text += f"; {second} {_below(unit.show(max(0, peaks[binding] - rest[second])))}".replace("needs", "allocates")
    return f"{text}. {_no_gpu(state)}"


def _no_gpu(state: RunState) -> str:
    """Why there is no need here: nothing trained on a GPU, though the box may have some."""
    if any(row.devices for row in state.rows):
        return (
            "It trained on the CPU: what the GPUs hold is not this run's. pilot-tui predict says what one would need."
        )
    return "No GPU was measured: pilot-tui predict says what one would need."


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


def alone(state: RunState) -> str:
    """``overfit and reload ran on one rank alone, so the other cells are – and not 0``."""
    count = _memory_page.ranks(state)
    few = [row.phase for row in state.rows if 0 < len(row.memory) < count and row.phase not in PHASES_OF["data"]]
    if not few:
        return ""
    word = _memory_page.device_word(state)
    return f"{_listed(few)} ran on {word} 0 alone, so the other cells are – and not 0."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
