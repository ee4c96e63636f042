"""Writes a run's archive: one zip file, the same bytes for the same run, whole or not at all, never over a file.

A zip rather than a packed tar: each file has its own check sum, so that damage can be named.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tui_pilot.archive import contents, names, pickles, readme
from tui_pilot.archive.contents import Item, refuse
from tui_pilot.errors import RunFolderError
from tui_pilot.report.metrics import csv_of
from tui_pilot.run_folder import RunFolder
from tui_pilot.sheet.build import configuration, where_checked
from tui_pilot.store.files import has_artifact
from tui_pilot.store.view import snapshot
from tui_pilot.version import VERSION

SCHEMA = 1
CHUNK = 1 << 20
LONG_AGO = (1980, 1, 1, 0, 0, 0)
STORED = (".pt", ".pth", ".bin", ".safetensors", ".zip", ".gz", ".npz", ".parquet")
"""Weights hardly shrink, and stored files are read back at the speed of the disk."""
SEAL = b"sha256 "
SEAL_BYTES = len(SEAL) + 64


def pack(
    folder: RunFolder,
    target: Path,
    *,
    beside: Sequence[Path] = (),
    need_artifact: bool = True,
    page: Callable[[RunFolder], str] | None = None,
) -> dict[str, Any]:
    """Write the archive of a run to ``target``; returns what was packed, with the file's own sha256.

    ``page`` makes the conclusion that lies in it. Raises PilotError where the run cannot be archived, where a file of
    it is a pickle, and where ``target`` exists or takes no more bytes; nothing is left behind then.
    """
    if os.path.lexists(target):
        raise refuse(
            f"{target} is there already; an archive never replaces a file.", "Name a new file.", "file_exists", target
        )
    found = contents.items(folder, beside, need_artifact)
    for item in found:
        why = pickles.why_refused(item.path)
        if why is not None:
            raise refuse(
                f"{item.name} is refused: {why}.",
                "An archive holds tensors, numbers and text. Export weights as safetensors or as a state of tensors.",
                "pickle_refused",
                item.path,
            )
    show = snapshot(folder)
    made = {names.METRICS: csv_of([folder]).encode("utf-8", "backslashreplace")}
    if page is not None:
        made[names.CONCLUSION] = page(folder).encode("utf-8", "backslashreplace")
    head = description(folder, show)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with temporary.open("xb") as stream:
            files = _write(stream, found, made, head, folder)
            digest = _seal(stream, temporary)
            os.fsync(stream.fileno())
        _rename(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, FileExistsError):
            raise refuse(
                f"{target} is there already; an archive never replaces a file.",
                "Name a new file.",
                "file_exists",
                target,
            ) from error
        raise RunFolderError(
            f"The archive cannot be written: {error.strerror or error}. Nothing of it is left.",
            "Free some space, or name another place: -o FILE.", code="not_written", title="Nothing was archived",
            file=str(error.filename or target),
        ) from error  # fmt: skip
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return {
        "archive": str(target), "sha256": digest, "bytes": target.stat().st_size, "files": len(files), **head,
    }  # fmt: skip


def description(folder: RunFolder, show: Mapping[str, Any]) -> dict[str, Any]:
    """What the manifest says of the run: its artifact, what is only named, where its stack was checked."""
    run = folder.read_json(folder.run_file)
    sheet = configuration(show)
    plan = contents.plan_of(folder)
    task = str(plan.get("task") or "")
    file, separator, kind = task.rpartition(":")
    return {
        "run": folder.id,
        "name": show.get("name"),
        "kind": show.get("kind"),
        "state": show.get("state"),
        "verdict": show.get("verdict"),
        "ended": show.get("ended"),
        "identity": contents.revisions(folder).get("identity"),
        "task": f"{names.TASK}/{Path(file).name}:{kind}" if separator and file else task,
        "artifact": {"kind": (plan.get("export") or {}).get("kind"), "folder": f"{names.RUN}/artifact"}
        if has_artifact(folder) and (folder.reference / "control.json").is_file()
        else None,
        "not_packed": contents.not_packed(folder),
        "software": sheet["software"],
        "software_checked": where_checked(sheet, run.get("host")),
    }


def _write(
    stream: IO[bytes], found: Sequence[Item], made: Mapping[str, bytes], head: Mapping[str, Any], folder: RunFolder
) -> dict[str, dict[str, Any]]:
    files: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(stream, "w", allowZip64=True) as archive:
        for item in found:
            files[item.name] = _add_file(archive, item)
        hashes = {name: str(entry["sha256"]) for name, entry in files.items()}
        if head["artifact"] is not None:
            differs = contents.artifact_differs(folder, hashes)
            if differs is not None:
                raise refuse(
                    f"The artifact's {differs} is not what was exported: its own manifest has another hash.",
                    "Archive a run whose artifact is whole.", "artifact_differs", folder.artifact / differs,
                )  # fmt: skip
        made = {**made, names.README: readme.text(head, made).encode("utf-8", "backslashreplace")}
        for name in sorted(made):
            files[name] = _add_bytes(archive, name, made[name])
        manifest = {"schema": SCHEMA, "tool": VERSION, **head, "files": dict(sorted(files.items()))}
        data = (json.dumps(manifest, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "backslashreplace")
        _add_bytes(archive, names.MANIFEST, data)
        archive.comment = b" " * SEAL_BYTES
    return files


def _info(name: str, size: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, LONG_AGO)
    info.create_system = 3
    info.external_attr = names.PLAIN << 16
    info.file_size = size
    packed = not name.endswith(STORED)
    info.compress_type = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    return info


def _add_file(archive: zipfile.ZipFile, item: Item) -> dict[str, Any]:
    why = names.why_unsafe(item.name)
    if why is not None:
        raise refuse(f"{item.name!r} cannot be packed: {why}.", "Rename it.", "bad_name", item.path)
    total, count = hashlib.sha256(), 0
    with item.path.open("rb") as source:
        info = _info(item.name, os.fstat(source.fileno()).st_size)
        with archive.open(info, "w") as target:
            while chunk := source.read(CHUNK):
                total.update(chunk)
                count += len(chunk)
                target.write(chunk)
    return {"sha256": total.hexdigest(), "bytes": count}


def _add_bytes(archive: zipfile.ZipFile, name: str, data: bytes) -> dict[str, Any]:
    with archive.open(_info(name, len(data)), "w") as target:
        target.write(data)
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def _seal(stream: IO[bytes], path: Path) -> str:
    """Put the hash of everything before it at the file's end; returns the hash of the whole file.

    Each file has its hash in the manifest; the seal also covers what lies between them, the zip's own tables.
    """
    stream.flush()
    end = path.stat().st_size - SEAL_BYTES
    total = hashlib.sha256()
    with path.open("rb") as again:
        left = end
        while left:
            chunk = again.read(min(CHUNK, left))
            total.update(chunk)
            left -= len(chunk)
    seal = SEAL + total.hexdigest().encode()
    stream.seek(end)
    stream.write(seal)
    stream.flush()
    total.update(seal)
    return total.hexdigest()


def _rename(temporary: Path, target: Path) -> None:
    """The finished file under its name, unless somebody took the name meanwhile; then the folder's entry to disk."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            raise FileExistsError(target) from None
        temporary.rename(target)
    temporary.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
