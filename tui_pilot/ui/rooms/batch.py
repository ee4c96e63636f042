"""The Batch room: how many rows one update averages, and what else a change of the setting changes.

A calculator beside the run: nothing here is saved, and all arithmetic is that of ``calc`` and of the batch gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui_pilot.errors import PlanError
from tui_pilot.plan.batch_tokens import Spread
from tui_pilot.text import plural
from tui_pilot.ui import paint
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.paint import Line
from tui_pilot.ui.room import Hint
from tui_pilot.ui.rooms import _batch_page, _batch_sides
from tui_pilot.ui.rooms._batch_page import Page
from tui_pilot.ui.rooms._batch_reading import BatchReading
from tui_pilot.ui.rooms._batch_sides import COUNTS, FIELDS
from tui_pilot.ui.snapshot import Snapshot

DIGITS = 12
NO_PLAN = "There is no plan here: pilot-tui init writes one. pilot-tui calc does the arithmetic without."


class BatchRoom(BatchReading):
    room: ClassVar[str] = "batch"
    title: ClassVar[str] = "Batch"
    alone_when_compact: ClassVar[bool] = False
    enter_word: ClassVar[str] = "type a number into the field"
    tab_word: ClassVar[str] = "the other side: A or B"
    help_text: ClassVar[str] = (
        "Effective batch: rows that one update averages = microbatch x accumulation x data replicas.\n"
        "Model parallelism (tensor, pipeline, context) shares rows, so it never multiplies the batch.\n"
        "A is your plan, B is what you try; nothing here is saved and nothing is run.\n"
        "↑↓ field. ←→ one step, pgup and pgdn twice and half. enter types a number, enter keeps it, esc does not.\n"
        "tab goes between A and B. space holds another quantity: updates, epochs, examples or tokens; it is the\n"
        "same in A and B, and the rest follows. = sets B's accumulation so that the effective batch is A's again.\n"
        "z shows the trained tokens of every update and the learning rate rules; on a small terminal the picture.\n"
        "~ is estimated: tokens in one shuffled order of the real rows, memory from the prediction of the plan's own."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "hold", "hold another quantity", show=False),
        Binding("equals_sign", "keep", "keep the batch", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.at = 0
        self.side = "b"
        self.typed: str | None = None
        self.zoomed = False
        self.said = ""

    def compose(self) -> ComposeResult:
        yield Lines(id="batch-page")

    # What the app calls.

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        if snapshot.plan is None:
            self.sides = None
        else:
            fresh = _batch_sides.from_plan(snapshot.plan.plan, snapshot.state.facts)
            known = self.sides
            # What the person tries stays, until another plan is shown or its rows were counted.
            if known is None or (known.plan, known.rows_known, known.trained) != (
                fresh.plan,
                fresh.rows_known,
                fresh.trained,
            ):
                self.sides = fresh
        self.look()
        self._draw()

    def headline(self, snapshot: Snapshot) -> Line | None:
        if self.sides is None:
            return None
        a, b = (_batch_sides.solve(side) for side in (self.sides.a, self.sides.b))
        held = f"{_batch_page.HELD[self.sides.a.held]} {self.sides.a.amount:,g}"
        if isinstance(a, PlanError) or isinstance(b, PlanError):
            head: Line = ((" ✗ ", "fail"), ("from one of the two no run follows", "fail"))
        elif a.effective_batch != b.effective_batch:
            said = f"effective batch differs: A {a.effective_batch:,}, B {b.effective_batch:,}"
            head = ((" ! ", "warn"), (said, "warn+bold"))
        else:
            ask = self.sides.a
            product = f"{ask.micro:,} x {ask.accumulation:,} x {ask.replicas:,}"
            same = (
                self.sides.same
                or product == f"{self.sides.b.micro:,} x {self.sides.b.accumulation:,} x {self.sides.b.replicas:,}"
            )
            said = f"effective batch {a.effective_batch:,}{' = ' + product if same else ''} in both"
            head = ((" ✓ ", "pass"), (said, "text+bold"))
        return paint.first_fitting(
            self.app.size.width,
            (*head, (f"   held constant: {held}   not run, nothing is saved", "text")),
            (*head, (f"   held: {held}   nothing is saved", "text")),
            (*head, (f"   held: {held}", "text")),
            head,
        )

    def hints(self) -> list[Hint]:
        if self.typed is not None:
            return [("enter", "keep"), ("esc", "as it was")]
        return [
            ("↑↓", "field"),
            ("←→", "change"),
            ("enter", "type"),
            ("tab", "A/B"),
            ("space", "hold"),
            ("=", "keep batch"),
            ("z", "back" if self.zoomed else "picture" if self._page_of().compact else "tokens"),
        ]

    def copied(self) -> str:
        return self.query_one("#batch-page", Lines).text() if self.sides is not None else ""

    def why_no_zoom(self) -> str | None:
        if self.sides is None:
            return "there is no plan here, so there is nothing to show alone"
        page = self._page_of()
        return "everything stands here already" if page.wide and not self.zoomed else None

    def back(self) -> bool:
        if self.typed is not None:
            self.typed = None
        elif self.zoomed:
            self.zoomed = False
        else:
            return False
        self._draw()
        return True

    # Keys.

    async def on_key(self, event: events.Key) -> None:
        """While a number is typed, digits are digits and no other key but enter and esc does anything."""
        if self.typed is None or event.key in ("ctrl+c", "ctrl+q"):
            return
        event.stop()
        event.prevent_default()
        character = event.character or ""
        if event.key == "enter":
            self._take()
        elif event.key == "escape":
            self.typed = None
        elif event.key in ("backspace", "ctrl+h"):
            self.typed = self.typed[:-1]
        elif self._may_stand(character):
            self.typed += character
        self._changed()

    def _may_stand(self, character: str) -> bool:
        typed = self.typed or ""
        if character == ".":
            return self._fractional and "." not in typed
        return character.isascii() and character.isdigit() and len(typed) < DIGITS

    @property
    def _field(self) -> _batch_sides.Field:
        return FIELDS[self.at]

    @property
    def _fractional(self) -> bool:
        return self._field == "amount" and self.sides is not None and self.sides.a.held == "epochs"

    def _take(self) -> None:
        typed, self.typed = self.typed or "", None
        try:
            value = float(typed)
        except ValueError:
            return
        if self.sides is not None and value > 0:
            self.sides = _batch_sides.enter(self.sides, self.side, self._field, value)

    def action_move(self, across: int, down: int) -> None:
        if self.sides is None:
            return
        self.at = max(0, min(len(FIELDS) - 1, self.at + down))
        if across:
            self.sides = _batch_sides.change(self.sides, self.side, self._field, across)
        self._changed()

    def action_jump(self, end: int) -> None:
        self.at = 0 if end < 0 else len(FIELDS) - 1
        self._changed()

    def action_page(self, down: int) -> None:
        """Twice as much, or half."""
        field = self._field
        if self.sides is None or field in ("drop_last", "tail"):
            return
        side = self.sides.side(self.side)
        now = side.amount if field == "amount" else getattr(side, field)
        wanted = now * 2 if down < 0 else max(1, now // 2)
        self.sides = _batch_sides.enter(self.sides, self.side, field, wanted)
        self._changed()

    def action_enter(self) -> None:
        if self.sides is None:
            return
        if self._field in COUNTS or self._field == "amount":
            self.typed = ""
        else:
            self.sides = _batch_sides.change(self.sides, self.side, self._field, 1)
        self._changed()

    def action_next_pane(self) -> None:
        self.side = "a" if self.side == "b" else "b"
        self._changed()

    def action_hold(self) -> None:
        """Hold the next quantity constant."""
        if self.sides is not None:
            self.sides = _batch_sides.hold_next(self.sides)
            self._changed()

    def action_keep(self) -> None:
        """B's accumulation so that its effective batch is A's."""
        if self.sides is not None:
            self.sides = _batch_sides.keep_batch(self.sides)
            self._changed()

    def action_zoom(self) -> None:
        """The second pane alone, and back."""
        self.zoomed = not self.zoomed
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    # Drawing.

    def draw_again(self) -> None:
        self._draw()

    def _changed(self) -> None:
        """Draw the room and, in an app that has one, the line above it: it compares the two batches."""
        self._draw()
        frame = getattr(self.app, "show_frame", None)
        if callable(frame):
            frame()

    def _counted(self) -> str:
        """What the batch gate of this run said, in one line."""
        row = self.snapshot.state.row("batch")
        if row.verdict in (None, "running", "not_run"):
            return ""
        facts = self.snapshot.state.facts.get("batch")
        counted = facts.get("counted") if isinstance(facts, Mapping) else None
        number = counted.get("effective_batch") if isinstance(counted, Mapping) else None
        said = f", {number:,} rows an update were counted" if isinstance(number, int) else ""
        items = counted.get("items_per_update") if isinstance(counted, Mapping) else None
        tokens = [each for each in items if isinstance(each, int)] if isinstance(items, Sequence) else []
        if tokens:
            mean = sum(tokens) / len(tokens)
            said += (
                f"; its first {plural(len(tokens), 'update')}, in the run's own order, trained on {min(tokens):,} to "
            )
            said += f"{max(tokens):,} tokens, mean {mean:,.0f}"
        word = "FAIL" if row.verdict == "fail" else row.verdict
        return f"This run's batch gate (A as planned): {word}{said}."

    def _draw(self) -> None:
        if not self.is_mounted or self.size.width < 1 or self.size.height < 1:
            return
        target = self.query_one("#batch-page", Lines)
        if self.sides is None:
            target.write(
                [paint.EMPTY, *(((" " + text, "text"),) for text in paint.wrap(NO_PLAN, self.size.width - 2))], 0
            )
            return
        target.write(_batch_page.draw(self._page_of(self.spread())), 0)

    def _page_of(self, spreads: tuple[Spread | None, Spread | None] = (None, None)) -> Page:
        assert self.sides is not None
        return Page(
            width=self.size.width,
            height=self.size.height,
            sides=self.sides,
            field=self._field,
            side=self.side,
            typed=self.typed,
            counted=self._counted(),
            rank="gpu" if self.snapshot.gpus else "rank",
            spreads=spreads,
            predicted=self.predicted,
            alone=self.zoomed,
        )
