"""Opens the screen on a recorded run in a terminal of its own: ``screen_main.py RUNS [RUN FOLDER] [--ascii]``."""

from __future__ import annotations

import sys
from pathlib import Path

from tui_pilot.plan.load import default_demo
from tui_pilot.run_folder import RunFolder
from tui_pilot.ui.app import run_screen

if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    folder = RunFolder(Path(words[1])) if len(words) > 1 else None
    plan = None if folder else default_demo()
    sys.exit(run_screen(runs=Path(words[0]), plan=plan, folder=folder, ascii="--ascii" in sys.argv))
