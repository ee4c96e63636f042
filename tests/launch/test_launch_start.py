"""Making a run folder: what is in it, that an id is never used twice, what it says of its parent, what goes wrong."""

from __future__ import annotations

import compileall
import dataclasses
import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launch_runs import FAKE_STAGE, fake_plan, prepare

from tui_pilot.errors import RunFolderError
from tui_pilot.launch import code, revisions
from tui_pilot.launch import start as starting
from tui_pilot.launch.code import copy_pilot_side
from tui_pilot.plan.load import LoadedPlan
from tui_pilot.plan.model import Data, Model
from tui_pilot.run_folder import RunFolder


def with_data(loaded: LoadedPlan, **data: str) -> LoadedPlan:
    return dataclasses.replace(loaded, plan=dataclasses.replace(loaded.plan, task="sft", data=Data(**data)))


def go(loaded: LoadedPlan, runs: Path) -> dict[str, object]:
    folder = starting.prepare(loaded, runs, argv=["run"], code_source=FAKE_STAGE)
    return folder.read_json(folder.run_file)


def test_folder_holds_plan_code_and_identity(runs: Path) -> None:
    folder = prepare(runs, variant="half", kind="variant")
    run = folder.read_json(folder.run_file)
    assert run["run"] == folder.id and run["kind"] == "variant" and run["variant"] == "half"
    assert run["python"] == sys.executable and run["argv"] == ["pilot-tui", "run"]
    assert folder.read_json(folder.plan_file)["plan"]["name"] == "fake"
    assert (folder.path / "plan.yaml").read_text().startswith("#")
    assert (folder.code / "run_stage.py").is_file()
    assert len(run["revisions"]["identity"]) == 64


def test_copied_pilot_side_imports_without_ours(tmp_path: Path) -> None:
    copy_pilot_side(tmp_path / "code")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import tui_pilot.plan.batch, tui_pilot.run_folder, tui_pilot.events.writer, tui_pilot.gates.verdict\n"
        "assert tui_pilot.__file__.startswith(sys.argv[1]), tui_pilot.__file__\n"
    )
    argv = [sys.executable, "-I", "-S", "-c", script, str(tmp_path / "code")]
    subprocess.run(argv, check=True, timeout=60)
    assert not list((tmp_path / "code").rglob("ui")) and not list((tmp_path / "code").rglob("load.py"))


def test_compiled_modules_come_along_and_are_no_part_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = shutil.copytree(code.PACKAGE, tmp_path / "tui_pilot", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code, "PACKAGE", package)
    plain = copy_pilot_side(tmp_path / "plain")
    compileall.compile_dir(package, quiet=2)
    (package / "gates" / "__pycache__" / "rows.cpython-27.pyc").write_bytes(b"another Python's")
    assert copy_pilot_side(tmp_path / "code") == plain
    assert not list((tmp_path / "code").rglob("*cpython-27*"))
    say = f"import sys; sys.path.insert(0, {str(tmp_path / 'code')!r}); import tui_pilot.gates.rows"
    argv = [sys.executable, "-v", "-I", "-S", "-c", say]
    told = subprocess.run(argv, check=True, timeout=60, capture_output=True, text=True).stderr
    for name in ("tui_pilot/__pycache__/__init__", "gates/__pycache__/rows"):
        assert re.search(rf"code object from '.*{name}\..*pyc'", told), name


def test_ids_are_never_reused(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["20260101-000000-fake-0001"] * 3 + ["20260101-000000-fake-0002"])
    monkeypatch.setattr(starting, "new_id", lambda name: next(names))
    assert prepare(runs).id.endswith("0001")
    assert prepare(runs).id.endswith("0002")


def test_rerun_names_parent_and_what_changed(runs: Path, tmp_path: Path) -> None:
    data = tmp_path / "train.jsonl"
    data.write_text('{"a": 1}\n')
    first = go(with_data(fake_plan(tmp_path), train="train.jsonl"), runs)
    same = go(with_data(fake_plan(tmp_path), train="train.jsonl"), runs)
    assert first["parent"] is None and same["parent"] == first["run"] and same["changed"] == {}
    assert first["revisions"]["identity"] == same["revisions"]["identity"]  # type: ignore[index]
    data.write_text('{"a": 22}\n')
    other = with_data(fake_plan(tmp_path), train="train.jsonl")
    third = go(dataclasses.replace(other, plan=dataclasses.replace(other.plan, seed=7)), runs)
    assert third["changed"]["seed"] == [0, 7]  # type: ignore[index]
    assert "content of data.train" in third["changed"]  # type: ignore[operator]
    assert third["revisions"]["data"]["train"]["sha256"] == hashlib.sha256(data.read_bytes()).hexdigest()  # type: ignore[index]


def test_other_plan_names_are_no_parents(runs: Path, tmp_path: Path) -> None:
    go(fake_plan(tmp_path), runs)
    other = fake_plan(tmp_path)
    assert go(dataclasses.replace(other, plan=dataclasses.replace(other.plan, name="b")), runs)["parent"] is None


def test_model_files_are_hashed_and_remembered(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model"
    (model / ".cache").mkdir(parents=True)
    (model / ".cache" / "x").write_text("left out")
    (model / "weights.safetensors").write_bytes(b"w" * 100_000)
    loaded = fake_plan(tmp_path)
    loaded = dataclasses.replace(loaded, plan=dataclasses.replace(loaded.plan, task="sft", model=Model(path="model")))
    first = go(loaded, runs)
    assert list(first["revisions"]["model"]["files"]) == ["weights.safetensors"]  # type: ignore[index]

    def refuse(path: Path) -> str:
        raise AssertionError(f"{path} was read again")

    monkeypatch.setattr(revisions, "sha256_of", refuse)
    assert go(loaded, runs)["revisions"]["model"] == first["revisions"]["model"]  # type: ignore[index]


def test_missing_files_are_null_not_an_error(runs: Path, tmp_path: Path) -> None:
    run = go(with_data(fake_plan(tmp_path), train="gone.jsonl"), runs)
    assert run["revisions"]["data"]["train"]["sha256"] is None  # type: ignore[index]


def test_git_commit_and_difference(tmp_path: Path) -> None:
    if subprocess.run(["git", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("git is not installed")
    assert revisions.git_state(tmp_path / "nowhere") is None
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "plan.yaml").write_text("task: demo\n")
    subprocess.run(["git", "-C", str(tmp_path), "add", "plan.yaml"], check=True)
    subprocess.run(["git", "-C", str(tmp_path), *who, "commit", "-qm", "x"], check=True)
    clean = revisions.git_state(tmp_path)
    assert clean is not None and clean["clean"] is True and clean["diff"] is None and len(clean["commit"]) == 40
    (tmp_path / "plan.yaml").write_text("task: sft\n")
    dirty = revisions.git_state(tmp_path)
    assert dirty is not None and dirty["clean"] is False and len(dirty["diff"]) == 64


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EROFS, "read-only"),
        (errno.ENOSPC, "full disk"),
        (errno.EACCES, "may not be written"),
        (errno.EIO, "cannot"),
    ],
)
def test_a_place_that_cannot_be_written_is_said_and_nothing_stays(
    runs: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refuse(path: Path, value: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(starting, "write_json", refuse)
    with pytest.raises(RunFolderError, match=words) as caught:
        prepare(runs)
    assert "Nothing was run" in str(caught.value) and "--runs" in caught.value.advice
    assert [path for path in runs.iterdir() if path.is_dir()] == []


def test_runs_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(RunFolderError, match="is a file"):
        prepare(tmp_path / "runs")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_runs_folder(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir(mode=0o555)
    with pytest.raises(RunFolderError, match="may not be written"):
        prepare(tmp_path / "runs")


def test_supervisor_that_cannot_begin_is_said_with_its_log(runs: Path) -> None:
    folder = prepare(runs)
    folder.plan_file.write_text("{")
    with pytest.raises(RunFolderError) as caught:
        starting.start(folder)
    assert "supervisor.log" in caught.value.advice and "plan.json" in caught.value.text
    assert json.loads(RunFolder(folder.path).run_file.read_text())["run"] == folder.id
