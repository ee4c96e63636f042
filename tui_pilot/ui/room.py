"""The interface between the screen and its rooms.

A room is one whole view between line 2 and the keys. It is shown a ``Snapshot``, answers the keys that move and open,
and says which keys work now. Everything that changes the run (``r s t p w f n e``) is the app's.
"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message

from tui_pilot.ui.paint import Line
from tui_pilot.ui.snapshot import Snapshot

Hint = tuple[str, str]


class Room(Vertical, can_focus=True):
    """Base of every room. A subclass composes ``Lines`` and fills them in ``show``.

    ``room`` is the id (``examples``), ``title`` the word on line 1, ``help_text`` what ``?`` shows, in plain lines.
    """

    room: ClassVar[str] = ""
    title: ClassVar[str] = ""
    help_text: ClassVar[str] = ""
    enter_word: ClassVar[str] = "open or unfold"
    tab_word: ClassVar[str] = "next pane"
    alone_when_compact: ClassVar[bool] = True
    """Whether a small terminal shows one pane at a time anyway, so that ``z`` has nothing to do there."""

    DEFAULT_CSS = """
    Room { width: 1fr; height: 1fr; overflow: hidden hidden; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(0,-1)", "up", show=False),
        Binding("down,j", "move(0,1)", "down", show=False),
        Binding("left,h", "move(-1,0)", "left", show=False),
        Binding("right,l", "move(1,0)", "right", show=False),
        Binding("g,home", "jump(-1)", "first", show=False),
        Binding("G,end", "jump(1)", "last", show=False),
        Binding("pageup,ctrl+u", "page(-1)", "page up", show=False),
        Binding("pagedown,ctrl+d", "page(1)", "page down", show=False),
        Binding("enter", "enter", "open or unfold", show=False),
        Binding("tab", "tab", "next pane", show=False),
        Binding("z", "pane_alone", "this pane alone, and back", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id=f"room-{self.room}", name=self.room)
        self.snapshot = Snapshot()

    async def _dispatch_message(self, message: Message) -> None:
        """A fault in one room ends neither the room nor the screen: it is said, and the other rooms go on."""
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            failed = getattr(self.app, "failed", None)
            if failed is None:
                raise
            failed(error)

    # What the app calls. Everything happens on the screen's own thread; nothing here may read a large file.

    def show(self, snapshot: Snapshot) -> None:
        """Show this. Called when something changed and once a second while the room is open."""
        self.snapshot = snapshot

    def fit_to(self, width: int, height: int) -> None:
        """The terminal's size changed (cells): set the classes, then show again.

        ``-compact`` below 100 columns or 30 rows: one pane at a time, ``tab`` goes on. ``-wide`` from 160 columns.
        ``-tiny`` below 80 x 24: the selected row alone.
        """
        self.set_class(width < 100 or height < 30, "-compact")
        self.set_class(width >= 160 and height >= 30, "-wide")
        self.set_class(width < 80 or height < 24, "-tiny")

    def headline(self, snapshot: Snapshot) -> Line | None:
        """Line 2 of this room; None leaves the run's own line."""
        return None

    def hints(self) -> list[Hint]:
        """Keys of this room that work now, as ``(key, word)``; the app adds its own."""
        return []

    def selected_phase(self) -> str | None:
        """The phase that a mark or a note goes to; None where the room has no phases."""
        return None

    def search(self, words: str) -> None:
        """Filter by these words; empty shows everything again."""

    def can_search(self) -> bool:
        return False

    def open_pane(self) -> str:
        """The pane that the keys go to, by name; empty where the room is one pane."""
        return str(getattr(self, "pane", None) or "")

    def why_no_zoom(self) -> str | None:
        """Why ``z`` changes nothing now; None if it does."""
        if type(self).action_zoom is Room.action_zoom:
            return "this room is one pane, and it has the whole screen"
        if self.compact and self.alone_when_compact:
            return "on a terminal this small each pane stands alone already; tab goes to the next"
        return None

    def why_no_tab(self) -> str | None:
        """Why ``tab`` changes nothing; None if it does."""
        return "this room is one pane" if type(self).action_next_pane is Room.action_next_pane else None

    @property
    def sheet_format(self) -> str:
        """The format in which ``e`` writes the sheet from this room."""
        return "md"

    def copied(self) -> str:
        """What ``y`` copies: the selected thing as plain text."""
        return ""

    def back(self) -> bool:
        """Close what is on top (an unfolded row, a zoom, a filter); False if nothing was open."""
        return False

    def keys_changed(self) -> None:
        """Other keys work now than before: the last line is written again at once, not with the next second."""
        write = getattr(self.app, "show_frame", None)
        if write is not None:
            write()

    def _say(self, text: str) -> None:
        """A toast, in an app that has them."""
        say = getattr(self.app, "say", None)
        if say is not None:
            say(text)

    def action_pane_alone(self) -> None:
        """``z``: the pane alone, or why not."""
        why = self.why_no_zoom()
        if why is not None:
            self._say(f"z: {why}")
            return
        self.action_zoom()
        self.keys_changed()

    def action_tab(self) -> None:
        """``tab``: the next pane, or why not."""
        why = self.why_no_tab()
        if why is not None:
            self._say(f"tab: {why}")
            return
        self.action_next_pane()
        self.keys_changed()

    # Keys of the room; a subclass overrides what it has.

    def action_move(self, across: int, down: int) -> None:
        """Arrow keys and hjkl."""

    def action_jump(self, end: int) -> None:
        """``g`` (-1) and ``G`` (1)."""

    def action_page(self, down: int) -> None:
        """A page up (-1) or down (1)."""

    def action_enter(self) -> None:
        """Open or unfold."""

    def action_next_pane(self) -> None:
        """The next pane."""

    def action_zoom(self) -> None:
        """This pane alone, and back."""

    @property
    def compact(self) -> bool:
        return self.has_class("-compact")

    @property
    def wide(self) -> bool:
        return self.has_class("-wide")

    @property
    def tiny(self) -> bool:
        return self.has_class("-tiny")
