"""Names in an archive: plain relative paths of plain files, and nothing that could lead out of a folder. Pure."""

from __future__ import annotations

import re
import stat
import zipfile
from collections.abc import Iterable

MANIFEST = "MANIFEST.json"
README = "README.md"
CONCLUSION = "CONCLUSION.md"
METRICS = "metrics.csv"
RUN = "run"
"""The run folder's own files, under the names they have there."""
TASK = "task"
"""The task's file and the modules beside it."""
PLAIN = stat.S_IFREG | 0o644
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]")


def why_unsafe(name: str) -> str | None:
    """Why this name must not be written to a disk; None where it may."""
    parts = name.split("/")
    if _UNSAFE.search(name):
        return "its name holds control characters or a backslash"
    if not name or name.startswith("/") or re.match(r"[A-Za-z]:", name):
        return "its name is no relative path"
    if any(part in ("", ".", "..") for part in parts):
        return "its name leads out of the folder"
    if any(len(part.encode("utf-8", "surrogatepass")) > 255 for part in parts):
        return "its name is too long"
    return None


def problems(members: Iterable[zipfile.ZipInfo]) -> list[tuple[str, str]]:
    """``(name, why)`` of each member that must not be unpacked: bad names, links, folders, names that come twice."""
    found: list[tuple[str, str]] = []
    seen: set[str] = set()
    for member in members:
        kind = stat.S_IFMT(member.external_attr >> 16)
        why = why_unsafe(member.filename)
        if why is None and stat.S_ISLNK(kind):
            why = "it is a link"
        elif why is None and kind not in (0, stat.S_IFREG):
            why = "it is no plain file"
        elif why is None and member.flag_bits & 0x1:
            why = "it is encrypted"
        elif why is None and member.filename in seen:
            why = "two files have this name"
        if why is not None:
            found.append((member.filename, why))
        seen.add(member.filename)
    folders = {"/".join(name.split("/")[:deep]) for name in seen for deep in range(1, name.count("/") + 1)}
    return [*found, *((name, "it is a file and a folder at once") for name in sorted(seen & folders))]
