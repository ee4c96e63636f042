"""What a person does to a run from outside: stop it, test its resume, mark, note, decide, wait for its end.

Each screen or command writes an operator file of its own; the supervisor and every reader find it there.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tui_pilot.devices.host import process_start
from tui_pilot.errors import EXIT_PLAN_WRONG, PilotError, RunFolderError
from tui_pilot.events import schema
from tui_pilot.events.writer import Writer
from tui_pilot.launch.queue_words import queue_words
from tui_pilot.launch.start import not_writable, start
from tui_pilot.run_folder import Holder, RunFolder, beat, drop_lock, is_live, read_lock, short_id, take_lock
from tui_pilot.store.files import has_checkpoint
from tui_pilot.store.state import RunState
from tui_pilot.store.view import as_seen, load_state, reload_state

POLL_SECONDS = 0.1
MARKS = ("pass", "warn", "fail")
DECISIONS = ("retain", "reject", "defer")


def _refused(text: str, advice: str = "", code: str = "refused", exit_code: int = EXIT_PLAN_WRONG) -> PilotError:
    return PilotError(text, advice, code=code, title="That cannot be done now", exit_code=exit_code)


@contextlib.contextmanager
def _operator(folder: RunFolder) -> Iterator[Callable[..., None]]:
    """Emits into this process's own operator file; what did not reach the disk is an error, never silence."""
    name = f"operator-{os.getpid()}-{process_start(os.getpid()) or 0}"
    try:
        writer = Writer(folder.events, name)
    except OSError as error:
        raise not_writable(folder.events, error) from error

    def emit(kind: str, **fields: Any) -> None:
        if not writer.emit(kind, sync=True, **fields):
            raise RunFolderError(
                f"{folder.events} took no line: {writer.last_error}. Nothing was recorded.",
                "Free some space, then try again.",
                file=str(folder.events),
            )

    try:
        yield emit
    finally:
        writer.close()


def request_stop(folder: RunFolder, *, interrupt: bool = False) -> None:
    """Ask the live run to stop cleanly; rows are kept. Where the disk takes no line, its supervisor gets a signal.

    ``interrupt``: asked by ctrl-c in the terminal, which the run's exit code then says.
    """
    holder = read_lock(folder.lock_file)
    if holder is None or not holder.alive():
        raise _refused(f"{short_id(folder.id)} is not running: there is nothing to stop.", code="not_running")
    try:
        with _operator(folder) as emit:
            emit(schema.REQUEST, what="stop", id=uuid.uuid4().hex, interrupt=interrupt)
    except RunFolderError:
        if holder.host != os.uname().nodename:
            raise
        os.kill(holder.pid, signal.SIGINT if interrupt else signal.SIGTERM)


def request_resume_test(folder: RunFolder) -> str:
    """Ask for the resume gate again, in a new process; returns in words what will happen.

    A live run queues it; for an ended run a supervisor is started for that one stage.
    """
    if is_live(folder):
        state, _ = load_state(folder)
        with _operator(folder) as emit:
            emit(schema.REQUEST, what="resume_test", id=uuid.uuid4().hex)
        return queue_words(state)
    state, _ = load_state(folder)
    if not has_checkpoint(folder):
        raise _refused(
            f"{short_id(folder.id)} has no checkpoint to resume from.",
            "It comes in phase 12, checkpoint; pilot-tui clean removes it. Run the plan again.",
            code="needs_checkpoint",
        )
    attempt = next_attempt(state)
    start(folder, only="resume", attempt=attempt)
    return f"attempt {attempt} of resume runs now, in a new process"


def next_attempt(state: RunState) -> int:
    """The number of the next resume attempt."""
    return state.row("resume").attempt + 1


def mark(folder: RunFolder, phase: str, verdict: str | None, note: str | None = None) -> None:
    """The person's mark beside the automatic verdict; None takes it back. Over an automatic fail a note is required."""
    _known_phase(phase)
    if verdict is not None and verdict not in MARKS:
        raise _refused(f"{verdict!r} is no mark.", f"Allowed: {', '.join(MARKS)}, clear.", code="unknown_mark")
    state, _ = load_state(folder)
    row = state.row(phase)
    if verdict is not None and row.verdict in (None, "running"):
        raise _refused(
            f"{phase} has no verdict yet, so there is nothing to mark.", "Wait until it ended.", "no_verdict"
        )
    if verdict is not None and row.verdict == "fail" and not (note or "").strip():
        raise _refused(
            f"{phase} failed by itself: a mark over that needs a note that says why.",
            f'pilot-tui verdict {short_id(folder.id)} {phase} {verdict} --note "why"',
            code="note_required",
        )
    with _operator(folder) as emit:
        emit(schema.MARK, phase=phase, verdict=verdict, note=note, by=who())


def note(folder: RunFolder, text: str, phase: str | None = None) -> None:
    """An observation about the run, or about one phase."""
    if phase is not None:
        _known_phase(phase)
    if not text.strip():
        raise _refused("The note is empty.", code="note_required")
    with _operator(folder) as emit:
        emit(schema.NOTE, text=text, by=who(), **({} if phase is None else {"phase": phase}))


def decide(folder: RunFolder, decision: str, text: str) -> None:
    """The decision about the run, with its reason."""
    if decision not in DECISIONS:
        raise _refused(f"{decision!r} is no decision.", f"Allowed: {', '.join(DECISIONS)}.", code="unknown_decision")
    if not text.strip():
        raise _refused("A decision needs its reason.", 'Add --note "why".', code="note_required")
    with _operator(folder) as emit:
        emit(schema.DECISION, decision=decision, note=text, by=who())


def who() -> str | None:
    """The name of this machine's user, for whoever reads a decision in a month; None where it has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user without an entry
        return None


def record_cleaned(folder: RunFolder, removed: list[dict[str, Any]]) -> None:
    """Say in the run's own log which payloads were removed, and their sizes."""
    with _operator(folder) as emit:
        emit(schema.CLEANED, removed=removed)


def _known_phase(phase: str) -> None:
    if phase not in schema.PHASES:
        raise _refused(f"There is no phase {phase!r}.", f"Phases: {', '.join(schema.PHASES)}.", code="unknown_phase")


def wait(
    folder: RunFolder,
    on_event: Callable[[dict[str, Any], RunState], None] | None = None,
    until: Callable[[RunState], bool] | None = None,
) -> RunState:
    """Follow the run to its end; each event is given to ``on_event`` with the state after it.

    Ends when the run ended or was lost, or when ``until`` says so; returns the state as it is seen then.
    """
    state, reader = load_state(folder, on_event)
    while True:
        live = is_live(folder)  # asked before the last read: what an ended supervisor wrote is then all there
        state = reload_state(state, reader, on_event)
        if until is not None and until(state):
            return as_seen(state, live)
        if not live:
            return as_seen(state, live)
        time.sleep(POLL_SECONDS)


@dataclass
class ControlLock:
    """The keys of one run's screen: the first screen has them, a second one reads only."""

    folder: RunFolder
    held: bool = False

    def take(self) -> bool:
        """Take the keys unless another live screen has them; on a read-only folder nobody has."""
        try:
            self.held = take_lock(self.folder.control_file)
        except OSError:
            self.held = False
        return self.held

    @property
    def holder(self) -> Holder | None:
        """The screen that has the keys, if it lives."""
        holder = read_lock(self.folder.control_file)
        return holder if holder is not None and holder.alive() else None

    def beat(self) -> None:
        if self.held:
            beat(self.folder.control_file)

    def drop(self) -> None:
        """Give the keys back."""
        if self.held:
            with contextlib.suppress(OSError):
                drop_lock(self.folder.control_file)
            self.held = False
