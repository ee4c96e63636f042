"""Commands against runs with the stand-in for the pilot side; no test here starts a torch."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "launch"))

from launch_runs import FAKE_STAGE, fake_choice

from tui_pilot.launch import start as starting
from tui_pilot.run_folder import all_runs, read_lock


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    real = starting.copy_pilot_side
    monkeypatch.setattr(starting, "choose", fake_choice)
    monkeypatch.setattr(starting, "copy_pilot_side", lambda target, source: real(target, source or FAKE_STAGE))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder; supervisors that a failed test leaves behind are ended by their pid."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PILOT_TUI_RUNS", raising=False)
    yield tmp_path
    for folder in all_runs(tmp_path / "runs"):
        holder = read_lock(folder.lock_file)
        if holder is not None and holder.alive():
            os.kill(holder.pid, signal.SIGKILL)
