"""A line of text that takes a paste of anything: control bytes, newlines and escape sequences become plain text."""

from __future__ import annotations

from textual import events
from textual.widgets import Input

from tui_pilot.ui import paint

MOST = 2000
"""Characters a line of text holds: a note is a sentence, and a pasted file is none."""


class Entry(Input):
    """Textual's line of text with a still cursor, a limit and a paste that is cleaned."""

    def __init__(self, *, placeholder: str = "", id: str | None = None) -> None:
        super().__init__(placeholder=placeholder, id=id, max_length=MOST)
        self.cursor_blink = False

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()  # Textual's own would add the first line again
        room = MOST - len(self.value) + len(self.selected_text)
        text = one_line(event.text[: 4 * MOST])[: max(0, room)]
        if text:
            self.replace(text, *self.selection)


def one_line(text: str) -> str:
    """Foreign text as one line: runs of blanks and newlines are one blank, what is no character is shown as such."""
    return paint.clean(" ".join(text.split()))
