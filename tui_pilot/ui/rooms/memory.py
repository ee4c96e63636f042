"""The Memory room: phases against GPUs or ranks, one counter at a time, and what is known of the selected cell."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui_pilot.events.schema import PHASES
from tui_pilot.store.memory import binding_phase
from tui_pilot.ui import paint
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts.headline import headline
from tui_pilot.ui.room import Hint, Room
from tui_pilot.ui.rooms import _memory_page
from tui_pilot.ui.rooms._memory_page import Page
from tui_pilot.ui.snapshot import Snapshot


class MemoryRoom(Room):
    room: ClassVar[str] = "memory"
    title: ClassVar[str] = "Memory"
    help_text: ClassVar[str] = (
        "The peak of every phase; the selected one is unfolded into its parts. c changes the counter of the bars.\n"
        "allocated: tensors. reserved: what torch took from the driver. used: the whole device, sampled.\n"
        "They are nested, never summed. ≥ is a floor: it was sampled, so the true peak may be higher.\n"
        "– does not apply, NA could not be read (the reason stands beside it), never 0."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "counter", "counter", show=False)]

    def __init__(self) -> None:
        super().__init__()
        self.selected = 0
        self.counter = "allocated_peak"
        self.rank = 0
        self._moved = False

    def compose(self) -> ComposeResult:
        yield Lines(id="memory-page")

    # What the app calls.

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.folder != self.snapshot.folder:
            self._moved = False
        if not self._moved:
            binding = binding_phase(snapshot.state.rows)
            self.selected = PHASES.index(binding) if binding in PHASES else self.selected
        super().show(snapshot)
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def hints(self) -> list[Hint]:
        found = [("↑↓", "phase"), ("c", "counter")]
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

    # Drawing.

    def _page(self) -> Page:
        known = _memory_page.counters(self.snapshot.state)
        if self.counter not in known:
            self.counter = known[0]
        return Page(self.size.width, self.size.height, self.snapshot.state, self.counter, self.selected, self.rank)

    def _draw(self) -> None:
        if self.is_mounted and self.size.width >= 1:
            self.query_one("#memory-page", Lines).write(_memory_page.draw(self._page()), 0)
