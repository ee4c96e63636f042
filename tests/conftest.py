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
# A run predicts itself beside its first stages: seconds of a core in every real run, for the tests of it alone.
os.environ.setdefault("PILOT_TUI_PREDICT", "0")


# Whole runs of the demo, of several ranks and of real models. A worker takes a whole file at a time, so one of these
# taken up last would leave the other workers idle behind it.
LONG_FILES = (
    "predict/test_predict_command.py",
    "pilot/test_demo.py",
    "faults/test_faults_ranks.py",
    "predict/test_passes.py",
    "ui/test_terminal_demo.py",
    "pilot/test_torch_alone.py",
    "cases/test_invented.py",
    "tasks/test_sft_real.py",
    "mutations/test_mutations.py",
    "gpu/test_measure.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, in the order above; everything else as collected."""
    here = Path(__file__).parent
    rank = {str(here / name): place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: rank.get(str(item.path), len(rank)))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    work = tmp_path_factory.mktemp("demo")
    done = pilot_tui(["run", "--headless", "--json"], work)
    document = json.loads(done.stdout)
    return DemoRun(done.returncode, document, done.stderr, RunFolder(work / "runs" / document["run"]), work)
