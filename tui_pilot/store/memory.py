"""Joins what the supervisor read of the devices to what the ranks counted, and finds the phase that sets the need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tui_pilot.events.schema import PHASES_OF, STAGES
from tui_pilot.store.state import Row

DIAGNOSTIC = (*PHASES_OF["data"], "overfit")


def bare(uuid: Any) -> str | None:
    """A GPU's UUID without the maker's prefix, for comparison."""
    if not isinstance(uuid, str) or not uuid:
        return None
    return uuid.removeprefix("GPU-").removeprefix("MIG-").lower()


def with_devices(memory: Iterable[Mapping[str, Any]], devices: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Memory rows of the ranks with NVML's figures of the same GPU, found by UUID, never by index."""
    by_uuid = {bare(gpu.get("uuid")): gpu for gpu in devices if bare(gpu.get("uuid")) is not None}
    joined = []
    for row in memory:
        gpu = by_uuid.get(bare(row.get("uuid")))
        joined.append(dict(row) if gpu is None else _join(row, gpu))
    return joined


def _join(row: Mapping[str, Any], gpu: Mapping[str, Any]) -> dict[str, Any]:
    known = dict(row.get("known") or {})
    out = dict(row)
    for key, theirs in (("device_usable", "usable"), ("device_total", "total")):
        if gpu.get(theirs) is not None:
            out[key] = gpu[theirs]
            known[key] = {"kind": "exact", "source": "NVML"}
    if gpu.get("used_before") is not None:
        out["device_used_before"] = gpu["used_before"]
    if gpu.get("used_peak") is not None:
        out["device_used_peak"] = gpu["used_peak"]
        known["device_used_peak"] = {
            "kind": "sampled",
            "source": "NVML",
            "hz": gpu.get("hz"),
            "readings": gpu.get("readings"),
            "longest_gap_s": gpu.get("longest_gap_s"),
            "bound": "lower",
        }
        if gpu.get("error"):
            known["device_used_peak"]["why"] = gpu["error"]
    elif gpu.get("error"):
        known["device_used_peak"] = {"kind": "unchecked", "why": gpu["error"]}
    out["known"] = known
    return out


def binding_phase(rows: Sequence[Row]) -> str | None:
    """The phase in which reserved memory (on a CPU: allocated) *first* reached the run's maximum.

    A peak reset starts the reserved peak at what is reserved now, so later phases show the same number without having
    caused it. Diagnostic phases never bind. None where nothing was measured.
    """
    by_phase = {row.phase: row for row in rows}
    order = [by_phase[phase] for stage in STAGES for phase in PHASES_OF[stage] if phase in by_phase]
    measured = [row for row in order if row.phase not in DIAGNOSTIC]
    key = "reserved_peak" if any(_peak(row, "reserved_peak") is not None for row in measured) else "allocated_peak"
    best: tuple[int, str] | None = None
    for row in measured:
        peak = _peak(row, key)
        if peak is not None and (best is None or peak > best[0]):
            best = (peak, row.phase)
    return best[1] if best is not None else None


def _peak(row: Row, key: str) -> int | None:
    """The highest rank's figure; on a CPU with what is mapped from the weight files, which the allocator never saw."""
    values = [
        each[key] + (each.get("mapped") or 0 if key == "allocated_peak" else 0)
        for each in row.memory
        if isinstance(each.get(key), int)
    ]
    return max(values, default=None)
