"""A thread that reads the GPUs all through a run and keeps the highest memory of each stretch.

A sampled peak is a lower bound: the true one may lie between two readings. So each window says how many readings it
had, at which rate, and the longest gap between two of them (a stalled driver, a paused machine).
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from tui_pilot.devices.readings import Gpu, Inventory, Reading
from tui_pilot.devices.sample_file import SampleFile

SENSORS_S, SLOW_S = 0.5, 2.0  # utilization and power at 2 Hz; temperature, power limit and throttling at 0.5 Hz
EDGE_WAIT_S = 0.5  # a phase edge waits this long for a fresh reading: a stuck driver must not hold the run up
_SENSORS = ("utilization", "power_w", "temperature", "power_limit_w", "throttle")


class Reader(Protocol):
    """Where readings come from: `Nvml`, or a scripted stand-in."""

    def open(self) -> Inventory: ...

    def read(self, gpu: Gpu, slow: bool = False, sensors: bool = False) -> Reading: ...


@dataclass
class _Window:
    """One GPU between two marks. Bytes; seconds of time.monotonic()."""

    since: float
    last: float
    before: int | None = None
    peak: int | None = None
    after: int | None = None
    readings: int = 0
    gap: float = 0.0
    error: str | None = None

    def take(self, reading: Reading) -> None:
        self.after = reading.used
        self.error = reading.error or self.error
        if reading.used is None:
            return
        self.gap, self.last = max(self.gap, reading.at_mono - self.last), max(self.last, reading.at_mono)
        self.readings += 1
        self.peak = reading.used if self.peak is None else max(self.peak, reading.used)


class Sampler:
    """Reads every GPU `hz` times a second from `start()` to `stop()`; `hz` may be changed at any time.

    After `start()` only the sampler's thread talks to the driver. `dropped` counts lines the disk did not take and
    `sink_error` says why; neither stops the sampling.
    """

    def __init__(self, nvml: Reader, hz: float = 20.0, sink: str | os.PathLike[str] | None = None) -> None:
        self.hz = hz
        self.inventory = Inventory(why="the sampler was not started")
        self._nvml = nvml
        self._path = None if sink is None else Path(sink)
        self._sink: SampleFile | None = None
        self._turn = threading.Condition()
        self._asked = self._served = 0
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._latest: dict[str, Reading] = {}
        self._windows: dict[str, _Window] = {}
        self._error_since: dict[str, float] = {}

    @property
    def dropped(self) -> int:
        return self._sink.dropped if self._sink else 0

    @property
    def sink_error(self) -> str | None:
        return self._sink.error if self._sink else None

    def start(self) -> Inventory:
        """Open NVML and begin; without a GPU nothing runs and the inventory says why."""
        self.inventory = self._nvml.open()
        if self._path is not None:
            self._sink = SampleFile(self._path)
            self._sink.gpus(self.inventory.gpus)
        now = time.monotonic()
        self._windows = {gpu.key: _Window(now, now) for gpu in self.inventory.gpus}
        if self.inventory.gpus:
            self._thread = threading.Thread(target=self._run, name="nvml-sampler", daemon=True)
            self._thread.start()
            with self._turn:
                self._edge()
                for key, reading in self._latest.items():
                    self._windows[key].before = reading.used
        return self.inventory

    def mark(self, label: str) -> dict[str, dict[str, Any]]:
        """Close the window since the last mark and start the next: {GPU key: row}.

        A row is `{uuid, index, used_before, used_peak, used_after, usable, total, readings, hz, longest_gap_s, error,
        error_since}`: bytes, the rate really reached, Unix seconds. The reading at the edge belongs to both windows.
        Without a fresh reading in time the row's error says so and `used_after` is the last one known.
        """
        with self._turn:
            fresh = self._edge()
            now = time.monotonic()
            rows = {}
            for gpu in self.inventory.gpus:
                window = self._windows[gpu.key]
                rows[gpu.key] = self._row(gpu, window, now, fresh)
                self._windows[gpu.key] = _Window(now, now, window.after, window.after, window.after)
        if self._sink is not None:
            self._sink.mark(label)
        return rows

    def latest(self) -> dict[str, Reading]:
        """The newest reading of each GPU key, fast and slow figures together."""
        with self._turn:
            return dict(self._latest)

    def stop(self) -> None:
        """End the thread and close the file; a thread stuck in the driver is left behind, as a daemon."""
        with self._turn:
            self._stopping = True
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join(timeout=2.0)
        if self._sink is not None:
            self._sink.close()

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _edge(self) -> bool:
        """Ask the thread for a reading now and wait for it, holding the lock; whether it came in time."""
        if self._thread is None or not self._thread.is_alive():
            return False
        self._asked += 1
        ticket = self._asked
        self._turn.notify_all()
        return self._turn.wait_for(lambda: self._served >= ticket, timeout=EDGE_WAIT_S)

    def _row(self, gpu: Gpu, window: _Window, now: float, fresh: bool) -> dict[str, Any]:
        span = now - window.since
        return {
            "uuid": gpu.uuid,
            "index": gpu.index,
            "used_before": window.before,
            "used_peak": window.peak,
            "used_after": window.after,
            "usable": gpu.usable,
            "total": gpu.total,
            "readings": window.readings,
            "hz": round(window.readings / span, 2) if window.readings and span > 0 else None,
            "longest_gap_s": round(max(window.gap, now - window.last), 3),
            "error": window.error or (None if fresh else "the driver gave no reading in time at the phase edge"),
            "error_since": self._error_since.get(gpu.key),
        }

    def _run(self) -> None:
        sensors_at = slow_at = due = time.monotonic()
        while True:
            with self._turn:
                wait = max(0.0, due - time.monotonic())
                self._turn.wait_for(lambda: self._stopping or self._asked > self._served, timeout=wait)
                if self._stopping:
                    return
                ticket = self._asked
            now = time.monotonic()
            slow, sensors = now >= slow_at, now >= sensors_at
            slow_at, sensors_at = now + SLOW_S if slow else slow_at, now + SENSORS_S if sensors else sensors_at
            readings = [self._read(gpu, slow, sensors) for gpu in self.inventory.gpus]
            with self._turn:
                merged = [self._take(reading) for reading in readings]
                self._served = ticket
                self._turn.notify_all()
            if self._sink is not None:
                for reading in merged:
                    self._sink.sample(reading)
            if now >= due:
                # No burst to catch up after a stall, and a rest for the driver where the readings fill the period.
                due = max(due + 1 / self.hz, time.monotonic() + 0.25 / self.hz)

    def _read(self, gpu: Gpu, slow: bool, sensors: bool) -> Reading:
        try:
            return self._nvml.read(gpu, slow=slow, sensors=sensors)
        except Exception as error:
            return Reading(gpu.key, time.monotonic(), error=f"{type(error).__name__}: {error}")

    def _take(self, reading: Reading) -> Reading:
        """Count a reading, the lock held; figures it did not ask for keep their last value and reason."""
        key, old = reading.uuid, self._latest.get(reading.uuid)
        if reading.error is None:
            self._error_since.pop(key, None)
        else:
            self._error_since.setdefault(key, time.time())
        asked = {name for name in _SENSORS if getattr(reading, name) is not None} | dict(reading.missing).keys()
        if old is not None and reading.code == old.code:
            kept = {name: getattr(old, name) for name in _SENSORS if name not in asked}
            missing = tuple(pair for pair in old.missing if pair[0] not in asked)
            reading = replace(reading, missing=reading.missing + missing, **kept)
        self._latest[key] = reading
        self._windows[key].take(reading)
        return reading
