"""The Runs room: every run in the folder, none ever taken off the list; ``enter`` opens one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.worker import get_current_worker

from tui_pilot.campaign.comparison import FILE as COMPARISON
from tui_pilot.run_folder import RunFolder, all_runs, is_live
from tui_pilot.store import ledger
from tui_pilot.store.ledger import Entry
from tui_pilot.text import plural, size
from tui_pilot.ui import paint
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.paint import Line
from tui_pilot.ui.room import Hint, Room
from tui_pilot.ui.rooms import _runs_page
from tui_pilot.ui.rooms._runs_page import Listed, Page
from tui_pilot.ui.snapshot import Snapshot

REFRESH_S = 5.0


class RunsRoom(Room):
    room: ClassVar[str] = "runs"
    title: ClassVar[str] = "Runs"
    help_text: ClassVar[str] = (
        "Every run that was started here, newest last; a rerun is a new run and names what changed from its parent.\n"
        "Variants and trials stand below the run they were changed from. need is the highest memory of the run.\n"
        "c runs the comparison of the plan shown, or goes on with it, as pilot-tui compare does.\n"
        "On a trial the comparison stands below the list: its curves, one letter a setting, and what can be said.\n"
        "enter opens a run in all rooms. Nothing is taken off this list; pilot-tui clean removes large files only."
    )

    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "compare", "compare", show=False)]

    class Compare(Message):
        """The comparison of the shown plan is wanted."""

    class Chosen(Message):
        """A run was picked."""

        def __init__(self, folder: RunFolder) -> None:
            super().__init__()
            self.folder = folder

    class Read(Message):
        """The list was read."""

        def __init__(self, listed: tuple[Listed, ...], comparisons: dict[str, dict[str, Any]]) -> None:
            super().__init__()
            self.listed = listed
            self.comparisons = comparisons

    def __init__(self, runs: Path) -> None:
        super().__init__()
        self.runs = runs
        self.listed: tuple[Listed, ...] | None = None
        self.words = ""
        self.selected: RunFolder | None = None
        self._cache: dict[RunFolder, tuple[object, Entry]] = {}
        self._read_at = -1e9
        self.comparisons: dict[str, dict[str, Any]] = {}
        self._documents: dict[Path, tuple[int, dict[str, Any]]] = {}

    def compose(self) -> ComposeResult:
        yield Lines(id="runs-page")

    def show(self, snapshot: Snapshot) -> None:
        moved = snapshot.state.state != self.snapshot.state.state or snapshot.folder != self.snapshot.folder
        super().show(snapshot)
        if moved or snapshot.now_mono - self._read_at >= REFRESH_S:
            self._read_at = snapshot.now_mono
            self.run_worker(self._read, thread=True, exclusive=True, group="runs", exit_on_error=False)
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _read(self) -> None:
        worker = get_current_worker()
        found = []
        for folder in all_runs(self.runs):
            if worker.is_cancelled:
                return
            found.append(self._one(folder))
        self.post_message(self.Read(tuple(_runs_page.tree(found)), self._compared()))

    def _compared(self) -> dict[str, dict[str, Any]]:
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

    def _one(self, folder: RunFolder) -> Entry:
        """The entry, read again only when something was written: a long list costs nothing to keep."""
        try:
            stamp: object = (
                is_live(folder),
                max((path.stat().st_mtime_ns for path in folder.events.iterdir()), default=0),
            )
        except OSError:
            stamp = None
        kept = self._cache.get(folder)
        if kept is None or stamp is None or kept[0] != stamp:
            kept = self._cache[folder] = (stamp, ledger.entry(folder))
        return kept[1]

    def on_runs_room_read(self, message: Read) -> None:
        self.listed, self.comparisons = message.listed, message.comparisons
        if self.selected is None and self.listed:
            self.selected = self.snapshot.folder or self.listed[-1].folder
        self._draw()

    # Keys.

    def headline(self, snapshot: Snapshot) -> Line | None:
        if not self.listed:
            return None
        total = sum(each.entry.bytes for each in self.listed)
        said = f" {plural(len(self.listed), 'run')}: {_runs_page.counted(self.listed)}"
        live = next((each for each in self.listed if each.state.state == "running"), None)
        now = f"{live.folder.id[-4:]} runs" if live is not None else "no run is live"
        room = self.app.size.width - len(said) - len(now) - 2
        kept = f"   {size(total)} on disk"
        kept = kept if len(kept) < room else ""
        gap = " " * max(1, room - len(kept))
        return ((said, "text"), (kept, "dim"), (gap, "text"), (now, "running" if live is not None else "text"))

    def hints(self) -> list[Hint]:
        plan = self.snapshot.plan
        compares = [("c", "compare")] if plan is not None and plan.plan.compare.trials else []
        return [*([("enter", "open")] if self.listed else []), *compares]

    def can_search(self) -> bool:
        return True

    def search(self, words: str) -> None:
        self.words = words
        self._draw()

    def back(self) -> bool:
        if not self.words:
            return False
        self.search("")
        return True

    def copied(self) -> str:
        return self.selected.id if self.selected is not None else ""

    def action_move(self, across: int, down: int) -> None:
        shown = self._shown()
        if shown:
            self.selected = shown[max(0, min(len(shown) - 1, self._at(shown) + down))].folder
            self._draw()

    def action_jump(self, end: int) -> None:
        self.action_move(0, -100_000 if end < 0 else 100_000)

    def action_page(self, down: int) -> None:
        self.action_move(0, down * max(1, self.size.height - 4))

    def action_enter(self) -> None:
        if self.selected is not None:
            self.post_message(self.Chosen(self.selected))

    def action_compare(self) -> None:
        self.post_message(self.Compare())

    # Drawing.

    def _shown(self) -> list[Listed]:
        words = self.words.lower().split()
        return [each for each in self.listed or () if all(word in each.words() for word in words)]

    def _at(self, shown: list[Listed]) -> int:
        return next((n for n, each in enumerate(shown) if each.folder == self.selected), len(shown) - 1)

    def _draw(self) -> None:
        width, height = self.size.width, self.size.height
        if not self.is_mounted or width < 1:
            return
        page = self.query_one("#runs-page", Lines)
        if not self.listed:
            reading = self.listed is None
            text = "reading the runs" if reading else f"No run in {self.runs} yet. r runs the plan."
            page.write([paint.rule("runs", "", width), ((f" {text}", "dim" if reading else "text"),)], 0)
            return
        shown = self._shown()
        drawn = Page(
            width=width,
            height=height,
            root=f"./{self.runs}" if not self.runs.is_absolute() else str(self.runs),
            listed=shown,
            total=len(self.listed),
            at=self._at(shown),
            now=self.snapshot.now,
            opened=self.snapshot.folder,
            words=self.words,
            comparisons=self.comparisons,
        )
        page.write(_runs_page.draw(drawn), 0)
