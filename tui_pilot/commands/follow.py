"""Follows a run from a terminal or a script, without a screen: narration, signals, and the run's document at the end.

ctrl-c and SIGTERM stop the run and wait for its end; a hang-up only leaves: the pilot goes on.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tui_pilot.commands import narrate, tables
from tui_pilot.commands.output import say, write_json, write_lines
from tui_pilot.commands.spoken import Speaker
from tui_pilot.errors import EXIT_INTERRUPTED, EXIT_TOOL_FAILED, EXIT_UNCHECKED, PilotError
from tui_pilot.launch import control
from tui_pilot.run_folder import RunFolder, short_id
from tui_pilot.store.state import RunState
from tui_pilot.store.view import snapshot, unaccepted

HUNG_UP = 128 + signal.SIGHUP


class Left(Exception):
    """The person left; the pilot goes on."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class Signals:
    """What arrived: acted upon between two looks at the log, never inside a handler."""

    def __init__(self, folder: RunFolder, stops: bool = True) -> None:
        self.folder = folder
        self.stops = stops
        self.interrupts = 0
        self.terminated = False
        self.hung_up = False
        self._asked = False

    def look(self, state: RunState) -> bool:
        """Ask for the stop once; leave on a hang-up or a second ctrl-c. Never ends the waiting itself."""
        if self.hung_up:
            raise Left(HUNG_UP)
        if self.interrupts and not self.stops:
            raise Left(EXIT_INTERRUPTED)
        if self.terminated and not self.stops:  # an onlooker ends itself, never the run
            raise Left(128 + signal.SIGTERM)
        if self.interrupts > 1:
            raise Left(EXIT_INTERRUPTED)
        if (self.interrupts or self.terminated) and not self._asked:
            self._asked = True
            try:
                control.request_stop(self.folder, interrupt=bool(self.interrupts))
            except PilotError:  # it ended by itself in this moment
                return False
            say("stopping: the stage is ended and its rows are kept; ctrl-c once more leaves without waiting")
        return False

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.interrupts += 1

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        self.hung_up = True

    @contextmanager
    def listening(self) -> Iterator[None]:
        handlers = {signal.SIGINT: self._interrupt, signal.SIGTERM: self._terminate, signal.SIGHUP: self._hang_up}
        try:
            before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        except ValueError:  # not in the main thread: signals stay with whoever has it
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def follow(folder: RunFolder, *, stops: bool = True, quiet: bool = False, plain: bool = False) -> RunState:
    """Narrate the run to its end. ``stops``: ctrl-c stops the run; else it only leaves. Raises Left.

    ``plain``: sentences on stdout, with a summary now and then; else lines on stderr.
    """
    speaker = Speaker() if plain else None

    def on_event(event: dict[str, Any], state: RunState) -> None:
        if speaker is not None:
            speaker.event(event, state)
            return
        words = None if quiet else narrate.line(event, state)
        if words is not None:
            say(words)

    signals = Signals(folder, stops)

    def look(state: RunState) -> bool:
        if speaker is not None:
            speaker.look(state)
        return signals.look(state)

    with signals.listening():
        return control.wait(folder, on_event, look)


def to_the_end(
    folder: RunFolder, *, as_json: bool, allowed: Collection[str] = (), stops: bool = True, plain: bool = False
) -> int:
    """Follow a run, then print its document or its table; returns its exit code. ``plain``: what was said is enough."""
    try:
        state = follow(folder, stops=stops, plain=plain)
    except Left as left:
        if left.exit_code != HUNG_UP:
            name = short_id(folder.id)
            say(f"The pilot goes on. Back: pilot-tui attach {name}   Stop: pilot-tui stop {name}")
        return left.exit_code
    document = snapshot(folder, allowed)
    if as_json:
        write_json(document)
    elif plain:
        write_lines([f"all of it: pilot-tui show {short_id(folder.id)}"])
    else:
        write_lines(
            [
                *tables.heading(document),
                *tables.rows_of_run(document),
                *tables.reasons_of_run(document),
                *tables.tail(document),
            ]
        )
    return last_words(state, document, allowed)


def last_words(state: RunState, document: dict[str, Any], allowed: Collection[str]) -> int:
    """The exit code, and on stderr what stands behind a 3 or a 4."""
    code = document["exit_code"]
    if state.state == "lost":
        say(f"lost: {state.text}")
    if code == EXIT_UNCHECKED:
        words = ", ".join(f"{row.phase} is {str(row.verdict).replace('_', ' ')}" for row in unaccepted(state, allowed))
        say(f"nothing failed, but {words}; --allow-unchecked PHASE accepts it")
    return EXIT_TOOL_FAILED if code is None else int(code)
