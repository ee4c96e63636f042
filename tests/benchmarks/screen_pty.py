"""A pseudo-terminal of 160 x 48 cells for ``screen.py``: a thread reads it as fast as it can and notes when what came.

It answers what programs ask of a terminal as a common one does, so that they behave as they do in daily use:
synchronized output (mode 2026) is there, in-band resizing is not.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

WIDTH, HEIGHT = 160, 48
ANSWERS = (
    (re.compile(rb"\x1b\[0?c"), b"\x1b[?62;22c"),
    (re.compile(rb"\x1b\[>0?c"), b"\x1b[>41;380;0c"),
    (re.compile(rb"\x1b\[\?2026\$p"), b"\x1b[?2026;2$y"),
    (re.compile(rb"\x1b\[\?2048\$p"), b"\x1b[?2048;0$y"),
    (re.compile(rb"\x1b\[6n"), b"\x1b[1;1R"),
    (re.compile(rb"\x1b\]11;\?(?:\x07|\x1b\\)"), b"\x1b]11;rgb:1c1c/1c1c/1c1c\x1b\\"),
    (re.compile(rb"\x1b\]10;\?(?:\x07|\x1b\\)"), b"\x1b]10;rgb:d0d0/d0d0/d0d0\x1b\\"),
)
TICKS = os.sysconf("SC_CLK_TCK")


class Pty:
    """One program on a terminal of its own. ``chunks`` are (seconds of time.monotonic(), bytes) in order."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self.chunks: list[tuple[float, bytes]] = []
        self._reads = threading.Event()
        self._reads.set()
        self._ended = False
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            list(argv), stdin=theirs, stdout=theirs, stderr=theirs, env=dict(env), cwd=cwd, start_new_session=True
        )
        os.close(theirs)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        tail = b""
        while not self._ended:
            self._reads.wait()
            if not select.select([self._ours], [], [], 0.1)[0] or not self._reads.is_set():
                continue
            try:
                data = os.read(self._ours, 1 << 16)
            except OSError:
                return
            self.chunks.append((time.monotonic(), data))
            seen = tail + data
            tail = seen[-16:]
            for asked, answer in ANSWERS:
                if any(found.end() > len(seen) - len(data) for found in asked.finditer(seen)):
                    os.write(self._ours, answer)

    def send(self, keys: bytes) -> float:
        """Type; the moment it was typed."""
        moment = time.monotonic()
        os.write(self._ours, keys)
        return moment

    def stall(self) -> None:
        """Read nothing any more: a frozen client, a link that is down, Ctrl-S."""
        self._reads.clear()

    def go_on(self) -> None:
        """Read again."""
        self._reads.set()

    def when(self, pattern: bytes, since: float, timeout: float = 5.0) -> float | None:
        """When bytes that came after ``since`` first matched; None if they did not in time."""
        wanted, place, held = re.compile(pattern), len(self.chunks), b""
        while place and self.chunks[place - 1][0] >= since:
            place -= 1
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            if place == len(self.chunks):
                time.sleep(0.001)
                continue
            moment, data = self.chunks[place]
            place, held = place + 1, held[-4096:] + data
            if wanted.search(held):
                return moment
        return None

    def first_frame(self, pattern: bytes, timeout: float = 20.0) -> tuple[float, int]:
        """Seconds from the start and bytes to the frame that holds ``pattern``: up to a rest of 0.15 s."""
        if self.when(pattern, self.started, timeout) is None:
            raise SystemExit(f"never drawn: {pattern!r}; seen at last: {self.raw[-500:]!r}")
        time.sleep(0.4)
        place = next(n for n in range(len(self.chunks)) if re.search(pattern, self.raw_to(n)))
        while place + 1 < len(self.chunks) and self.chunks[place + 1][0] - self.chunks[place][0] < 0.15:
            place += 1
        return self.chunks[place][0] - self.started, len(self.raw_to(place))

    def raw_to(self, place: int) -> bytes:
        return b"".join(data for _, data in self.chunks[: place + 1])

    @property
    def raw(self) -> bytes:
        return b"".join(data for _, data in list(self.chunks))

    def sent(self, since: float, until: float) -> tuple[int, int]:
        """Bytes between two moments, and what ``ssh -C`` would make of them: deflated, flushed at every read."""
        squeeze, plain, small = zlib.compressobj(), 0, 0
        for moment, data in list(self.chunks):
            deflated = len(squeeze.compress(data) + squeeze.flush(zlib.Z_SYNC_FLUSH))
            if since <= moment < until:
                plain, small = plain + len(data), small + deflated
        return plain, small

    def cpu(self) -> float:
        """Seconds of a core it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss(self) -> float:
        """Resident memory, MB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024

    def leave(self, keys: bytes = b"q") -> None:
        """Quit it as a person does; end it where that does not help."""
        self.go_on()
        try:
            os.write(self._ours, keys)
            self._process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._ended = True
        self._thread.join(1)
        os.close(self._ours)
