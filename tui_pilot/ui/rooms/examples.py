"""The Examples room: what the loss sees, row by row, and which rows a reason names.

The audit stays on disk: rows are read by offset as they come into view, and the one pass that counts reasons and
lengths runs in a worker.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.worker import get_current_worker

from tui_pilot.plan.model import Plan
from tui_pilot.run_folder import RunFolder, short_id
from tui_pilot.text import duration
from tui_pilot.ui import paint
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import checklist
from tui_pilot.ui.room import Hint, Room
from tui_pilot.ui.rooms import _examples_page as page_of
from tui_pilot.ui.rooms import _tokens
from tui_pilot.ui.rooms._audit import Survey
from tui_pilot.ui.rooms._examples_page import PANES, Found, Page
from tui_pilot.ui.rooms._row_list import EVERY, Key, RowList
from tui_pilot.ui.snapshot import Snapshot
from tui_pilot.ui.theme import look_of


class Surveyed(Message):
    """One pass over the audit is done."""

    def __init__(self, listed: RowList, survey: Survey) -> None:
        super().__init__()
        self.listed = listed
        self.survey = survey


class Matched(Message):
    """The rows of a reason or a filter are found."""

    def __init__(self, listed: RowList, key: Key, rows: array[int]) -> None:
        super().__init__()
        self.listed = listed
        self.key = key
        self.rows = rows


class ExamplesRoom(Room):
    room: ClassVar[str] = "examples"
    title: ClassVar[str] = "Examples"
    help_text: ClassVar[str] = (
        "What the loss sees, token by token, exactly as the training loop gets it.\n"
        "┃ trained on: the token carries a label. · masked: it is read, and nothing is learned from it.\n"
        "× lost to the cut: the row is longer than max_length. ␣ ↵ → are a blank, a newline and a tab.\n"
        "i goes through text, tokens and ids. [ and ] (or J and K) go to the next row of the same reason.\n"
        "/ filters rows by id, unit, split or reason. enter opens the rows of a reason, then unfolds a row.\n"
        "tab goes on to the next pane, z shows it alone. Below the tokens: the source, and what is trained on."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("i", "view", "text, tokens, ids", show=False),
        Binding("left_square_bracket,K", "step(-1)", "row before", show=False),
        Binding("right_square_bracket,J", "step(1)", "next row", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.list: RowList | None = None
        self.survey: Survey | None = None
        self.pane = "reasons"
        self.zoomed = False
        self.view = "text"
        self.unfolded = False
        self.token_top = 0
        self._surveyed = (0, 0)
        self._token_lines: tuple[tuple[Any, ...], list[Line]] | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="examples-page")

    # What the app calls.

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        folder = snapshot.folder
        if folder is None:
            self._forget(None)
        elif self.list is None or self.list.audit.folder != folder.examples:
            self._forget(folder)
        if self.list is not None and self.list.look():
            self._token_lines = None
            self._find()
        # One pass over everything: not while the audit still grows, or it would start again every second.
        ready = self.is_attached and not snapshot.state.row("examples").running
        if self.list is not None and ready and self._surveyed != self.list.stamp:
            self._surveyed = self.list.stamp
            self._survey(self.list)
        self._draw()

    def headline(self, snapshot: Snapshot) -> Line | None:
        row = snapshot.state.row("examples")
        if snapshot.folder is None or row.verdict in (None, "not_run"):
            return None
        sign, role = paint.glyph(row.verdict)
        word = "FAIL" if row.verdict == "fail" else str(row.verdict)
        said = str(row.reasons[0].get("text") or "") if row.reasons else "nothing was found against any row"
        rows = (snapshot.state.facts.get("examples") or {}).get("rows")
        audited = self.list.audited if self.list is not None else 0
        where = f"{audited:,} of {rows:,} rows audited" if rows and audited < rows else f"{audited:,} rows audited"
        at_end = ", ".join(part for part in (where if audited else "", duration(row.duration_s, "")) if part)
        width = self.app.size.width
        name: Line = ((f" {paint.left(short_id(snapshot.folder.id), 18)}  ", "text"),)
        state: Line = (
            (f"{sign} ", role),
            (f"examples: {word}", f"{role}+bold" if word == "FAIL" else role),
            ("   ", "text"),
        )
        short = checklist.short_reason(row)
        head = paint.first_fitting(
            width - len(at_end) - 2,
            (*name, *state, (said, "text")),
            (*name, *state, (short, "text")),
            ((" ", "text"), *state, (short, "text")),
        )
        room = width - paint.width_of(head)
        return (*head, (f"{at_end:>{room}}", "dim")) if len(at_end) + 2 <= room else head

    def hints(self) -> list[Hint]:
        if not self.list:
            return []
        last = ("enter", "fold" if self.unfolded else "unfold") if self.pane == "tokens" else ("enter", "open")
        return [last, ("[ ]", "next row"), ("i", "ids"), ("tab", "pane"), ("/", "filter rows"), ("z", "zoom")]

    def can_search(self) -> bool:
        return self.list is not None and self.list.audited > 0

    def search(self, words: str) -> None:
        if self.list is not None:
            self._choose((self.list.key[0], words.strip()))
            self.pane = "rows" if words.strip() else self.pane
            self._draw()

    def copied(self) -> str:
        record = self.list.read(self.list.at) if self.list is not None else None
        if record is None or self.list is None:
            return ""
        tokens = self.list.tokens()
        named = ", ".join(str(code) for code in record.get("reasons") or ()) or "no reason"
        lines = [paint.clean(f"row {record.get('row')} {record.get('split')}: {named}")]
        if tokens is not None:
            shown = [*_tokens.lines(tokens, 120, self.view, True), *_tokens.comparison(tokens, 120)]
            lines += [paint.plain(each).rstrip() for each in shown]
        return "\n".join(lines)

    def back(self) -> bool:
        if self.unfolded:
            self.unfolded, self.token_top = False, 0
        elif self.zoomed:
            self.zoomed = False
        elif self.list is not None and self.list.key[1]:
            self.search("")
        elif self.pane != "reasons":
            self.pane = PANES[PANES.index(self.pane) - 1]
        else:
            return False
        self._draw()
        return True

    # Keys.

    def action_move(self, across: int, down: int) -> None:
        self._go(down, 1)

    def action_page(self, down: int) -> None:
        self._go(down, max(1, self._rows_room() - 1))

    def action_jump(self, end: int) -> None:
        self._go(end, 1 << 40)

    def action_next_pane(self) -> None:
        self.pane = PANES[(PANES.index(self.pane) + 1) % len(PANES)]
        self._draw()

    def action_zoom(self) -> None:
        self.zoomed = not self.zoomed
        self._draw()

    def action_enter(self) -> None:
        if self.pane == "tokens":
            self.unfolded = not self.unfolded
        else:
            self.pane = PANES[PANES.index(self.pane) + 1]
        self._draw()

    def action_view(self) -> None:
        """Text, tokens, ids and round again."""
        self.view = _tokens.VIEWS[(_tokens.VIEWS.index(self.view) + 1) % len(_tokens.VIEWS)]
        self._draw()

    def action_step(self, down: int) -> None:
        """The next row of the same reason, from whatever pane."""
        if self.list is not None:
            self._select(self.list.at + down)
            self._draw()

    def _go(self, way: int, by: int) -> None:
        if not way or self.list is None:
            return
        if self.pane == "reasons":
            found = self._found()
            code, words = self.list.key
            here = next((n for n, each in enumerate(found) if each.code == code), 0)
            self._choose((found[max(0, min(len(found) - 1, here + way * by))].code, words))
        elif self.pane == "rows":
            self._select(self.list.at + way * by)
        else:
            self.token_top = max(0, min(self.token_top + way * by, max(0, self._deep() - 2)))
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    # The audit.

    def _forget(self, folder: RunFolder | None) -> None:
        self.list = None if folder is None else RowList(folder)
        self.survey = self._token_lines = None
        self._surveyed = (0, 0)
        self.token_top = 0
        self.pane, self.unfolded, self.zoomed = "reasons", False, False

    def _find(self) -> None:
        """Look for the rows of the key, unless every row is asked for."""
        if self.list is not None and self.list.key != EVERY and self.is_attached:
            self._match(self.list, self.list.key)

    @work(thread=True, exclusive=True, group="examples-survey", exit_on_error=False)
    def _survey(self, listed: RowList) -> None:
        worker = get_current_worker()
        found = listed.audit.survey(lambda: worker.is_cancelled)
        if not worker.is_cancelled:
            self.post_message(Surveyed(listed, found))

    @work(thread=True, exclusive=True, group="examples-match", exit_on_error=False)
    def _match(self, listed: RowList, key: Key) -> None:
        worker = get_current_worker()
        rows = listed.audit.matching(*key, cancelled=lambda: worker.is_cancelled)
        if not worker.is_cancelled:
            self.post_message(Matched(listed, key, rows))

    def on_surveyed(self, message: Surveyed) -> None:
        if message.listed is self.list:
            self.survey = message.survey
            self._draw()

    def on_matched(self, message: Matched) -> None:
        if message.listed is self.list and self.list is not None and self.list.matched(message.key, message.rows):
            self._draw()

    def _choose(self, key: Key) -> None:
        if self.list is not None:
            self.list.choose(key)
            self.token_top, self.unfolded = 0, False
            self._find()

    def _select(self, number: int) -> None:
        if self.list is not None and self.list.select(number):
            self.token_top, self.unfolded = 0, False

    # Drawing.

    @property
    def _one_pane(self) -> bool:
        return self.compact or self.zoomed

    @property
    def _beside(self) -> bool:
        """Whether the source has a pane of its own; in ASCII ↵ and → take two cells, and a third pane would shift."""
        return self.wide and not self._one_pane and not look_of(self.app).ascii

    def _found(self) -> list[Found]:
        audited = self.list.audited if self.list is not None else 0
        return page_of.reasons_of(self.snapshot.state.row("examples"), self.survey, audited)

    def _lines(self) -> list[Line]:
        row = self.list.tokens() if self.list is not None else None
        if row is None or self.list is None:
            return []
        beside = self._beside
        width = page_of.token_width(self.size.width, self._one_pane, beside)
        key = (self.list.number(self.list.at), width, self.view, self.unfolded, beside)
        if self._token_lines is None or self._token_lines[0] != key:
            found = _tokens.lines(row, width, self.view, self.unfolded)
            self._token_lines = (key, found if beside else [*found, *_tokens.comparison(row, width)])
        return self._token_lines[1]

    def _deep(self) -> int:
        """Lines of the longer of tokens and source; both scroll together."""
        row = self.list.tokens() if self.list is not None else None
        source = 0
        if row is not None and self._beside:
            source = len(_tokens.comparison(row, (self.size.width - page_of.left_width(self.size.width)) // 3))
        return max(len(self._lines()), source)

    def _rows_room(self) -> int:
        """Rows that the list shows now."""
        height = self.size.height
        if self._one_pane:
            return max(1, height - 3)
        return page_of.rows_room(height, len(self._found()))

    def _page(self, listed: RowList) -> Page:
        found = self._found()
        facts = self.snapshot.state.facts.get("examples")
        facts = facts if isinstance(facts, Mapping) else {}
        plan = self._plan()
        listed.keep_in_view(self._rows_room())
        shown = range(listed.top, min(len(listed), listed.top + self.size.height))
        return Page(
            width=self.size.width,
            height=self.size.height,
            row=self.snapshot.state.row("examples"),
            facts=facts,
            survey=self.survey,
            found=found,
            reason_at=next((n for n, each in enumerate(found) if each.code == listed.key[0]), 0),
            matches=len(listed) if listed.known else None,
            row_at=listed.at,
            rows_shown=[listed.read(place) for place in shown],
            rows_top=listed.top,
            record=listed.read(listed.at),
            tokens=listed.tokens(),
            token_lines=self._lines(),
            token_top=self.token_top,
            view=self.view,
            pane=self.pane,
            words=listed.key[1],
            wide=self._beside,
            classes=tuple(each for each in facts.get("classes") or () if isinstance(each, Mapping)),
            max_length=plan.data.max_length if plan is not None else None,
        )

    def _plan(self) -> Plan | None:
        return self.snapshot.plan.plan if self.snapshot.plan is not None else None

    def _draw(self) -> None:
        if not self.is_mounted or self.size.width < 1 or self.size.height < 1:
            return
        target = self.query_one("#examples-page", Lines)
        if self.list is None or not self.list.audited:
            target.write(page_of.empty(self.snapshot, self.size.width), 0)
            return
        page = self._page(self.list)
        target.write(page_of.one_pane(page) if self._one_pane else page_of.draw(page), 0)
