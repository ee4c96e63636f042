"""Real stages by real supervisors over a tiny task. One thread each: numbers do not matter here, cores do."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from fault_runs import fake_choice
from lab import ONE_THREAD, Lab, warm_process

from tui_pilot.launch import start as starting
from tui_pilot.run_folder import all_runs, read_lock


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
    with warm_process() as process:
        yield process


@pytest.fixture
def lab(lab: Lab, warm: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The laboratory for single stages, with stages forked from a process that has torch already."""
    monkeypatch.setattr(lab, "stage", partial(lab.warm_stage, warm))
    return lab
