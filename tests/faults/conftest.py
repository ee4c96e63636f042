"""Real stages by real supervisors over a tiny task. One thread each: numbers do not matter here, cores do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fault_runs import fake_choice

from tui_pilot.launch import start as starting
from tui_pilot.run_folder import all_runs, read_lock
from tui_pilot.store.state import RunState

if TYPE_CHECKING:
    from lab import Lab

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")
    for name, value in ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(starting, "choose", fake_choice)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """A folder for plans and runs; supervisors that a failed test leaves behind are ended by their pid."""
    yield tmp_path
    for folder in all_runs(tmp_path / "runs"):
        holder = read_lock(folder.lock_file)
        if holder is not None and holder.alive():
            os.kill(holder.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def warm() -> Iterator[subprocess.Popen[str]]:
    """The process that stages are forked from."""
    argv = [sys.executable, str(Path(__file__).with_name("warm.py"))]
    env = {**os.environ, **ONE_THREAD}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def lab(lab: Lab, warm: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The laboratory for single stages, with stages forked from a process that has torch already."""

    def stage(*names: str, env: Mapping[str, str] | None = None, attempt: int = 1) -> RunState:
        assert lab.run is not None and warm.stdin is not None and warm.stdout is not None
        out = lab.folder / "out.txt"
        for name in names:
            argv = [str(lab.run.code / "run_stage.py"), str(lab.run.path), name, "--attempt", str(attempt)]
            around = {**os.environ, "PILOT_TUI_SUPERVISOR": "", "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
            request = {"argv": argv, "cwd": str(lab.folder), "env": around, "out": str(out)}
            warm.stdin.write(json.dumps(request) + "\n")
            warm.stdin.flush()
            code = int(warm.stdout.readline())
            lab.code = subprocess.CompletedProcess(argv, code, b"", out.read_bytes())
        return lab.state()

    monkeypatch.setattr(lab, "stage", stage)
    return lab
