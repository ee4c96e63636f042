"""Memory figures of a column: one unit for all of them, unknown never 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tui_pilot.store.state import Row
from tui_pilot.text import GIB, MIB
from tui_pilot.ui.snapshot import Snapshot

COUNTERS = ("allocated_peak", "reserved_peak", "device_used_peak", "outside_torch", "host_peak")


@dataclass(frozen=True)
class Unit:
    """GiB or MiB."""

    name: str
    bytes: int

    def show(self, value: int | None, unknown: str = "–") -> str:
        """The figure with one decimal, without the unit's name."""
        return unknown if value is None else f"{value / self.bytes:,.1f}"


GIBS, MIBS = Unit("GiB", GIB), Unit("MiB", MIB)


def unit_for(values: Iterable[int | None]) -> Unit:
    """GiB if the largest figure reaches one, else MiB."""
    return GIBS if max((value for value in values if value is not None), default=0) >= GIB else MIBS


def peak(row: Row, counter: str) -> int | None:
    """The highest of a counter over the ranks of a phase; for device used also what the supervisor sampled."""
    found = [value for rank in row.memory if isinstance(value := rank.get(counter), int)]
    if counter == "device_used_peak":
        found += [value for gpu in row.devices if isinstance(value := gpu.get("used_peak"), int)]
    return max(found, default=None)


def so_far(snapshot: Snapshot, row: Row, counter: str) -> int | None:
    """The highest of a running phase until now: what its ended parts and its ranks' live lines say; a floor.

    Device used and the host's memory are what is seen from outside since the phase began.
    """
    found = [part.get(counter) for part in row.parts.values() if isinstance(part, Mapping)]
    if counter == "host_peak":
        found.append(snapshot.host_peak)
    elif counter == "device_used_peak":
        found += [gpu.phase_peak for gpu in snapshot.gpus]
    else:
        stem = f"{counter.removesuffix('_peak')}_highest"
        found += [getattr(live, stem, None) for live in snapshot.state.live.values() if live.phase == row.phase]
    return max((value for value in found if isinstance(value, int)), default=None)


def on_gpu(rows: Iterable[Row]) -> bool:
    """Whether any phase so far was measured on a CUDA device."""
    return any(str(rank.get("device", "")).startswith("cuda") for row in rows for rank in row.memory)


def is_sampled(rows: Iterable[Row], counter: str) -> bool:
    """Whether the counter is a floor (polled) rather than exact, as the rows themselves say."""
    for row in rows:
        for rank in row.memory:
            known = rank.get("known")
            how = known.get(counter) if isinstance(known, Mapping) else None
            if isinstance(how, Mapping) and how.get("kind") == "sampled":
                return True
    return False


def how_known(memory: Mapping[str, Any], counter: str) -> str:
    """``exact``, ``sampled 20 Hz, 41 readings: a floor``, ``unchecked: why``."""
    known = memory.get("known")
    how = known.get(counter) if isinstance(known, Mapping) else None
    if not isinstance(how, Mapping):
        return "exact" if memory.get(counter) is not None else "unchecked"
    kind = str(how.get("kind", "unchecked"))
    if kind == "sampled":
        rate = f" {how['hz']:g} Hz" if isinstance(how.get("hz"), (int, float)) else ""
        readings = f", {how['readings']:,} readings" if isinstance(how.get("readings"), int) else ""
        return f"sampled{rate}{readings}: a floor"
    why = how.get("why")
    return f"{kind}: {why}" if why else kind
