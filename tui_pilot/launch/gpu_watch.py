"""NVML during a run, read by the supervisor alone: full rate while a phase is open, one event at each phase's end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tui_pilot.devices.nvml import Nvml
from tui_pilot.devices.sampler import Sampler
from tui_pilot.run_folder import RunFolder

FULL_HZ = 20.0
IDLE_HZ = 2.0


class GpuWatch:
    """Samples every GPU to ``samples/devices.jsonl``; without NVML it does nothing and ``why`` says so."""

    def __init__(self, folder: RunFolder, make: Callable[[], Any] = Nvml) -> None:
        self._nvml = make()
        self._sampler = Sampler(self._nvml, hz=IDLE_HZ, sink=folder.samples / "devices.jsonl")
        inventory = self._sampler.start()
        self.why: str | None = inventory.why
        self.problem: str | None = inventory.problem
        self.gpus = len(inventory.gpus)

    @property
    def active(self) -> bool:
        return self.gpus > 0

    def phase_began(self, phase: str) -> None:
        """A phase is open: full rate, and a new window."""
        if self.active:
            self._sampler.hz = FULL_HZ
            self._sampler.mark(f"{phase} begins")

    def phase_ended(self, phase: str) -> list[dict[str, Any]]:
        """The peaks of the window since the last edge, one row per GPU."""
        if not self.active:
            return []
        rows = list(self._sampler.mark(f"{phase} ends").values())
        self._sampler.hz = IDLE_HZ
        return rows

    def close(self) -> None:
        self._sampler.stop()
        self._nvml.close()
