"""The Pilot room: fifteen phases, the selected one's detail, the GPUs, the loss and what happened.

The page is made as text by pure functions and given to one ``Lines``, which sends only the cells that differ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult

from tui_pilot.events.schema import PHASES
from tui_pilot.store.state import Row
from tui_pilot.ui import paint
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import checklist, detail, gpu
from tui_pilot.ui.parts.pilot_page import Page, draw, pane_lines
from tui_pilot.ui.room import Hint, Room
from tui_pilot.ui.snapshot import Snapshot

PANES = ("detail", "gpus", "curve", "events")
CHART_EVERY_S = 5.0


class PilotRoom(Room):
    room: ClassVar[str] = "pilot"
    title: ClassVar[str] = "Pilot"
    alone_when_compact: ClassVar[bool] = False
    help_text: ClassVar[str] = (
        "Fifteen phases, always in this order. pass: looked and found right. warn: look yourself.\n"
        "FAIL: wrong, with what was seen and expected. unchecked: could not look. skipped: your plan says so.\n"
        "not run: stopped before. The letter under mark is yours (p w f), beside the verdict, never in its place.\n"
        "allocated: tensors. reserved: what torch holds. used: the whole device, sampled, so a floor (≥).\n"
        "They are nested, never summed: allocated in reserved in used in usable.\n"
        "The selection follows the running phase until you move it; esc follows again.\n"
        "enter opens all detail of the phase, z one pane alone, tab the next pane."
    )

    def __init__(self) -> None:
        super().__init__()
        self.selected = 0
        self.following = True
        self.pane: str | None = None
        self.first = 0
        self.words = ""
        self._chart_at = -1e9
        self._chart_points: Snapshot | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="pilot-page")

    # What the app calls.

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.folder != self.snapshot.folder:
            self.following, self.pane, self.first = True, None, 0
        super().show(snapshot)
        if self.following:
            self.selected = followed(snapshot)
        self._draw()

    def hints(self) -> list[Hint]:
        if self.pane is not None:
            return [("esc", "back"), ("tab", "next pane"), ("↑↓", "scroll")]
        return [("enter", "detail"), ("z", "zoom")]

    def selected_phase(self) -> str | None:
        return PHASES[self.selected]

    def can_search(self) -> bool:
        return True

    def search(self, words: str) -> None:
        self.words = words
        if words and self.pane is None:
            self.pane, self.first = "events", 0
        self._draw()

    def copied(self) -> str:
        if self.pane is not None:
            return "\n".join(paint.plain(each) for each in self._pane_content())
        row = self.row
        lines = [f"{row.phase}: {row.verdict or 'not reached'}"]
        lines += [paint.plain(each) for each in detail.detail(row, self.snapshot, 100, full=True)]
        return "\n".join(lines)

    def back(self) -> bool:
        if self.pane is not None:
            self.pane, self.first, self.words = None, 0, ""
        elif not self.following:
            self.following = True
            self.selected = followed(self.snapshot)
        else:
            return False
        self._draw()
        return True

    # Keys.

    def action_move(self, across: int, down: int) -> None:
        if self.pane is not None:
            self._see_from(self.first + down)
        elif down:
            self._select(self.selected + down)

    def action_jump(self, end: int) -> None:
        if self.pane is not None:
            self._see_from(0 if end < 0 else 1 << 30)
        else:
            self._select(0 if end < 0 else len(PHASES) - 1)

    def action_page(self, down: int) -> None:
        if self.pane is not None:
            self._see_from(self.first + down * max(1, self.size.height - 2))
        else:
            self._select(self.selected + down * 5)

    def action_enter(self) -> None:
        self._open_or_close("detail")

    def _open_or_close(self, pane: str) -> None:
        self.pane, self.first = (pane if self.pane is None else None), 0
        self._draw()
        self.keys_changed()

    def action_zoom(self) -> None:
        """The detail alone; where GPUs are folded into one line, every one of them."""
        folded = any(more for _, more in gpu.folded(gpu.scene(self.snapshot, self.row).gpus, all_shown=False))
        self._open_or_close("gpus" if folded else "detail")

    def action_next_pane(self) -> None:
        panes = list(PANES)
        self.pane = panes[0] if self.pane is None else panes[(panes.index(self.pane) + 1) % len(panes)]
        self.first = 1 << 30 if self.pane == "events" else 0
        self._draw()
        self.keys_changed()

    def on_resize(self) -> None:
        self._draw()

    # Drawing.

    @property
    def row(self) -> Row:
        return self.snapshot.state.rows[self.selected]

    def _select(self, number: int) -> None:
        self.selected = max(0, min(len(PHASES) - 1, number))
        self.following = False
        self._draw()
        self.keys_changed()

    def _see_from(self, number: int) -> None:
        last = max(0, len(self._pane_content()) - max(1, self.size.height - 1))
        self.first = max(0, min(number, last))
        self._draw()

    def _pane_content(self) -> list[Line]:
        return pane_lines(self._page(), self.pane or "detail", self.words)

    def _page(self) -> Page:
        return Page(
            snapshot=self._charted(),
            selected=self.selected,
            following=self.following,
            width=self.size.width,
            height=self.size.height,
        )

    def _charted(self) -> Snapshot:
        """The snapshot with the curve of the last chart repaint: a chart that moves twice a second costs more."""
        now, snapshot = self.snapshot.now_mono, self.snapshot
        kept = self._chart_points
        fresh = kept is None or kept.folder != snapshot.folder or not snapshot.live
        if fresh or now - self._chart_at >= CHART_EVERY_S or not snapshot.state.loss:
            self._chart_points, self._chart_at = snapshot, now
            return snapshot
        assert kept is not None
        return replace(snapshot, state=replace(snapshot.state, loss=kept.state.loss, lr=kept.state.lr))

    def _draw(self) -> None:
        width, height = self.size.width, self.size.height
        if not self.is_mounted or width < 1 or height < 1:
            return
        target = self.query_one("#pilot-page", Lines)
        if self.pane is None:
            target.write(draw(self._page()), 0)
            return
        content = self._pane_content()
        room = max(1, height - 1)
        self.first = max(0, min(self.first, len(content) - room))
        shown = content[self.first : self.first + room]
        place = f"{self.first + 1}–{self.first + len(shown)} of {len(content)}" if len(content) > room else "esc closes"
        name = f"{self.row.phase}: all detail" if self.pane == "detail" else self.pane
        if self.words and self.pane == "events":
            name = f"events with “{paint.clean(self.words)}”"
        target.write([paint.rule(name, place, width), *shown], 0)


def followed(snapshot: Snapshot) -> int:
    """The phase the selection goes to by itself: running or lost, else the first that failed, else the newest."""
    rows = snapshot.state.rows
    for n, row in enumerate(rows):
        if row.running:
            return n
    if snapshot.lost:
        for n, row in enumerate(rows):
            if checklist.is_lost(row):
                return n
    if not snapshot.live:
        for wanted in ("fail", "unchecked", "warn"):
            for n, row in enumerate(rows):
                if row.verdict == wanted:
                    return n
    ended = [(row.ended or "", n) for n, row in enumerate(rows) if row.verdict not in (None, "not_run")]
    return max(ended)[1] if ended else 0
