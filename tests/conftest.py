"""What tests of several folders share: one real run of the demo, and a laboratory for single stages."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from lab import DemoRun, Lab, pilot_tui

from tui_pilot.run_folder import RunFolder

# Tiny models gain nothing from a second thread and lose much where another process has that core.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    work = tmp_path_factory.mktemp("demo")
    done = pilot_tui(["run", "--headless", "--json"], work)
    document = json.loads(done.stdout)
    return DemoRun(done.returncode, document, done.stderr, RunFolder(work / "runs" / document["run"]), work)
