"""Disks: full while the log, the checkpoint or the artifact is written, and read-only. Small file systems of memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fault_runs import describe, finish, plan, prepare, row, until, verdicts
from lab import codes, reason_of

from tui_pilot.errors import RunFolderError
from tui_pilot.events.schema import PHASES_OF
from tui_pilot.run_folder import RunFolder, is_live
from tui_pilot.store.view import load_state, snapshot


@pytest.fixture
def disk(work: Path) -> Iterator[Callable[..., Path]]:
    """Mounts ``work/disk`` as a file system of a few MiB."""
    place = work / "disk"
    place.mkdir()

    def mount(options: str = "size=12m") -> Path:
        argv = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a small tmpfs may not be mounted here: {done.stderr.strip()}")
        return place

    yield mount
    subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)


def run_on(work: Path, place: Path, *faults: dict[str, Any], only: tuple[str, ...]) -> tuple[RunFolder, Any]:
    folder = prepare(work, plan(*faults, only=only), runs=place / "runs")
    return folder, finish(folder)


def assert_next_run_works(work: Path, place: Path) -> None:
    """With the space given back the same folder takes a new run."""
    (place / "filler").unlink()
    _, state = run_on(work, place, only=("overfit",))
    assert state.state == "finished" and verdicts(state)["overfit"] == "pass"


def test_disk_full_while_the_log_is_written_keeps_the_rows_above(work: Path, disk: Callable[..., Path]) -> None:
    place = disk()
    fill = [{"stage": "peak", "method": name, "do": "fill"} for name in ("loss", "backward", "step", "evaluation_loss")]
    folder, state = run_on(work, place, *fill, only=("overfit", "peak", "train"))
    assert {verdicts(state)[phase] for phase in ("overfit", "load")} == {"pass"}, describe(folder)
    assert not is_live(folder) and not folder.lock_file.exists(), "the supervisor ended by itself"
    shown = snapshot(folder)
    assert shown["state"] in ("failed", "lost") and shown["exit_code"] in (1, 3)
    words = json.dumps([row["reasons"] for row in shown["phases"]]) + json.dumps(shown["text"])
    assert "disk" in words.lower(), describe(folder)
    assert not [row for row in shown["phases"] if row["verdict"] == "running"]
    assert shown["events"]["broken_lines"] <= 1
    assert_next_run_works(work, place)


@pytest.mark.parametrize(("phase", "method"), [("checkpoint", "state_dict"), ("export", "save_artifact")])
def test_disk_full_while_a_payload_is_written(work: Path, disk: Callable[..., Path], phase: str, method: str) -> None:
    place = disk()
    fault = {"stage": "train", "method": method, "do": "fill"}
    folder, state = run_on(work, place, fault, only=("train", "resume", "reload"))
    found = reason_of(row(state, phase), "disk_too_small")
    assert row(state, phase).verdict == "fail" and "free" in found["text"], describe(folder)
    assert found["where"]["file"].startswith(str(folder.path)) and found["severity"] == "fail"
    order = PHASES_OF["train"]
    assert all(verdicts(state)[each] == "pass" for each in order[: order.index(phase)])
    assert state.state == "failed" and snapshot(folder)["exit_code"] == 1
    assert not list(folder.path.rglob("*.part")), "a half-written payload is left"
    # What the failed save left free may hold the small artifact after it.
    whole = folder.artifact if phase == "export" else folder.checkpoints
    assert not list(whole.rglob("manifest.json")), "a payload that did not fit looks whole"
    assert (phase == "export") == bool(list(folder.checkpoints.glob("step-*/manifest.json")))
    assert verdicts(state)["reload"] == "not_run" and not is_live(folder)
    assert_next_run_works(work, place)


def test_full_disk_is_said_before_anything_runs(work: Path, disk: Callable[..., Path]) -> None:
    place = disk("size=64k")
    with pytest.raises(RunFolderError, match="full disk"):
        prepare(work, plan(), runs=place / "runs")
    assert not list(place.rglob("run.json")) and not list((place / "runs").glob("2*"))


@pytest.mark.parametrize("as_json", [True, False])
def test_read_only_runs_folder_is_said_and_nothing_is_written(
    work: Path, disk: Callable[..., Path], as_json: bool
) -> None:
    place = disk("ro,size=1m")
    text = plan(more=f"launch: {{python: {sys.executable}}}\n")
    prepare(work, text, runs=work / "unused")
    argv = [sys.executable, "-m", "tui_pilot.cli", "run", "pilot.yaml", "--headless", "--runs", str(place / "runs")]
    done = subprocess.run(
        [*argv, *(["--json"] if as_json else [])], cwd=work, capture_output=True, text=True, check=False
    )
    assert done.returncode in (2, 3) and "Traceback" not in done.stderr
    if as_json:
        error = json.loads(done.stdout)["error"]
        assert "read-only" in error["text"] and error["file"].startswith(str(place)) and "--runs" in error["advice"]
    else:
        assert "read-only" in done.stderr and "--runs" in done.stderr and done.stdout == ""
    assert not list(place.iterdir())


def test_run_whose_folder_turns_read_only_can_still_be_shown(work: Path, disk: Callable[..., Path]) -> None:
    place = disk()
    folder, _ = run_on(work, place, only=("overfit",))
    remount = ["mount", "-o", "remount,ro", str(place)]  # busy until the supervisor is really gone
    until(lambda: not subprocess.run(remount, capture_output=True, check=False).returncode, "a read-only disk")
    argv = [sys.executable, "-m", "tui_pilot.cli"]
    shown = subprocess.run([*argv, "show", str(folder.path), "--json"], capture_output=True, text=True, check=False)
    assert shown.returncode == 0 and json.loads(shown.stdout)["state"] == "finished"
    note = subprocess.run([*argv, "note", str(folder.path), "a word"], capture_output=True, text=True, check=False)
    assert note.returncode == 3 and "read-only" in note.stderr and "Traceback" not in note.stderr
    assert codes(row(load_state(folder)[0], "overfit")) == []
