"""The Sheet room: exactly what ``e`` writes, and beside it what decides about a rental.

Gathering a sheet reads the whole event log, so it is done in a worker, again only when something was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.worker import get_current_worker

from tui_pilot.errors import PilotError
from tui_pilot.run_folder import RunFolder
from tui_pilot.sheet import build, write
from tui_pilot.text import plural
from tui_pilot.ui import paint
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.paint import Line
from tui_pilot.ui.room import Hint, Room
from tui_pilot.ui.rooms import _sheet_page
from tui_pilot.ui.rooms._panes import joined
from tui_pilot.ui.snapshot import Snapshot

LIVE_EVERY_S = 5.0
PANES = ("preview", "side")
PAGE = 82  # the sheet's 80 columns and the joint: the preview is never cut
LEAST_SIDE = 30
TWO_SIDES = 90
"""Cells of the side from which it stands in two columns."""
LEAST_HEIGHT = 12
Key = tuple[RunFolder, int, str | None, str]


@dataclass(frozen=True)
class Sheet:
    """A document and the lines of each format."""

    document: Mapping[str, Any]
    lines: Mapping[str, tuple[str, ...]]


class Gathered(Message):
    """The sheet of a run, or why there is none."""

    def __init__(self, key: Key, sheet: Sheet | None, problem: str) -> None:
        super().__init__()
        self.key = key
        self.sheet = sheet
        self.problem = problem


class SheetRoom(Room):
    room: ClassVar[str] = "sheet"
    title: ClassVar[str] = "Sheet"
    help_text: ClassVar[str] = (
        "The selection sheet: what was piloted, what it needs, and what may be retained for a rental.\n"
        "May be retained: the software stack was checked, every phase was run, and no fail is left unanswered. A fail\n"
        "that you mark pass or warn, with a note, is an override: it forbids nothing and is printed.\n"
        "Retained: somebody decided so. d retains, rejects or defers it, with a reason, as pilot-tui decide does.\n"
        "Open questions decide nothing; they are what the reader must still know.\n"
        "The preview is the file, line by line. e writes it under a new name, never over a file. ←→ goes to the next\n"
        "format; e writes what is shown. HTML, with plots: pilot-tui sheet RUN --format html -o FILE.\n"
        "tab goes to the side and back, / finds words, z shows one pane alone."
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "decide", "decide: retain, reject or defer, with a reason", show=False)
    ]

    class Decide(Message):
        """A decision about the shown run is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.form = "md"
        self.sheet: Sheet | None = None
        self.problem = ""
        self.pane = "preview"
        self.zoomed = False
        self.words = ""
        self.tops = {"preview": 0, "side": 0}
        self._key: Key | None = None
        self._asked_at = -1e9

    def compose(self) -> ComposeResult:
        yield Lines(id="sheet-page")

    # What the app calls.

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        key = _key_of(snapshot)
        if key is None or (self._key is not None and key[0] != self._key[0]):
            self.sheet, self.problem, self.words = None, "", ""
            self.tops = {"preview": 0, "side": 0}
        waited = snapshot.now_mono - self._asked_at >= LIVE_EVERY_S
        if (
            key is not None
            and key != self._key
            and self.is_attached
            and (self.sheet is None or not snapshot.live or waited)
        ):
            self._key, self._asked_at = key, snapshot.now_mono
            self._gather(key)
        elif key is None:
            self._key = None
        self._draw()

    def headline(self, snapshot: Snapshot) -> Line | None:
        if self.sheet is None:
            return None
        document = self.sheet.document
        head = _sheet_page.headline(document)
        questions = len(document["open"])
        name = write.free_name(document, Path.cwd(), self.form)
        asked: Line = ((f"   ! {plural(questions, 'open question')}", "warn"),) if questions else ()
        return paint.first_fitting(
            self.app.size.width,
            (*head, *asked, (f"   preview of {name}, as e writes it", "text")),
            (*head, *asked, (f"   e writes {name}", "text")),
            (*head, *asked),
            head,
        )

    def hints(self) -> list[Hint]:
        if self.sheet is None:
            return []
        decided = any(item.get("decision") for item in self.sheet.document["configurations"])
        return [
            ("d", "decide again" if decided else "decide"),
            ("←→", "format"),
            ("↑↓", "read"),
            ("tab", "side" if self.pane == "preview" else "preview"),
            ("z", "zoom"),
        ]

    @property
    def sheet_format(self) -> str:
        return self.form

    def can_search(self) -> bool:
        return self.sheet is not None

    def search(self, words: str) -> None:
        self.words = words.strip()
        if self.words:
            self.pane = "preview"
            self._find(self.tops["preview"])
        self._draw()

    def copied(self) -> str:
        if self.sheet is None:
            return ""
        if self.pane == "side":
            return "\n".join(paint.plain(each).rstrip() for each in self._side(100))
        return "\n".join(self.sheet.lines[self.form])

    def back(self) -> bool:
        if self.zoomed:
            self.zoomed = False
        elif self.words:
            self.words = ""
        elif self.pane != "preview":
            self.pane = "preview"
        else:
            return False
        self._draw()
        return True

    # Keys.

    def action_move(self, across: int, down: int) -> None:
        if across:
            formats = write.SHOWN
            self.form = formats[(formats.index(self.form) + across) % len(formats)]
            self.tops["preview"] = 0
            frame = getattr(self.app, "show_frame", None)
            if callable(frame):  # the line above names the file that e writes
                frame()
        self._scroll(self.tops[self.pane] + down)

    def action_page(self, down: int) -> None:
        self._scroll(self.tops[self.pane] + down * max(1, self._room() - 1))

    def action_jump(self, end: int) -> None:
        self._scroll(0 if end < 0 else 1 << 30)

    def action_next_pane(self) -> None:
        self.pane = PANES[1 - PANES.index(self.pane)]
        self._draw()

    def action_zoom(self) -> None:
        self.zoomed = not self.zoomed
        self._draw()

    def action_enter(self) -> None:
        """The next line with the words that are looked for."""
        if self.words and self.pane == "preview":
            self._find(self.tops["preview"] + 1)
        self._draw()

    def action_decide(self) -> None:
        self.post_message(self.Decide())

    def on_resize(self) -> None:
        self._draw()

    # The sheet.

    @work(thread=True, exclusive=True, group="sheet-gather", exit_on_error=False)
    def _gather(self, key: Key) -> None:
        worker = get_current_worker()
        sheet, problem = None, ""
        try:
            document = build.document([key[0]])
            lines = {each: tuple(write.text(document, each).splitlines()) for each in write.SHOWN}
            sheet = Sheet(document, lines)
        except PilotError as error:
            problem = str(error)
        if not worker.is_cancelled:
            self.post_message(Gathered(key, sheet, problem))

    def on_gathered(self, message: Gathered) -> None:
        if self._key is None or message.key[0] != self._key[0]:
            return
        self.sheet, self.problem = message.sheet or self.sheet, message.problem
        self._draw()

    # Drawing.

    @property
    def _one_pane(self) -> bool:
        return self.compact or self.zoomed or self.size.width < PAGE + LEAST_SIDE

    @property
    def _asks(self) -> bool:
        """Whether the last line is an open question: those that read the preview see no other."""
        found = self.sheet is not None and bool(self.sheet.document.get("open"))
        return found and self.size.height >= LEAST_HEIGHT and not (self._one_pane and self.pane == "side")

    def _room(self) -> int:
        """Lines of a pane below its rule."""
        return max(1, self.size.height - 1 - self._asks)

    def _side_width(self) -> int:
        """The preview never needs more than its page: all else is the side's."""
        return self.size.width - PAGE - 1

    def _side(self, width: int) -> list[Line]:
        if self.sheet is None:
            return []
        if width < TWO_SIDES:
            return _sheet_page.side(self.sheet.document, width)
        left = width // 2
        gpus = _sheet_page.fitting(self.sheet.document, left, self._room())
        return paint.beside(gpus, _sheet_page.deciding(self.sheet.document, width - left - 1), left, "│")

    def _content(self, pane: str) -> list[Line]:
        if self.sheet is None:
            return []
        if pane == "side":
            return self._side(self.size.width if self._one_pane else self._side_width())
        return _sheet_page.preview(self.sheet.lines[self.form], self.words)

    def _find(self, start: int) -> None:
        if self.sheet is None:
            return
        lines = self.sheet.lines[self.form]
        wanted = self.words.casefold()
        places = [n for n, text in enumerate(lines) if wanted in text.casefold()]
        after = [n for n in places if n >= start]
        if places:
            self._scroll((after or places)[0])

    def _scroll(self, top: int) -> None:
        self.tops[self.pane] = top
        self._draw()

    def _pane(self, pane: str, width: int, title: str) -> list[Line]:
        content = self._content(pane)
        last = max(0, len(content) - self._room())
        top = self.tops[pane] = max(0, min(self.tops[pane], last))
        shown = content[top : top + self._room()]
        place = f"{top + 1}–{top + len(shown)} of {len(content)}" if len(content) > self._room() else ""
        role = "running" if pane == self.pane and not self._one_pane else "head"
        tab = ("tab: what decides" if pane == "preview" else "tab: preview") if self._one_pane else ""
        return [paint.rule(title, "   ".join(part for part in (tab, place) if part), width, role), *shown]

    def _draw(self) -> None:
        width, height = self.size.width, self.size.height
        if not self.is_mounted or width < 1 or height < 1:
            return
        target = self.query_one("#sheet-page", Lines)
        if self.sheet is None:
            target.write(
                [paint.EMPTY, *(((" " + text, "text"),) for text in paint.wrap(self._why_empty(), width - 2))], 0
            )
            return
        word = {"md": "markdown", "json": "JSON", "yaml": "YAML", "csv": "CSV"}[self.form]
        asked = [_sheet_page.open_line(self.sheet.document, width)] if self._asks else []
        height -= len(asked)
        if self._one_pane:
            title = f"preview, {word}" if self.pane == "preview" else "what decides"
            target.write([*self._pane(self.pane, width, title)[:height], *asked], 0)
            return
        side = self._side_width()
        left = width - side - 1
        page = self._pane("preview", left, f"preview, {word}")
        decides = self._pane("side", side, "what decides")
        page += [paint.EMPTY] * (height - len(page))
        decides += [paint.EMPTY] * (height - len(decides))
        target.write([*joined(page[:height], decides[:height], left), *asked], 0)

    def _why_empty(self) -> str:
        if self.problem:
            return self.problem
        if self.snapshot.folder is None:
            return "Nothing has run here yet, so there is nothing to choose from. r runs the plan."
        return "The sheet is being gathered ..."


def _key_of(snapshot: Snapshot) -> Key | None:
    """Changes whenever the sheet may have: events, marks, notes, the state."""
    if snapshot.folder is None:
        return None
    state = snapshot.state
    how = "lost" if snapshot.lost else state.state
    return snapshot.folder, state.feed_count, state.last_event, how
