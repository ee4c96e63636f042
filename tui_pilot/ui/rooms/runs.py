"""The Runs room: every run in the folder, none ever taken off the list; ``enter`` opens one, ``c`` compares some."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.worker import get_current_worker

from tui_pilot.run_folder import RunFolder, is_live, short_id
from tui_pilot.store.ledger import Entry
from tui_pilot.text import plural, size
from tui_pilot.ui import actions, operate, paint
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.paint import Line
from tui_pilot.ui.room import Hint, Room
from tui_pilot.ui.rooms import _ledger, _runs_page
from tui_pilot.ui.rooms._ledger import Brief, Listed
from tui_pilot.ui.rooms._picked_page import LETTERS, Side
from tui_pilot.ui.rooms._runs_page import Page
from tui_pilot.ui.rooms._scan import Scan, plan_of
from tui_pilot.ui.snapshot import Snapshot

REFRESH_S = 5.0
SHARE = 30.0
"""A look at all runs is followed by a rest of so many times what it took: a long list must not cost a core."""


class RunsRoom(Room):
    room: ClassVar[str] = "runs"
    title: ClassVar[str] = "Runs"
    alone_when_compact: ClassVar[bool] = False
    help_text: ClassVar[str] = (
        "Every run that was started here, newest last; a rerun is a new run and names what changed from its parent.\n"
        "Variants and trials stand below the run they were changed from. need is the highest memory of the run.\n"
        "A run that was lost or stopped has no verdict; its rows have theirs, and n FAIL says that some failed.\n"
        "space picks a run, up to six: its letter stands before it, in the table and in the plot. c lays the picked\n"
        "side by side and says whether they may be told apart. Without a pick c runs the comparison of the plan\n"
        "shown, or goes on with it, as pilot-tui compare does.\n"
        "On a trial the comparison stands below the list: its curves, one letter a setting, and what can be said.\n"
        "enter opens a run in all rooms; t tests the resume of the selected one. v and r are of the run shown.\n"
        "Nothing is taken off this list; pilot-tui clean removes large files only."
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pick", "pick this run for c, and back", show=False),
        Binding("c", "compare", "compare the picked; with none, run the plan's comparison", show=False),
        Binding("t", "test_resume", "test the resume of the selected run", show=False),
        Binding("v", "variants", "variants of the selected run, once it is open", show=False),
    ]

    class Compare(Message):
        """The comparison of the shown plan is wanted."""

    class Chosen(Message):
        """A run was picked."""

        def __init__(self, folder: RunFolder) -> None:
            super().__init__()
            self.folder = folder

    class Read(Message):
        """Runs were read: all of them, or what there is so far."""

        def __init__(self, briefs: list[Brief], total: int, comparisons: dict[str, dict[str, Any]] | None) -> None:
            super().__init__()
            self.listed = tuple(_ledger.tree(briefs))
            self.total = total
            self.comparisons = comparisons
            self.counted = _ledger.counted(self.listed)
            self.bytes = sum(each.entry.bytes for each in self.listed)
            self.live = [each.folder.id for each in self.listed if each.entry.state == "running"]
            self.least = _ledger.least_need(self.listed)

    class Whole(Message):
        """One run was read whole."""

    class Sides(Message):
        """The picked runs were read."""

        def __init__(self, sides: tuple[Side, ...]) -> None:
            super().__init__()
            self.sides = sides

    def __init__(self, runs: Path) -> None:
        super().__init__()
        self.runs = runs
        self.listed: tuple[Listed, ...] | None = None
        self.words = ""
        self.selected: RunFolder | None = None
        self.comparisons: dict[str, dict[str, Any]] = {}
        self.picks: list[RunFolder] = []
        self.sides: tuple[Side, ...] = ()
        self.pane = "list"
        self.alone = False
        self.top = 0
        self._scan = Scan(runs)
        self._total = 0
        self._read_at = -1e9
        self._reading = False
        self._message: RunsRoom.Read | None = None
        self._filtered: tuple[object, list[Listed], dict[RunFolder, int]] = (None, [], {})

    def compose(self) -> ComposeResult:
        yield Lines(id="runs-page")

    def show(self, snapshot: Snapshot) -> None:
        moved = snapshot.state.state != self.snapshot.state.state or snapshot.folder != self.snapshot.folder
        super().show(snapshot)
        rest = max(REFRESH_S, SHARE * self._scan.took)
        due = snapshot.now_mono - self._read_at >= rest
        if (due or moved) and not self._reading:
            self._read_at, self._reading = snapshot.now_mono, True
            self.run_worker(self._read, thread=True, group="runs", exit_on_error=False)
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    # Reading, on worker threads.

    def _read(self) -> None:
        worker = get_current_worker()
        try:
            for briefs, total in self._scan.read(lambda: worker.is_cancelled):
                whole = len(briefs) == total
                self.post_message(self.Read(briefs, total, self._scan.comparisons() if whole else None))
        finally:
            self._reading = False

    def on_runs_room_read(self, message: Read) -> None:
        if message.comparisons is None and self.listed is not None and len(self.listed) >= len(message.listed):
            return  # an old list that is whole is better than the first part of a new one
        self.listed, self._total, self._message = message.listed, message.total, message
        if message.comparisons is not None:
            self.comparisons = message.comparisons
        if self.selected is None and self.listed:
            self.selected = self.snapshot.folder or self.listed[-1].folder
        self._draw()
        self._look_up()

    def _look_up(self) -> None:
        """The selected run is read whole where it is not at hand."""
        folder = self.selected
        if folder is not None and self._scan.whole(folder) is None:

            def read() -> None:
                self._scan.read_whole(folder)
                self.post_message(self.Whole())

            self.run_worker(read, thread=True, exclusive=True, group="run", exit_on_error=False)

    def on_runs_room_whole(self, message: Whole) -> None:
        self._draw()

    def on_runs_room_sides(self, message: Sides) -> None:
        self.sides = message.sides
        self.pane, self.top = "picked", 0
        self._draw()
        self.keys_changed()

    # What the app asks.

    def headline(self, snapshot: Snapshot) -> Line | None:
        if not self.listed or self._message is None:
            return None
        total, live = self._message.bytes, self._message.live
        said = f" {plural(len(self.listed), 'run')}: {self._message.counted}"
        now = f"{live[0][-4:]} runs" if len(live) == 1 else f"{len(live)} run" if live else "no run is live"
        room = self.app.size.width - paint.width_of(((said, "text"),)) - len(now)
        kept = f"   {size(total)} on disk"
        kept = kept if len(kept) + 2 < room else ""
        gap = " " * max(1, room - len(kept))
        return ((said, "text"), (kept, "dim"), (gap, "text"), (now, "running" if live else "text"))

    def hints(self) -> list[Hint]:
        if not self.listed:
            return []
        found: list[Hint] = []
        if self.alone or self.pane != "list" or self.sides:
            found.append(("esc", "back"))
        if self.pane == "list":
            found += [("enter", "open"), ("space", "pick")]
        plan = self.snapshot.plan
        if len(self.picks) > 1:
            found.append(("c", f"compare {len(self.picks)}"))
        elif not self.picks and plan is not None and plan.plan.compare.trials:
            found.append(("c", "run comparison"))
        return [*found, ("tab", "pane"), ("z", "zoom")]

    def can_search(self) -> bool:
        return True

    def search(self, words: str) -> None:
        self.words = words.strip()
        self.pane, self.alone = "list", False
        self._draw()
        self._look_up()

    def open_pane(self) -> str:
        return self.pane

    def back(self) -> bool:
        if self.alone:
            self.alone = False
        elif self.sides:
            self.sides, self.pane, self.top = (), "list", 0
        elif self.pane != "list":
            self.pane, self.top = "list", 0
        elif self.words:
            self.words = ""
        elif self.picks:
            self.picks = []
        else:
            return False
        self._draw()
        return True

    def copied(self) -> str:
        if self.pane != "list":
            lines = _runs_page.lower(self._page(self._shown()), 10_000)
            return "\n".join(paint.plain(each).rstrip() for each in lines).rstrip()
        return self.selected.id if self.selected is not None else ""

    # Keys.

    def action_move(self, across: int, down: int) -> None:
        if self.pane != "list":
            self._scroll(self.top + down)
            return
        shown = self._shown()
        if shown and down:
            self.selected = shown[max(0, min(len(shown) - 1, self._at(shown) + down))].folder
            self.top = 0
            self._draw()
            self._look_up()

    def action_jump(self, end: int) -> None:
        self.action_move(0, -1_000_000 if end < 0 else 1_000_000)

    def action_page(self, down: int) -> None:
        page = self._page(self._shown())
        by = _runs_page.scrolled(page)[1] if self.pane != "list" else _runs_page.list_rows(page)
        self.action_move(0, down * max(1, by - 1))

    def _scroll(self, top: int) -> None:
        self.top = max(0, min(top, _runs_page.scrolled(self._page(self._shown()))[0]))
        self._draw()

    def action_enter(self) -> None:
        if self.pane != "list":
            self.action_zoom()
        elif self.selected is not None:
            self.post_message(self.Chosen(self.selected))

    def action_next_pane(self) -> None:
        panes = self._page(self._shown()).panes
        at = panes.index(self.pane) if self.pane in panes else 0
        self.pane, self.top = panes[(at + 1) % len(panes)], 0
        self._draw()

    def action_zoom(self) -> None:
        self.alone = not self.alone
        self._draw()

    def action_pick(self) -> None:
        folder = self.selected
        if folder is None or self.pane != "list":
            return
        if folder in self.picks:
            self.picks.remove(folder)
        elif len(self.picks) >= len(LETTERS):
            self._say(f"space: {len(LETTERS)} runs are picked, more would not stand side by side; esc lets them go")
            return
        else:
            self.picks.append(folder)
        self._draw()
        self.keys_changed()

    def action_compare(self) -> None:
        """The picked side by side; without a pick, the comparison of the shown plan."""
        if len(self.picks) == 1:
            self._say("c: one run is picked, a comparison needs two; space picks another")
            return
        if not self.picks:
            plan = self.snapshot.plan
            if plan is None or not plan.plan.compare.trials:
                self._say("c: space picks the runs to compare; the plan shown has no comparison of its own to run")
                return
            self.post_message(self.Compare())
            return
        picks = list(self.picks)

        def read() -> None:
            sides = [
                Side(letter, self._scan.read_whole(each), plan_of(each))
                for letter, each in zip(LETTERS, picks, strict=False)
            ]
            self.post_message(self.Sides(tuple(sides)))

        self.run_worker(read, thread=True, exclusive=True, group="sides", exit_on_error=False)

    def action_test_resume(self) -> None:
        """``t`` on the selected run; on the run that is shown it is the key of every room."""
        entry = self._entry()
        if entry is None or entry.folder == self.snapshot.folder:
            self._app_action("action_resume_test")
            return
        seen = Snapshot(state=entry.state, folder=entry.folder, live=is_live(entry.folder))
        why = actions.why_not("resume_test", seen, None, False, False)
        name = short_id(entry.folder.id)
        do: Callable[[Callable[[], str]], None] | None = getattr(self.app, "do", None)
        if why is not None:
            self._say(f"t: {name}: {why}")
        elif do is not None:
            do(partial(operate.resume_test, entry.folder))

    def action_variants(self) -> None:
        """``v`` is of the run that is shown, whose plan ``r`` runs: another one has to be opened first."""
        if self.selected is None or self.selected == self.snapshot.folder or self.snapshot.folder is None:
            self._app_action("action_variant")
        else:
            self._say(f"v: variants are of the run that is shown; enter opens {short_id(self.selected.id)}, then v")

    def _app_action(self, name: str) -> None:
        act = getattr(self.app, name, None)
        if callable(act):
            act()

    # Drawing.

    def _entry(self) -> Entry | None:
        return self._scan.whole(self.selected) if self.selected is not None else None

    def _shown(self) -> list[Listed]:
        key = (self.listed, self.words)
        if self._filtered[0] is None or self._filtered[0] != key:
            words = self.words.lower().split()
            found = list(self.listed or ())
            if words:
                found = [each for each in found if all(word in each.words() for word in words)]
            self._filtered = (key, found, {each.folder: n for n, each in enumerate(found)})
        return self._filtered[1]

    def _at(self, shown: list[Listed]) -> int:
        at = self._filtered[2].get(self.selected) if self.selected is not None else None
        return len(shown) - 1 if at is None else at

    def _page(self, shown: list[Listed]) -> Page:
        at = self._at(shown)
        if shown and shown[at].folder != self.selected:
            self.selected = shown[at].folder
        total = len(self.listed or ())
        return Page(
            width=self.size.width,
            height=self.size.height,
            root=f"./{self.runs}" if not self.runs.is_absolute() else str(self.runs),
            listed=shown,
            total=total,
            at=at,
            now=self.snapshot.now,
            opened=self.snapshot.folder,
            words=self.words,
            entry=self._entry(),
            comparisons=self.comparisons,
            picks=self.picks,
            sides=self.sides,
            pane=self.pane,
            alone=self.alone,
            top=self.top,
            least=self._message.least if self._message is not None else None,
            reading=f"reading {total:,} of {self._total:,}" if total < self._total else "",
        )

    def _draw(self) -> None:
        width = self.size.width
        if not self.is_mounted or width < 1:
            return
        lines = self.query_one("#runs-page", Lines)
        if not self.listed:
            reading = self.listed is None
            text = "reading the runs" if reading else f"No run in {self.runs} yet. r runs the plan."
            lines.write([paint.rule("runs", "", width), ((f" {text}", "dim" if reading else "text"),)], 0)
            return
        page = self._page(self._shown())
        if self.pane not in page.panes:
            self.pane, self.top = "list", 0
            page = self._page(page.listed if isinstance(page.listed, list) else list(page.listed))
        lines.write(_runs_page.draw(page), 0)
