"""Reads a folder of runs for the Runs room, off the screen's own thread: what did not change is not read again."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tui_pilot.campaign.comparison import FILE as COMPARISON
from tui_pilot.errors import PilotError
from tui_pilot.plan.model import Plan, from_json
from tui_pilot.run_folder import RunFolder, all_runs, is_live
from tui_pilot.store import ledger
from tui_pilot.store.ledger import Entry
from tui_pilot.ui.rooms._ledger import Brief, brief

KEPT = 64
"""Runs that are kept whole, the newest read and those selected last; of all others only their record."""
MOST_REST_S = 0.01
TELL_EVERY_S, TELL_AT = 0.5, 1.25
"""What was read so far is told after this time, once there is so many times more: a tree of all costs a little."""


class Scan:
    """What was read so far. Used by one thread at a time, but for ``whole``, which only looks up."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.took = 0.0
        self._briefs: dict[RunFolder, tuple[object, Brief]] = {}
        self._whole: OrderedDict[RunFolder, tuple[object, Entry]] = OrderedDict()
        self._documents: dict[Path, tuple[int, dict[str, Any]]] = {}

    def read(self, cancelled: Callable[[], bool]) -> Iterator[tuple[list[Brief], int]]:
        """The records read so far and how many runs there are, newest first; the last one is whole."""
        began = told = time.monotonic()
        folders = all_runs(self.runs)
        found: list[Brief] = []
        last = 0
        for folder in reversed(folders):
            if cancelled():
                return
            read = time.monotonic()
            found.append(self._brief(folder))
            if len(found) > KEPT:
                time.sleep(min(MOST_REST_S, time.monotonic() - read))  # half of the time is the screen's
            if len(found) >= TELL_AT * last and time.monotonic() - told >= TELL_EVERY_S:
                told, last = time.monotonic(), len(found)
                yield list(found), len(folders)
        gone = self._briefs.keys() - set(folders)
        for folder in gone:
            del self._briefs[folder]
        self.took = time.monotonic() - began
        yield found, len(folders)

    def whole(self, folder: RunFolder) -> Entry | None:
        """The run's entry where it is at hand."""
        kept = self._whole.get(folder)
        return kept[1] if kept is not None else None

    def read_whole(self, folder: RunFolder) -> Entry:
        """The run's entry, read again where something was written."""
        stamp = _stamp(folder)
        kept = self._whole.get(folder)
        if kept is None or stamp is None or kept[0] != stamp:
            kept = stamp, ledger.entry(folder)
            self._briefs[folder] = stamp, brief(kept[1])
        self._keep(folder, kept)
        return kept[1]

    def _keep(self, folder: RunFolder, kept: tuple[object, Entry]) -> None:
        self._whole[folder] = kept
        self._whole.move_to_end(folder)
        while len(self._whole) > KEPT:
            self._whole.popitem(last=False)

    def _brief(self, folder: RunFolder) -> Brief:
        stamp = _stamp(folder)
        kept = self._briefs.get(folder)
        if kept is None or stamp is None or kept[0] != stamp:
            entry = ledger.entry(folder)
            kept = self._briefs[folder] = stamp, brief(entry)
            if folder in self._whole or len(self._whole) < KEPT:
                self._keep(folder, (stamp, entry))
        return kept[1]

    def comparisons(self) -> dict[str, dict[str, Any]]:
        """The comparison documents of this folder, each read again only when it was written again."""
        found: dict[str, dict[str, Any]] = {}
        for path in sorted(self.runs.glob(f"*/{COMPARISON}")):
            try:
                stamp = path.stat().st_mtime_ns
                kept = self._documents.get(path)
                if kept is None or kept[0] != stamp:
                    kept = self._documents[path] = (stamp, json.loads(path.read_text("utf-8")))
                found[str(kept[1]["id"])] = kept[1]
            except (OSError, ValueError, KeyError, TypeError):
                continue  # half written by hand, or gone in this moment: the runs themselves are listed all the same
        return found


def plan_of(folder: RunFolder) -> Plan | None:
    """The run's plan; None where it cannot be read."""
    try:
        return from_json(folder.read_json(folder.plan_file)["plan"])
    except (PilotError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _stamp(folder: RunFolder) -> object:
    """Changes whenever the run's entry may have; None if that cannot be told."""
    try:
        return is_live(folder), max((path.stat().st_mtime_ns for path in folder.events.iterdir()), default=0)
    except OSError:
        return None
