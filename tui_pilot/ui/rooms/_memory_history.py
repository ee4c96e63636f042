"""Memory over a whole run, from the files it was written to: read once, thinned, and bounded however long they get.

``samples/*.jsonl`` has what NVML said of each GPU. A run without one has the live lines of its ranks in ``events/``.
Of every stretch of time the highest reading is kept; a run that outgrows the stretches gets longer ones.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tui_pilot.run_folder import RunFolder

Points = tuple[tuple[float, int], ...]
"""(monotonic seconds, bytes) of one GPU or rank, in order."""

STRETCHES, ALL_STRETCHES, LEAST_STRETCHES = 2048, 16384, 256
FIRST_STEP_S = 0.1
CHUNK = 1 << 20
_SAMPLE = re.compile(
    rb'\{"kind": ?"sample", ?"gpu": ?"([^"\\]+)", ?"mono": ?([\d.]+), ?"time": ?[\d.]+, ?"used": ?(\d+)'
)


@dataclass(frozen=True)
class History:
    """What was read: by GPU (its UUID) or by rank (``rank 0``).

    ``counter`` is ``device_used_peak`` where GPUs were sampled, ``allocated_peak`` where only ranks spoke; ``read``
    is False until the files were looked at. ``at`` is when that was, monotonic seconds: a live chart ends there.
    """

    counter: str = "device_used_peak"
    tracks: Mapping[str, Points] = field(default_factory=dict)
    read: bool = False
    at: float = 0.0


class Thinned:
    """The highest of each stretch of time, of at most ``limit`` stretches that hold any reading."""

    def __init__(self, limit: int = STRETCHES, step: float = FIRST_STEP_S) -> None:
        self.limit, self.step = limit, step
        self._kept: dict[int, tuple[float, int]] = {}

    def add(self, at: float, value: int) -> None:
        place = int(at // self.step)
        old = self._kept.get(place)
        if old is None or value >= old[1]:
            self._kept[place] = (at, value)
            while len(self._kept) > self.limit:
                self._widen()

    def _widen(self) -> None:
        self.step *= 2
        old, self._kept = self._kept, {}
        for at, value in old.values():
            place = int(at // self.step)
            if place not in self._kept or value >= self._kept[place][1]:
                self._kept[place] = (at, value)

    def points(self) -> Points:
        return tuple(sorted(self._kept.values()))


class HistoryReader:
    """Follows one run's files from where it stopped. Not for the screen's own thread: the first look may be long."""

    def __init__(self, folder: RunFolder, limit: int = STRETCHES) -> None:
        self.folder, self._limit = folder, limit
        self._turn = threading.Lock()
        self._places: dict[Path, int] = {}
        self._gpus: dict[str, Thinned] = {}
        self._ranks: dict[str, Thinned] = {}

    def poll(self, cancelled: Callable[[], bool] = lambda: False) -> History:
        """Read what is new. Events are read only while no GPU was sampled: they are the longer file."""
        with self._turn:
            for path in _files(self.folder.samples):
                for line in self._lines(path, cancelled):
                    self._sample(line)
            if not self._gpus:
                for path in _files(self.folder.events):
                    for line in self._lines(path, cancelled):
                        if b'"live"' in line:
                            self._live(line)
            found = self._gpus or self._ranks
            counter = "device_used_peak" if self._gpus else "allocated_peak"
            return History(counter, {key: each.points() for key, each in found.items()}, True)

    def _lines(self, path: Path, cancelled: Callable[[], bool]) -> Iterator[bytes]:
        """Whole lines only: what is still being written is read next time."""
        try:
            with path.open("rb") as stream:
                stream.seek(self._places.get(path, 0))
                rest = b""
                while not cancelled():
                    data = stream.read(CHUNK)
                    if not data:
                        break
                    *lines, rest = (rest + data).split(b"\n")
                    yield from lines
                    self._places[path] = stream.tell() - len(rest)
                    time.sleep(0.002)  # keys come before history
        except OSError:
            return

    def _sample(self, line: bytes) -> None:
        quick = _SAMPLE.match(line)
        if quick is not None:
            self._add(self._gpus, quick[1].decode("utf-8", "replace"), float(quick[2]), int(quick[3]))
            return
        if b'"sample"' in line:
            value = _read(line)
            if value.get("kind") == "sample":
                self._add(self._gpus, value.get("gpu"), value.get("mono"), value.get("used"))

    def _live(self, line: bytes) -> None:
        value = _read(line)
        if value.get("kind") == "live":
            self._add(self._ranks, f"rank {value.get('rank', 0)}", value.get("mono"), value.get("allocated"))

    def _add(self, tracks: dict[str, Thinned], key: Any, at: Any, value: Any) -> None:
        if isinstance(key, str) and isinstance(at, (int, float)) and isinstance(value, int):
            if key not in tracks:
                tracks[key] = Thinned(self._limit)
                # Sixty-four GPUs take no more room than eight.
                share = max(LEAST_STRETCHES, min(self._limit, ALL_STRETCHES // len(tracks)))
                for each in tracks.values():
                    each.limit = share
            tracks[key].add(float(at), value)


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".jsonl")
    except OSError:
        return []


def _read(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
