"""Whole runs by a real supervisor over stand-in stages: verdicts, deaths, stops, skips, and what is kept."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch_runs import ended, events, finish, prepare, running, until, verdicts

from tui_pilot.errors import PilotError, RunFolderError
from tui_pilot.events.schema import PHASES, PHASES_OF, STAGES
from tui_pilot.launch import control
from tui_pilot.launch import start as starting
from tui_pilot.run_folder import is_live, read_lock, write_json
from tui_pilot.store.view import load_state, snapshot


def test_normal_run_ends_finished_with_fifteen_passes(runs: Path) -> None:
    folder = prepare(runs)
    state = finish(folder)
    assert state.state == "finished" and set(verdicts(state).values()) == {"pass"}
    assert [event["stage"] for event in events(folder, "stage_started")] == list(STAGES)
    assert all(event["exit_code"] == 0 for event in events(folder, "stage_ended"))
    assert not is_live(folder) and not folder.lock_file.exists()
    shown = snapshot(folder)
    assert shown["exit_code"] == 0 and shown["verdict"] == "pass" and len(shown["phases"]) == 15
    assert shown["binding_phase"] == "evaluate"  # overfit's 9,000 bytes are diagnostic
    assert shown["metrics"]["loss"] == [[1, 4.0], [2, 2.0], [3, 4.0 / 3]]
    json.dumps(shown)


def test_fail_stops_at_the_stage_edge_and_keeps_the_rest_of_that_stage(runs: Path) -> None:
    state = finish(prepare(runs, {"forward": "fail"}))
    found = verdicts(state)
    assert state.state == "failed" and state.text.startswith("at forward: ")
    assert found["forward"] == "fail" and found["steady_step"] == "pass" and found["evaluate"] == "pass"
    assert {found[phase] for stage in ("train", "resume", "reload") for phase in PHASES_OF[stage]} == {"not_run"}


@pytest.mark.parametrize("how", ["flag", "plan"])
def test_keep_going_runs_past_a_fail(runs: Path, how: str) -> None:
    gates = {"stop_on_fail": False} if how == "plan" else None
    state = finish(prepare(runs, {"forward": "fail"}, gates=gates, keep_going=how == "flag"))
    found = verdicts(state)
    assert state.state == "failed" and found["reload"] == "pass" and found["forward"] == "fail"


def test_out_of_memory_in_overfit_does_not_stop_peak(runs: Path) -> None:
    state = finish(prepare(runs, {"overfit": "oom"}))
    assert state.state == "failed" and verdicts(state)["reload"] == "pass"


def test_missing_checkpoint_and_artifact_are_named(runs: Path) -> None:
    state = finish(prepare(runs, {"checkpoint": "no_payload", "export": "no_payload"}))
    assert state.row("resume").verdict == state.row("reload").verdict == "not_run"
    assert state.row("resume").reasons[0]["code"] == "needs_checkpoint"
    assert state.row("reload").reasons[0]["code"] == "needs_artifact"
    assert state.state == "finished"


def test_skipped_stage_is_not_started(runs: Path) -> None:
    folder = prepare(runs, gates={"skip": ("overfit", "splits", "reload")})
    state = finish(folder)
    assert [event["stage"] for event in events(folder, "stage_started")] == ["data", "peak", "train", "resume"]
    assert {phase for phase, verdict in verdicts(state).items() if verdict == "skipped"} == {
        "overfit",
        "splits",
        "reload",
    }
    assert snapshot(folder)["exit_code"] == 4
    assert snapshot(folder, ("overfit", "splits", "reload"))["exit_code"] == 0


@pytest.mark.parametrize("stage", STAGES)
def test_stage_killed_by_signal_9_is_said_and_nothing_is_lost(runs: Path, stage: str) -> None:
    phase = PHASES_OF[stage][-1]
    folder = prepare(runs, {phase: "hang"})
    starting.start(folder)
    state = running(folder, phase)
    assert state.stage is not None and state.stage.pid is not None
    os.kill(state.stage.pid, signal.SIGKILL)
    state = ended(folder)
    row = state.row(phase)
    assert state.state == "failed" and row.verdict == "fail" and row.inputs == {"rows": 2}
    reason = row.reasons[0]
    assert reason["code"] == "killed" and "SIGKILL" in reason["text"] and phase in reason["text"]
    order = [each for name in STAGES for each in PHASES_OF[name]]
    before = order[: order.index(phase)]
    assert {verdicts(state)[each] for each in before} <= {"pass"}
    assert events(folder, "stage_ended")[-1]["signal"] == 9


@pytest.mark.parametrize("stage", STAGES)
def test_supervisor_killed_by_signal_9_leaves_no_orphan_and_a_lost_run(runs: Path, stage: str) -> None:
    phase = PHASES_OF[stage][0]
    folder = prepare(runs, {phase: "hang"})
    holder = starting.start(folder)
    state = running(folder, phase)
    assert state.stage is not None
    stage_pid, stage_start = state.stage.pid, state.stage.pid_start
    os.kill(holder.pid, signal.SIGKILL)
    from tui_pilot.devices.host import is_alive

    until(lambda: not is_alive(stage_pid or 0, stage_start), "the stage's end")
    until(lambda: not is_live(folder), "the lock's death")
    shown = snapshot(folder)
    rows = {row["phase"]: row for row in shown["phases"]}
    assert shown["state"] == "lost" and shown["exit_code"] == 3
    assert rows[phase]["verdict"] == "unchecked" and rows[phase]["reasons"][0]["code"] == "lost"
    order = [each for name in STAGES for each in PHASES_OF[name]]
    assert all(rows[each]["verdict"] == "pass" for each in order[: order.index(phase)])
    assert all(rows[each]["verdict"] == "not_run" for each in order[order.index(phase) + 1 :])


def test_crash_names_exit_code_log_and_last_line(runs: Path) -> None:
    folder = prepare(runs, {"backward": "exit"})
    state = finish(folder)
    reason = state.row("backward").reasons[0]
    assert reason["code"] == "crash" and "exit code 7" in reason["text"] and "something broke" in reason["text"]
    assert reason["where"]["file"] == "logs/peak.log" and (folder.path / "logs/peak.log").is_file()
    assert state.row("first_step").verdict == "not_run"


def test_stage_that_dies_before_its_first_phase_fails_that_phase(runs: Path) -> None:
    state = finish(prepare(runs, {"overfit:start": "exit"}))
    assert state.row("overfit").verdict == "fail" and "before overfit began" in state.row("overfit").reasons[0]["text"]
    assert state.state == "failed"


def test_stage_that_ends_without_a_word_is_a_crash(runs: Path) -> None:
    state = finish(prepare(runs, {"forward": "silent"}))
    assert state.row("forward").verdict == "fail" and state.row("forward").reasons[0]["code"] == "crash"


@pytest.mark.parametrize("how", ["request", "SIGTERM", "SIGINT"])
def test_stop_keeps_rows_and_says_where(runs: Path, how: str) -> None:
    folder = prepare(runs, {"evaluate": "hang"})
    holder = starting.start(folder)
    running(folder, "evaluate")
    if how == "request":
        control.request_stop(folder)
    else:
        os.kill(holder.pid, getattr(signal, how))
    state = ended(folder)
    assert state.state == "stopped" and state.text == "by you in evaluate"
    assert state.row("evaluate").verdict == "not_run" and state.row("evaluate").reasons[0]["code"] == "stopped"
    assert state.row("steady_step").verdict == "pass"
    assert snapshot(folder)["exit_code"] == (130 if how == "SIGINT" else 5)


def test_hang_up_is_survived(runs: Path) -> None:
    folder = prepare(runs, {"splits": "hang"})
    holder = starting.start(folder)
    running(folder, "splits")
    os.kill(holder.pid, signal.SIGHUP)
    (folder.path / "control" / "save_now").touch()
    assert ended(folder).state == "finished"


def test_stage_that_ignores_sigterm_is_ended_all_the_same(runs: Path, tmp_path: Path) -> None:
    source = tmp_path / "stubborn"
    source.mkdir()
    text = (Path(__file__).parent / "fake_stage" / "run_stage.py").read_text()
    (source / "run_stage.py").write_text(
        text.replace("pid = os.getpid()", "pid = os.getpid(); signal.signal(15, signal.SIG_IGN)")
    )
    from launch_runs import fake_plan

    folder = starting.prepare(fake_plan(tmp_path, {"stack": "hang"}), runs, argv=[], code_source=source)
    starting.start(folder)
    running(folder, "stack")
    control.request_stop(folder)
    assert ended(folder).state == "stopped"


def test_resume_test_of_an_ended_run_adds_an_attempt(runs: Path) -> None:
    folder = prepare(runs)
    first = finish(folder)
    assert "attempt 2" in control.request_resume_test(folder)
    state = ended(folder)
    row = state.row("resume")
    assert (row.attempt, row.verdict, len(row.attempts)) == (2, "pass", 1)
    assert state.state == "finished" and state.ended == first.ended and state.started == first.started
    assert set(verdicts(state).values()) == {"pass"}


def test_resume_test_that_fails_makes_the_run_failed_and_a_later_pass_mends_it(runs: Path) -> None:
    folder = prepare(runs, {"resume@2": "fail"})
    finish(folder)
    control.request_resume_test(folder)
    assert ended(folder).state == "failed"
    control.request_resume_test(folder)
    state = ended(folder)
    assert state.state == "finished" and [each["verdict"] for each in state.row("resume").attempts] == ["pass", "fail"]


def test_resume_test_without_checkpoint_is_refused(runs: Path) -> None:
    folder = prepare(runs, {"stack": "fail"})
    finish(folder)
    with pytest.raises(PilotError) as caught:
        control.request_resume_test(folder)
    assert caught.value.code == "needs_checkpoint"


def test_resume_test_of_a_lost_run_closes_its_open_row(runs: Path) -> None:
    folder = prepare(runs, {"reload": "hang"})
    holder = starting.start(folder)
    running(folder, "reload")
    os.kill(holder.pid, signal.SIGKILL)
    until(lambda: not is_live(folder), "the lock's death")
    control.request_resume_test(folder)
    state = ended(folder)
    assert state.state == "lost" and state.row("reload").verdict == "unchecked" and state.row("resume").attempt == 2


def test_resume_test_of_a_live_run_is_queued_and_saves_now(runs: Path) -> None:
    folder = prepare(runs, {"batch": "hang"})
    starting.start(folder)
    running(folder, "batch")
    words = control.request_resume_test(folder)
    assert "queued until stage train ends" in words
    state = ended(folder)
    assert events(folder, "test_queued")[0]["text"] == words
    assert state.row("resume").attempt == 2 and len(state.row("resume").attempts) == 1
    assert state.state == "finished" and state.queued is None


def test_two_runs_at_once_do_not_touch_each_other(runs: Path) -> None:
    one, two = prepare(runs, {"splits": "hang"}), prepare(runs)
    starting.start(one)
    running(one, "splits")
    assert finish(two).state == "finished"
    assert is_live(one)
    control.request_stop(one)
    assert ended(one).state == "stopped"


def test_second_supervisor_on_a_live_run_is_refused(runs: Path) -> None:
    folder = prepare(runs, {"stack": "hang"})
    starting.start(folder)
    running(folder, "stack")
    with pytest.raises(RunFolderError, match="live already"):
        starting.start(folder, only="resume", attempt=2)
    control.request_stop(folder)
    assert ended(folder).state == "stopped"


def test_an_ended_run_is_never_run_again_under_its_id(runs: Path) -> None:
    folder = prepare(runs)
    finish(folder)
    with pytest.raises(RunFolderError, match="never used twice"):
        starting.start(folder)


def test_stale_lock_with_a_reused_pid_is_a_lost_run_and_is_replaced(runs: Path) -> None:
    folder = prepare(runs, {"stack": "hang"})
    holder = starting.start(folder)
    running(folder, "stack")
    os.kill(holder.pid, signal.SIGKILL)
    until(lambda: not is_live(folder), "the lock's death")
    lock = json.loads(folder.lock_file.read_text())
    write_json(folder.lock_file, {**lock, "pid": os.getpid()})  # this test's own process now has that number
    assert not is_live(folder) and snapshot(folder)["state"] == "lost"
    fresh = prepare(runs)
    write_json(fresh.lock_file, {**lock, "pid": os.getpid()})
    assert finish(fresh).state == "finished"


def test_lock_of_an_earlier_boot_is_dead(runs: Path) -> None:
    folder = prepare(runs, {"stack": "hang"})
    starting.start(folder)
    running(folder, "stack")
    lock = json.loads(folder.lock_file.read_text())
    write_json(folder.lock_file, {**lock, "boot": "another"})
    assert not is_live(folder)
    write_json(folder.lock_file, lock)
    control.request_stop(folder)
    ended(folder)


def test_garbage_torn_lines_and_unknown_kinds_are_counted_and_change_nothing(runs: Path) -> None:
    folder = prepare(runs)
    finish(folder)
    good = snapshot(folder)
    with (folder.events / "train.rank0.jsonl").open("ab") as stream:
        stream.write(b'\x00\xff garbage\n[1,2]\n{"kind": 3}\n{"v":9,"kind":"future_kind","mono":1}\n{"kind":"phase_en')
    shown = snapshot(folder)
    assert shown["events"]["broken_lines"] == 3 and shown["events"]["unknown_kinds"] == 1
    assert shown["phases"] == good["phases"] and shown["state"] == "finished"


def test_no_training_python_is_a_fail_of_stack(runs: Path) -> None:
    folder = prepare(runs)
    run = json.loads(folder.run_file.read_text())
    run["python"], run["python_choice"] = None, {"problem": "no Python here has a torch", "advice": "Install torch."}
    write_json(folder.run_file, run)
    state = finish(folder)
    reason = state.row("stack").reasons[0]
    assert state.state == "failed" and "no Python here has a torch" in reason["text"]
    assert verdicts(state)["examples"] == "not_run"


def test_python_that_is_gone_is_a_fail_with_its_path(runs: Path) -> None:
    folder = prepare(runs)
    run = json.loads(folder.run_file.read_text())
    write_json(folder.run_file, {**run, "python": "/nowhere/python"})
    state = finish(folder)
    assert state.row("stack").verdict == "fail" and "/nowhere/python" in state.row("stack").reasons[0]["text"]


def test_full_disk_while_logging_does_not_end_the_run(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = prepare(runs)
    code = (
        "import sys, os, errno\n"
        "from tui_pilot.events import writer\n"
        "real, failed = os.write, []\n"
        "def write(fd, data):\n"
        "    if b'stage_started' in bytes(data) and b'overfit' in bytes(data) and len(failed) < 2:\n"
        "        failed.append(1); raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "    return real(fd, data)\n"
        "writer.os = type('os', (), {**vars(os), 'write': staticmethod(write)})\n"
        "from tui_pilot.launch.supervisor import main\n"
        f"sys.exit(main([{str(folder.path)!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    state, _ = load_state(folder)
    assert state.state == "finished" and set(verdicts(state).values()) == {"pass"}
    assert "could not be written" in events(folder, "notice")[-1]["text"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small tmpfs may not be mounted here: " + mounted.stderr.decode().strip())
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_disk_that_fills_up_in_a_stage_keeps_the_rows_above(small_disk: Path) -> None:
    folder = prepare(small_disk / "runs", {"load": "fill"})
    state = finish(folder)
    found = verdicts(state)
    assert all(found[phase] == "pass" for phase in ("stack", "examples", "splits", "overfit"))
    assert state.state in ("failed", "lost") and snapshot(folder)["exit_code"] in (1, 3)
    assert "pass" not in (found["resume"], found["reload"])
    assert not is_live(folder)
    with contextlib.suppress(OSError), (small_disk / "rest").open("wb", buffering=0) as stream:
        while True:  # what the supervisor kept back for its last words is free again
            stream.write(b"f" * 4096)
    with pytest.raises(RunFolderError, match="full disk"):
        prepare(small_disk / "runs")


def test_every_phase_row_is_there_whatever_ran(runs: Path) -> None:
    state = finish(prepare(runs, {"stack": "kill"}))
    assert tuple(row.phase for row in state.rows) == PHASES
    assert read_lock(state_folder(runs) / "run.lock") is None


def state_folder(runs: Path) -> Path:
    return next(path for path in runs.iterdir() if path.is_dir())
