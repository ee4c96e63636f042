r"""Data full of ``[/x]``, ``[INST]``, ANSI and OSC sequences, NUL and bidi marks, and logs full of garbage.

Whatever a person's rows, names and exceptions hold, nothing that a terminal obeys reaches stdout or stderr.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fault_runs import TINY, fake_choice, finish, plan, prepare, row, verdicts
from lab import codes

from tui_pilot.launch import start as starting
from tui_pilot.run_folder import RunFolder
from tui_pilot.store.view import load_state, snapshot

if TYPE_CHECKING:
    from lab import Lab

HOSTILE = (
    "[/x] [INST] [bold red]x[/] {curly} %s %d "
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]52;c;cHduZWQ=\x1b\\ \x1bP+q\x1b\\ "
    "\x00 \x07 \x08 \x0b \x0c \r \x7f "
    "\x80 \x9b31m \x9d0;x\x9c \u200e \u202e reversed \u2066 \u2069 \u2028 \u2029 \ufeff"
)
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

CLASSIFICATION = """\
name: "evil \\e[31m \\u202e [/x]"
task: classification
device: cpu
expected: "words \\e]0;title\\a"
launch: {python: PYTHON}
data: {train: train.jsonl, validation: val.jsonl, columns: {text: text, label: label}}
batch: {micro: 2, accumulation: 1}
budget: {updates: 4}
gates: {stop_on_fail: false, skip: [stack, overfit, load, forward, backward, first_step, steady_step, evaluate, batch,
  checkpoint, export, resume, reload]}
"""


def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "tui_pilot.cli", *arguments]
    return subprocess.run(argv, cwd=folder, capture_output=True, check=False)


def assert_harmless(done: subprocess.CompletedProcess[bytes]) -> None:
    for stream in (done.stdout, done.stderr):
        found = OBEYED.search(stream.decode("utf-8"))
        assert found is None, f"{found[0]!r} in {stream[max(0, found.start() - 200) : found.end() + 50]!r}"
    assert b"Traceback" not in done.stderr, done.stderr.decode()


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), "utf-8")


def test_hostile_rows_labels_and_names_reach_no_terminal(work: Path) -> None:
    rows = [{"id": f"{HOSTILE}{n}", "text": f"{HOSTILE} {n}", "label": f"{HOSTILE}{n % 2}"} for n in range(8)]
    write_rows(work / "train.jsonl", rows)
    write_rows(work / "val.jsonl", [*rows[:2], {"id": "other", "text": "", "label": HOSTILE}])
    (work / "pilot.yaml").write_text(CLASSIFICATION.replace("PYTHON", sys.executable), "utf-8")
    done = command("run", "--headless", folder=work)
    assert_harmless(done)
    assert done.returncode == 1 and b"[INST]" in done.stdout + done.stderr, done.stderr.decode()
    for arguments in (["show"], ["show", "--json"], ["runs"], ["runs", "--json"], ["sheet", "latest"]):
        again = command(*arguments, folder=work)
        assert_harmless(again)
        assert again.returncode == 0, again.stderr.decode()
    shown = json.loads(command("show", "--json", folder=work).stdout)
    splits = next(each for each in shown["phases"] if each["phase"] == "splits")
    assert splits["verdict"] == "fail" and rows[0]["id"] in str(splits["reasons"][0]["where"]["rows"][0])
    for arguments in (["note", "latest", HOSTILE.replace("\x00", "")], ["show"], ["sheet", "latest"]):
        assert_harmless(command(*arguments, folder=work))


RAISING = """\
import os

from tiny import Tiny

HOSTILE = {hostile!r}


class Mine(Tiny):
    def loss(self, *args):
        print(HOSTILE, flush=True)
        {what}
"""


def task_that(what: str) -> str:
    return RAISING.format(hostile=HOSTILE, what=what)


def shown_harmlessly(folder: RunFolder) -> None:
    assert_harmless(command("show", str(folder.path), folder=folder.path))
    assert_harmless(command("show", str(folder.path), "--json", folder=folder.path))


def test_hostile_words_of_an_exception_reach_no_terminal(lab: Lab) -> None:
    folder = lab.prepare(
        plan(task="mine.py:Mine"), {"tiny.py": TINY, "mine.py": task_that("raise ValueError(HOSTILE)")}
    )
    assert codes(row(lab.stage("overfit"), "overfit")) == ["crash"]
    shown_harmlessly(folder)


def test_hostile_last_words_of_a_log_reach_no_terminal(work: Path) -> None:
    folder = prepare(work, plan(task="mine.py:Mine", only=("overfit",)), {"mine.py": task_that("os._exit(7)")})
    state = finish(folder)
    assert codes(row(state, "overfit")) == ["crash"] and "exit code 7" in row(state, "overfit").reasons[0]["text"]
    shown_harmlessly(folder)


@pytest.fixture(scope="module")
def ended_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """One real run of two stages, ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starting, "choose", fake_choice)
        patch.setenv("OMP_NUM_THREADS", "1")
        folder = prepare(tmp_path_factory.mktemp("ended"), plan(only=("train",)))
        finish(folder)
    return folder


GARBAGE = (
    b'\x00\xff\xfe not utf-8\n[1, 2]\nnull\n{"kind": 3}\n{"kind": "phase_ended", "mono": "soon"}\n'
    b'{"v": 9, "kind": "from_the_future", "mono": 1}\n{"kind": "facts", "payload": "payload/gone.json", "mono": 1}\n'
    b'{"v": 1, "kind": "phase_started", "at": "2026-01-01T00:00:00.000Z", "mono": 1.0, "phase": "no_such_phase"}\n'
    + b"[" * 5000
    + b"\n"
    + b'{"v": 1, "kind": "phase_ended", "phase": "export", "verd'
)


def test_log_with_garbage_unknown_kinds_and_a_torn_tail(ended_run: RunFolder, tmp_path: Path) -> None:
    good = snapshot(ended_run)
    copy = RunFolder(shutil.copytree(ended_run.path, tmp_path / ended_run.id))
    for name in ("train.rank0.jsonl", "supervisor.jsonl"):
        with (copy.events / name).open("ab") as stream:
            stream.write(GARBAGE)
    (copy.events / "operator-1-1.jsonl").write_bytes(b"\xff" * 100 + b"\n")
    done = command("show", str(copy.path), "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert_harmless(done)
    shown = json.loads(done.stdout)
    assert shown["events"]["broken_lines"] == 2 * 7 + 1 and shown["events"]["unknown_kinds"] == 2
    assert (
        shown["phases"] == good["phases"] and shown["state"] == "finished" and shown["exit_code"] == good["exit_code"]
    )
    assert good["events"]["broken_lines"] == 0
    assert_harmless(command("show", str(copy.path), folder=tmp_path))


def test_events_of_the_wrong_shape_break_no_reader(ended_run: RunFolder, tmp_path: Path) -> None:
    """Lines that are events by their kind and nonsense by their values: shown or left out, never a traceback."""
    copy = RunFolder(shutil.copytree(ended_run.path, tmp_path / ended_run.id))
    kinds = ["run_started", "stage_started", "rank_started", "phase_started", "progress", "part", "phase_ended"]
    kinds += ["update", "validation", "facts", "mark", "note", "decision", "request", "cleaned", "notice", "run_ended"]
    kinds += ["device_peaks", "stage_ended", "test_queued", "request_seen"]
    lines = []
    for kind in kinds:
        for value in (None, 7, "text", [1], {"a": 1}):
            keys = (
                "phase",
                "rank",
                "attempt",
                "update",
                "loss",
                "reasons",
                "memory",
                "parts",
                "gpus",
                "verdict",
                "value",
            )
            lines.append({"v": 1, "kind": kind, "mono": 1.0, "at": value, **dict.fromkeys(keys, value)})
            lines.append({"v": 1, "kind": kind, "mono": 1.0, "phase": "export", **dict.fromkeys(keys[1:], value)})
    with (copy.events / "zzz.rank0.jsonl").open("w") as stream:
        stream.writelines(json.dumps(line) + "\n" for line in lines)
    for arguments in (["show", str(copy.path), "--json"], ["show", str(copy.path)]):
        done = command(*arguments, folder=tmp_path)
        assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr.decode()[-3000:]


def test_log_torn_in_the_middle_of_a_run_goes_on_behind_it(ended_run: RunFolder, tmp_path: Path) -> None:
    copy = RunFolder(shutil.copytree(ended_run.path, tmp_path / ended_run.id))
    path = copy.events / "train.rank0.jsonl"
    lines = path.read_bytes().split(b"\n")
    ends = [n for n, line in enumerate(lines) if b'"phase_ended"' in line and b'"batch"' in line]
    path.write_bytes(b"\n".join([*lines[: ends[0]], lines[ends[0]][:40], *lines[ends[0] + 1 :]]))
    state, reader = load_state(copy)
    assert reader.broken == 1
    # The torn row alone is open; a run that ended says so.
    assert row(state, "batch").verdict == "not_run" and verdicts(state)["checkpoint"] == "pass"
    assert state.state == "finished"
