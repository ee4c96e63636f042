"""Whole-screen lists that come and go: all actions, variants, help. ``esc`` closes each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input

from tui_pilot.ui import paint
from tui_pilot.ui.entry import Entry
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.paint import Line

Choice = tuple[str, str, str, bool]
"""Id, key or name, sentence, whether it works now."""

KEY_WIDTH = 14
MOST_BELOW = 8


def place(top: int, shown: int, total: int) -> str:
    """``1–20 of 43``: which lines are seen; empty where all are."""
    return f"{top + 1}–{top + shown} of {total}" if total > shown else ""


def head(title: str, where: str, width: int, *keys: str) -> Line:
    """A rule with the place, and the longest of ``keys`` that there is room for."""
    legends = [*("   ".join(part for part in (where, words) if part) for words in keys), where]
    fits = [each for each in legends if len(title) + len(each) + 10 <= width]
    return paint.rule(title, fits[0] if fits else "", width)


class Reading(ModalScreen[None]):
    """Text to read and scroll; ``lines`` makes it for a width, so that nothing is cut."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "close", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("pageup,ctrl+u", "page(-1)", show=False),
        Binding("pagedown,ctrl+d,space", "page(1)", show=False),
        Binding("g,home", "scroll(-100000)", show=False),
        Binding("G,end", "scroll(100000)", show=False),
        Binding("ctrl+c,tab", "nothing", show=False),
    ]

    def __init__(self, title: str, lines: Callable[[int], Sequence[Line]]) -> None:
        super().__init__()
        self._head = title
        self._make = lines

    def compose(self) -> ComposeResult:
        yield Lines(id="reading-head")
        yield Lines(id="reading-body")

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _draw(self, by: int = 0) -> None:
        if not self.is_mounted or self.size.width < 1:
            return
        body = self.query_one("#reading-body", Lines)
        lines = self._make(self.size.width)
        body.write(lines, body.top + by)
        where = place(body.top, body.size.height, len(lines))
        keys = ("↑↓ pgup pgdn g G scroll, esc closes", "↑↓ scroll, esc closes", "esc closes")
        self.query_one("#reading-head", Lines).write([head(self._head, where, self.size.width, *keys)])

    def action_scroll(self, by: int) -> None:
        self._draw(by)

    def action_page(self, by: int) -> None:
        self._draw(by * max(1, self.query_one("#reading-body", Lines).size.height - 1))

    def action_nothing(self) -> None:
        """Keys that must not leak to the screen below."""


class Picking(ModalScreen[str | None]):
    """A list with a filter line; ``enter`` picks. What cannot work now stays in it, dim, and below it says why."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "close", show=False, priority=True),
        Binding("up,ctrl+p", "move(-1)", show=False, priority=True),
        Binding("down,ctrl+n", "move(1)", show=False, priority=True),
        Binding("pageup", "page(-1)", show=False, priority=True),
        Binding("pagedown", "page(1)", show=False, priority=True),
        Binding("enter", "pick", show=False, priority=True),
        Binding("tab,ctrl+c", "nothing", show=False, priority=True),
    ]

    def __init__(
        self,
        title: str,
        choices: Sequence[Choice],
        more: Mapping[str, Sequence[str]] | None = None,
        columns: str = "",
        must_work: bool = True,
    ) -> None:
        """``more``: by id, what is said below the list of the chosen one; ``columns``: the heads of the sentences.

        ``must_work``: ``enter`` on what cannot work picks nothing; else whoever asked says why.
        """
        super().__init__()
        self._columns = columns
        self._head = title
        self._choices = list(choices)
        self._more = more or {}
        self._must_work = must_work
        self._shown = list(choices)
        self._at = 0

    def compose(self) -> ComposeResult:
        yield Lines(id="picking-head")
        yield Entry(placeholder="type to filter", id="picking-entry")
        yield Lines(id="picking-body")
        yield Lines(id="picking-more")

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def on_input_changed(self, event: Input.Changed) -> None:
        words = event.value.lower().split()
        self._shown = [each for each in self._choices if all(word in f"{each[1]} {each[2]}".lower() for word in words)]
        self._at = 0
        self._draw()

    def _below(self, width: int) -> list[Line]:
        """What is said of the chosen one, wrapped; no more than a third of the screen."""
        if not self._shown or not self._more:
            return []
        id, name, _, _ = self._shown[self._at]
        said = [f" {each}" for text in self._more.get(id, ()) for each in paint.wrap(text, width - 2)]
        most = max(0, min(MOST_BELOW, self.size.height // 3))
        lines: list[Line] = [paint.rule(name, "", width), *(((each, "text"),) for each in said)]
        return lines[:most] if said else []

    def _draw(self) -> None:
        width, height = self.size.width, self.size.height
        if not self.is_mounted or width < 1:
            return
        below = self._below(width)
        more = self.query_one("#picking-more", Lines)
        more.styles.height = len(below)
        more.write(below, 0)
        lines: list[Line] = [((self._columns, "dim"),)] if self._columns else []
        key_width = KEY_WIDTH if width >= 60 else 8
        for n, (_, key, sentence, works) in enumerate(self._shown):
            cells: Line = (
                (">" if n == self._at else " ", "head"),
                (f" {paint.left(key, key_width)} ", "head" if works else "dim"),
                (sentence, "text" if works else "dim"),
            )
            lines.append(paint.chosen(paint.fit(cells, width)) if n == self._at else cells)
        body = self.query_one("#picking-body", Lines)
        room = max(1, height - 2 - len(below))
        at = self._at + bool(self._columns)
        top = max(0, min(max(min(body.top, at), at - room + 1), len(lines) - room))
        body.write(lines or [((" nothing has these words", "dim"),)], top)
        keys = ("↑↓ choose, enter picks, esc closes", "enter picks, esc closes", "esc closes")
        where = place(top, room, len(lines))
        self.query_one("#picking-head", Lines).write([head(self._head, where, width, *keys)])

    def action_move(self, by: int) -> None:
        self._at = max(0, min(len(self._shown) - 1, self._at + by))
        self._draw()

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.query_one("#picking-body", Lines).size.height - 1))

    def action_pick(self) -> None:
        if self._shown and self._must_work and not self._shown[self._at][3]:
            return
        self.dismiss(self._shown[self._at][0] if self._shown else None)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_nothing(self) -> None:
        """Keys that must not leak to the screen below."""
