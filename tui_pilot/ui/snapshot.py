"""What a room is given to show: one immutable value, made off the screen's own thread.

A room never reads a clock, a lock or an event file itself: everything that moves is in the snapshot. Files of the run
folder that only one room needs (the audit of the examples, say) are read by that room in a worker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tui_pilot.run_folder import RunFolder
from tui_pilot.store.state import RunState

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan


@dataclass(frozen=True)
class GpuView:
    """One GPU as a bar shows it. Bytes, percent, degrees Celsius, watts; None is unknown, never 0.

    ``used`` is the newest reading, ``peak`` the highest since the last snapshot, ``phase_peak`` since the running phase
    began, ``run_peak`` the highest of the run. ``allocated`` and ``reserved`` are torch's own counters: of the phase
    that is shown once it ended, while it runs the highest since the last snapshot.
    """

    key: str
    index: int
    name: str | None = None
    usable: int | None = None
    total: int | None = None
    used: int | None = None
    peak: int | None = None
    phase_peak: int | None = None
    run_peak: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    utilization: int | None = None
    temperature: int | None = None
    power_w: float | None = None
    throttle: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class RankView:
    """One rank inside a running phase. Bytes: the highest since the last snapshot, and since the phase began."""

    rank: int
    device: str
    uuid: str | None
    allocated: int | None
    reserved: int | None
    allocated_highest: int | None
    reserved_highest: int | None


@dataclass(frozen=True)
class Snapshot:
    """A run, or a plan not run yet, at one moment.

    ``live``: the supervisor's lock is alive. ``lost``: events say it runs, the lock says nobody does. ``read_only``:
    another screen has the keys (``keys_pid``). ``now_mono`` is time.monotonic() and ``now`` Unix seconds of the same
    moment, so that a room can say how long ago something was without reading a clock. ``host_peak`` is the highest
    resident memory of the largest rank since the running phase began, bytes, as far as it was seen from outside.
    ``reading``: the log is longer than what was read of it so far, this share (0 to 1); None once all of it was.
    """

    state: RunState = field(default_factory=RunState)
    folder: RunFolder | None = None
    plan: LoadedPlan | None = None
    live: bool = False
    lost: bool = False
    read_only: bool = False
    keys_pid: int | None = None
    now_mono: float = 0.0
    now: float = 0.0
    gpus: tuple[GpuView, ...] = ()
    gpus_why: str | None = None
    gpus_frozen: str | None = None
    host_peak: int | None = None
    ranks: tuple[RankView, ...] = ()
    broken_lines: int = 0
    unknown_kinds: int = 0
    problem: str | None = None
    reading: float | None = None

    @property
    def device_text(self) -> str:
        """``8 x H100 80GB``, or ``CPU``: what the box has, for the first line."""
        names = [short_gpu_name(gpu.name or "GPU") for gpu in self.gpus]
        if not names:
            return "CPU"
        first = names[0]
        if all(name == first for name in names):
            return first if len(names) == 1 else f"{len(names)} x {first}"
        return f"{len(names)} GPUs"


def short_gpu_name(name: str) -> str:
    """``NVIDIA H100 80GB HBM3`` is known as ``H100 80GB``."""
    words = [word for word in name.split() if word not in ("NVIDIA", "Tesla", "GeForce", "HBM3", "HBM3e", "HBM2e")]
    return " ".join(words) or name
