"""Whole-screen lists that come and go: all actions, variants, help. ``esc`` closes each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input

from tui_pilot.ui import paint
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.paint import Line

Choice = tuple[str, str, str, bool]
"""Id, key or name, sentence, whether it works now."""


class Reading(ModalScreen[None]):
    """Text to read and scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "close", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("pageup,ctrl+u", "scroll(-10)", show=False),
        Binding("pagedown,ctrl+d,space", "scroll(10)", show=False),
        Binding("g,home", "scroll(-100000)", show=False),
        Binding("G,end", "scroll(100000)", show=False),
        Binding("ctrl+c,tab", "nothing", show=False),
    ]

    def __init__(self, title: str, lines: Sequence[Line]) -> None:
        super().__init__()
        self._head = title
        self._lines = list(lines)

    def compose(self) -> ComposeResult:
        yield Lines(id="reading-head")
        yield Lines(id="reading-body")

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        body = self.query_one("#reading-body", Lines)
        head = self.query_one("#reading-head", Lines)
        head.write([paint.rule(self._head, "↑↓ scroll, esc closes", self.size.width)])
        body.write(self._lines)

    def action_scroll(self, by: int) -> None:
        body = self.query_one("#reading-body", Lines)
        body.write(self._lines, body.top + by)

    def action_nothing(self) -> None:
        """Keys that must not leak to the screen below."""


class Picking(ModalScreen[str | None]):
    """A list with a filter line; ``enter`` picks. What cannot work now stays in it, dim, with the reason."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "close", show=False, priority=True),
        Binding("up,ctrl+p", "move(-1)", show=False, priority=True),
        Binding("down,ctrl+n", "move(1)", show=False, priority=True),
        Binding("enter", "pick", show=False, priority=True),
        Binding("tab,ctrl+c", "nothing", show=False, priority=True),
    ]

    def __init__(
        self, title: str, choices: Sequence[Choice], more: Mapping[str, Sequence[str]] | None = None, columns: str = ""
    ) -> None:
        """``more``: by id, what is said below the list of the chosen one; ``columns``: the heads of the sentences."""
        super().__init__()
        self._columns = columns
        self._head = title
        self._choices = list(choices)
        self._more = more or {}
        self._shown = list(choices)
        self._at = 0

    def compose(self) -> ComposeResult:
        yield Lines(id="picking-head")
        entry = Input(placeholder="type to filter", id="picking-entry")
        entry.cursor_blink = False
        yield entry
        yield Lines(id="picking-body")

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def on_input_changed(self, event: Input.Changed) -> None:
        words = event.value.lower().split()
        self._shown = [each for each in self._choices if all(word in f"{each[1]} {each[2]}".lower() for word in words)]
        self._at = 0
        self._draw()

    def _draw(self) -> None:
        width = self.size.width
        self.query_one("#picking-head", Lines).write(
            [paint.rule(self._head, "↑↓ choose, enter picks, esc closes", width)]
        )
        lines: list[Line] = [((self._columns, "dim"),)] if self._columns else []
        for n, (_, key, sentence, works) in enumerate(self._shown):
            role = "text" if works else "dim"
            cells: Line = (
                (">" if n == self._at else " ", "head"),
                (f" {paint.left(key, 14)} ", "head"),
                (sentence, role),
            )
            lines.append(paint.chosen(paint.fit(cells, width)) if n == self._at else cells)
        if self._shown and self._more:
            lines.append(paint.rule(self._shown[self._at][1], "", width))
            for text in self._more.get(self._shown[self._at][0], ()):
                lines += [((f" {each}", "text"),) for each in paint.wrap(text, width - 2)]
        body = self.query_one("#picking-body", Lines)
        body.write(lines or [(("nothing has these words", "dim"),)])
        body.keep_in_view(self._at + bool(self._columns))

    def action_move(self, by: int) -> None:
        self._at = max(0, min(len(self._shown) - 1, self._at + by))
        self._draw()

    def action_pick(self) -> None:
        """What cannot work is not picked: the list stays, with the reason beside it."""
        if self._shown and not self._shown[self._at][3] and self._more:
            return
        self.dismiss(self._shown[self._at][0] if self._shown else None)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_nothing(self) -> None:
        """Keys that must not leak to the screen below."""
