"""The Runs room: every run in the folder, none ever taken off the list; ``enter`` opens one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.message import Message
from textual.worker import get_current_worker

from tui_pilot.errors import PilotError
from tui_pilot.run_folder import RunFolder, all_runs, is_live, short_id
from tui_pilot.store.view import as_seen, load_state
from tui_pilot.text import ago, plural
from tui_pilot.ui import paint
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import units
from tui_pilot.ui.parts.headline import unix
from tui_pilot.ui.room import Hint, Room
from tui_pilot.ui.snapshot import Snapshot

REFRESH_S = 5.0


@dataclass(frozen=True)
class Listed:
    """One run as a line of the list."""

    folder: RunFolder
    state: str
    verdict: str | None
    ended: str | None
    started: str | None
    updates: int
    need: int | None
    changed: str


class RunsRoom(Room):
    room: ClassVar[str] = "runs"
    title: ClassVar[str] = "Runs"
    help_text: ClassVar[str] = (
        "Every run that was started here, newest last; a rerun is a new run and names what changed from its parent.\n"
        "enter opens a run in all rooms. Nothing is taken off this list; pilot-tui clean removes large files only."
    )

    class Chosen(Message):
        """A run was picked."""

        def __init__(self, folder: RunFolder) -> None:
            super().__init__()
            self.folder = folder

    class Read(Message):
        """The list was read."""

        def __init__(self, listed: tuple[Listed, ...]) -> None:
            super().__init__()
            self.listed = listed

    def __init__(self, runs: Path) -> None:
        super().__init__()
        self.runs = runs
        self.listed: tuple[Listed, ...] | None = None
        self.words = ""
        self.selected: RunFolder | None = None
        self._cache: dict[RunFolder, tuple[object, Listed]] = {}
        self._read_at = -1e9

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
        self.post_message(self.Read(tuple(found)))

    def _one(self, folder: RunFolder) -> Listed:
        live = is_live(folder)
        try:
            stamp: object = (live, max((path.stat().st_mtime_ns for path in folder.events.iterdir()), default=0))
        except OSError:
            stamp = (live, None)
        kept = self._cache.get(folder)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        state = as_seen(load_state(folder)[0], live)
        need = [units.peak(row, "device_used_peak") or units.peak(row, "allocated_peak") or 0 for row in state.rows]
        listed = Listed(
            folder,
            state.state,
            state.verdict,
            state.ended or state.last_event,
            state.started,
            len(state.loss),
            max(need) or None,
            changed_text(folder, state.changed),
        )
        self._cache[folder] = (stamp, listed)
        return listed

    def on_runs_room_read(self, message: Read) -> None:
        self.listed = message.listed
        if self.selected is None and self.listed:
            self.selected = self.snapshot.folder or self.listed[-1].folder
        self._draw()

    # Keys.

    def hints(self) -> list[Hint]:
        return [("enter", "open")] if self.listed else []

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

    # Drawing.

    def _shown(self) -> list[Listed]:
        words = self.words.lower().split()
        return [
            each
            for each in self.listed or ()
            if all(word in f"{each.folder.id} {each.state} {each.verdict} {each.changed}".lower() for word in words)
        ]

    def _at(self, shown: list[Listed]) -> int:
        return next((n for n, each in enumerate(shown) if each.folder == self.selected), len(shown) - 1)

    def _draw(self) -> None:
        width, height = self.size.width, self.size.height
        if not self.is_mounted or width < 1:
            return
        page = self.query_one("#runs-page", Lines)
        if self.listed is None:
            page.write([paint.rule("runs", "", width), (("reading the runs", "dim"),)])
            return
        if not self.listed:
            page.write([paint.rule("runs", "", width), ((f"No run in {self.runs} yet. r runs the plan.", "text"),)])
            return
        shown = self._shown()
        at = self._at(shown)
        title = f"{plural(len(self.listed), 'run')} in {self.runs}"
        legend = f"with “{self.words}”: {len(shown)}" if self.words else "newest last, none is ever taken off"
        head = f"   {'run':<28}{'state':<10}{'verdict':<11}{'updates':>7}{'need':>12}  {'ended':<14}"
        head += "changed from its parent"
        room = max(1, height - 2)
        top = max(0, min(at - room // 2, len(shown) - room))
        lines = [paint.rule(title, legend, width), ((head, "dim"),)]
        lines += [self._line(each, n + top == at) for n, each in enumerate(shown[top : top + room])]
        page.write(lines, 0)

    def _line(self, each: Listed, selected: bool) -> Line:
        verdict = {"running": "running", "lost": "lost"}.get(each.state, each.verdict)
        sign, role = paint.glyph(verdict)
        word = "FAIL" if each.verdict == "fail" else each.verdict or "–"
        ended = unix(each.ended)
        age = (
            "live"
            if each.state == "running"
            else ago(self.snapshot.now - ended)
            if ended and self.snapshot.now
            else "–"
        )
        need = f"{units.unit_for([each.need]).show(each.need)} {units.unit_for([each.need]).name}" if each.need else "–"
        here = " (shown)" if each.folder == self.snapshot.folder else ""
        spans: Line = (
            (">" if selected else " ", "head"),
            (sign, role),
            (f" {paint.left(short_id(each.folder.id), 27)} ", "text"),
            (f"{each.state:<10}", "running" if each.state == "running" else "text"),
            (f"{word:<11}", "fail" if word == "FAIL" else "text"),
            (f"{each.updates:>7}{need:>12}  {age:<14}{each.changed}{here}", "text"),
        )
        return paint.chosen(paint.fit(spans, self.size.width)) if selected else spans


def changed_text(folder: RunFolder, changed: Any) -> str:
    """``optimizer.lr 1.0e-4 -> 5.0e-5``; the first run of a plan has no parent."""
    try:
        parent = folder.read_json(folder.run_file).get("parent")
    except PilotError:
        parent = None
    if not isinstance(changed, dict) or not changed:
        return "nothing" if parent else "first run"
    said = []
    for key, value in list(changed.items())[:3]:
        if isinstance(value, (list, tuple)) and len(value) == 2:
            said.append(f"{key} {value[0]} → {value[1]}")
        else:
            said.append(str(key))
    return ", ".join(said) + (f", {len(changed) - 3} more" if len(changed) > 3 else "")
