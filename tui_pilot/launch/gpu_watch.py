"""NVML during a run, read by the supervisor alone: full rate while a phase is open, one event at each phase's end."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tui_pilot.devices.nvml import Nvml
from tui_pilot.devices.readings import Gpu, Inventory, Reading
from tui_pilot.devices.sampler import Sampler
from tui_pilot.devices.visible import visible
from tui_pilot.run_folder import RunFolder

FULL_HZ, LEAST_HZ = 20.0, 10.0
IDLE_HZ = 2.0
CALLS_A_SECOND = 145
"""Memory readings while a phase is open; sensors come on top. The driver answers them under one lock."""


def full_hz(gpus: int) -> float:
    """How often each of that many GPUs is read while a phase is open: 20 times a second, with many of them 10."""
    return max(LEAST_HZ, min(FULL_HZ, CALLS_A_SECOND / max(1, gpus)))


class OnlyVisible:
    """A reader of the GPUs that a stage may use; what CUDA_VISIBLE_DEVICES hides is another's and is left alone."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def open(self) -> Inventory:
        """The inventory without the hidden ones; ``problem`` says what is odd about the choice."""
        inventory: Inventory = self._reader.open()
        if not inventory.gpus:
            return inventory
        seen = visible(inventory.gpus, os.environ)
        why = inventory.why if seen.gpus else seen.note
        # Hidden on purpose is no oddity: then it is only why there are none.
        problem = inventory.problem or (seen.note if seen.gpus else None)
        return replace(inventory, gpus=seen.gpus, why=why, problem=problem)

    def read(self, gpu: Gpu, slow: bool = False, sensors: bool = False) -> Reading:
        """One reading of a GPU of the inventory."""
        reading: Reading = self._reader.read(gpu, slow=slow, sensors=sensors)
        return reading

    def close(self) -> None:
        """End NVML."""
        self._reader.close()


class GpuWatch:
    """Samples the run's GPUs to ``samples/devices.jsonl``; without NVML it does nothing and ``why`` says so."""

    def __init__(self, folder: RunFolder, make: Callable[[], Any] = Nvml) -> None:
        self._nvml = OnlyVisible(make())
        self._sampler = Sampler(self._nvml, hz=IDLE_HZ, sink=folder.samples / "devices.jsonl")
        inventory = self._sampler.start()
        self.why: str | None = inventory.why
        self.problem: str | None = inventory.problem
        self.seen = inventory.gpus
        self.gpus = len(inventory.gpus)

    @property
    def active(self) -> bool:
        return self.gpus > 0

    def phase_began(self, phase: str) -> None:
        """A phase is open: full rate, and a new window."""
        if self.active:
            self._sampler.hz = full_hz(self.gpus)
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
