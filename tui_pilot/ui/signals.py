"""A hang-up or SIGTERM leaves a clean terminal and gives the keys back, even where the terminal takes no byte.

Textual handles neither. A stalled terminal blocks its loop, so that a loop's own handler would never run: this one
runs between two byte codes, asks the app to leave, and ends the process by itself if that did not happen.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from textual.app import App

GRACE_S = 4.0
"""Below the ten seconds between SIGTERM and SIGKILL of a container that is stopped."""
RESTORE = b"\x1b[?1049l\x1b[?25h\x1b[?2004l\x1b[?1000l\x1b[?1003l\x1b[0m"


class Signals:
    """Listens for SIGHUP and SIGTERM from the app's start on; outside the main thread (tests) it does nothing."""

    def __init__(self, app: App[Any], give_up: Callable[[], None]) -> None:
        self._app = app
        self._give_up = give_up
        self._asked = False
        self._before = self._terminal()
        with contextlib.suppress(ValueError):
            for number in (signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, self._signalled)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            return
        self._asked = True
        loop = self._app._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._app.exit)
        timer = threading.Timer(GRACE_S, self._end, [number])
        timer.daemon = True
        timer.start()

    def _end(self, number: int) -> None:
        """The loop never came to it: the keys go back, the terminal as far as it takes bytes, and the process ends."""
        self._give_up()
        with contextlib.suppress(OSError, ValueError, termios.error):
            descriptor = sys.__stdin__.fileno() if sys.__stdin__ else 0
            if self._before is not None:
                termios.tcsetattr(descriptor, termios.TCSANOW, self._before)
            output = sys.__stderr__.fileno() if sys.__stderr__ else 2
            os.set_blocking(output, False)
            os.write(output, RESTORE)
        os._exit(128 + number)

    def _terminal(self) -> list[Any] | None:
        """The terminal's settings before the screen, kept by Textual's driver."""
        kept = getattr(self._app._driver, "attrs_before", None)
        return kept if isinstance(kept, list) else None
