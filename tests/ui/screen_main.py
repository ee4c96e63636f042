"""Opens the screen in a terminal of its own: ``screen_main.py RUNS [RUN FOLDER or PLAN] [--ascii] [--fake] [--slow]``.

``--fake``: a run started from here has the stand-in for the pilot side, which needs no torch. ``--slow``: making its
folder takes a second more.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tui_pilot.plan.load import default_demo, load
from tui_pilot.run_folder import RunFolder
from tui_pilot.ui import operate
from tui_pilot.ui.app import run_screen


def stand_in() -> None:
    """Runs of this process get the tests' own pilot side."""
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "launch")]
    from launch_runs import FAKE_STAGE, fake_choice

    from tui_pilot.launch import start

    real = start.copy_pilot_side
    start.choose = fake_choice
    start.copy_pilot_side = lambda target, source: real(target, source or FAKE_STAGE)


def slow() -> None:
    real = operate.run
    operate.run = lambda *words: time.sleep(1.0) or real(*words)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    what = Path(words[1]) if len(words) > 1 else None
    folder = RunFolder(what) if what is not None and what.is_dir() else None
    plan = None if folder else load(what) if what is not None else default_demo()
    if "--fake" in sys.argv:
        stand_in()
    if "--slow" in sys.argv:
        slow()
    sys.exit(run_screen(runs=Path(words[0]), plan=plan, folder=folder, ascii="--ascii" in sys.argv))
