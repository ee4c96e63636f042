"""One stage as a process group of its own: its command line and environment, its end, and how it is ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tui_pilot.devices.host import is_alive, process_start
from tui_pilot.run_folder import RunFolder

ONE_PROCESS_SECONDS = 5.0
TORCHRUN_SECONDS = 35.0  # torchrun itself waits 30 s for its ranks
LOG_TAIL = 16 << 10


def environment(stage: str, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a stage finds in its environment: the person's own, and what makes measuring and identity hold."""
    pid = os.getpid()
    env = dict(os.environ if base is None else base)
    env.update(
        PILOT_TUI_SUPERVISOR=f"{pid}:{process_start(pid)}",
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONUNBUFFERED="1",
        # Large blocks are mapped one by one and given back at once, so that the host's peak says what is alive.
        MALLOC_MMAP_THRESHOLD_="131072",
        TOKENIZERS_PARALLELISM="false",
        HF_HUB_OFFLINE="1",
        CUDA_DEVICE_ORDER="PCI_BUS_ID",
    )
    if stage == "data":
        env["CUDA_VISIBLE_DEVICES"] = ""
    return env


def log_name(stage: str, attempt: int) -> str:
    """``train.log``, ``resume-2.log``."""
    return f"{stage}.log" if attempt == 1 else f"{stage}-{attempt}.log"


def source_prefix(stage: str, attempt: int) -> str:
    """How the names of the stage's event files begin: ``train.rank``, ``resume-2.rank``."""
    return f"{stage}.rank" if attempt == 1 else f"{stage}-{attempt}.rank"


@dataclass
class StageProcess:
    """A running stage. ``peek`` says when it is over; ``terminate`` and ``push`` end it, gently first."""

    stage: str
    attempt: int
    processes: int
    popen: subprocess.Popen[bytes]
    log: Path
    start: int | None
    asked_at: float | None = None
    killed_by_us: bool = False
    _reaped: int | None = field(default=None, repr=False)

    @classmethod
    def spawn(
        cls, folder: RunFolder, python: str, stage: str, attempt: int, *, processes: int, cwd: Path
    ) -> StageProcess:
        """Start the stage; its words go to ``logs/``. Called from the main thread: the kernel ends a stage whose
        parent *thread* ends. Raises OSError where the interpreter or the plan's folder is gone."""
        argv = [python, str(folder.code / "run_stage.py"), str(folder.path), stage, "--attempt", str(attempt)]
        if processes > 1:
            argv += ["--processes", str(processes)]
        log = folder.logs / log_name(stage, attempt)
        with _open_log(log) as output:
            popen = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=environment(stage),
                start_new_session=True,
            )
        return cls(stage, attempt, processes, popen, log, process_start(popen.pid))

    @property
    def pid(self) -> int:
        return self.popen.pid

    def peek(self) -> int | None:
        """The exit code once the process ended (negative: minus the signal), else None.

        What is left in its group is ended before the process is reaped: until then its number cannot be reused.
        """
        if self._reaped is not None:
            return self._reaped
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            ended = None
            self._reaped = self.popen.poll() or 0
            return self._reaped
        if ended is None:
            return None
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        self._reaped = self.popen.wait()
        return self._reaped

    def terminate(self, now: float | None = None) -> None:
        """SIGTERM to the whole group, once."""
        if self.asked_at is None:
            self.asked_at = time.monotonic() if now is None else now
            self._signal(signal.SIGTERM)

    def push(self, ranks: Iterable[Mapping[str, Any]], now: float | None = None) -> None:
        """After the time to leave has passed: SIGKILL to the group and to the ranks, which torchrun puts in
        sessions of their own."""
        if self.asked_at is None or self.killed_by_us:
            return
        patience = TORCHRUN_SECONDS if self.processes > 1 else ONE_PROCESS_SECONDS
        if (time.monotonic() if now is None else now) - self.asked_at >= patience:
            self.killed_by_us = True
            self._signal(signal.SIGKILL)
            kill_ranks(ranks)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.pid, number)

    def log_tail(self, lines: int = 12) -> list[str]:
        """The last lines of the stage's log."""
        return tail_of(self.log, lines)


def kill_ranks(ranks: Iterable[Mapping[str, Any]]) -> None:
    """SIGKILL to recorded ranks that still are the processes they were: pid and start time."""
    for rank in ranks:
        pid, start = rank.get("pid"), rank.get("pid_start")
        if isinstance(pid, int) and isinstance(start, int) and pid > 1 and is_alive(pid, start):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def tail_of(path: Path, lines: int) -> list[str]:
    """The last lines of a text file; empty where it cannot be read."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - LOG_TAIL))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-lines:]


def _open_log(log: Path) -> Any:
    """The log file; nowhere, where the disk takes no new file: a full disk must not end the run."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("ab", buffering=0)
    except OSError as error:
        sys.stderr.write(f"{log}: {error}\n")
        return Path(os.devnull).open("wb")
