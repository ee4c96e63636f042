"""Which runs belong on a conclusion: those given, what they came from, every trial of their comparison, and what was
written on them by whom. Nothing is left out because it failed; what lies beside and was not asked for is named.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tui_pilot.campaign.comparison import FILE as COMPARISON
from tui_pilot.errors import RunFolderError
from tui_pilot.events import schema
from tui_pilot.events.reader import Reader
from tui_pilot.run_folder import RunFolder, all_runs, find_run
from tui_pilot.store.view import snapshot

MOST_DOCUMENT = 64 << 20
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Gathered:
    """``shown``: every run with its ``show --json`` document, oldest first; ``unread``: ``(id, why)``.

    ``comparisons``: the documents of ``compare`` that name one of the runs. ``beside``: other runs of the same plan's
    name in the same folder that were neither given nor are part of what was given.
    """

    shown: list[tuple[RunFolder, dict[str, Any]]]
    comparisons: list[dict[str, Any]] = field(default_factory=list)
    beside: list[dict[str, Any]] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)


def gather(folders: Sequence[RunFolder], alone: bool = False) -> Gathered:
    """Everything that belongs to these runs; ``alone``: read no other run, only the document of their comparison."""
    found = comparisons(folders)
    if alone:
        return Gathered([(folder, snapshot(folder)) for folder in folders], found)
    wanted: dict[str, RunFolder] = {folder.id: folder for folder in folders}
    for document in found:
        for trial in document["trials"]:
            _want(wanted, folders, trial.get("run"))
    shown, unread = _read(wanted)
    names = {show.get("name") for _, show in shown}
    return Gathered(shown, found, list(_beside(shown, names)), unread)


def given(root: Path, name: str) -> list[RunFolder]:
    """The runs that one name of the command line means: a run, or every trial of a comparison."""
    for place in (Path(name), *sorted(root.glob(f"{glob.escape(name)}*"))):
        document = _comparison(place / COMPARISON)
        if document is not None:
            wanted: dict[str, RunFolder] = {}
            for trial in document["trials"]:
                _want(wanted, [RunFolder(place.resolve())], trial.get("run"))
            if wanted:
                return list(wanted.values())
    return [find_run(root, name)]


def _want(wanted: dict[str, RunFolder], folders: Sequence[RunFolder], run: Any) -> None:
    """Add a run of the same folder, if it is there."""
    name = str(run or "")
    if not name or name in wanted or "/" in name:
        return
    for root in dict.fromkeys(folder.path.parent for folder in folders):
        place = RunFolder(root / name)
        if place.run_file.is_file():
            wanted[name] = place
            return


def _read(wanted: dict[str, RunFolder]) -> tuple[list[tuple[RunFolder, dict[str, Any]]], list[tuple[str, str]]]:
    """Read each run, and the runs that it came from, however it ended."""
    shown: dict[str, tuple[RunFolder, dict[str, Any]]] = {}
    unread: list[tuple[str, str]] = []
    waiting = list(wanted.values())
    while waiting:
        folder = waiting.pop(0)
        if folder.id in shown:
            continue
        try:
            show = snapshot(folder)
        except RunFolderError as error:
            unread.append((folder.id, error.text))
            continue
        shown[folder.id] = (folder, show)
        parents: dict[str, RunFolder] = {}
        _want(parents, [folder], show.get("parent"))
        waiting += parents.values()
    return [shown[name] for name in sorted(shown)], unread


def _beside(shown: Sequence[tuple[RunFolder, Json]], names: set[Any]) -> Iterator[dict[str, Any]]:
    known = {folder.id for folder, _ in shown}
    for root in dict.fromkeys(folder.path.parent for folder, _ in shown):
        for other in all_runs(root):
            if other.id in known:
                continue
            try:
                run = other.read_json(other.run_file)
                if run.get("name") in names:
                    yield {"run": other.id, "kind": run.get("kind"), "state": snapshot(other).get("state")}
            except RunFolderError:
                continue


def comparisons(folders: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """The documents of ``compare`` beside the runs that name one of them, in the order of their files."""
    ids = {folder.id for folder in folders}
    found: list[dict[str, Any]] = []
    for root in dict.fromkeys(folder.path.parent for folder in folders):
        for path in sorted(root.glob(f"*/{COMPARISON}")):
            document = _comparison(path)
            if document is not None and any(trial.get("run") in ids for trial in document["trials"]):
                found.append(document)
    return found


def _comparison(path: Path) -> dict[str, Any] | None:
    try:
        if path.stat().st_size > MOST_DOCUMENT:
            return None
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not _objects(value.get("trials")) or not _objects(value.get("summary", [])):
        return None
    return value


def _objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def by_hand(folders: Iterable[RunFolder]) -> list[dict[str, Any]]:
    """Every mark, note and decision in the order it was written, also those that a later one took back.

    ``{"run", "at", "by", "what": mark|note|decision, "value", "phase", "text"}``.
    """
    found = []
    for folder in folders:
        for event in Reader(folder.events).poll():
            if event["kind"] not in (schema.MARK, schema.NOTE, schema.DECISION):
                continue
            value = event.get("verdict") if event["kind"] == schema.MARK else event.get("decision")
            found.append(
                {
                    "run": folder.id,
                    "at": event.get("at"),
                    "by": event.get("by"),
                    "what": event["kind"],
                    "value": value,
                    "phase": event.get("phase"),
                    "text": event.get("text") if event["kind"] == schema.NOTE else event.get("note"),
                }
            )
    return sorted(found, key=lambda entry: str(entry["at"] or ""))
