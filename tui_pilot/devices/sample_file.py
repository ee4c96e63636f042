"""The file device samples go to: JSON lines, written when something changed, or once a second.

Lines: `{"kind": "gpu", "gpu", "index", "name", "total", "usable", "error"}` once per GPU; `{"kind": "sample", "gpu",
"mono", "time", "used", "util", "power_w", "power_limit_w", "temperature", "throttle"}` and `error` where there is one;
`{"kind": "mark", "label", "mono", "time"}` at each phase edge. `mono` is time.monotonic(), `time` Unix seconds.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tui_pilot.devices.readings import Gpu, Reading

REPEAT_S = 1.0  # an unchanged reading is written this often, so that silence in the file means silence of the sampler


class SampleFile:
    """One os.write per line. `dropped` counts lines the disk did not take, `error` says why; neither is ever raised."""

    def __init__(self, path: Path) -> None:
        self.dropped = 0
        self.error: str | None = None
        self._lock = threading.Lock()
        self._torn = False
        self._written: dict[str, Reading] = {}
        self._file: int | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self.error = f"{path}: {error.strerror}"

    def gpus(self, gpus: Iterable[Gpu]) -> None:
        """What the GPUs are, once, before their samples."""
        for gpu in gpus:
            facts = {"index": gpu.index, "name": gpu.name, "total": gpu.total, "usable": gpu.usable, "error": gpu.error}
            self._line({"kind": "gpu", "gpu": gpu.key, **facts})

    def mark(self, label: str) -> None:
        """A phase edge."""
        self._line({"kind": "mark", "label": label, "mono": round(time.monotonic(), 4), "time": round(time.time(), 3)})

    def sample(self, reading: Reading) -> None:
        """A reading, if it differs from the last one written for its GPU or that one is a second old."""
        last = self._written.get(reading.uuid)
        if last is not None and reading.at_mono - last.at_mono < REPEAT_S and _same(last, reading):
            return
        self._written[reading.uuid] = reading
        line = {
            "kind": "sample",
            "gpu": reading.uuid,
            "mono": round(reading.at_mono, 4),
            "time": round(time.time(), 3),
            "used": reading.used,
            "util": reading.utilization,
            "power_w": reading.power_w,
            "power_limit_w": reading.power_limit_w,
            "temperature": reading.temperature,
            "throttle": reading.throttle,
        }
        self._line(line if reading.error is None else {**line, "error": reading.error})

    def close(self) -> None:
        """Close the file; later lines are dropped in silence."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _line(self, line: dict[str, Any]) -> None:
        data = (json.dumps(line, separators=(",", ":")) + "\n").encode()
        with self._lock:
            if self._file is None:
                return
            if self._torn:  # end the line that a full disk cut short, so that it spoils no other
                data = b"\n" + data
            try:
                written = os.write(self._file, data)
            except OSError as error:
                self.dropped += 1
                self.error = error.strerror
                return
            if written < len(data):
                self.dropped += 1
                self.error = "a line was cut short: the disk is full"
                self._torn = self._torn or written > 0
            else:
                self._torn = False


def _same(one: Reading, other: Reading) -> bool:
    return replace(one, at_mono=other.at_mono) == other
