"""Runs with the stand-in for the pilot side, and readers of what they left."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from lab import LONG, until

from tui_pilot.devices.pythons import Choice
from tui_pilot.launch import start as starting
from tui_pilot.launch.control import wait
from tui_pilot.plan.load import LoadedPlan
from tui_pilot.plan.model import Gates, Plan
from tui_pilot.run_folder import RunFolder, is_live
from tui_pilot.store.state import RunState
from tui_pilot.store.view import load_state

FAKE_STAGE = Path(__file__).parent / "fake_stage"


def fake_choice(planned: str = "auto", explicit: str | None = None) -> Choice:
    return Choice(sys.executable, None, "the test's own", device="cpu")


def fake_plan(folder: Path, fake: dict[str, str] | None = None, **gates: Any) -> LoadedPlan:
    plan = Plan(name="fake", task="demo", options={"fake": fake or {}}, gates=Gates(**gates))
    return LoadedPlan(plan, folder, None, {}, "", True)


def prepare(
    runs: Path, fake: dict[str, str] | None = None, *, gates: dict[str, Any] | None = None, **rest: Any
) -> RunFolder:
    loaded = fake_plan(runs.parent, fake, **(gates or {}))
    return starting.prepare(loaded, runs, argv=["pilot-tui", "run"], code_source=FAKE_STAGE, **rest)


def finish(folder: RunFolder) -> RunState:
    """Start the run and follow it to its end."""
    starting.start(folder)
    return ended(folder)


def ended(folder: RunFolder) -> RunState:
    deadline = time.monotonic() + LONG
    state = wait(folder, until=lambda _: time.monotonic() > deadline)
    assert time.monotonic() <= deadline, f"{folder.id} did not end; {state.state}"
    return state


def running(folder: RunFolder, phase: str) -> RunState:
    """Wait until the phase runs."""

    def look() -> RunState | None:
        state = load_state(folder)[0]
        return state if state.row(phase).running and is_live(folder) else None

    found: RunState = until(look, f"{phase} running")
    return found


def verdicts(state: RunState) -> dict[str, str | None]:
    return {row.phase: row.verdict for row in state.rows}


def events(folder: RunFolder, kind: str) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.events.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["kind"] == kind:
                found.append(event)
    return found
