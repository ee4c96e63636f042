"""The thread that reads a run and makes snapshots. It never waits for the terminal, and the terminal never for it.

One message may be under way at a time; what happens meanwhile is folded into the next one. Files are read here and
nowhere else in the screen: the log every 100 ms while the run is live, once a second otherwise.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tui_pilot.errors import PilotError
from tui_pilot.events.reader import Reader
from tui_pilot.run_folder import RunFolder, beat, drop_lock, is_live, read_lock, take_lock
from tui_pilot.store.fold import fold
from tui_pilot.store.state import RunState, bounded
from tui_pilot.store.view import as_seen
from tui_pilot.ui.clock import Clock
from tui_pilot.ui.gpu_readings import NvmlWatch, SampleTail, stale, with_history
from tui_pilot.ui.host_readings import HostWatch
from tui_pilot.ui.live_readings import LivePeaks, gpus_of, is_amd, with_ranks
from tui_pilot.ui.snapshot import GpuView, Snapshot

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan

POLL_LIVE_S, POLL_IDLE_S = 0.1, 0.5
PUBLISH_S = 0.5
READ_S, FIRST_READ_S = 0.25, 0.1
PIECE = 1 << 16  # of the log at a time: about 330 events, some milliseconds
CHECK_S = 1.0
START_GRACE_S = 15.0
SWITCH_S = 0.001  # a key waits this long for a thread that reads, at each turn of both; Python's own is 5 ms
AMD = "AMD: torch's own numbers only, NVML is NVIDIA's"


class Feed:
    """Follows one run folder, or none; ``deliver`` is called from the feed's thread that a snapshot waits.

    ``take`` gives the newest snapshot and allows the next call of ``deliver``. ``follow`` changes to another run.
    """

    def __init__(
        self,
        deliver: Callable[[], None],
        plan: LoadedPlan | None = None,
        want_keys: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._deliver = deliver
        self._clock = clock or Clock()
        self._given_plan = plan
        self._want_keys = want_keys
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._next: tuple[RunFolder | None, bool] | None = None
        self._outstanding = False
        self._newest = Snapshot(plan=plan)
        self._nvml = NvmlWatch()
        self._problem: str | None = None
        self._thread: threading.Thread | None = None
        self._begin(None)

    # Called from the screen's thread.

    def start(self, folder: RunFolder | None) -> None:
        """Begin to follow."""
        self._next = (folder, False)
        sys.setswitchinterval(SWITCH_S)
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def follow(self, folder: RunFolder | None, fresh: bool = False) -> None:
        """Another run from now on; ``fresh``: it was just started and may not have said anything yet."""
        with self._lock:
            self._next = (folder, fresh)
        self._wake.set()

    def take(self) -> Snapshot:
        """The newest snapshot."""
        with self._lock:
            self._outstanding = False
            return self._newest

    def hurry(self) -> None:
        """Look now: something was just written."""
        self._wake.set()

    def set_plan(self, plan: LoadedPlan | None) -> None:
        """The plan to run, when no run is shown."""
        self._given_plan = plan
        self._wake.set()

    def stop(self) -> None:
        """End the thread and give the keys back."""
        self._stopping = True
        self._wake.set()
        self._nvml.stop()
        if self._thread is not None:
            self._thread.join(timeout=2.0)

    # The thread.

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception as error:
                self._problem = f"the screen cannot read this run: {type(error).__name__}: {error}"
                self._publish(time.monotonic())
                self._wake.wait(1.0)
            if self._reading is None:
                self._wake.wait(POLL_LIVE_S if self._live else POLL_IDLE_S)
            self._wake.clear()
        self._release()

    def _begin(self, folder: RunFolder | None, fresh: bool = False) -> None:
        self._folder = folder
        self._reader = Reader(folder.events) if folder is not None else None
        self._samples = SampleTail(folder.samples) if folder is not None else None
        self._state = bounded()
        self._reading: float | None = None
        self._host = HostWatch()
        self._peaks = LivePeaks()
        self._phase: tuple[str, int] | None = None
        self._live = self._lost = self._holds_keys = False
        self._keys_pid: int | None = None
        self._run_plan: LoadedPlan | None = None
        self._plan_read = False
        self._problem = None
        self._checked = self._published = -1e9
        self._since = time.monotonic() if fresh else -1e9
        self._verdicts: object = None
        self._shown: object = None
        self._shown_state: RunState | None = None

    def _turn(self) -> None:
        with self._lock:
            wanted, self._next = self._next, None
        if wanted is not None:
            self._release()
            self._begin(*wanted)
        now = time.monotonic()
        checked = now - self._checked >= CHECK_S
        if checked:
            self._checked = now
            self._check_life()
        self._read(now)
        if checked and self._reading is None:
            self._judge_life(now)
            if self._samples is not None:
                self._samples.poll()
                self._begin_phase(self._samples)
            self._nvml.want(not self._live)
            if self._live:
                self._host.poll(self._state)
        self._maybe_publish(now)
        # After the first paint: reading a plan loads much.
        if self._folder is not None and not self._plan_read and self._reading is None:
            self._plan_read = True
            self._run_plan = _plan_of(self._folder)
            self._publish(now)

    def _read(self, now: float) -> None:
        """Fold what was written. A long log is read in pieces, for a quarter of a second at most, and said to be."""
        reader, turn = self._reader, READ_S if self._state.last_event else FIRST_READ_S
        while reader is not None:
            events = reader.poll(PIECE)
            if events:
                self._state = fold(events, self._state)
                self._peaks.take(events)
            self._reading = reader.share if reader.behind else None
            if self._reading is None or self._stopping or time.monotonic() - now >= turn:
                return
            time.sleep(0)  # a key that waits comes first

    def _check_life(self) -> None:
        """The lock is asked before the log is read: a supervisor writes its last word before it lets go."""
        folder = self._folder
        if folder is None:
            self._live = False
            return
        self._live = is_live(folder)
        if not self._want_keys:
            return
        if self._holds_keys:
            beat(folder.control_file)
            return
        try:
            self._holds_keys = take_lock(folder.control_file)
        except OSError:
            self._holds_keys = False
        holder = None if self._holds_keys else read_lock(folder.control_file)
        self._keys_pid = holder.pid if holder is not None else None

    def _judge_life(self, now: float) -> None:
        waiting = now - self._since < START_GRACE_S
        unfinished = self._state.state == "running" or (self._state.state == "new" and self._folder is not None)
        self._lost = unfinished and not self._live and not waiting

    def _begin_phase(self, samples: SampleTail) -> None:
        row = self._state.running_row
        phase = (row.phase, row.attempt) if row is not None else None
        if phase != self._phase:
            self._phase = phase
            samples.phase_began()

    def _maybe_publish(self, now: float) -> None:
        edges = (
            self._folder,
            self._state.state,
            self._live,
            self._lost,
            tuple(row.verdict for row in self._state.rows),
        )
        shown = (self._reading, self._keys_pid, self._holds_keys, self._nvml.views, self._host.peak)
        moved = shown != self._shown or self._state is not self._shown_state
        due = now - self._published >= PUBLISH_S
        at_edge = edges != self._verdicts
        if at_edge or (due and moved) or (self._live and now - self._published >= 1.0):
            self._verdicts, self._shown, self._shown_state = edges, shown, self._state
            self._publish(now)

    def _publish(self, now: float) -> None:
        self._published = now
        ranks = self._peaks.views_and_reset(self._state) if self._live else ()
        views = with_ranks(self._views(), ranks)
        reader = self._reader
        snapshot = Snapshot(
            state=as_seen(self._state, False) if self._lost else self._state,
            folder=self._folder,
            plan=self._run_plan if self._folder is not None else self._given_plan,
            live=self._live,
            lost=self._lost,
            read_only=self._folder is not None and self._want_keys and not self._holds_keys,
            keys_pid=self._keys_pid,
            now_mono=self._clock.mono(),
            now=self._clock.wall(),
            gpus=views,
            gpus_why=AMD if is_amd(self._state) else self._nvml.why,
            ranks=ranks,
            host_peak=self._host.peak if self._live else None,
            broken_lines=reader.broken if reader is not None else 0,
            unknown_kinds=reader.unknown if reader is not None else 0,
            problem=self._problem,
            reading=self._reading,
        )
        with self._lock:
            self._newest = snapshot
            tell = not self._outstanding
            self._outstanding = True
        if tell:
            with contextlib.suppress(RuntimeError):
                self._deliver()

    def _views(self) -> tuple[GpuView, ...]:
        sampled = self._samples.views_and_reset() if self._samples is not None else ()
        read = self._nvml.views
        if not self._live:
            sampled = tuple(stale(view) for view in sampled)
        views = sampled if self._live and sampled else read or sampled
        return with_history(views or (gpus_of(self._state) if self._live else ()), self._state)

    def _release(self) -> None:
        if self._holds_keys and self._folder is not None:
            with contextlib.suppress(OSError):
                drop_lock(self._folder.control_file)
            self._holds_keys = False


def _plan_of(folder: RunFolder) -> LoadedPlan | None:
    """The run's own plan; None where it cannot be read (the run is shown all the same)."""
    from tui_pilot.plan.document import from_document

    try:
        return from_document(folder.read_json(folder.plan_file))
    except (PilotError, KeyError, TypeError, ValueError, AttributeError):
        return None
