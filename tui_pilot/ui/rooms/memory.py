"""The Memory room: phases against GPUs or ranks, one counter at a time, and what is known of the selected cell."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui_pilot.errors import PilotError
from tui_pilot.events.schema import PHASES
from tui_pilot.run_folder import RunFolder
from tui_pilot.store.memory import binding_phase
from tui_pilot.ui import paint
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts.headline import headline
from tui_pilot.ui.room import Hint, Room
from tui_pilot.ui.rooms import _memory_page, _memory_readings
from tui_pilot.ui.rooms._memory_page import Page
from tui_pilot.ui.snapshot import Snapshot


class MemoryRoom(Room):
    room: ClassVar[str] = "memory"
    title: ClassVar[str] = "Memory"
    help_text: ClassVar[str] = (
        "The peak of every phase; the selected one is unfolded into its parts. c changes the counter of the bars.\n"
        "allocated: tensors. reserved: what torch took from the driver. used: the whole device, sampled.\n"
        "They are nested, never summed. ≥ is a floor: it was sampled, so the true peak may be higher.\n"
        "While a phase runs its highest so far stands here, and below it what a rank holds now.\n"
        "On a low screen enter shows every reading of the phase in place of the table.\n"
        "~ was predicted. – does not apply, NA could not be read (the reason stands beside it), never 0."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "counter", "counter", show=False)]

    def __init__(self) -> None:
        super().__init__()
        self.selected = 0
        self.counter = "allocated_peak"
        self.rank = 0
        self.readings = False
        self._moved = False
        self._predicted: dict[str, Any] = {}
        self._asked: tuple[RunFolder | None, bool] = (None, False)

    def compose(self) -> ComposeResult:
        yield Lines(id="memory-page")

    # What the app calls.

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.folder != self.snapshot.folder:
            self._moved = False
        asked = (snapshot.folder, "predicted" in snapshot.state.facts)
        if asked != self._asked and self.is_mounted:
            self._asked, self._predicted = asked, {}
            if snapshot.folder is not None:
                self.run_worker(self._read_prediction(snapshot.folder), exclusive=True)
        if not self._moved and snapshot.live and snapshot.state.running_row is not None:
            self.selected = PHASES.index(snapshot.state.running_row.phase)
        elif not self._moved:
            binding = binding_phase(snapshot.state.rows)
            self.selected = PHASES.index(binding) if binding in PHASES else self.selected
        super().show(snapshot)
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def hints(self) -> list[Hint]:
        found = [("↑↓", "phase"), ("c", "counter")]
        if not _memory_readings.fits(self._page()):
            found.insert(0, ("enter", "phases" if self.readings else "readings"))
        return [*found, ("←→", "rank")] if _memory_page.ranks(self.snapshot.state) > 1 else found

    def selected_phase(self) -> str | None:
        return PHASES[self.selected]

    def headline(self, snapshot: Snapshot) -> Line | None:
        if snapshot.folder is None or snapshot.live:
            return None
        return headline(snapshot, self.app.size.width, _memory_page.need_text(snapshot.state))

    def copied(self) -> str:
        return "\n".join(paint.plain(each).rstrip() for each in _memory_page.table(self._page()))

    def back(self) -> bool:
        if self.readings:
            self.action_enter()
            return True
        if not self._moved:
            return False
        self._moved = False
        self.show(self.snapshot)
        return True

    # Keys.

    def action_move(self, across: int, down: int) -> None:
        self._moved = True
        self.selected = max(0, min(len(PHASES) - 1, self.selected + down))
        self.rank = max(0, min(max(0, _memory_page.ranks(self.snapshot.state) - 1), self.rank + across))
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
        self.readings = not self.readings and not _memory_readings.fits(self._page())
        self._draw()
        self.keys_changed()

    def action_next_pane(self) -> None:
        self.action_enter()

    # Drawing.

    async def _read_prediction(self, folder: RunFolder) -> None:
        """What was predicted of this run before it measured; nothing where nobody asked."""
        try:
            document = folder.read_json(folder.path / "prediction.json")
            self._predicted = {str(one["phase"]): one for one in document["phases"]}
        except (PilotError, KeyError, TypeError, ValueError):
            return
        self._draw()

    def _page(self) -> Page:
        known = _memory_page.counters(self.snapshot.state)
        if self.counter not in known:
            self.counter = known[0]
        return Page(
            self.size.width,
            self.size.height,
            self.snapshot,
            self.counter,
            self.selected,
            self.rank,
            self.readings,
            self._predicted,
        )

    def _draw(self) -> None:
        if self.is_mounted and self.size.width >= 1:
            self.query_one("#memory-page", Lines).write(_memory_readings.draw(self._page()), 0)
