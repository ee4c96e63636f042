"""What the ranks of a live run hold in the host's memory, seen from outside: for runs without an accelerator."""

from __future__ import annotations

import os

from tui_pilot.devices.host import is_alive, process_memory
from tui_pilot.store.state import RunState


class HostWatch:
    """The highest resident memory of the largest rank since the running phase began; asked once a second.

    The kernel's own high-water mark is read, which the phase resets at its beginning where that is allowed; so nothing
    between two looks is missed.
    """

    def __init__(self) -> None:
        self._phase: tuple[str, int] | None = None
        self.peak: int | None = None

    def poll(self, state: RunState) -> None:
        """Look at the ranks of the stage that runs, if they are on this machine."""
        row = state.running_row
        phase = (row.phase, row.attempt) if row is not None else None
        if phase != self._phase:
            self._phase, self.peak = phase, None
        here = state.supervisor.get("host") in (None, os.uname().nodename)
        if phase is None or state.stage is None or not here:
            return
        found = []
        for rank in state.ranks.values():
            pid, start = rank.get("pid"), rank.get("pid_start")
            if rank.get("stage") == state.stage.name and isinstance(pid, int) and is_alive(pid, start):
                found.append(process_memory(pid).high_water)
        seen = [value for value in (*found, self.peak) if value is not None]
        self.peak = max(seen, default=None)
