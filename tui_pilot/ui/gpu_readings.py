"""GPU figures for the bars: from the sampler's file while a run is live, from NVML at 1 Hz while none is."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from tui_pilot.store.memory import bare
from tui_pilot.store.state import RunState
from tui_pilot.ui.snapshot import GpuView

TAIL_BYTES = 256 << 10
HEAD_BYTES = 64 << 10
ABSENT = (9, 12)  # NVML: no driver is loaded, no library is there


class SampleTail:
    """Follows ``samples/*.jsonl`` of a run: the newest reading of each GPU and the highest since it was last asked.

    An old run's file is large: its head (what the GPUs are) and its end are read, never the middle; the highest of
    the run is in the events.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offset: dict[Path, int] = {}
        self._rest: dict[Path, bytes] = {}
        self.views: dict[str, GpuView] = {}

    def poll(self) -> None:
        """Read what was appended."""
        try:
            files = sorted(path for path in self.folder.iterdir() if path.suffix == ".jsonl")
        except OSError:
            return
        for path in files:
            for line in self._new_lines(path):
                self._take(line)

    def views_and_reset(self) -> tuple[GpuView, ...]:
        """The GPUs by index; the next peak starts at the newest reading."""
        views = tuple(sorted(self.views.values(), key=lambda view: view.index))
        self.views = {key: replace(view, peak=view.used) for key, view in self.views.items()}
        return views

    def phase_began(self) -> None:
        """Another phase runs: its own peak starts at the newest reading."""
        self.views = {key: replace(view, phase_peak=view.used) for key, view in self.views.items()}

    def _new_lines(self, path: Path) -> list[bytes]:
        offset = self._offset.get(path)
        try:
            with path.open("rb") as stream:
                if offset is None:
                    data = self._head_and_tail(stream)
                else:
                    stream.seek(offset)
                    data = stream.read()
                self._offset[path] = stream.tell()
        except OSError:
            return []
        lines = (self._rest.get(path, b"") + data).split(b"\n")
        self._rest[path] = lines.pop()
        return lines

    @staticmethod
    def _head_and_tail(stream: BinaryIO) -> bytes:
        size = stream.seek(0, 2)
        stream.seek(0)
        if size <= HEAD_BYTES + TAIL_BYTES:
            return stream.read()
        head = stream.read(HEAD_BYTES)
        stream.seek(size - TAIL_BYTES)
        stream.readline()
        return head[: head.rfind(b"\n") + 1] + stream.read()

    def _take(self, line: bytes) -> None:
        try:
            value: dict[str, Any] = json.loads(line)
            key, kind = str(value["gpu"]), value["kind"]
        except (ValueError, KeyError, TypeError):
            return
        old = self.views.get(key)
        if kind == "gpu":
            index = value.get("index")
            fresh = old or GpuView(key, index if isinstance(index, int) else len(self.views))
            self.views[key] = replace(
                fresh,
                name=value.get("name"),
                total=value.get("total"),
                usable=value.get("usable"),
                error=value.get("error"),
            )
            return
        if kind != "sample":
            return
        old = old or GpuView(key, len(self.views))
        used = value.get("used")
        self.views[key] = replace(
            old,
            used=used,
            peak=_higher(old.peak, used),
            phase_peak=_higher(old.phase_peak, used),
            utilization=value.get("util"),
            temperature=value.get("temperature"),
            power_w=value.get("power_w"),
            throttle=tuple(value.get("throttle") or ()),
            error=value.get("error"),
        )


def _higher(*values: Any) -> int | None:
    return max((value for value in values if isinstance(value, int)), default=None)


class NvmlWatch:
    """A thread of its own that asks NVML once a second while ``wanted``: a stuck driver stalls nothing else."""

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._stop = threading.Event()
        self._views: tuple[GpuView, ...] = ()
        self._why: str | None = None
        self._thread: threading.Thread | None = None

    def want(self, wanted: bool) -> None:
        """Ask the driver, or leave it to the supervisor of a live run."""
        if wanted:
            self._wanted.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nvml-watch", daemon=True)
                self._thread.start()
        else:
            self._wanted.clear()

    @property
    def views(self) -> tuple[GpuView, ...]:
        return self._views

    @property
    def why(self) -> str | None:
        """Why GPUs that should be there cannot be read, as a sentence; None where there simply are none."""
        return self._why

    def stop(self) -> None:
        """End the thread; one stuck in the driver is left behind, as a daemon."""
        self._stop.set()
        self._wanted.set()

    def _run(self) -> None:
        from tui_pilot.devices.nvml import Nvml
        from tui_pilot.launch.gpu_watch import OnlyVisible

        nvml = OnlyVisible(Nvml())
        inventory = nvml.open()
        if inventory.code not in (None, *ABSENT):
            self._why = f"no GPU can be read, GPU memory stays unchecked: {inventory.why}"
        while not self._stop.is_set() and inventory.gpus:
            self._wanted.wait()
            if self._stop.is_set():
                break
            views = []
            for gpu in inventory.gpus:
                now = nvml.read(gpu, slow=True, sensors=True)
                views.append(
                    GpuView(
                        gpu.key,
                        gpu.index,
                        gpu.name,
                        gpu.usable,
                        gpu.total,
                        used=now.used,
                        peak=now.used,
                        utilization=now.utilization,
                        temperature=now.temperature,
                        power_w=now.power_w,
                        throttle=now.throttle or (),
                        error=now.error,
                    )
                )
            self._views = tuple(views)
            self._stop.wait(1.0)
        nvml.close()


def stale(view: GpuView) -> GpuView:
    """The GPU without its readings of the moment: they are of a run that is over."""
    quiet = replace(view, used=None, peak=None, phase_peak=None, throttle=())
    return replace(quiet, utilization=None, temperature=None, power_w=None)


def with_history(views: Iterable[GpuView], state: RunState) -> tuple[GpuView, ...]:
    """The views with the highest used memory of the whole run."""
    highest: dict[str | None, int] = {}
    for row in state.rows:
        for item, counter in [(each, "used_peak") for each in row.devices] + [
            (each, "device_used_peak") for each in row.memory
        ]:
            key, value = bare(item.get("uuid")), item.get(counter)
            if isinstance(value, int):
                highest[key] = max(highest.get(key, 0), value)
    out = []
    for view in views:
        seen = [value for value in (highest.get(bare(view.key)), view.peak, view.phase_peak) if value is not None]
        out.append(replace(view, run_peak=max(seen, default=None)))
    return tuple(out)
