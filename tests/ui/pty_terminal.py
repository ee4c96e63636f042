"""A pseudo-terminal that tests type into and read cell by cell."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pexpect
import pyte


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
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                data = self.child.read_nonblocking(65536, timeout=0.1)
            except pexpect.TIMEOUT:
                continue
            except (pexpect.EOF, OSError):
                return
            self.raw += data
            self.stream.feed(data)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.cells.display)

    def until(self, wanted: str, gone: bool = False, turns: int = 300) -> None:
        for _ in range(turns):
            self.read()
            if (wanted in self.text) != gone:
                return
        raise AssertionError(f"never {'gone' if gone else 'seen'}: {wanted!r}\n{self.text}")

    def resize(self, width: int, height: int) -> None:
        self.cells.resize(height, width)
        self.child.setwinsize(height, width)

    def end(self) -> int | None:
        """Read to the end; the exit status."""
        for _ in range(300):
            self.read()
            if not self.child.isalive():
                break
        self.child.close()
        return self.child.exitstatus
