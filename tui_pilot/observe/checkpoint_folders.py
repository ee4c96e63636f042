"""Which checkpoint folder of a foreign trainer is the newest that is whole: by number, by content, never by name order.

Nothing is unpickled: files are judged by their own headers and ends, by a manifest where there is one, and by what the
other checkpoints of the same run hold.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

_NUMBER = re.compile(r"(\d+)(?!.*\d)")
_NAMES = re.compile(r"^(?:checkpoint|step|global_step|epoch|iter|ckpt)[-_=]?\d+", re.IGNORECASE)
_RANDOM = re.compile(r"^rng_state(?:_\d+)?\.pth$")
ZIPPED = (".pt", ".pth", ".bin", ".ckpt")
TEXT = (".json",)


@dataclass(frozen=True)
class Folder:
    """One checkpoint folder: the number its name ends with, and what keeps it from being whole."""

    path: Path
    step: int
    why: str | None = None


def checkpoints(root: Path) -> list[Folder]:
    """Every checkpoint folder under ``root``, newest first, each judged."""
    found = [path for path in root.iterdir() if path.is_dir() and _NAMES.match(path.name)] if root.is_dir() else []
    numbered = [(int(match[1]), path) for path in found if (match := _NUMBER.search(path.name))]
    folders = [path for _, path in sorted(numbered, key=lambda pair: (pair[0], pair[1].name), reverse=True)]
    usual = _usual(folders)
    return [Folder(path, int(_NUMBER.search(path.name)[1]), _why(path, usual)) for path in folders]  # type: ignore[index]


def newest_whole(root: Path) -> tuple[Folder | None, list[dict[str, str]]]:
    """The newest whole checkpoint, and the newer ones that are not whole as ``{name, why}`` for the gate."""
    broken: list[dict[str, str]] = []
    for folder in checkpoints(root):
        if folder.why is None:
            return folder, broken
        broken.append({"name": folder.path.name, "why": folder.why})
    return None, broken


def why_cut(path: Path) -> str | None:
    """What is wrong with one file by its own header or end; None for a whole one and for formats without either."""
    size = path.stat().st_size
    if size == 0 and path.suffix in (".safetensors", *ZIPPED, *TEXT):
        return f"{path.name} is empty"
    try:
        if path.suffix == ".safetensors":
            return _safetensors(path, size)
        if path.suffix in ZIPPED:
            with path.open("rb") as stream:
                if stream.read(2) == b"PK" and not zipfile.is_zipfile(path):
                    return f"{path.name} is cut off: its table of contents is missing"
        if path.suffix in TEXT:
            json.loads(path.read_text("utf-8"))
    except (ValueError, OSError, struct.error) as error:
        return f"{path.name} cannot be read: {type(error).__name__}"
    return None


def _safetensors(path: Path, size: int) -> str | None:
    with path.open("rb") as stream:
        length = struct.unpack("<Q", stream.read(8))[0]
        if 8 + length > size:
            return f"{path.name} is cut off in its header"
        header = json.loads(stream.read(length))
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    due = 8 + length + max(ends, default=0)
    return None if size == due else f"{path.name} has {size:,} bytes, its header says {due:,}"


def _usual(folders: list[Path]) -> set[str]:
    """File names that every other checkpoint has: what a newest one lacks was not written yet."""
    if len(folders) < 2:
        return set()
    each = [{str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()} for path in folders[1:]]
    return set.intersection(*each)


def _why(path: Path, usual: set[str]) -> str | None:
    files = sorted(file for file in path.rglob("*") if file.is_file())
    if not files:
        return "it holds no file"
    names = {str(file.relative_to(path)) for file in files}
    for file in files:
        why = why_cut(file)
        if why is not None:
            return why
        if file.name.endswith(".index.json"):
            parts = set(json.loads(file.read_text("utf-8")).get("weight_map", {}).values())
            missing = sorted(part for part in parts if not (file.parent / part).is_file())
            if missing:
                return f"{missing[0]} is missing"
    missing = sorted(usual - names)
    if missing:
        return f"{missing[0]} is missing, and the other checkpoints have it"
    trainer = any(_RANDOM.match(name) or name == "optimizer.pt" for name in names)
    return "trainer_state.json is missing" if trainer and "trainer_state.json" not in names else None
