"""A laboratory for single stages, the command line in a process of its own, and readers of rows.

A module and not a conftest: several folders have one, and only one of them is called ``conftest``.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tui_pilot.events.reader import Reader
from tui_pilot.launch.start import prepare
from tui_pilot.plan.load import load
from tui_pilot.run_folder import RunFolder
from tui_pilot.store.fold import fold
from tui_pilot.store.state import Row, RunState

SHARED = Path(__file__).resolve().parents[2] / "shared"


@dataclass
class Lab:
    """Writes a plan and a task file, runs stages one by one as real processes, and folds what they wrote."""

    folder: Path
    run: RunFolder | None = None

    def write(self, plan: str, files: Mapping[str, str | bytes] | None = None) -> Path:
        for name, content in (files or {}).items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path = self.folder / "pilot.yaml"
        path.write_text(plan, "utf-8")
        return path

    def prepare(self, plan: str, files: Mapping[str, str | bytes] | None = None) -> RunFolder:
        self.run = prepare(load(self.write(plan, files)), self.folder / "runs", argv=["test"])
        return self.run

    def stage(self, *names: str, env: Mapping[str, str] | None = None, attempt: int = 1) -> RunState:
        """Run stages in order and return the state after the last."""
        assert self.run is not None
        for name in names:
            self.code = subprocess.run(
                [sys.executable, self.run.code / "run_stage.py", self.run.path, name, "--attempt", str(attempt)],
                cwd=self.folder,
                env={**os.environ, "PILOT_TUI_SUPERVISOR": "", **(env or {})},
                capture_output=True,
                check=False,
            )
        return self.state()

    def warm_stage(
        self,
        warm: subprocess.Popen[str],
        *names: str,
        env: Mapping[str, str] | None = None,
        attempt: int = 1,
        processes: int = 1,
    ) -> RunState:
        """``stage`` by forking ``warm`` (see ``warm_process``): the same files, command line and exits, only sooner.

        ``processes``: ranks that find each other as torchrun's do.
        """
        assert self.run is not None and warm.stdin is not None and warm.stdout is not None
        out = self.folder / "out.txt"
        for name in names:
            argv = [str(self.run.code / "run_stage.py"), str(self.run.path), name, "--attempt", str(attempt)]
            around = {**os.environ, "PILOT_TUI_SUPERVISOR": "", "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
            request = {"argv": argv, "cwd": str(self.folder), "env": around, "out": str(out)}
            if processes > 1:
                request |= {"argv": [*argv, "--processes", str(processes)], "ranks": ranks_of(processes)}
            warm.stdin.write(json.dumps(request) + "\n")
            warm.stdin.flush()
            code = int(warm.stdout.readline())
            self.code = subprocess.CompletedProcess(argv, code, b"", out.read_bytes())
        return self.state()

    def state(self) -> RunState:
        assert self.run is not None
        return fold(Reader(self.run.events).poll())


def ranks_of(processes: int) -> list[dict[str, str]]:
    """The environment of each rank on this machine, on a port that is free now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
    shared = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]


ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


@contextmanager
def warm_process(*modules: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has torch, and ``modules`` where they are installed, from which stages are forked."""
    argv = [sys.executable, str(Path(__file__).with_name("warm_stages.py")), *modules]
    env = {**os.environ, **ONE_THREAD, "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


LONG = 120.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for something to become true; the time limit only ends a test that would hang."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"never came: {what}")


def codes(row: Row, severity: str | None = None) -> list[str]:
    """Reason codes of a row, worst first."""
    return [reason["code"] for reason in row.reasons if severity is None or reason["severity"] == severity]


def reason_of(row: Row, code: str) -> dict[str, Any]:
    """The row's first reason of a code."""
    found = [dict(reason) for reason in row.reasons if reason["code"] == code]
    assert found, f"{row.phase} has {codes(row)}, expected {code}"
    return found[0]


def pilot_tui(
    arguments: Sequence[str], folder: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tui_pilot.cli", *arguments],
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


@dataclass(frozen=True)
class DemoRun:
    """The built-in demo, run once for the whole session."""

    code: int
    document: dict[str, Any]
    stderr: str
    folder: RunFolder
    work: Path
