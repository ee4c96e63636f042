"""What the Batch room reads beside the screen: a run's rows, its prediction, the tokens of a setting's updates."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from textual import work

from tui_pilot.plan.batch import BatchQuestion
from tui_pilot.plan.batch_tokens import Spread, spread
from tui_pilot.run_folder import RunFolder
from tui_pilot.ui.room import Room
from tui_pilot.ui.rooms import _batch_rows
from tui_pilot.ui.rooms._batch_sides import Sides

KEPT = 64


class BatchReading(Room):
    """Base of the room: what it knows besides the two settings, and ``draw_again`` once it knows more."""

    def __init__(self) -> None:
        super().__init__()
        self.sides: Sides | None = None
        self.predicted: Mapping[str, Any] = {}
        self._asked: tuple[RunFolder | None, bool, bool] = (None, False, False)
        self._rows: array[int] | None = None
        self._spreads: dict[BatchQuestion, Spread | None] = {}
        self._counting = False

    def draw_again(self) -> None:
        """Something was read."""

    def look(self) -> None:
        """Ask once for what a run has on disk: the rows' tokens, and what was predicted of it."""
        folder, facts = self.snapshot.folder, self.snapshot.state.facts
        asked = (folder, "examples" in facts, "predicted" in facts)
        if asked != self._asked and self.is_mounted:
            self._asked = asked
            self._rows, self.predicted, self._spreads = None, {}, {}
            if folder is not None:
                self._read(folder, bool(asked[1]))

    @work(thread=True, exclusive=True, group="batch-rows", exit_on_error=False)
    def _read(self, folder: RunFolder, audited: bool) -> None:
        rows = _batch_rows.supervised(folder) if audited else None
        predicted = _batch_rows.predicted(folder)
        self.app.call_from_thread(self._take_rows, folder, rows, predicted)

    def _take_rows(self, folder: RunFolder, rows: array[int] | None, predicted: Mapping[str, Any]) -> None:
        if folder == self.snapshot.folder:
            self._rows, self.predicted = rows, predicted
            self.draw_again()

    def spread(self) -> tuple[Spread | None, Spread | None]:
        """What is known of A and B; what is not is worked out beside the screen, one after the other."""
        sides, rows = self.sides, self._rows
        if sides is None or not rows:
            return None, None
        # Of more rows than were looked at nothing is known.
        asked = (each for each in (sides.a, sides.b) if each.examples <= len(rows))
        missing = [each for each in asked if each not in self._spreads]
        if missing and not self._counting:
            self._counting = True
            self._count(tuple(missing), rows)
        a, b = self._spreads.get(sides.a), self._spreads.get(sides.b)
        return a, b

    @work(thread=True, group="batch-tokens", exit_on_error=False)
    def _count(self, questions: tuple[BatchQuestion, ...], rows: array[int]) -> None:
        found = {each: spread(each, rows) for each in questions}
        self.app.call_from_thread(self._counted_tokens, found, rows)

    def _counted_tokens(self, found: dict[BatchQuestion, Spread | None], rows: array[int]) -> None:
        self._counting = False
        if rows is self._rows:
            if len(self._spreads) > KEPT:
                self._spreads.clear()
            self._spreads |= found
        self.draw_again()
