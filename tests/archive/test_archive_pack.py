"""Packing: the same bytes for the same run, whole or not at all, never over a file, nothing that must not be in it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
from archives import finished_run

from tui_pilot.archive import pack as packing
from tui_pilot.archive.pack import pack
from tui_pilot.archive.task_files import with_modules
from tui_pilot.errors import PilotError
from tui_pilot.run_folder import RunFolder


def read(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_two_archives_of_a_run_are_the_same_bytes(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "runs")
    one, two = pack(folder, tmp_path / "one.zip"), pack(folder, tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    assert one["sha256"] == two["sha256"] == hashlib.sha256((tmp_path / "one.zip").read_bytes()).hexdigest()


def test_what_is_in_it(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "runs")
    for name in ("checkpoints/step-1/model.pt", "examples/audit.jsonl", "events/.x.ballast", "code/__pycache__/a.pyc"):
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).write_bytes(b"x")
    pack(folder, tmp_path / "run.zip", page=lambda one: "a page")
    files = read(tmp_path / "run.zip")
    manifest = json.loads(files["MANIFEST.json"])
    wanted = {"README.md", "CONCLUSION.md", "metrics.csv", "run/plan.json", "run/plan.yaml", "run/written.yaml"}
    wanted |= {
        "run/run.json",
        "run/artifact/weights.safetensors",
        "run/reference/control.json",
        "run/code/run_stage.py",
    }
    wanted |= {"run/events/supervisor.jsonl", "run/logs/train.log"}
    assert wanted <= set(files)
    assert not any("checkpoints" in name or "examples" in name or "pyc" in name for name in files)
    assert set(manifest["files"]) == set(files) - {"MANIFEST.json"}
    assert all(hashlib.sha256(files[name]).hexdigest() == each["sha256"] for name, each in manifest["files"].items())
    assert manifest["software_checked"]["elsewhere"] is False
    assert manifest["software_checked"]["on"]["host"] == "box"
    assert b"pilot-tui archive --verify FILE" in files["README.md"]


def refused(folder: RunFolder, target: Path, **more: Any) -> PilotError:
    before = sorted(path.name for path in target.parent.iterdir())
    with pytest.raises(PilotError) as caught:
        pack(folder, target, **more)
    assert sorted(path.name for path in target.parent.iterdir()) == before
    return caught.value


def test_never_over_a_file(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "runs")
    (tmp_path / "run.zip").write_text("mine")
    assert refused(folder, tmp_path / "run.zip").code == "file_exists"
    assert (tmp_path / "run.zip").read_text() == "mine"


def test_never_over_a_file_that_came_while_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = finished_run(tmp_path / "runs")
    real = packing._seal

    def late(stream: Any, path: Path) -> str:
        (tmp_path / "run.zip").write_text("mine")
        return real(stream, path)

    monkeypatch.setattr(packing, "_seal", late)
    with pytest.raises(PilotError):
        pack(folder, tmp_path / "run.zip")
    assert (tmp_path / "run.zip").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.zip", "runs"]


def test_a_full_disk_leaves_nothing_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = finished_run(tmp_path / "runs")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    error = refused(folder, tmp_path / "run.zip")
    assert (error.code, error.exit_code) == ("not_written", 3)


def test_a_pickle_in_the_artifact_is_refused(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "runs", {"weights.bin": pickle.dumps(print)})
    error = refused(folder, tmp_path / "run.zip")
    assert error.code == "pickle_refused"
    assert "run/artifact/weights.bin" in error.text


def test_an_artifact_that_changed_since_the_export(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "runs")
    with (folder.artifact / "weights.safetensors").open("ab") as stream:
        stream.write(b"more")
    error = refused(folder, tmp_path / "run.zip")
    assert error.code == "artifact_differs"
    assert "weights.safetensors" in error.text


def test_without_an_artifact_only_if_asked(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "runs")
    (folder.artifact / "weights.safetensors").unlink()
    assert refused(folder, tmp_path / "run.zip").code == "needs_artifact"
    assert pack(folder, tmp_path / "run.zip", need_artifact=False)["artifact"] is None


def test_the_base_of_an_adapter_is_named_and_not_packed(tmp_path: Path) -> None:
    from archives import safetensors

    base = json.dumps({"path": "/box/models/smollm2", "config_sha256": "0", "files": {}}).encode()
    folder = finished_run(tmp_path / "runs", {"adapter_model.safetensors": safetensors(), "base_model.json": base})
    facts = json.loads(folder.run_file.read_text("utf-8"))
    facts["revisions"]["model"] = {"path": "/box/models/smollm2", "files": {"model.safetensors": "ab" * 32}}
    folder.run_file.write_text(json.dumps(facts))
    done = pack(folder, tmp_path / "run.zip")
    assert done["not_packed"]["model"] == {"folder": "smollm2", "files": {"model.safetensors": "ab" * 32}}
    assert "ab" * 32 in read(tmp_path / "run.zip")["README.md"].decode()


def test_a_task_brings_the_modules_it_imports(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("import json\nfrom words import x\n\ndef f():\n    import layers.core\n")
    (tmp_path / "words.py").write_text("from more import y\n")
    (tmp_path / "more.py").write_text("import task\n")
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers" / "__init__.py").write_text("")
    (tmp_path / "layers" / "core.py").write_text("")
    (tmp_path / "unrelated.py").write_text("")
    found = {path.relative_to(tmp_path).as_posix() for path in with_modules(tmp_path / "task.py")}
    assert found == {"task.py", "words.py", "more.py", "layers/__init__.py", "layers/core.py"}
