"""The line above the keys: what was said, one question, or one line of text. Never line 2."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import Input

from tui_pilot.ui import paint
from tui_pilot.ui.entry import Entry
from tui_pilot.ui.lines import Lines

SHOWN_S = 12.0
ANSWER_AFTER_S = 0.15
"""So long a question stands before ``y`` answers it: nobody reads one faster, a pasted "sy" does."""
MOST_LINES = 6
NARROW = 60


class Prompt(Horizontal):
    """Toasts go by themselves, with the next key or with another room; an error stays until a key.

    A question waits for ``y`` or ``esc``, never ``enter``.
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._yes: Callable[[], object] | None = None
        self._save: Callable[[str], object] | None = None
        self._timer: Timer | None = None
        self._waiting: tuple[str, str] | None = None
        self._shown: tuple[str, str] = ("", "text")
        self._asked_at = 0.0

    def compose(self) -> ComposeResult:
        yield Lines(id="prompt-text")
        entry = Entry(id="prompt-entry")
        entry.display = False
        yield entry

    @property
    def asking(self) -> bool:
        """Whether a question or a text line is open."""
        return self._yes is not None or self._save is not None

    @property
    def typing(self) -> bool:
        return self._save is not None

    @property
    def said(self) -> str:
        """The toast that is shown; empty if there is none."""
        return self._shown[0] if self.display and not self.asking else ""

    def say(self, text: str, role: str = "text") -> None:
        """A toast; while a question or a list is open it waits until that is closed, an error before all else."""
        if self.asking or len(self.app.screen_stack) > 1:
            if self._waiting is None or role == "fail" or self._waiting[1] != "fail":
                self._waiting = (text, role)
            return
        self._paint(text, role)
        if role != "fail":
            self._timer = self.set_timer(SHOWN_S, self._fade)

    def ask(self, question: str, yes: Callable[[], object]) -> None:
        """One line, answered with ``y`` or ``esc``."""
        self._yes = yes
        self._asked_at = time.monotonic()
        self._paint(question, "warn")
        self._keys_changed()

    def type(self, label: str, value: str, save: Callable[[str], object]) -> None:
        """One line of text; ``enter`` saves, ``esc`` leaves."""
        self._save = save
        keys = " (enter saves, esc leaves)" if self.app.size.width >= NARROW else ""
        said = f" {label}{keys}: "
        self._paint(said, "head", one_line=True)
        text = self.query_one("#prompt-text", Lines)
        text.styles.width = min(self.app.size.width // 2, len(said) + 3)
        entry = self.query_one(Input)
        entry.display = True
        entry.value = value
        entry.cursor_position = len(value)
        entry.focus()
        self._keys_changed()

    def answer(self) -> None:
        """``y`` to the open question, once it stood long enough to be read."""
        if time.monotonic() - self._asked_at < ANSWER_AFTER_S:
            return
        yes, self._yes = self._yes, None
        self._hide()
        if yes is not None:
            yes()
        self._keys_changed()
        self.say_waiting()

    def submit(self, value: str) -> None:
        """``enter`` on the text line."""
        save, self._save = self._save, None
        self._hide()
        if save is not None:
            save(value)
        self._keys_changed()
        self.say_waiting()

    def close(self) -> bool:
        """``esc``: whether anything was open or shown."""
        shown = self.display
        self._yes = self._save = None
        self._hide()
        self._keys_changed()
        self.say_waiting()
        return bool(shown)

    def dismiss(self) -> None:
        """Something else was done: the toast goes, a question does not."""
        if self.display and not self.asking:
            self._hide()

    def say_waiting(self) -> None:
        """What was to be said while something else was open."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self.say(*waiting)

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """The keys that work while a question or a line is open."""
        if self.typing:
            return (("enter", "save"), ("esc", "leave it"))
        return (("y", "yes"), ("esc", "no"), ("q", "leave")) if self.asking else ()

    def _keys_changed(self) -> None:
        """The last line names the keys that work now."""
        write = getattr(self.app, "show_frame", None)
        if write is not None:
            write()

    def fit(self) -> None:
        """The terminal's size changed: wrap again."""
        if self.display and not self.typing:
            timer, self._timer = self._timer, None
            self._paint(*self._shown)
            self._timer = timer

    def _fade(self) -> None:
        if not self.asking:
            self._hide()

    def _hide(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.display = False
        entry = self.query_one(Input)
        entry.display = False
        self.query_one("#prompt-text", Lines).styles.width = "1fr"

    def _paint(self, text: str, role: str, one_line: bool = False) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self._shown = (text, role)
        size = self.app.size
        most = max(1, min(MOST_LINES, size.height - 3))
        wrapped = [text] if one_line else paint.wrap(text, max(10, size.width - 2))
        if len(wrapped) > most:
            wrapped = [*wrapped[: most - 1], f"{wrapped[most - 1]} …"]
        lines = [((each if one_line else f" {each}", f"{role}"),) for each in wrapped]
        self.styles.height = len(lines)
        self.display = True
        target = self.query_one("#prompt-text", Lines)
        target.write(lines, 0)
        target.repaint()
