"""The line above the keys: what was said, one question, or one line of text. Never line 2."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import Input

from tui_pilot.ui import paint
from tui_pilot.ui.lines import Lines

SHOWN_S = 12.0
MOST_LINES = 4


class Prompt(Horizontal):
    """Toasts go by themselves or with ``esc``; a question waits for ``y`` or ``esc``, never ``enter``."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._yes: Callable[[], object] | None = None
        self._save: Callable[[str], object] | None = None
        self._timer: Timer | None = None
        self._waiting: tuple[str, str] | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="prompt-text")
        entry = Input(id="prompt-entry")
        entry.cursor_blink = False
        entry.display = False
        yield entry

    @property
    def asking(self) -> bool:
        """Whether a question or a text line is open."""
        return self._yes is not None or self._save is not None

    @property
    def typing(self) -> bool:
        return self._save is not None

    def say(self, text: str, role: str = "text") -> None:
        """A toast; while a question is open it waits until that is answered."""
        if self.asking:
            self._waiting = (text, role)
            return
        self._paint(text, role)
        self._timer = self.set_timer(SHOWN_S, self._fade)

    def ask(self, question: str, yes: Callable[[], object]) -> None:
        """One line, answered with ``y`` or ``esc``."""
        self._yes = yes
        self._paint(question, "warn")

    def type(self, label: str, value: str, save: Callable[[str], object]) -> None:
        """One line of text; ``enter`` saves, ``esc`` leaves."""
        self._save = save
        self._paint(f" {label} (enter saves, esc leaves): ", "head", one_line=True)
        text = self.query_one("#prompt-text", Lines)
        text.styles.width = min(self.app.size.width // 2, len(label) + 33)
        entry = self.query_one(Input)
        entry.display = True
        entry.value = value
        entry.cursor_position = len(value)
        entry.focus()

    def answer(self) -> None:
        """``y`` to the open question."""
        yes, self._yes = self._yes, None
        self._hide()
        if yes is not None:
            yes()
        self._say_waiting()

    def submit(self, value: str) -> None:
        """``enter`` on the text line."""
        save, self._save = self._save, None
        self._hide()
        if save is not None:
            save(value)
        self._say_waiting()

    def close(self) -> bool:
        """``esc``: whether anything was open or shown."""
        shown = self.display
        self._yes = self._save = None
        self._hide()
        self._say_waiting()
        return bool(shown)

    def _say_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not self.asking:
            self.say(*waiting)

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
        width = max(10, self.app.size.width - 2)
        wrapped = [text] if one_line else paint.wrap(text, width)[:MOST_LINES]
        lines = [((each if one_line else f" {each}", f"{role}"),) for each in wrapped]
        self.styles.height = len(lines)
        self.display = True
        target = self.query_one("#prompt-text", Lines)
        target.write(lines, 0)
        target.repaint()
