"""The Memory room's pane "at the peak": what fills one phase's peak, and how its counters nest. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import units
from tui_pilot.ui.parts.units import Unit
from tui_pilot.ui.rooms import _memory_page
from tui_pilot.ui.rooms._memory_page import Page, rank_of

MOST_NAME = 22
MOST_BAR = 40
_READINGS = re.compile(r", [\d,]+ readings")


@dataclass(frozen=True)
class Kinds:
    """What the peak is made of, bytes by kind, the largest first; ``measured``: torch was asked when it overflowed."""

    held: tuple[tuple[str, int], ...]
    measured: bool


def kinds(page: Page) -> Kinds:
    """The kinds that were measured (an out-of-memory names what it held), else those that were predicted."""
    for reason in page.row.reasons:
        where = reason.get("where")
        largest = where.get("largest") if isinstance(where, Mapping) else None
        if isinstance(largest, Mapping) and largest:
            return Kinds(_ordered(largest), True)
    return Kinds(_ordered((page.predicted.get(page.row.phase) or {}).get("at_peak")), False)


def _ordered(found: Any) -> tuple[tuple[str, int], ...]:
    held = found.items() if isinstance(found, Mapping) else ()
    named = [(str(name).replace("_", " "), value) for name, value in held if isinstance(value, int) and value > 0]
    return tuple(sorted(named, key=lambda item: -item[1]))


def lines(page: Page, width: int, legend: str = "", focused: bool = False, height: int = 99) -> list[Line]:
    """Kinds with bars, then allocated, cached, reserved, outside torch, used, usable, each with how it is known.

    Where ``height`` is short the number of readings goes first: their rate still says that it is a floor.
    """
    whole = _lines(page, width, legend, focused, True)
    return whole if len(whole) <= height else _lines(page, width, legend, focused, False)


def _lines(page: Page, width: int, legend: str, focused: bool, roomy: bool) -> list[Line]:
    row, rank, found = page.row, rank_of(page, page.row), kinds(page)
    running = row.running and page.snapshot.live
    rungs = _live_ladder(page) if running else _ladder(rank)
    inner = [value for name, value, _ in rungs if value is not None and not name.startswith("host")]
    figures = [value for _, value in found.held] + inner
    unit = units.unit_for(figures)
    sign = "" if found.measured else "~"
    wide = max([5, *(len(unit.show(value)) for value in figures)]) + 1
    where = f"{_memory_page.device_word(page.state)} {rank.get('rank', page.rank)}"
    out: list[Line] = [paint.rule("at the peak", legend, width, "running" if focused else "head")]
    out.append(((f" {row.phase}, {where}, {unit.name}", "head"),))
    if found.held:
        top = found.held[0][1]
        names = min(MOST_NAME, max(len(name) for name, _ in found.held))
        bar = max(4, min(MOST_BAR, width - wide - names - 4))
        for name, count in found.held:
            cells = f" {sign + unit.show(count):>{wide}} "
            drawn = paint.bar(count / top, bar).ljust(bar)
            out.append(((cells, "text"), (drawn, "bar"), (f" {paint.left(name, names)}".rstrip(), "text")))
        out += _said("measured when memory ran out" if found.measured else "~ predicted: no kind is counted", width)
    else:
        out += _said(f"what fills it: not predicted for {row.phase}", width)
    if roomy:
        out.append(paint.EMPTY)
    if not rungs or not (rank or running):
        return [*out, *_said(_unmeasured(page), width)]
    for name, value, known in rungs:
        if value is None and not known:
            continue
        own = units.unit_for([value]) if name.startswith("host") else unit
        figure = own.show(value, "NA")
        said = name if own is unit else f"{own.name} {name}"
        how = known if roomy else _READINGS.sub("", known)
        text = paint.wrap(f"{said}{', ' + how if how else ''}", max(8, width - wide - 2))
        out += [
            ((f" {figure if n == 0 else '':>{wide}} ", "text"), (piece, "text" if n == 0 else "dim"))
            for n, piece in enumerate(text)
        ]
    return out


def _unmeasured(page: Page) -> str:
    row = page.row
    if row.running and page.snapshot.live:
        return f"{row.phase} runs and has said nothing yet: its peak is known at its end"
    return f"{row.phase} has not been measured"


def _said(text: str, width: int) -> list[Line]:
    return [((f" {piece}", "dim"),) for piece in paint.wrap(text, max(8, width - 2))]


def _live_ladder(page: Page) -> list[tuple[str, int | None, str]]:
    """What the selected rank held at most so far; nothing where it has said nothing yet."""
    live = next((each for each in page.snapshot.ranks if each.rank == page.rank), None)
    if live is None:
        return []
    out: list[tuple[str, int | None, str]] = [("allocated so far", live.allocated_highest, "live: a floor")]
    if live.reserved_highest is not None:
        out.append(("reserved so far", live.reserved_highest, "live: a floor"))
    for counter, name in (("device_used_peak", "used so far, the highest gpu"), ("host_peak", "host so far")):
        value = units.so_far(page.snapshot, page.row, counter)
        if value is not None:
            out.append((name, value, "sampled: a floor"))
    return out


def _ladder(rank: Mapping[str, Any]) -> list[tuple[str, int | None, str]]:
    """(name, bytes, how known), from the inside out."""
    allocated, reserved = _int(rank.get("allocated_peak")), _int(rank.get("reserved_peak"))
    used, usable, total = (_int(rank.get(name)) for name in ("device_used_peak", "device_usable", "device_total"))
    out: list[tuple[str, int | None, str]] = [("allocated", allocated, units.how_known(rank, "allocated_peak"))]
    if reserved is None and used is None:
        # One line says what a CPU has none of; host memory is what there is.
        why = units.how_known(rank, "reserved_peak").removeprefix("unchecked: ")
        out.append(("reserved, used", None, why))
        out.append(("model and state", _int(rank.get("reachable")), _known(rank, "reachable")))
        out.append(("host", _int(rank.get("host_peak")), _known(rank, "host_peak")))
        out.append(("host in all", _int(rank.get("host_limit")), _source(rank, "host_limit")))
        return [each for each in out if each[1] is not None or each[0] == "reserved, used"]
    if allocated is not None and reserved is not None:
        out.append(("cached by torch", reserved - allocated, ""))
    out.append(("reserved", reserved, units.how_known(rank, "reserved_peak")))
    outside = _int(rank.get("outside_torch"))
    out.append(("outside torch: context, NCCL, others", outside, _known(rank, "outside_torch")))
    out.append(("used", used, units.how_known(rank, "device_used_peak")))
    if usable is not None:
        of = f"usable of {_unit(total).show(total)}" if total is not None else "usable"
        out.append((of, usable, "the driver keeps the rest" if total is not None else ""))
    return out


def _unit(value: int | None) -> Unit:
    return units.unit_for([value])


def _known(rank: Mapping[str, Any], name: str) -> str:
    known = rank.get("known")
    return units.how_known(rank, name) if isinstance(known, Mapping) and name in known else ""


def _source(rank: Mapping[str, Any], name: str) -> str:
    how = (rank.get("known") or {}).get(name)
    return str(how.get("source") or "") if isinstance(how, Mapping) else ""


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) else None
