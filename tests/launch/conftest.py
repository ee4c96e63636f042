"""No test here starts a torch: the interpreter is the test's own, the pilot side a stand-in."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch_runs import fake_choice

from tui_pilot.launch import start as starting
from tui_pilot.run_folder import all_runs, read_lock


@pytest.fixture(autouse=True)
def own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "choose", fake_choice)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """A folder for runs; supervisors that a failed test leaves behind are ended by their pid."""
    root = tmp_path / "runs"
    yield root
    for folder in all_runs(root):
        holder = read_lock(folder.lock_file)
        if holder is not None and holder.alive():
            os.kill(holder.pid, signal.SIGKILL)
