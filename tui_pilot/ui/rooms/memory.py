"""The Memory room: phases against GPUs or ranks, what fills a peak, the run over time, and every reading of a phase."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.worker import get_current_worker

from tui_pilot.errors import PilotError
from tui_pilot.events.schema import PHASES
from tui_pilot.run_folder import RunFolder
from tui_pilot.ui import paint
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts.headline import headline
from tui_pilot.ui.room import Hint, Room
from tui_pilot.ui.rooms import _memory_draw, _memory_page, _memory_table
from tui_pilot.ui.rooms._memory_history import History, HistoryReader
from tui_pilot.ui.rooms._memory_page import PANES, Page
from tui_pilot.ui.snapshot import Snapshot

AGAIN_S = 5.0
"""How often a live run's chart is read and painted again."""


class MemoryRoom(Room):
    room: ClassVar[str] = "memory"
    title: ClassVar[str] = "Memory"
    help_text: ClassVar[str] = (
        "The peak of every phase on every rank; the selected phase is unfolded into its parts. c: another counter.\n"
        "allocated: tensors. reserved: what torch took from the driver. used: the whole device, sampled.\n"
        "They are nested, never summed. ≥ is a floor: it was sampled, so the true peak may be higher.\n"
        "While a phase runs its highest so far stands here, and under readings what a rank holds now.\n"
        "←→ goes to another rank. Above eight ranks alike neighbours (within 1%) are one column: the highest of them.\n"
        "enter shows every reading of the phase and rank, tab goes to the next pane, z shows one alone.\n"
        "~ was predicted. – does not apply, NA could not be read (the reason stands beside it), never 0.\n"
        "y copies the table as tab-separated values, of another pane its text."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "counter", "counter", show=False)]

    def __init__(self) -> None:
        super().__init__()
        self.selected = 0
        self.counter = "allocated_peak"
        self.rank = 0
        self.pane = PANES[0]
        self.zoomed = False
        self.history = History()
        self._moved = False
        self._predicted: dict[str, Any] = {}
        self._asked: tuple[RunFolder | None, bool] = (None, False)
        self._reader: HistoryReader | None = None
        self._read_at: float | None = None
        self._read_live = False
        self._reading = False

    def compose(self) -> ComposeResult:
        yield Lines(id="memory-page")

    # What the app calls.

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.folder != self.snapshot.folder:
            self._moved = False
        asked = (snapshot.folder, "predicted" in snapshot.state.facts)
        if asked != self._asked and self.is_mounted:
            if asked[0] != self._asked[0]:
                self._predicted = {}
            self._asked = asked
            if snapshot.folder is not None:
                self.run_worker(self._read_prediction(snapshot.folder), exclusive=True, group="memory-prediction")
        if not self._moved and snapshot.live and snapshot.state.running_row is not None:
            self.selected = PHASES.index(snapshot.state.running_row.phase)
        elif not self._moved:
            binding = _memory_page.binding(self._page(snapshot))
            self.selected = PHASES.index(binding) if binding in PHASES else self.selected
            self.rank = _memory_table.highest_rank(snapshot.state.rows[self.selected], self.counter)
        super().show(snapshot)
        self._look_back()
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def hints(self) -> list[Hint]:
        found = [("↑↓", "phase"), ("enter", "back" if self.pane == PANES[3] else "readings"), ("tab", "pane")]
        if self.zoomed and self.why_no_zoom() is None:
            found.insert(0, ("z", "back"))
        if _memory_page.ranks(self.snapshot.state) > 1:
            found.insert(1, ("←→", _memory_page.device_word(self.snapshot.state)))
        if len(_memory_page.counters(self.snapshot.state)) > 1:
            found.append(("c", "counter"))
        return found if self.zoomed else [*found, ("z", "zoom")]

    def selected_phase(self) -> str | None:
        return PHASES[self.selected]

    def headline(self, snapshot: Snapshot) -> Line | None:
        if snapshot.folder is None or snapshot.live:
            return None
        return headline(snapshot, self.app.size.width, _memory_page.need_text(snapshot.state))

    def copied(self) -> str:
        page = self._page()
        if self.pane == PANES[0]:
            return _memory_table.tsv(page)
        lines = _memory_draw.pane_text(page)
        return "\n".join(paint.plain(each).rstrip() for each in lines)

    def back(self) -> bool:
        if self.zoomed:
            self.zoomed = False
        elif self.pane != PANES[0]:
            self.pane = PANES[0]
        elif self._moved:
            self._moved = False
            self.show(self.snapshot)
        else:
            return False
        self._draw()
        self.keys_changed()
        return True

    # Keys.

    def action_move(self, across: int, down: int) -> None:
        self._moved = True
        page = self._page()
        shown = _memory_page.shown_rows(page)
        at = shown.index(self.selected) if self.selected in shown else 0
        if down:
            self.selected = shown[max(0, min(len(shown) - 1, at + down))]
        if across:
            self.rank = _memory_table.step(page, across)
        self._draw()
        self.keys_changed()

    def action_jump(self, end: int) -> None:
        self.action_move(0, -len(PHASES) if end < 0 else len(PHASES))

    def action_page(self, down: int) -> None:
        self.action_move(0, 5 * down)

    def action_counter(self) -> None:
        known = _memory_page.counters(self.snapshot.state)
        place = known.index(self.counter) if self.counter in known else -1
        self.counter = known[(place + 1) % len(known)]
        self._draw()

    def action_enter(self) -> None:
        """Every reading of the selected phase, and back to the phases."""
        self.pane = PANES[0] if self.pane == PANES[3] else PANES[3]
        self._draw()
        self.keys_changed()

    def action_next_pane(self) -> None:
        self.pane = PANES[(PANES.index(self.pane) + 1) % len(PANES)]
        self._draw()

    def action_zoom(self) -> None:
        self.zoomed = not self.zoomed
        self._draw()

    # Reading.

    async def _read_prediction(self, folder: RunFolder) -> None:
        """What was predicted of this run before it measured; nothing where nobody asked."""
        try:
            document = folder.read_json(folder.path / "prediction.json")
            self._predicted = {str(one["phase"]): one for one in document["phases"]}
        except (PilotError, KeyError, TypeError, ValueError):
            return
        self._draw()

    def _look_back(self) -> None:
        """Read the samples where another run is shown, a live one has five seconds more, or it has just ended."""
        snapshot = self.snapshot
        folder = snapshot.folder
        if not self.is_mounted or folder is None:
            self._reader, self.history = None, History()
            return
        if self._reader is None or self._reader.folder != folder:
            self._reader, self.history, self._read_at, self._reading = HistoryReader(folder), History(), None, False
        due = self._read_at is None or snapshot.now_mono - self._read_at >= AGAIN_S
        if self._read_at is not None and not due and snapshot.live == self._read_live:
            return
        if due and self._read_at is not None and not snapshot.live and not self._read_live:
            return
        if self._reading:  # a long file's first look: the next one comes after it
            return
        self._read_at, self._read_live, self._reading = snapshot.now_mono, snapshot.live, True
        self._read_history(self._reader, snapshot.now_mono)

    @work(thread=True, group="memory-history", exit_on_error=False)
    def _read_history(self, reader: HistoryReader, now: float) -> None:
        """The whole file the first time, then what was appended; one reader is never read by two at once."""
        worker = get_current_worker()
        found = reader.poll(lambda: worker.is_cancelled or reader is not self._reader)
        self.app.call_from_thread(self._take_history, reader, replace(found, at=now))

    def _take_history(self, reader: HistoryReader, found: History) -> None:
        if reader is self._reader:
            self.history, self._reading = found, False
            self._draw()

    # Drawing.

    def _page(self, snapshot: Snapshot | None = None) -> Page:
        snapshot = snapshot or self.snapshot
        known = _memory_page.counters(snapshot.state)
        if self.counter not in known:
            self.counter = known[0]
        return Page(
            self.size.width,
            self.size.height,
            snapshot,
            self.counter,
            self.selected,
            self.rank,
            self.pane,
            self.zoomed,
            self._predicted,
            self.history,
        )

    def _draw(self) -> None:
        if self.is_mounted and self.size.width >= 1:
            self.query_one("#memory-page", Lines).write(_memory_draw.draw(self._page()), 0)
