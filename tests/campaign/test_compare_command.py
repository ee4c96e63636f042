"""A comparison killed in its middle and started again: real runs of the command line, on a few hundred parameters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lab import ONE_THREAD, pilot_tui, until
from small_trials import COMPARE, PLAN, TASK

from tui_pilot.run_folder import RunFolder, all_runs, is_live, read_lock
from tui_pilot.store.view import load_state


def test_killed_in_the_middle_and_started_again(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")
    (tmp_path / "task.py").write_text(TASK, "utf-8")
    (tmp_path / "pilot.yaml").write_text(PLAN + COMPARE, "utf-8")
    (tmp_path / "wait").touch()
    runs = tmp_path / "runs"
    argv = [sys.executable, "-m", "tui_pilot.cli", "compare", "pilot.yaml"]
    env = {**os.environ, **ONE_THREAD}
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as follower:
        first = until(lambda: next((each for each in all_runs(runs) if is_live(each)), None), "the first trial")
        follower.send_signal(signal.SIGKILL)
        follower.wait()
    assert is_live(first)  # the trial outlives whoever follows it
    holder = read_lock(first.lock_file)
    assert holder is not None
    os.kill(holder.pid, signal.SIGKILL)
    until(lambda: not is_live(first), "the end of the first trial's supervisor")
    (tmp_path / "wait").unlink()

    done = pilot_tui(["compare", "pilot.yaml", "--json"], tmp_path, ONE_THREAD)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    trials = [(each["id"], each["state"], each["counts"]) for each in document["trials"]]
    assert trials == [("base", "lost", False), ("base", "finished", True), ("hot", "diverged", True)]
    assert document["trials"][0]["run"] == first.id and len(all_runs(runs)) == 3
    second = document["trials"][1]
    parent = json.loads((runs / second["run"] / "run.json").read_text())
    assert parent["parent"] == first.id and parent["changed"] == {} and parent["comparison"] == document["id"]
    assert second["updates"] == 12 and [at for at, _ in second["validation"]] == [4, 8, 12]
    assert second["examples_seen"] == 48 and second["metrics"].keys() == {"loss", "accuracy"}
    hot = document["trials"][2]
    assert hot["diverged_at"] == hot["updates"] and hot["stop_reason"] in ("not_finite", "loss_above_start")
    rows = {row.phase: row for row in load_state(RunFolder(runs / hot["run"]))[0].rows}
    assert rows["evaluate"].verdict == "unchecked", "what diverged was not evaluated, so that is no pass"
    assert document["verified"] == {"before": True, "after": []}
    assert document["held"]["effective batch"] == "4 rows an update" and document["not_matched"] == []
    assert document["cost"]["predicted"]["seconds"] > 0 and document["summary"][0]["basis"] == "one seed"
    control = (runs / second["predictions"]).read_text().splitlines()
    assert len(control) == 3 * 8 and {"update", "row", "answer", "target"} <= json.loads(control[0]).keys()

    again = pilot_tui(["compare", "pilot.yaml"], tmp_path, ONE_THREAD)
    assert again.returncode == 0 and len(all_runs(runs)) == 3, again.stderr
    assert "diverged at" in again.stdout and "b base" in again.stdout
    kept = json.loads((runs / document["id"] / "comparison.json").read_text())
    assert [each["run"] for each in kept["trials"]] == [each["run"] for each in document["trials"]]
    held = json.loads((runs / document["id"] / "record.json").read_text())
    assert held["planned"]["validation_at"] == [4, 8, 12]
