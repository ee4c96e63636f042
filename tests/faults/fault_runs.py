"""Plans of the tiny task, runs of it by the real supervisor, and readers of what they left."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import LONG, until

from tui_pilot.devices.pythons import Choice
from tui_pilot.events.schema import PHASES_OF
from tui_pilot.launch import start as starting
from tui_pilot.launch.control import wait
from tui_pilot.plan.load import load
from tui_pilot.run_folder import RunFolder
from tui_pilot.store.state import Row, RunState
from tui_pilot.store.view import load_state

MEASURED = ("load", "forward", "backward", "first_step", "steady_step", "evaluate")
"""The phases that a prediction speaks of."""
TINY = (Path(__file__).parent / "tiny.py").read_text("utf-8")
PLAN = """\
name: tiny
task: {task}
device: cpu
batch: {{micro: 2, accumulation: 2}}
budget: {{updates: 30}}
optimizer: {{lr: 1.0e-2, schedule: linear, warmup: 0}}
evaluate: {{rows: 6}}
pilot: {{steady: 2, timed: 2, reference: 2}}
"""


def fake_choice(planned: str = "auto", explicit: str | None = None) -> Choice:
    return Choice(sys.executable, None, "the test's own", device="cpu")


def plan(*faults: Mapping[str, Any], task: str = "tiny.py:Tiny", more: str = "", only: tuple[str, ...] = ()) -> str:
    """The plan's text. ``only``: the stages that run; the phases of the others are skipped."""
    text = PLAN.format(task=task) + more
    if faults:
        text += f"options: {json.dumps({'faults': list(faults)})}\n"
    if only:
        skipped = [phase for stage, phases in PHASES_OF.items() if stage not in only for phase in phases]
        text += f"gates: {{skip: {json.dumps(skipped)}}}\n"
    return text


def prepare(folder: Path, text: str, files: Mapping[str, str] | None = None, **rest: Any) -> RunFolder:
    """A run folder below ``folder/runs`` (or ``runs=``) for a plan's text, the tiny task beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {"tiny.py": TINY, **(files or {})}.items():
        (folder / name).write_text(content, "utf-8")
    path = folder / "pilot.yaml"
    path.write_text(text, "utf-8")
    runs = rest.pop("runs", folder / "runs")
    return starting.prepare(load(path), runs, argv=["pilot-tui", "run"], **rest)


def held(folder: Path, stage: str, rank: int = 0) -> int:
    """The pid of the process that waits in a stage; waits until it is there."""

    def look() -> int:
        try:
            return int((folder / f"held-{stage}.{rank}").read_text() or 0)
        except OSError:
            return 0

    return int(until(look, f"stage {stage} holding"))


def ended(folder: RunFolder) -> RunState:
    deadline = time.monotonic() + LONG
    state = wait(folder, until=lambda _: time.monotonic() > deadline)
    assert time.monotonic() <= deadline, f"{folder.id} did not end: {describe(folder)}"
    return state


def finish(folder: RunFolder) -> RunState:
    """Start the run and follow it to its end."""
    starting.start(folder)
    return ended(folder)


def row(state: RunState, phase: str) -> Row:
    return state.row(phase)


def verdicts(state: RunState) -> dict[str, str | None]:
    return {each.phase: each.verdict for each in state.rows}


def describe(folder: RunFolder) -> str:
    """Everything a failed test wants to know of a run."""
    state, _ = load_state(folder)
    lines = [f"{state.state} {state.text}"]
    lines += [f"{each.phase}: {each.verdict} {[r['text'] for r in each.reasons]}" for each in state.rows]
    for log in sorted(folder.logs.glob("*.log")):
        lines.append(f"{log.name}: {log.read_text(errors='replace')[-2000:]}")
    return "\n".join(lines)


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not reaped yet does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X") and os.path.exists(f"/proc/{pid}")
