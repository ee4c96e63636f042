"""What the terminal sends, with a marked paste kept apart from keys.

Textual reads escape sequences inside a paste too and gives what it does not know to the app as keys; and bytes that
are no UTF-8 end its reading. Here a paste is cut out before anything in it is read, and wrong bytes become ``U+FFFD``.
"""

from __future__ import annotations

import os
import select
import time
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import suppress

from textual import events
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

START, END = "\x1b[200~", "\x1b[201~"
MOST = 1 << 20
"""Characters kept of a paste: a line of text takes far fewer."""
UNENDED_S = 2.0
"""A paste whose end is lost is over when nothing came for so long: keys must not be swallowed for ever."""
READ = 4096
MANY = 12
"""So many keys in one read, not all alike, nobody types: a paste into a terminal that does not mark pastes."""
APART_S = 0.1
GONE = 10
"""So many reads of nothing, a tenth of a second apart: the terminal is gone, and no SIGHUP came to say so, as where it
was not the controlling one."""


class Pastes:
    """Cuts what comes into keys and pastes, wherever the reads were cut."""

    def __init__(self) -> None:
        self._held = ""  # may be the beginning of a mark
        self._paste: list[str] | None = None
        self._kept = 0
        self._last = 0.0

    def feed(self, text: str, more: bool = False) -> Iterator[tuple[bool, str]]:
        """``(is a paste, text)``; ``more``: the read was full, so an escape at its end may go on."""
        text, self._held = self._held + text, ""
        self._last = time.monotonic()
        while text:
            mark = START if self._paste is None else END
            before, found, text = text.partition(mark)
            if not found:
                keep = _beginning(before, mark, 1 if more or self._paste is not None else 2)
                before, self._held = before[: len(before) - keep], before[len(before) - keep :]
            if self._paste is None:
                if before:
                    yield False, before
                if found:
                    self._paste, self._kept = [], 0
                continue
            room = MOST - self._kept
            self._paste.append(before[:room])
            self._kept += min(room, len(before))
            if found:
                yield True, self._take()

    def idle(self) -> Iterator[tuple[bool, str]]:
        """Called while nothing comes: what was held as a mark's beginning, or a paste that never ended."""
        if self._paste is not None:
            if time.monotonic() - self._last > UNENDED_S:
                yield True, self._take()
        elif self._held:
            held, self._held = self._held, ""
            yield False, held

    def _take(self) -> str:
        taken, self._paste = "".join(self._paste or ()), None
        return taken


def _beginning(text: str, mark: str, least: int) -> int:
    """How many of the last characters may begin the mark, from ``least`` on."""
    longest = min(len(mark) - 1, len(text))
    return next((size for size in range(longest, least - 1, -1) if text.endswith(mark[:size])), 0)


MARK = "pilot_tui_pasted"


def was_pasted(key: events.Key) -> bool:
    """Whether the key came in a paste that the terminal did not mark."""
    return bool(getattr(key, MARK, False))


class Keyboard(LinuxDriver):
    """Textual's driver of a terminal, reading through ``Pastes``."""

    def run_input_thread(self) -> None:
        self._parser = XTermParser(self._debug)
        self._pasting = 0.0
        pastes = Pastes()
        decode = getincrementaldecoder("utf-8")("replace").decode
        gone = 0
        while not self.exit_event.is_set():
            ready, _, _ = select.select([self.fileno], [], [], 0.1)
            if ready:
                data = os.read(self.fileno, READ)
                gone = 0 if data else gone + 1
                if gone > GONE:
                    self._app.call_later(self._app.exit)
                    return
                if not data:
                    self.exit_event.wait(0.1)
                self._hand_on(pastes.feed(decode(data), len(data) == READ))
            else:
                self._hand_on(pastes.idle())
            for event in self._parser.tick():
                self.process_message(event)
        with suppress(EOFError, ParseError):
            for _ in self._parser.feed(""):
                pass

    def _hand_on(self, pieces: Iterator[tuple[bool, str]]) -> None:
        for pasted, text in pieces:
            if pasted:
                self.process_message(events.Paste(text.replace("\x00", "")))
                continue
            found: list[Message] = []
            try:
                found.extend(self._parser.feed(text))
            except Exception:  # a sequence that Textual cannot read: what follows is read afresh
                self._parser = XTermParser(self._debug)
            self._mark([event for event in found if isinstance(event, events.Key)])
            for event in found:
                self.process_message(event)

    def _mark(self, keys: list[events.Key]) -> None:
        """Mark the keys of a paste, and what comes right behind it."""
        now = time.monotonic()
        if now < self._pasting or (len(keys) >= MANY and len({key.key for key in keys}) > 2):
            self._pasting = now + APART_S
            for key in keys:
                setattr(key, MARK, True)
