"""The host's side of a memory row: resident, anonymous, mapped and pinned bytes, and the limit above them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch

from tui_pilot.devices import host

KEYS = ("host_peak", "rss_anon_peak", "rss_anon_after", "rss_file_peak", "pinned_peak", "host_limit")
NO_PINNED = "no accelerator"
OLD_TORCH = "this torch does not count pinned host memory"

limit = lru_cache(maxsize=1)(host.memory_limit)
"""The bytes that may be used here and what sets that limit; asked once per process."""


def pinned() -> dict[str, int] | None:
    """Pinned host memory that torch's own allocator holds, bytes, ``{"current", "peak"}``; None where it counts none.

    Blocks are rounded up to a power of two before the driver is asked for them, and these figures are rounded too.
    """
    counters = getattr(torch.cuda, "host_memory_stats", None)
    try:
        stats: Mapping[str, Any] = counters() if counters is not None else {}
    except (RuntimeError, AttributeError):
        return None
    found = {edge: stats.get(f"allocated_bytes.{edge}") for edge in ("current", "peak")}
    return {edge: int(value) for edge, value in found.items() if value is not None} or None


def pinned_begins(cuda: bool) -> dict[str, int] | str:
    """Pinned bytes at the start of a window, their peak started again; or why there are none to count."""
    if not cuda:
        return NO_PINNED
    try:
        torch.cuda.reset_peak_host_memory_stats()
    except (RuntimeError, AttributeError):
        return OLD_TORCH
    return pinned() or OLD_TORCH


def fill(
    row: dict[str, Any], known: dict[str, Any], resident: host.HostPeak, pinned_before: dict[str, int] | str
) -> None:
    """Put the host's keys and how each is known into a row; ``resident`` is one window's."""
    row["host_peak"] = resident.peak
    known["host_peak"] = (
        {"kind": "unchecked", "why": resident.why}
        if resident.bound is None
        else {"kind": "exact", "source": "VmHWM"}
        if resident.bound == "exact"
        else {"kind": "sampled", "readings": 2, "bound": "lower", "why": resident.why}
    )
    for name in ("rss_anon", "rss_file"):
        ends = [getattr(edge, name) for edge in (resident.before, resident.after)]
        seen = [value for value in ends if value is not None]
        row[f"{name}_peak"] = max(seen, default=None)
        known[f"{name}_peak"] = (
            {"kind": "sampled", "readings": len(seen), "bound": "lower"}
            if seen
            else {"kind": "unchecked", "why": "/proc does not say it"}
        )
    row["rss_anon_after"] = resident.after.rss_anon
    _pinned(row, known, pinned_before)
    row["host_limit"], source = limit()
    known["host_limit"] = {"kind": "exact" if row["host_limit"] is not None else "unchecked", "source": source}


def _pinned(row: dict[str, Any], known: dict[str, Any], before: dict[str, int] | str) -> None:
    after = None if isinstance(before, str) else pinned()
    if isinstance(before, str) or after is None:
        known["pinned_peak"] = {"kind": "unchecked", "why": before if isinstance(before, str) else OLD_TORCH}
        return
    row["pinned_peak"] = after.get("peak")
    known["pinned_peak"] = {"kind": "exact", "counter": "torch.cuda.host_memory_stats"}


def with_samples(row: dict[str, Any], highest: Mapping[str, int], readings: int, hz: float) -> None:
    """Raise the sampled peaks of a phase to what a thread saw between the edges of its windows."""
    for key, value in highest.items():
        own = row.get(key)
        if own is None:
            continue
        row[key] = max(own, value)
        how = dict(row["known"].get(key) or {})
        row["known"][key] = {**how, "hz": hz, "readings": int(how.get("readings") or 0) + readings}
