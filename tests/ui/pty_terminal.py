"""A pseudo-terminal that tests type into and read cell by cell."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pexpect
import pyte

KEYS = {
    "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D", "home": "\x1b[H", "end": "\x1b[F",
    "pageup": "\x1b[5~", "pagedown": "\x1b[6~", "escape": "\x1b", "enter": "\r", "tab": "\t", "space": " ",
    "slash": "/", "question_mark": "?", "colon": ":", "equals_sign": "=", "left_square_bracket": "[",
    "right_square_bracket": "]", **{f"ctrl+{letter}": chr(ord(letter) - 96) for letter in "cdlnpqu"},
}  # fmt: skip
"""What a terminal sends for a key, by Textual's name of it; any other key is its own character."""


class Terminal:
    """A pseudo-terminal whose cells can be read; ``raw`` keeps every byte that was sent."""

    def __init__(
        self,
        arguments: list[str],
        width: int = 120,
        height: int = 36,
        cwd: Path | None = None,
        **environment: str,
    ) -> None:
        env = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", **environment}
        # COLUMNS and LINES would stand in for the size of this terminal.
        for name in ("TMUX", "COLORTERM", "NO_COLOR", "COLUMNS", "LINES"):
            env.pop(name, None) if name not in environment else None
        self.cells = pyte.Screen(width, height)
        self.stream = pyte.ByteStream(self.cells)
        self.raw = b""
        self.child = pexpect.spawn(
            sys.executable, arguments, env=env, dimensions=(height, width), cwd=None if cwd is None else str(cwd)
        )

    def read(self, seconds: float = 0.2) -> None:
        """Everything that comes within this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._more(min(0.1, seconds)):
            pass

    def _more(self, wait: float) -> bool:
        """What is there, or comes within ``wait`` seconds; False at the end of it all."""
        try:
            data = self.child.read_nonblocking(65536, timeout=wait)
        except pexpect.TIMEOUT:
            return True
        except (pexpect.EOF, OSError):
            return False
        self.raw += data
        self.stream.feed(data)
        return True

    def settle(self) -> None:
        """Read until nothing comes for a moment."""
        seen = -1
        while seen != len(self.raw):
            seen = len(self.raw)
            self._more(0.05)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.cells.display)

    def until(self, wanted: str, gone: bool = False, turns: int = 300) -> None:
        """Read until these words stand on the screen, or no longer do; ``turns`` of 0.2 s are never reached."""
        self.wait(lambda text: (wanted in text) != gone, f"{wanted!r} {'gone' if gone else 'seen'}", turns)

    def wait(self, true: Callable[[str], bool], what: str, turns: int = 300) -> None:
        """Read until something is true of the screen's text."""
        end = time.monotonic() + turns * 0.2
        while not true(self.text):
            if time.monotonic() > end or not self._more(0.2):
                if true(self.text):
                    return
                raise AssertionError(f"never: {what}\n{self.text}")

    def send(self, keys: str) -> None:
        """Type: a name of ``KEYS``, or the characters themselves."""
        self.child.send(KEYS.get(keys, keys))

    def paste(self, text: str | bytes) -> None:
        """Send much at once, reading meanwhile what comes back, as a terminal does."""
        data = text.encode() if isinstance(text, str) else text
        while data:
            if select.select([], [self.child.child_fd], [], 0.02)[1]:
                data = data[os.write(self.child.child_fd, data[:1024]) :]
            self._more(0)

    def resize(self, width: int, height: int) -> None:
        self.cells.resize(height, width)
        self.child.setwinsize(height, width)

    def end(self) -> int | None:
        """Read to the end; the exit status."""
        end = time.monotonic() + 60
        while time.monotonic() < end and self._more(0.2):
            pass
        self.child.wait() if self.child.isalive() and time.monotonic() < end else None
        self.child.close()
        return self.child.exitstatus
