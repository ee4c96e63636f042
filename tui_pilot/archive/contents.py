"""What goes into an archive, and what is named in it by hash instead: the base model of an adapter, the data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tui_pilot.archive.names import RUN, TASK
from tui_pilot.archive.task_files import with_modules
from tui_pilot.campaign.comparison import FILE as COMPARISON
from tui_pilot.errors import EXIT_PLAN_WRONG, PilotError, RunFolderError
from tui_pilot.run_folder import RunFolder, is_live, short_id
from tui_pilot.store.files import has_artifact

BASE = "base_model.json"
WHOLE = ("events", "samples", "logs", "reference", "predictions", "artifact", "code")
"""Packed as they are. Not ``checkpoints`` and ``examples``: optimizer states, and rows of data."""
FILES = ("run.json", "plan.json", "plan.yaml", "written.yaml", "baseline.json")
LEFT_OUT = (".pyc", ".ballast", ".part")


@dataclass(frozen=True)
class Item:
    """One file of the archive: its name there, and where its bytes are."""

    name: str
    path: Path


def refuse(text: str, advice: str = "", code: str = "not_archived", file: Path | str | None = None) -> PilotError:
    """Nothing was written, and why."""
    return PilotError(
        text, advice, code=code, title="Nothing was archived", exit_code=EXIT_PLAN_WRONG,
        file=None if file is None else str(file),
    )  # fmt: skip


def items(folder: RunFolder, beside: Sequence[Path] = (), need_artifact: bool = True) -> list[Item]:
    """Every file to pack from the run's folder and from beside its task, in name order.

    ``beside``: further files that the task reads from its own folder. Raises where the run is live, has no artifact,
    or where the task's file is not the one that ran.
    """
    if is_live(folder):
        raise refuse(
            f"{short_id(folder.id)} is live.",
            f"Wait for its end, or pilot-tui stop {short_id(folder.id)}.",
            "run_is_live",
        )
    if need_artifact and not has_artifact(folder):
        raise refuse(
            f"{short_id(folder.id)} holds no artifact: the export was not reached, or pilot-tui clean removed it.",
            "--without-artifact packs the record alone.",
            "needs_artifact",
        )
    found = [Item(f"{RUN}/{name}", folder.path / name) for name in FILES if (folder.path / name).is_file()]
    for name in WHOLE:
        if name == "artifact" and not has_artifact(folder):
            continue
        found += [
            Item(f"{RUN}/{path.relative_to(folder.path).as_posix()}", path) for path in _files(folder.path / name)
        ]
    found += [
        Item(f"{RUN}/crash/{path.name}", path) for path in _files(folder.crash) if path.suffix in (".txt", ".log")
    ]
    comparison = folder.read_json(folder.run_file).get("comparison")
    document = folder.path.parent / str(comparison) / COMPARISON
    if comparison and "/" not in str(comparison) and document.is_file():
        found.append(Item(COMPARISON, document))
    found += _task(folder, beside)
    names = [item.name for item in found]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise refuse(f"Two files would be {twice} in the archive.", "Give --with each file once.", file=twice)
    return sorted(found, key=lambda item: item.name)


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = path.name.startswith(".") or "__pycache__" in path.parts
        if path.is_file() and not hidden and path.suffix not in LEFT_OUT:
            yield path


def _task(folder: RunFolder, beside: Sequence[Path]) -> list[Item]:
    """The task's file as it ran, the modules beside it, and what else the person names."""
    entry = revisions(folder).get("task_file") or {}
    if not entry.get("path"):
        if beside:
            raise refuse("--with is for files that a task of your own reads, and this run has a built-in task.")
        return []
    file = Path(str(entry["path"]))
    if not file.is_file():
        raise refuse("The task's file is gone; an archive without it could replay nothing.", "Put it back.", file=file)
    if hashlib.sha256(file.read_bytes()).hexdigest() != entry.get("sha256"):
        raise refuse(
            "The task's file is not the one that this run used.", "Put that revision back, or archive a new run.",
            "task_changed", file,
        )  # fmt: skip
    found = [Item(f"{TASK}/{path.relative_to(file.parent).as_posix()}", path) for path in with_modules(file)]
    for path in beside:
        whole = path.resolve()
        if not whole.is_file():
            raise refuse("There is no such file.", "--with names files in the task's folder.", file=path)
        if file.parent not in whole.parents:
            raise refuse("It does not lie in the task's folder.", "--with names files in the task's folder.", file=path)
        found.append(Item(f"{TASK}/{whole.relative_to(file.parent).as_posix()}", whole))
    return found


def revisions(folder: RunFolder) -> Mapping[str, Any]:
    """The hashes of ``run.json``; empty where it has none."""
    found = folder.read_json(folder.run_file).get("revisions")
    return found if isinstance(found, Mapping) else {}


def plan_of(folder: RunFolder) -> Mapping[str, Any]:
    """The plan's values; empty where the run holds none that can be read."""
    try:
        found = folder.read_json(folder.plan_file).get("plan")
    except RunFolderError:
        return {}
    return found if isinstance(found, Mapping) else {}


def not_packed(folder: RunFolder) -> dict[str, Any]:
    """What a replay or a rerun needs and the archive only names: ``model`` (null: a replay needs none) and ``data``.

    Each file with its sha256 as the run found it; names alone, since paths of another machine help nobody.
    """
    found = revisions(folder)
    model = found.get("model") or {}
    data = found.get("data") or {}
    return {
        "model": {"folder": Path(str(model["path"])).name, "files": dict(model.get("files") or {})}
        if model.get("path") and needs_base(folder)
        else None,
        "data": {
            name: {
                "name": Path(str(entry.get("path"))).name,
                "sha256": entry.get("sha256"),
                "bytes": entry.get("bytes"),
            }
            for name, entry in data.items()
        },
    }


def needs_base(folder: RunFolder) -> bool:
    """Whether the artifact stands on a base model that is not in it: an adapter, or a task that builds from one."""
    if (folder.artifact / BASE).is_file():
        return True
    plan = plan_of(folder)
    own = ":" in str(plan.get("task") or "")
    return own and bool((plan.get("model") or {}).get("path"))


def artifact_differs(folder: RunFolder, hashes: Mapping[str, str]) -> str | None:
    """The first file of the artifact that is not what its own manifest says; ``hashes`` by name in the archive."""
    try:
        entries = json.loads((folder.artifact / "manifest.json").read_text("utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return "manifest.json"
    for name, entry in entries.items():
        if hashes.get(f"{RUN}/artifact/{name}") != entry.get("sha256"):
            return str(name)
    return None
