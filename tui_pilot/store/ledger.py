"""All runs of a folder, oldest first: none is ever taken off this list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tui_pilot.errors import RunFolderError
from tui_pilot.run_folder import RunFolder, all_runs, is_live
from tui_pilot.store.files import bytes_on_disk, payloads
from tui_pilot.store.state import RunState, bounded, changed
from tui_pilot.store.view import exit_code, see


@dataclass(frozen=True)
class Entry:
    """One run of the ledger. ``problem`` says why a folder could not be read; its other figures are then unknown."""

    folder: RunFolder
    run: dict[str, Any] = field(default_factory=dict)
    state: RunState = field(default_factory=RunState)
    bytes: int = 0
    payload_bytes: int = 0
    problem: str | None = None

    def as_json(self) -> dict[str, Any]:
        """One entry of ``runs --json``."""
        return {
            "run": self.folder.id,
            "name": self.run.get("name"),
            "kind": self.run.get("kind"),
            "demo": bool(self.run.get("demo")),
            "state": self.state.state if self.problem is None else "unreadable",
            "text": self.state.text,
            "verdict": self.state.verdict,
            "exit_code": exit_code(self.state) if self.problem is None else None,
            "started": self.state.started,
            "ended": self.state.ended if self.state.state != "running" else None,
            "parent": self.run.get("parent"),
            "changed": self.run.get("changed") or {},
            "replicate_of": self.run.get("replicate_of"),
            "variant": self.run.get("variant"),
            "comparison": self.run.get("comparison"),
            "trial": self.run.get("trial"),
            "seed": self.run.get("seed"),
            "decision": None if self.state.decision is None else dict(self.state.decision),
            "bytes": self.bytes,
            "payload_bytes": self.payload_bytes,
            "problem": self.problem,
        }


def ledger(root: Path, sizes: bool = True) -> list[Entry]:
    """Every run below ``root``; ``sizes`` also walks their files."""
    return [entry(folder, sizes) for folder in all_runs(root)]


def entry(folder: RunFolder, sizes: bool = True) -> Entry:
    """One run's entry; a folder that cannot be read is an entry that says so."""
    total = bytes_on_disk(folder.path) if sizes else 0
    payload = sum(path.lstat().st_size for path in payloads(folder)) if sizes else 0
    try:
        run = folder.read_json(folder.run_file)
        state, _ = see(folder, bounded())
    except RunFolderError as error:
        return Entry(folder, bytes=total, payload_bytes=payload, problem=error.text)
    # Many entries are kept: what only the run's own screen shows stays out, and curves are thinned.
    return Entry(folder, run, changed(state, feed=()), total, payload)


def live_run(root: Path) -> RunFolder | None:
    """The newest run whose supervisor is alive."""
    return next((run for run in reversed(all_runs(root)) if is_live(run)), None)


def children(entries: Sequence[Entry]) -> dict[str | None, list[Entry]]:
    """Entries by the run they name as parent; a parent that is not here counts as none."""
    here = {each.folder.id for each in entries}
    found: dict[str | None, list[Entry]] = {}
    for each in entries:
        parent = each.run.get("parent")
        found.setdefault(parent if parent in here else None, []).append(each)
    return found
