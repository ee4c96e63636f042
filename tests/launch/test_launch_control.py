"""Marks, notes, decisions and the screen's lock; the words for a died stage; rules as pure functions."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from launch_runs import finish, prepare

from tui_pilot.errors import PilotError, RunFolderError
from tui_pilot.gates.verdict import Reason
from tui_pilot.launch import control, deaths, rules
from tui_pilot.launch.gpu_watch import GpuWatch
from tui_pilot.launch.stage_process import environment
from tui_pilot.run_folder import RunFolder
from tui_pilot.store.state import Row, RunState
from tui_pilot.store.view import load_state, snapshot


def test_marks_notes_and_decision_stand_beside_the_verdict(runs: Path) -> None:
    folder = prepare(runs, {"splits": "fail"})
    finish(folder)
    with pytest.raises(PilotError) as caught:
        control.mark(folder, "splits", "pass")
    assert caught.value.code == "note_required"
    control.mark(folder, "splits", "pass", "known and wanted")
    control.note(folder, "first look")
    control.note(folder, "on the splits", "splits")
    control.decide(folder, "defer", "ask again")
    shown = snapshot(folder)
    rows = {row["phase"]: row for row in shown["phases"]}
    assert rows["splits"]["verdict"] == "fail" and rows["splits"]["mark"] == "pass"
    assert rows["splits"]["note"] == "known and wanted", "a note on a phase never takes the place of the mark's own"
    assert [(note.get("phase"), note["text"]) for note in shown["notes"]] == [
        (None, "first look"),
        ("splits", "on the splits"),
    ]
    assert shown["decision"]["decision"] == "defer"
    assert shown["exit_code"] == 1, "a mark changes no exit code"
    control.mark(folder, "splits", None)
    assert {row["phase"]: row for row in snapshot(folder)["phases"]}["splits"]["mark"] is None


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda f: control.mark(f, "stak", "pass"), "unknown_phase"),
        (lambda f: control.mark(f, "stack", "good"), "unknown_mark"),
        (lambda f: control.note(f, "  "), "note_required"),
        (lambda f: control.decide(f, "retain", ""), "note_required"),
        (lambda f: control.decide(f, "keep", "x"), "unknown_decision"),
        (lambda f: control.mark(f, "stack", "pass"), "no_verdict"),
        (control.request_stop, "not_running"),
        (control.request_resume_test, "needs_checkpoint"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_code(runs: Path, call: object, code: str) -> None:
    folder = prepare(runs)
    with pytest.raises(PilotError) as caught:
        call(folder)  # type: ignore[operator]
    assert caught.value.code == code and caught.value.exit_code == 2 and caught.value.text


def test_mark_that_does_not_reach_the_disk_is_an_error(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = prepare(runs)
    monkeypatch.setattr(control.Writer, "emit", lambda *_, **__: False)
    with pytest.raises(RunFolderError, match="Nothing was recorded"):
        control.note(folder, "x")


def test_second_screen_reads_only(runs: Path) -> None:
    folder = prepare(runs)
    code = (
        "import sys; from pathlib import Path\n"
        "from tui_pilot.launch.control import ControlLock; from tui_pilot.run_folder import RunFolder\n"
        "lock = ControlLock(RunFolder(Path(sys.argv[1]))); print(lock.take(), flush=True); sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", code, str(folder.path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None and first.stdout.readline() == "True\n"
        second = control.ControlLock(folder)
        assert not second.take()
        assert second.holder is not None and second.holder.pid == first.pid
        first.kill()
        first.wait()
    assert second.take() and second.holder is not None and second.holder.pid == os.getpid()
    second.drop()
    assert second.holder is None


def death(**changes: object) -> deaths.Death:
    return replace(deaths.Death("peak", -9, Path("logs/peak.log"), ("last word \x1b[2J",)), **changes)


def test_words_for_signal_9_tell_the_kernel_from_others() -> None:
    foreign = deaths.reason_of(death(), "forward", True)
    assert foreign.code == "killed" and "not by pilot-tui" in foreign.text and "\x1b" not in foreign.text
    kernel = deaths.reason_of(death(memory_killer="the kernel's out-of-memory killer ended it"), "forward", True)
    assert "out-of-memory killer" in kernel.text and "Free host memory" in kernel.advice


def test_torchrun_names_the_rank_and_its_signal() -> None:
    tail = (
        "Root Cause (first observed failure):",
        "  rank      : 3 (local_rank: 3)",
        "  exitcode  : -9 (pid: 51)",
        "  traceback : Signal 9 (SIGKILL) received by PID 51",
    )
    reason = deaths.reason_of(death(exit_code=1, tail=tail), "batch", True)
    assert reason.code == "killed" and reason.where["rank"] == 3 and "rank 3" in reason.text


def test_full_disk_is_the_reason_for_missing_words() -> None:
    reason = deaths.reason_of(death(exit_code=0, free_disk=0), "batch", True)
    assert reason.code == "crash" and "disk" in reason.text


def test_memory_killer_by_the_kernels_count(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = iter([4, 4, 5])

    def group() -> SimpleNamespace:
        return SimpleNamespace(limit=100, current=50, inactive_file=0, oom_kills=next(kills))

    monkeypatch.setattr(deaths.host, "cgroup_memory", group)
    watch = deaths.HostWatch.begin()
    assert "out-of-memory killer ended it" in (watch.memory_killer() or "")


def test_overfit_out_of_memory_beside_another_fail_stops() -> None:
    both = tuple({"code": code, "severity": "fail"} for code in ("oom", "not_finite"))
    rows = tuple(Row("overfit", "fail", both) if row.phase == "overfit" else row for row in RunState().rows)
    assert rules.stops(RunState(rows=rows), "overfit")


def test_stage_environment_hides_gpus_from_data_alone() -> None:
    base = {"CUDA_VISIBLE_DEVICES": "3", "PYTHONPATH": "/mine"}
    assert environment("data", base)["CUDA_VISIBLE_DEVICES"] == ""
    peak = environment("peak", base)
    assert peak["CUDA_VISIBLE_DEVICES"] == "3" and peak["PYTHONPATH"] == "/mine"
    assert peak["PILOT_TUI_SUPERVISOR"].startswith(f"{os.getpid()}:") and peak["HF_HUB_OFFLINE"] == "1"


class Card:
    """A GPU of one reading, as the sampler asks for it."""

    def open(self) -> object:
        from tui_pilot.devices.readings import Gpu, Inventory

        return Inventory((Gpu(0, uuid="GPU-AB-1", name="A", total=100, usable=90, basis="v2"),))

    def read(self, gpu: object, slow: bool = False, sensors: bool = False) -> object:
        import time

        from tui_pilot.devices.readings import Reading

        return Reading("GPU-AB-1", time.monotonic(), used=42)

    def close(self) -> None:
        return


def test_gpu_peaks_join_the_rank_by_uuid(runs: Path) -> None:
    folder = prepare(runs)
    watch = GpuWatch(folder, make=Card)
    watch.phase_began("load")
    gpus = watch.phase_ended("load")
    watch.close()
    memory = ({"rank": 0, "uuid": "GPU-ab-1", "device_used_peak": None, "known": {}},)
    rows = tuple(
        replace(row, verdict="pass", memory=memory, devices=tuple(gpus)) if row.phase == "load" else row
        for row in RunState().rows
    )
    from tui_pilot.store.view import row_json

    joined = row_json(rows[4])["memory"][0]
    assert joined["device_used_peak"] == 42 and joined["device_usable"] == 90 and joined["device_total"] == 100
    known = joined["known"]["device_used_peak"]
    assert known["kind"] == "sampled" and known["bound"] == "lower" and known["readings"] >= 1


def test_reader_state_goes_on_from_where_it_was(runs: Path) -> None:
    folder = prepare(runs)
    finish(folder)
    state, reader = load_state(RunFolder(folder.path))
    assert state.state == "finished" and reader.poll() == []
    assert Reason("x", "y").as_json()["severity"] == "fail"
