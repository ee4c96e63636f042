"""What lies in a run folder beside its events: whether payloads are there, how large they are, what `clean` removes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from tui_pilot.run_folder import RunFolder

MANIFEST = "manifest.json"


def has_checkpoint(folder: RunFolder) -> bool:
    """Whether a whole checkpoint lies there: its manifest, which is written last, and a payload beside it."""
    try:
        return any(_whole(path) for path in folder.checkpoints.iterdir() if path.is_dir())
    except OSError:
        return False


def has_artifact(folder: RunFolder) -> bool:
    """Whether a whole artifact lies there."""
    return _whole(folder.artifact)


def _whole(path: Path) -> bool:
    try:
        names = {entry.name for entry in path.iterdir()}
    except OSError:
        return False
    return MANIFEST in names and len(names) > 1


def bytes_on_disk(path: Path) -> int:
    """Bytes of every file below, as allocated on the disk; a file with several names counts once."""
    total = 0
    seen: set[tuple[int, int]] = set()
    for root, _, names in os.walk(path, onerror=lambda _: None):
        for name in names:
            with contextlib.suppress(OSError):
                stat = os.lstat(os.path.join(root, name))
                if (stat.st_dev, stat.st_ino) not in seen:
                    seen.add((stat.st_dev, stat.st_ino))
                    total += stat.st_blocks * 512
    return total


def payloads(folder: RunFolder) -> list[Path]:
    """The files of checkpoints and artifact, without their manifests."""
    found = []
    for top in (folder.checkpoints, folder.artifact):
        found += [path for path in sorted(top.rglob("*")) if path.is_file() and path.name != MANIFEST]
    return found


def remove_payloads(folder: RunFolder) -> list[dict[str, Any]]:
    """Remove the payloads; manifests with their hashes stay. Returns ``[{path, bytes}]`` of what was removed."""
    removed = []
    for path in payloads(folder):
        length = path.lstat().st_size
        path.unlink()
        removed.append({"path": path.relative_to(folder.path).as_posix(), "bytes": length})
    for top in (folder.checkpoints, folder.artifact):
        for path in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
            with contextlib.suppress(OSError):  # not empty: a manifest stays in it
                path.rmdir()
    return removed
