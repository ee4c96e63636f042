"""Signal 9 against a stage, the supervisor or the command, in every stage: the state is right and no row is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fault_runs import (
    alive,
    describe,
    ended,
    finish,
    held,
    plan,
    prepare,
    row,
    until,
    verdicts,
)
from lab import codes, reason_of

from tui_pilot.events.schema import PHASES_OF, STAGE_OF, STAGES
from tui_pilot.launch import start as starting
from tui_pilot.run_folder import RunFolder, all_runs, is_live
from tui_pilot.store.view import load_state, snapshot

# phase in which the stage waits, and where in the task
PLACES = {
    "data": ("examples", {"method": "encode", "call": 5}),
    "overfit": ("overfit", {"method": "loss", "call": 3}),
    "peak": ("first_step", {"method": "step", "call": 1}),
    "train": ("export", {"method": "save_artifact", "call": 1}),
    "resume": ("resume", {"method": "loss", "call": 2}),
    "reload": ("reload", {"method": "load_artifact", "call": 1}),
}
ORDER = [phase for stage in STAGES for phase in PHASES_OF[stage]]


def hold(stage: str) -> dict[str, Any]:
    return {"stage": stage, "do": "hold", **PLACES[stage][1]}


def bytes_of(folder: RunFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.events.glob("*.jsonl")}


def assert_nothing_lost(folder: RunFolder, before: dict[str, bytes]) -> None:
    """Whatever was in the event files is there still, at the same place."""
    for name, content in before.items():
        assert (folder.events / name).read_bytes().startswith(content), name


def kill_stage(folder: RunFolder, work: Path, stage: str) -> None:
    pid = held(work, stage)
    before = bytes_of(folder)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), "the stage's end")
    assert_nothing_lost(folder, before)


def assert_killed(folder: RunFolder, stage: str) -> None:
    found = row(load_state(folder)[0], PLACES[stage][0])
    killed = reason_of(found, "killed")
    assert found.verdict == "fail" and killed["severity"] == "fail"
    assert "SIGKILL" in killed["text"] and f"stage {stage}" in killed["text"] and found.phase in killed["text"]
    assert killed["where"]["file"] == f"logs/{stage}.log" and (folder.path / killed["where"]["file"]).is_file()


def test_stages_killed_one_after_another_leave_every_other_row(work: Path) -> None:
    stages = ("data", "overfit", "peak", "train", "resume")
    folder = prepare(work, plan(*map(hold, stages)), keep_going=True)
    starting.start(folder)
    for stage in stages:
        kill_stage(folder, work, stage)
    state = ended(folder)
    for stage in stages:
        assert_killed(folder, stage)
    found = verdicts(state)
    for phase in ("stack", "load", "forward", "backward", "batch", "checkpoint"):
        assert found[phase] in ("pass", "warn"), describe(folder)
    for phase in ("splits", "steady_step", "evaluate", "reload"):
        assert found[phase] == "not_run", describe(folder)
    assert codes(row(state, "reload")) == ["needs_artifact"]
    assert state.state == "failed" and "examples" in state.text and snapshot(folder)["exit_code"] == 1
    assert not folder.artifact.exists() and not is_live(folder)


def test_reload_killed_leaves_what_was_trained(work: Path) -> None:
    folder = prepare(work, plan(hold("reload"), only=("train", "reload")))
    starting.start(folder)
    kill_stage(folder, work, "reload")
    state = ended(folder)
    assert_killed(folder, "reload")
    assert {verdicts(state)[phase] for phase in PHASES_OF["train"]} == {"pass"}
    assert state.state == "failed" and snapshot(folder)["exit_code"] == 1
    assert (folder.artifact / "manifest.json").is_file()


WITH = {
    "data": ("data",),
    "overfit": ("overfit",),
    "peak": ("peak",),
    "train": ("train",),
    "resume": ("train", "resume"),
    "reload": ("train", "reload"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_supervisor_killed_takes_its_stage_along_and_the_run_is_lost(work: Path, stage: str) -> None:
    phase = PLACES[stage][0]
    folder = prepare(work, plan(hold(stage), only=WITH[stage]))
    holder = starting.start(folder)
    pid = held(work, stage)
    before = bytes_of(folder)
    os.kill(holder.pid, signal.SIGKILL)
    until(lambda: not alive(pid), "the stage's end")
    until(lambda: not is_live(folder), "the lock's death")
    assert_nothing_lost(folder, before)
    shown = snapshot(folder)
    rows = {each["phase"]: each for each in shown["phases"]}
    assert shown["state"] == "lost" and shown["exit_code"] == 3 and shown["stage"] is None
    assert "process gone" in shown["text"]
    assert rows[phase]["verdict"] == "unchecked" and rows[phase]["reasons"][0]["code"] == "lost"
    ran = [each for each in ORDER if STAGE_OF[each] in WITH[stage]]
    for each in ran[: ran.index(phase)]:
        assert rows[each]["verdict"] in ("pass", "warn") and rows[each]["memory"], each
    for each in ran[ran.index(phase) + 1 :]:
        assert rows[each]["verdict"] == "not_run", each
    if stage == "overfit":  # the same plan, without what held it, runs as a new run beside the lost one
        again = prepare(work, plan(only=("overfit",)))
        state = finish(again)
        assert state.state == "finished" and verdicts(state)["overfit"] == "pass"
        assert snapshot(folder)["state"] == "lost" and snapshot(again)["parent"] == folder.id


def test_command_killed_leaves_the_run_alone(work: Path) -> None:
    text = plan(hold("data"), only=("data",), more="launch: {python: " + sys.executable + "}\n")
    prepare(work, text, runs=work / "unused")
    argv = [sys.executable, "-m", "tui_pilot.cli", "run", "pilot.yaml", "--headless", "--json"]
    with subprocess.Popen(argv, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        pid = held(work, "data")
        command.kill()
        out, _ = command.communicate()
    assert command.returncode == -signal.SIGKILL and out == b""
    (folder,) = all_runs(work / "runs")
    assert is_live(folder) and alive(pid)
    (work / "go").touch()
    state = ended(folder)
    assert state.state == "finished" and {verdicts(state)[phase] for phase in PHASES_OF["data"]} == {"pass"}
