"""Starts one stage of a run: copied to ``code/run_stage.py``, so that stages import the frozen copy and nothing else.

``run_stage.py RUN STAGE --attempt N [--processes P]``. With more than one process it becomes torchrun, whose ranks
run this file again.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent ends, so that a killed supervisor leaves no orphan."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    expected = os.environ.get("PILOT_TUI_SUPERVISOR", "").partition(":")[0]
    if expected.isdigit() and "RANK" not in os.environ and os.getppid() != int(expected):
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Read the arguments, then run the stage here or through torchrun."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("stage")
    parser.add_argument("--attempt", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    die_with_parent()
    if options.processes > 1 and "RANK" not in os.environ:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // options.processes)))
        os.execv(
            sys.executable,
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes=1"),
                f"--nproc-per-node={options.processes}",
                *(str(Path(__file__).resolve()), str(options.run), options.stage),
                *("--attempt", str(options.attempt), "--processes", str(options.processes)),
            ],
        )
    sys.path[0] = str(HERE)
    from tui_pilot.pilot.main import run

    sys.exit(run(options.run, options.stage, options.attempt))


if __name__ == "__main__":
    main()
