"""What a rank holds while a phase runs: a light thread looks ten times a second and says what changed.

The screen learns of memory inside a phase from these lines alone; the phase's own row has the exact peaks. Nothing is
said while nothing changes, and the training thread never waits for this one but for the line it is writing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tui_pilot.devices import host

HZ = 10.0
HOST_EVERY = 5
"""The host's figures are read in every fifth look: reading /proc takes a hundred times as long as the counters do."""
STEP_BYTES = 1 << 20
STEP_SHARE = 0.01

Say = Callable[[str, "Look"], object]


@dataclass
class Look:
    """Bytes: the highest since the look before. None where there is no such counter."""

    allocated: int | None = None
    reserved: int | None = None


@dataclass
class Held:
    """The highest host figures of one phase between the edges of its windows, and how often they were read."""

    highest: dict[str, int] = field(default_factory=dict)
    readings: int = 0


def moved(last: int | None, now: int | None) -> bool:
    """Whether a figure changed enough to be worth a line: by more than 1 MiB or by more than 1%."""
    if last is None or now is None:
        return last is not now
    return abs(now - last) > STEP_BYTES or abs(now - last) > STEP_SHARE * last


class Live:
    """Looks at ``read`` while a phase is open and hands what changed to ``say(phase, look)``.

    ``read`` gives allocated and reserved bytes, the highest since it was last asked. The thread is made with the first
    phase and sleeps between phases.
    """

    def __init__(self, read: Callable[[], tuple[int | None, int | None]], say: Say, hz: float = HZ) -> None:
        self.hz = hz
        self._read, self._say = read, say
        self._turn = threading.Lock()
        self._open = threading.Event()
        self._phase = ""
        self._held = Held()
        self._last: Look | None = None
        self._looks = 0
        self._thread: threading.Thread | None = None

    def begin(self, phase: str) -> None:
        """A phase is open from now on; the first look is one period later, so that short phases say nothing."""
        self._phase, self._held, self._last, self._looks = phase, Held(), None, 0
        self._open.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="memory-live", daemon=True)
            self._thread.start()

    def end(self) -> Held:
        """The phase is over: after this nothing more is said of it. Waits at most for a look under way."""
        self._open.clear()
        with self._turn:
            return self._held

    def _run(self) -> None:
        while True:
            self._open.wait()
            time.sleep(1 / self.hz)
            with self._turn:
                if self._open.is_set():
                    self._look()

    def _look(self) -> None:
        try:
            look = Look(*self._read())
        except RuntimeError:  # the device failed: the training thread meets the same error and names it
            return
        if self._looks % HOST_EVERY == 0:
            self._host()
        self._looks += 1
        last = self._last
        if last is None or moved(last.allocated, look.allocated) or moved(last.reserved, look.reserved):
            self._last = look
            self._say(self._phase, look)

    def _host(self) -> None:
        resident = host.process_memory()
        for key, value in (("rss_anon_peak", resident.rss_anon), ("rss_file_peak", resident.rss_file)):
            if value is not None:
                self._held.highest[key] = max(self._held.highest.get(key, 0), value)
        self._held.readings += 1
