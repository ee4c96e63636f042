"""Looks an archive through without running anything of it: names, hashes, seal, no file that only unsafe loading reads.

What was looked at is unpacked on the way, so that a replay uses exactly the bytes that were hashed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tui_pilot.archive import names, pickles
from tui_pilot.archive.pack import CHUNK, SCHEMA, SEAL, SEAL_BYTES
from tui_pilot.archive.pickles import DAMAGED
from tui_pilot.errors import EXIT_PLAN_WRONG, PilotError
from tui_pilot.text import size

MOST_MANIFEST = 64 << 20


@dataclass
class Checked:
    """What was found. ``problems``: ``{"file", "why"}`` of every file that is not what it should be, or refused.

    ``manifest`` is empty where it could not be read. ``checked`` counts the files whose bytes are as written.
    """

    manifest: Mapping[str, Any] = field(default_factory=dict)
    checked: int = 0
    problems: list[dict[str, str]] = field(default_factory=list)
    sha256: str | None = None
    bytes: int | None = None

    def wrong(self, file: str, why: str) -> None:
        self.problems.append({"file": file, "why": why})


def look(path: Path, target: Path) -> Checked:
    """Check the archive ``path`` and unpack what is right into the empty folder ``target``.

    Bytes are hashed as they are unpacked; nothing is executed or unpickled. Where a name is not safe nothing at all is
    unpacked. Raises PilotError where the file is not there, cannot be read, or has no room to be unpacked.
    """
    found = Checked()
    try:
        if not path.is_file():
            raise _not_there(path)
        sealed = _seal(path, found)
        if not zipfile.is_zipfile(path):
            found.wrong(path.name, "it is no archive of pilot-tui, or its table of files is damaged")
            return found
        with zipfile.ZipFile(path) as archive:
            _members(archive, target, found)
    except DAMAGED as error:
        found.wrong(path.name, f"its table of files is damaged: {error}")
        sealed = True
    except OSError as error:
        raise PilotError(
            f"{error.filename or path}: {error.strerror or error}.", "Nothing was replayed.", code="archive_unreadable",
            title="The archive cannot be checked", file=str(path),
        ) from error  # fmt: skip
    if not sealed and not found.problems:
        found.wrong(path.name, "bytes outside its files are not as they were written: its end or its table was changed")
    return found


def _not_there(path: Path) -> PilotError:
    return PilotError(
        f"There is no file {path}.", "pilot-tui archive --verify FILE", code="no_archive",
        title="There is nothing to check", exit_code=EXIT_PLAN_WRONG, file=str(path),
    )  # fmt: skip


def _seal(path: Path, found: Checked) -> bool:
    """Whether the whole file is as it was written: its last bytes are the hash of all before them."""
    found.bytes = left = path.stat().st_size
    whole, before = hashlib.sha256(), hashlib.sha256()
    last = b""
    with path.open("rb") as stream:
        left -= SEAL_BYTES
        while left > 0 and (chunk := stream.read(min(CHUNK, left))):
            before.update(chunk)
            left -= len(chunk)
        whole = before.copy()
        while chunk := stream.read(CHUNK):
            whole.update(chunk)
            last += chunk
    found.sha256 = whole.hexdigest()
    return last == SEAL + before.hexdigest().encode()


def _members(archive: zipfile.ZipFile, target: Path, found: Checked) -> None:
    members = archive.infolist()
    for name, why in names.problems(members):
        found.wrong(name, f"refused: {why}")
    if found.problems:
        return
    by_name = {member.filename: member for member in members}
    listed = _manifest(archive, by_name, found)
    if listed is None:
        return
    room, needed = shutil.disk_usage(target).free, sum(member.file_size for member in members)
    if needed > room:
        raise PilotError(
            f"Unpacking takes {size(needed)}, and {target} has {size(room)} free.", "Set TMPDIR to a place with room.",
            code="no_room", title="The archive cannot be checked",
        )  # fmt: skip
    for name in sorted(set(by_name) - set(listed) - {names.MANIFEST}):
        found.wrong(name, "it is not in the manifest")
    for name, entry in sorted(listed.items()):
        if name not in by_name:
            found.wrong(name, "it is in the manifest and not in the archive")
            continue
        damage = _one(archive, by_name[name], entry, target)
        if damage is not None:
            found.wrong(name, damage)
        else:
            found.checked += 1


def _manifest(
    archive: zipfile.ZipFile, by_name: Mapping[str, zipfile.ZipInfo], found: Checked
) -> dict[str, Mapping[str, Any]] | None:
    member = by_name.get(names.MANIFEST)
    if member is None or member.file_size > MOST_MANIFEST:
        found.wrong(names.MANIFEST, "it is missing or too large: this is no archive of pilot-tui")
        return None
    try:
        value = json.loads(archive.read(member))
        listed = {str(name): entry for name, entry in value["files"].items() if _is_entry(entry)}
        if value["schema"] != SCHEMA or len(listed) != len(value["files"]) or not isinstance(value["not_packed"], dict):
            raise ValueError("it is of another version or form")
    except (*DAMAGED, KeyError, TypeError, AttributeError, RecursionError) as error:
        found.wrong(names.MANIFEST, f"it cannot be read: {error}")
        return None
    found.manifest = value
    return listed


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("sha256"), str) and isinstance(entry.get("bytes"), int)


def _one(archive: zipfile.ZipFile, member: zipfile.ZipInfo, entry: Mapping[str, Any], target: Path) -> str | None:
    """Unpack one file and hold it against its entry; why it is wrong, or None."""
    if member.file_size != entry["bytes"]:
        return f"it has {member.file_size:,} bytes, {entry['bytes']:,} were packed"
    place = target / member.filename
    place.parent.mkdir(parents=True, exist_ok=True)
    total = hashlib.sha256()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(place, flags, stat.S_IRUSR | stat.S_IWUSR), "wb") as out, archive.open(member) as source:
            while chunk := source.read(CHUNK):
                total.update(chunk)
                out.write(chunk)
    except DAMAGED as error:
        place.unlink(missing_ok=True)
        return f"its bytes are damaged: {error}"
    if total.hexdigest() != entry["sha256"]:
        place.unlink(missing_ok=True)
        return "its SHA-256 is not the one in the manifest"
    why = pickles.why_refused(place)
    if why is not None:
        place.unlink(missing_ok=True)
        return f"refused: {why}"
    return None
