"""What a run was made from, as hashes: data files, model files, the task's file, the code around the plan.

Large files are hashed as streams, several at once, and remembered by size and time of change beside the runs, so that
the second pilot on the same model does not read all of it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tui_pilot.plan import variants
from tui_pilot.plan.model import Plan
from tui_pilot.run_folder import write_whole
from tui_pilot.text import plural, size
from tui_pilot.version import VERSION

CHUNK = 8 << 20
TELL_ABOVE = 2 << 30
GIT_SECONDS = 10.0
REMEMBERED = ".hashes.json"


def of_plan(
    plan: Plan,
    folder: Path,
    *,
    code: str,
    runs: Path,
    tell: Callable[[str], None] | None = None,
    software: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The ``revisions`` object of ``run.json``. What does not exist is null; nothing here refuses a run.

    ``identity`` is over the plan's values, the contents and the training Python's ``software``, never over paths: the
    same pilot on another box has it too.
    """
    data = {name: path for name, path in _data_files(plan, folder).items() if path is not None}
    model = _model_files(plan, folder)
    task = _task_file(plan, folder)
    wanted = [*data.values(), *model.values(), *([task] if task else [])]
    hashes = hash_files(wanted, runs / REMEMBERED, tell)
    found: dict[str, Any] = {
        "code": code,
        "data": {name: _entry(path, hashes) for name, path in data.items()},
        "model": None
        if plan.model.path is None
        else {
            "path": str((folder / plan.model.path).resolve()),
            "files": {name: hashes.get(path) for name, path in model.items()},
        },
        "task_file": _entry(task, hashes) if task else None,
        "git": git_state(folder),
        "tool": VERSION,
        "software": dict(software or {}),
    }
    return {"identity": variants.plan_identity(plan, _contents(found)), **found}


def _contents(revisions: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "code": revisions["code"],
        "data": {name: entry["sha256"] for name, entry in revisions["data"].items()},
        "model": (revisions["model"] or {}).get("files"),
        "task_file": (revisions["task_file"] or {}).get("sha256"),
        "software": revisions.get("software") or None,
    }


def changed_content(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Revisions that differ though the plan names the same things: ``{"content of data.train": [old, new]}``."""
    pairs: dict[str, tuple[Any, Any]] = {"code of pilot-tui": (before.get("code"), now.get("code"))}
    for name in ("train", "validation", "test", "benchmark"):
        old, new = (((side.get("data") or {}).get(name) or {}) for side in (before, now))
        if old.get("path") == new.get("path"):
            pairs[f"content of data.{name}"] = (old.get("sha256"), new.get("sha256"))
    old, new = ((side.get("model") or {}) for side in (before, now))
    if old.get("path") == new.get("path"):
        pairs["content of model.path"] = (_together(old.get("files")), _together(new.get("files")))
    old, new = ((side.get("task_file") or {}) for side in (before, now))
    if old.get("path") == new.get("path"):
        pairs["content of the task file"] = (old.get("sha256"), new.get("sha256"))
    old, new = ((side.get("software") or {}) for side in (before, now))
    pairs |= {f"software {name}": (old[name], new[name]) for name in new if name in old}
    return {name: [old, new] for name, (old, new) in pairs.items() if old != new}


def _together(files: Mapping[str, Any] | None) -> str | None:
    if not files:
        return None
    return hashlib.sha256(json.dumps(dict(files), sort_keys=True).encode()).hexdigest()


def _data_files(plan: Plan, folder: Path) -> dict[str, Path | None]:
    named = {
        "train": plan.data.train,
        "validation": plan.data.validation,
        "test": plan.data.test,
        "benchmark": plan.data.benchmark,
    }
    return {name: (folder / path).resolve() if isinstance(path, str) else None for name, path in named.items()}


def _model_files(plan: Plan, folder: Path) -> dict[str, Path]:
    if plan.model.path is None:
        return {}
    root = (folder / plan.model.path).resolve()
    if not root.is_dir():
        return {}
    found = (path for path in root.rglob("*") if path.is_file())
    return {
        path.relative_to(root).as_posix(): path
        for path in sorted(found)
        if not any(part.startswith(".") for part in path.relative_to(root).parts)
    }


def _task_file(plan: Plan, folder: Path) -> Path | None:
    file, separator, _ = plan.task.rpartition(":")
    return (folder / file).resolve() if separator and file else None


def _entry(path: Path, hashes: Mapping[Path, str]) -> dict[str, Any]:
    try:
        length: int | None = path.stat().st_size
    except OSError:
        length = None
    return {"path": str(path), "sha256": hashes.get(path), "bytes": length}


def hash_files(
    paths: Iterable[Path], memory: Path | None = None, tell: Callable[[str], None] | None = None
) -> dict[Path, str]:
    """sha256 of each readable file; ``memory`` remembers them by path, size and time of change."""
    known = _remembered(memory)
    found: dict[Path, str] = {}
    fresh: dict[Path, str] = {}
    total = 0
    for path in dict.fromkeys(paths):
        try:
            stat = path.stat()
        except OSError:
            continue
        if not path.is_file():
            continue
        mark = f"{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ino}"
        entry = known.get(str(path))
        if isinstance(entry, list) and entry[:1] == [mark] and len(entry) == 2:
            found[path] = str(entry[1])
        else:
            fresh[path] = mark
            total += stat.st_size
    if tell is not None and total > TELL_ABOVE:
        tell(f"hashing {plural(len(fresh), 'file')}, {size(total)}, once")
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        for path, digest in zip(fresh, pool.map(sha256_of, fresh), strict=True):
            if digest is not None:
                found[path] = digest
                known[str(path)] = [fresh[path], digest]
    if memory is not None and fresh:
        with contextlib.suppress(OSError):
            write_whole(memory, json.dumps(known).encode())
    return found


def _remembered(memory: Path | None) -> dict[str, Any]:
    if memory is None:
        return {}
    try:
        value = json.loads(memory.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def sha256_of(path: Path) -> str | None:
    """The hash of a file's bytes; None where it cannot be read."""
    total = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                total.update(chunk)
    except OSError:
        return None
    return total.hexdigest()


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and hash of the uncommitted difference of the repository around the plan; None outside of one."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    difference = _git(folder, "diff", "HEAD", "--no-ext-diff", "--no-color")
    clean = difference == b""
    return {
        "commit": commit.decode("ascii", "replace").strip(),
        "clean": clean if difference is not None else None,
        "diff": None if clean or difference is None else hashlib.sha256(difference).hexdigest(),
    }


def _git(folder: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            check=True, capture_output=True, timeout=GIT_SECONDS, stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
