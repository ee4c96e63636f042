"""Runs to archive without any torch, and archives as somebody with bad intent would make them."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tui_pilot.archive.names import MANIFEST
from tui_pilot.archive.pack import SEAL, SEAL_BYTES
from tui_pilot.run_folder import RunFolder

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
Files = dict[str, bytes]


def safetensors(length: int = 64) -> bytes:
    """A file of one tensor whose header has just ``length`` bytes."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return struct.pack("<Q", length) + header.ljust(length) + struct.pack("<2f", 1.0, 2.0)


def finished_run(runs: Path, artifact: Mapping[str, bytes] | None = None) -> RunFolder:
    """A recorded run with an artifact and code beside it, under its own id."""
    source = RECORDED / "desk"
    folder = RunFolder(runs / json.loads((source / "run.json").read_text("utf-8"))["run"])
    shutil.copytree(source, folder.path)
    shutil.copytree(RECORDED / "demo" / "reference", folder.reference)  # the desk was recorded without its own
    (folder.path / "plan.yaml").write_text("name: desk\n")
    (folder.path / "written.yaml").write_text("name: desk  # as it was written\n")
    (folder.path / "logs").mkdir()
    (folder.path / "logs" / "train.log").write_text("a warning\n")
    (folder.code / "tui_pilot").mkdir(parents=True)
    (folder.code / "run_stage.py").write_text("raise SystemExit(7)\n")
    (folder.code / "tui_pilot" / "__init__.py").write_text("")
    for name, data in (artifact or {"weights.safetensors": safetensors()}).items():
        folder.artifact.mkdir(exist_ok=True)
        (folder.artifact / name).write_bytes(data)
    entries = {
        path.name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in folder.artifact.iterdir()
    }
    (folder.artifact / "manifest.json").write_text(json.dumps({"schema": 1, "files": entries}))
    return folder


def rebuild(
    source: Path,
    target: Path,
    change: Callable[[Files], None],
    *,
    listed: bool = True,
    attributes: Mapping[str, int] | None = None,
) -> Path:
    """The archive with other files, whose manifest and seal are right again unless ``listed`` is false."""
    with zipfile.ZipFile(source) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
    manifest = json.loads(files.pop(MANIFEST))
    change(files)
    if listed:
        manifest["files"] = {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in files.items()
        }
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in {**files, MANIFEST: json.dumps(manifest).encode()}.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (attributes or {}).get(name, 0o100644) << 16
            archive.writestr(info, data)
        archive.comment = b" " * SEAL_BYTES
    whole = target.read_bytes()[:-SEAL_BYTES]
    target.write_bytes(whole + SEAL + hashlib.sha256(whole).hexdigest().encode())
    return target
