"""Memory of one rank around one window of work, and how each number is known.

``Meter.window`` opens a window: synchronize, reset peaks, read *before*; the work; synchronize, read *peak* and
*after*, stop the clock. No cache flush, no garbage collection and no cloning happens inside a window.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from tui_pilot.devices import host
from tui_pilot.observe import host_memory
from tui_pilot.observe.native import Counter, DispatchCounter, open_native

POLL_SECONDS = 0.001
# Reading every millisecond costs a step below half a second 5 to 7%, every 5 ms no more than its own spread
# (tests/benchmarks). A short piece of work whose peak was seen twice is therefore looked at more rarely from then on.
RARE_POLL_SECONDS = 0.005
SHORT_SECONDS = 0.5
SEEN_OFTEN_ENOUGH = 2
NO_ACCELERATOR = "no accelerator"
AMD = "AMD: torch's own numbers only; NVML is NVIDIA's, and AMD's library is not asked"


@dataclass
class Window:
    """One measured window: seconds on the monotonic clock, and the memory row of this rank."""

    duration_s: float = 0.0
    memory: dict[str, Any] = field(default_factory=dict)


class Meter:
    """Reads one rank's memory. On CUDA the allocator's own exact counters, on a CPU c10's counter, polled."""

    def __init__(self, device: torch.device, rank: int) -> None:
        self.device = device
        self.rank = rank
        self.cuda = device.type == "cuda"
        self.amd = self.cuda and getattr(torch.version, "hip", None) is not None
        self.counter: Counter | None = None
        self.counter_note = "torch.cuda.memory_stats"
        self.uuid: str | None = None
        self._mode: DispatchCounter | None = None
        if self.cuda:
            properties = torch.cuda.get_device_properties(device)
            value = getattr(properties, "uuid", None)
            self.uuid = None if value is None else f"GPU-{str(value).removeprefix('GPU-')}"
        else:
            self.counter, self.counter_note = open_native()
            if self.counter is None:
                self._mode = DispatchCounter()
                self.counter = self._mode
        self._poll = _Poll(self.counter) if self.counter is not None else None
        self._peaks = (0, 0)

    @contextmanager
    def window(self, earlier: Sequence[Window] = ()) -> Iterator[Window]:
        """Measure the work inside the ``with``; the window is filled in also when the work raises.

        ``earlier`` are windows of the same work, the last one last.
        """
        window = Window()
        before = self._before(poll_seconds(earlier))
        started = time.monotonic()
        try:
            if self._mode is not None:
                with self._mode:
                    yield window
            else:
                yield window
        finally:
            try:
                self._synchronize()
            except RuntimeError:
                window.memory["known"] = {"allocated_peak": {"kind": "unchecked", "why": "the device failed"}}
            window.duration_s = time.monotonic() - started
            window.memory = self._after(before) | window.memory

    def _synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def _before(self, poll: float) -> dict[str, Any]:
        self._synchronize()
        before: dict[str, Any] = {"host": host.PeakWatch(), "pinned": host_memory.pinned_begins(self.cuda)}
        if self.cuda:
            stats = torch.cuda.memory_stats(self.device)
            before |= {
                "allocated": stats.get("allocated_bytes.all.current", 0),
                "reserved": stats.get("reserved_bytes.all.current", 0),
                "retries": stats.get("num_alloc_retries", 0),
                "ooms": stats.get("num_ooms", 0),
                "used": self._device_used(),
            }
            torch.cuda.reset_peak_memory_stats(self.device)
        elif self._poll is not None:
            before["allocated"] = self._poll.start(poll)
            before["hz"] = round(1 / poll)
        return before

    def _after(self, before: dict[str, Any]) -> dict[str, Any]:
        row = empty_row(self.rank, self.device, self.uuid)
        known: dict[str, Any] = {}
        if self.cuda:
            self._after_cuda(before, row, known)
        elif self._poll is not None:
            peak, after, readings = self._poll.stop()
            row |= {"allocated_before": before["allocated"], "allocated_peak": peak, "allocated_after": after}
            name = self.counter.name if self.counter is not None else "c10"
            known["allocated_before"] = known["allocated_after"] = {"kind": "exact", "counter": name}
            known["allocated_peak"] = {
                "kind": "sampled",
                "counter": name,
                "hz": before["hz"],
                "readings": readings,
                "bound": "lower",
            }
            for key in ("reserved_peak", "device_used_peak", "outside_torch", "process_peak"):
                known[key] = {"kind": "unchecked", "why": NO_ACCELERATOR}
        host_memory.fill(row, known, before["host"].read(), before["pinned"])
        row["known"] = known
        return row

    def _after_cuda(self, before: dict[str, Any], row: dict[str, Any], known: dict[str, Any]) -> None:
        stats = torch.cuda.memory_stats(self.device)
        used = self._device_used()
        row |= {
            "allocated_before": before["allocated"],
            "allocated_peak": stats.get("allocated_bytes.all.peak", 0),
            "allocated_after": stats.get("allocated_bytes.all.current", 0),
            "reserved_before": before["reserved"],
            "reserved_peak": stats.get("reserved_bytes.all.peak", 0),
            "reserved_after": stats.get("reserved_bytes.all.current", 0),
            "active_peak": stats.get("active_bytes.all.peak", 0),
            "alloc_retries": stats.get("num_alloc_retries", 0) - before["retries"],
            "ooms": stats.get("num_ooms", 0) - before["ooms"],
            "device_used_before": before["used"],
        }
        for key in ("allocated", "reserved"):
            for edge in ("before", "peak", "after"):
                known[f"{key}_{edge}"] = {"kind": "exact", "counter": "torch.cuda.memory_stats"}
        known["active_peak"] = {"kind": "exact", "counter": "torch.cuda.memory_stats"}
        edges = [
            device - reserved
            for device, reserved in ((before["used"], before["reserved"]), (used, row["reserved_after"]))
            if device is not None and device >= reserved
        ]
        row["outside_torch"] = max(edges, default=None)
        known["outside_torch"] = (
            {
                "kind": "sampled",
                "source": "cudaMemGetInfo less reserved, at both edges",
                "readings": 2,
                "bound": "lower",
            }
            if edges
            else {"kind": "unchecked", "why": "the device's used bytes were below torch's own"}
        )
        driver = "hipMemGetInfo" if self.amd else "cudaMemGetInfo"
        # What the driver gives programs at most: it stands where NVML, which knows the reserve, says nothing.
        row["device_usable"] = self._device_bytes()[1]
        known["device_usable"] = {"kind": "exact", "source": driver}
        why = AMD if self.amd else "read by the supervisor through NVML"
        known["device_used_peak"] = {"kind": "unchecked", "why": why}
        known["process_peak"] = {"kind": "unchecked", "why": AMD if self.amd else "NVML accounting is off"}

    def _device_used(self) -> int | None:
        free, total = self._device_bytes()
        return None if free is None or total is None else total - free

    def _device_bytes(self) -> tuple[int | None, int | None]:
        """(free, total) as the driver tells this process; a context exists here anyway."""
        try:
            return torch.cuda.mem_get_info(self.device)
        except RuntimeError:
            return None, None

    def highest(self) -> tuple[int | None, int | None]:
        """Allocated and reserved, the highest since this was last asked as far as the counters know it.

        For one thread beside the training one. On CUDA the allocator's peak is that highest where it moved since the
        last look (a new window starts it again); on a CPU what the poll saw.
        """
        if not self.cuda:
            return (self._poll.highest() if self._poll is not None else None), None
        stats = torch.cuda.memory_stats(self.device)
        names = ("allocated_bytes.all", "reserved_bytes.all")
        peaks = tuple(int(stats.get(f"{name}.peak", 0)) for name in names)
        now = tuple(int(stats.get(f"{name}.current", 0)) for name in names)
        allocated, reserved = (
            peak if peak != last else current for peak, last, current in zip(peaks, self._peaks, now, strict=True)
        )
        self._peaks = (peaks[0], peaks[1])
        return allocated, reserved

    def now(self) -> tuple[int | None, int | None]:
        """Allocated and reserved bytes at this moment; None where there is no such counter."""
        if self.cuda:
            return torch.cuda.memory_allocated(self.device), torch.cuda.memory_reserved(self.device)
        return (self.counter.read() if self.counter is not None else None), None


def empty_row(rank: int, device: torch.device, uuid: str | None) -> dict[str, Any]:
    """A memory row in which nothing is known yet: every number null, never 0."""
    keys = (
        "allocated_before",
        "allocated_peak",
        "allocated_after",
        "reserved_before",
        "reserved_peak",
        "reserved_after",
        "active_peak",
        "alloc_retries",
        "ooms",
        "device_used_before",
        "device_used_peak",
        "device_usable",
        "device_total",
        "outside_torch",
        "reachable",
        *host_memory.KEYS,
        "process_peak",
    )
    return {"rank": rank, "device": str(device), "uuid": uuid, **dict.fromkeys(keys), "known": {}}


def joined(windows: list[Window], rank: int, device: torch.device, uuid: str | None) -> dict[str, Any]:
    """One row over several windows of a phase: first *before*, highest peaks, last *after*, counts added."""
    rows = [window.memory for window in windows if window.memory]
    if not rows:
        return empty_row(rank, device, uuid)
    row = dict(rows[-1])
    for key in rows[0]:
        values = [each[key] for each in rows if isinstance(each.get(key), int)]
        if key.endswith("_before"):
            row[key] = rows[0][key]
        elif key.endswith("_peak") or key == "outside_torch":
            row[key] = max(values, default=None)
        elif key in ("alloc_retries", "ooms"):
            row[key] = sum(values) if values else None
    known = {key: dict(value) for key, value in rows[-1]["known"].items()}
    for key, value in known.items():
        counts = [each["known"].get(key, {}).get("readings") for each in rows]
        if "readings" in value:
            value["readings"] = sum(count for count in counts if count)
        rates = [each["known"].get(key, {}).get("hz") for each in rows]
        if isinstance(value.get("hz"), (int, float)):
            value["hz"] = min(rate for rate in rates if rate)
    row["known"] = known
    return row


def poll_seconds(earlier: Sequence[Window]) -> float:
    """How often to look at work of which these windows were measured before."""
    known = len(earlier) >= SEEN_OFTEN_ENOUGH and earlier[-1].duration_s < SHORT_SECONDS
    return RARE_POLL_SECONDS if known else POLL_SECONDS


def reachable_bytes(model: Any, optimizer: Any = None) -> int:
    """Bytes of the distinct storages of parameters, buffers, gradients and optimizer state."""
    seen: dict[int, int] = {}

    def note(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            seen[storage.data_ptr() or id(storage)] = storage.nbytes()

    for tensor in [*model.parameters(), *model.buffers()]:
        note(tensor)
        note(tensor.grad)
    for state in getattr(optimizer, "state", {}).values():
        for value in state.values() if isinstance(state, dict) else ():
            note(value)
    return sum(seen.values())


class _Poll:
    """A light thread that reads a counter every few milliseconds while a window is open."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._peak = 0
        self._since = 0
        self._readings = 0
        self._seconds = POLL_SECONDS
        self._open = threading.Event()
        threading.Thread(target=self._run, name="memory-poll", daemon=True).start()

    def start(self, seconds: float = POLL_SECONDS) -> int:
        now = self._counter.read()
        self._peak, self._readings, self._seconds = now, 1, seconds
        self._open.set()
        return now

    def highest(self) -> int:
        """The highest since this was last asked; between windows, where nothing polls, what is held now."""
        now = self._counter.read()
        highest, self._since = max(self._since, now), now
        return highest

    def stop(self) -> tuple[int, int, int]:
        self._open.clear()
        now = self._counter.read()
        return max(self._peak, now), now, self._readings + 1

    def _run(self) -> None:
        while True:
            self._open.wait()
            now = self._counter.read()
            self._peak = max(self._peak, now)
            self._since = max(self._since, now)
            self._readings += 1
            time.sleep(self._seconds)
