"""The Runs room as lines: every run, variants below their parents, and below the list what is known of one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tui_pilot.run_folder import RunFolder, short_id
from tui_pilot.store.ledger import Entry
from tui_pilot.text import GIB, MIB, plural
from tui_pilot.text import loss as loss_text
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.rooms import _changes, _comparison_page, _picked_page, _run_detail
from tui_pilot.ui.rooms._ledger import Brief, Listed
from tui_pilot.ui.rooms._panes import Pane, joined
from tui_pilot.ui.rooms._picked_page import LETTERS, Side

HEAD = 2  # the list's rule and the names of its columns
NAME = (16, 30)
STATE, VERDICT = 10, 9
COLUMNS = (("updates", 8), ("batch", 7), ("need", 10), ("s/upd", 7), ("val loss", 9))
SPARE = ("batch", "s/upd")
"""Columns that go as soon as what was changed is longer than its room; the others only where hardly any is left."""
FIRST_TO_GO = ("batch", "s/upd", "updates", "val loss", "need")
LEAST_CHANGED, WANTED = 24, 36
LEAST_NARROW, MOST_NARROW = 18, 28  # where it is narrow; need is the last to go
BOTH = 14  # state and verdict in one column, where it is narrow
NARROW, WIDE = 100, 160
CURVES = "one letter a run, capitals: validation"
LEFT_SHARE, LEAST_RUN = 0.5, 62


@dataclass(frozen=True)
class Page:
    """What is drawn. ``listed`` are the runs that the filter leaves, ``at`` the selected one of them.

    ``entry`` is the selected run whole, None while it is read. ``pane`` is where the keys go: ``list``, ``run``,
    ``comparison`` or ``picked``; ``alone``: that pane has the whole room. ``now`` is Unix seconds. ``least`` is the
    smallest need of all, bytes: it makes the column's unit.
    """

    width: int
    height: int
    root: str
    listed: Sequence[Listed]
    total: int
    at: int
    now: float
    opened: RunFolder | None = None
    words: str = ""
    entry: Entry | None = None
    comparisons: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    picks: Sequence[RunFolder] = ()
    sides: Sequence[Side] = ()
    pane: str = "list"
    alone: bool = False
    top: int = 0
    reading: str = ""
    least: int | None = None

    @property
    def narrow(self) -> bool:
        return self.width < NARROW

    @property
    def compact(self) -> bool:
        return self.narrow or self.height < 27

    @property
    def selected(self) -> Listed | None:
        return self.listed[self.at] if 0 <= self.at < len(self.listed) else None

    @property
    def comparison(self) -> Mapping[str, Any] | None:
        """The comparison that the selected run is a trial of."""
        chosen = self.selected
        return self.comparisons.get(chosen.entry.comparison or "") if chosen is not None else None

    @property
    def panes(self) -> tuple[str, ...]:
        """What ``tab`` goes through."""
        found = ["list"]
        if self.sides:
            found.append("picked")
        if self.comparison is not None:
            found.append("comparison")
        return (*found, "run") if self.listed else tuple(found)

    @property
    def below(self) -> str:
        """The pane below the list: the one the keys go to, else the most telling one."""
        if self.pane in self.panes and self.pane != "list":
            return self.pane
        return next((each for each in ("picked", "comparison", "run") if each in self.panes), "")


def draw(page: Page) -> list[Line]:
    """Exactly the room's lines."""
    if page.alone and page.pane != "list":
        return lower(page, page.height)
    rows = list_rows(page)
    return [*_list(page, rows), *lower(page, page.height - HEAD - rows)]


def list_rows(page: Page) -> int:
    """How many runs are shown: the same whichever of them is selected, so that nothing moves below them."""
    room = page.height - HEAD
    if page.alone or not page.below or room < 10:
        return max(1, room)
    most = max(3, room // 4) if page.sides else max(6, room * 2 // 5)
    return max(1, min(len(page.listed), most))


def lower(page: Page, height: int) -> list[Line]:
    """What stands below the list, or alone: ``height`` lines."""
    if height < 1 or not page.below:
        return []
    make = {"picked": _picked, "comparison": _compared, "run": _run}[page.below]
    return make(page, height)[:height]


def scrolled(page: Page) -> tuple[int, int]:
    """How far the pane below can be scrolled, and how many lines a page of it is."""
    height = page.height if page.alone else page.height - HEAD - list_rows(page)
    panes = {"picked": _picked_panes, "comparison": _compared_panes, "run": _run_panes}
    if not page.below:
        return 0, 1
    pane = panes[page.below](page, height)[0]
    return pane.last(height), max(1, height - 2)


# The panes below.


def _two(page: Page, height: int, first: Pane, left: int, second: Pane | None, right_first: bool = False) -> list[Line]:
    """Words at the left and a chart at the right, or the other way round; the words are what is scrolled."""
    if second is None:
        return first.drawn(page.width, height)
    words, chart = first.drawn(left, height), second.drawn(page.width - left - 1, height)
    if right_first:
        return joined(chart, words, page.width - left - 1)
    return joined(words, chart, left)


def _run_panes(page: Page, height: int) -> tuple[Pane, Pane | None]:
    chosen = page.selected
    assert chosen is not None
    focused = page.pane == "run" and not page.alone
    title = short_id(chosen.folder.id)
    entry = page.entry
    if entry is None or entry.folder != chosen.folder:
        return Pane(title, "", [((" reading its log", "dim"),)], 0, focused), None
    side = None if page.narrow else _curve_pane(page, entry, height)
    width = _left(page) if side is not None else page.width
    lines = _run_detail.detail(entry, width)
    if page.narrow:
        chart = _curve_pane(page, entry, max(8, height - len(lines) - 1))
        if chart is not None:
            lines = [*lines, paint.rule(chart.title, chart.legend, page.width), *chart.lines]
    return Pane(title, _run_detail.when(entry, page.now), lines, page.top, focused), side


def _curve_pane(page: Page, entry: Entry, height: int) -> Pane | None:
    width = page.width if page.narrow else page.width - _left(page) - 1
    title, legend, lines = _run_detail.losses(entry.state, width - 1, min(height - 1, 24))
    return Pane(title, legend, lines) if lines else None


def _left(page: Page) -> int:
    return max(LEAST_RUN if page.width >= 120 else 0, int(page.width * LEFT_SHARE))


def _run(page: Page, height: int) -> list[Line]:
    first, second = _run_panes(page, height)
    return _two(page, height, first, _left(page), second)


def _compared_panes(page: Page, height: int) -> tuple[Pane, Pane | None]:
    document = page.comparison
    assert document is not None
    name = _comparison_page.name(document)
    legend = "  ".join(f"{sign} {id}" for id, sign in _comparison_page.letters(document).items())
    focused = page.pane == "comparison" and not page.alone
    if page.narrow:
        lines = _comparison_page.said_lines(document, page.width)
        chart = _comparison_page.plot_lines(document, page.width - 1, max(8, min(14, height - 2)))
        head = paint.rule("training loss", legend, page.width)
        return Pane(name, "", [*lines, head, *chart], page.top, focused), None
    right = _words_width(page)
    lines = _comparison_page.said_lines(document, right)
    chart = _comparison_page.plot_lines(document, page.width - right - 2, min(height - 1, 24))
    return (
        Pane(f"{name}: what can be said", "", lines, page.top, focused),
        Pane("training loss", legend, chart),
    )


def _words_width(page: Page) -> int:
    """The words of a comparison need a table's width; all above it is the chart's."""
    return min(70, max(54, page.width - int(page.width * 0.56)))


def _compared(page: Page, height: int) -> list[Line]:
    first, second = _compared_panes(page, height)
    if second is not None and page.width >= WIDE and page.pane != "comparison" and not page.alone:
        run, _ = _run_panes(replace(page, pane="list"), height)
        left = LEAST_RUN - 2
        entry = page.entry
        lines = _run_detail.detail(entry, left) if entry is not None else run.lines
        rest = replace(page, width=page.width - left - 1)
        return joined(replace(run, lines=lines).drawn(left, height), _compared(rest, height), left)
    return _two(page, height, first, _words_width(page), second, right_first=True)


def _picked_panes(page: Page, height: int) -> tuple[Pane, Pane | None]:
    sides = page.sides
    names = "  ".join(f"{each.letter} {short_id(each.entry.folder.id)}" for each in sides)
    focused = page.pane == "picked" and not page.alone
    title = f"{len(sides)} runs side by side"
    lines = [*_picked_page.table(sides, page.width)]
    if page.narrow:
        said = [*_picked_page.said_lines(sides, page.width), paint.rule("what differs", "", page.width)]
        lines = [*said, *lines, paint.rule("training loss", CURVES, page.width)]
        lines += _picked_page.plot_lines(sides, page.width - 1, 12)
        return Pane(title, names, lines, page.top, focused), None
    if page.width >= WIDE:
        side = page.width - _picked_left(page) - 1
        said = _picked_page.said_lines(sides, side)
        tall = max(8, min(24, height - len(said) - 3))
        chart = _picked_page.plot_lines(sides, side - 1, tall)
        under = [*chart, paint.rule("what can be said", "", side), *said]
        lines = _picked_page.table(sides, _picked_left(page))
        return Pane(title, "", lines, page.top, focused), Pane("training loss", CURVES, under)
    left = int(page.width * 0.56)
    said = _picked_page.said_lines(sides, page.width - left - 1)
    tall = max(11, min(22, height - len(lines) - 1), len(said) + 1)
    chart = _picked_page.plot_lines(sides, left - 1, tall - 1)
    below = joined(
        Pane("training loss", CURVES, chart).drawn(left, tall),
        Pane("what can be said", "", said).drawn(page.width - left - 1, tall),
        left,
    )
    # What can be said comes before what has to be scrolled to.
    whole = [*lines, *below] if len(lines) + tall < height else [*below, paint.rule("", "", page.width), *lines]
    return Pane(title, "", whole, page.top, focused), None


def _picked_left(page: Page) -> int:
    return page.width * 11 // 20


def _picked(page: Page, height: int) -> list[Line]:
    first, second = _picked_panes(page, height)
    return _two(page, height, first, _picked_left(page), second)


# The list.


@dataclass(frozen=True)
class Layout:
    """Widths of the list's columns, in cells; ``unit`` is bytes of the memory column."""

    name: int
    columns: tuple[tuple[str, int], ...]
    changed: int
    unit: int
    unit_name: str
    narrow: bool = False


def layout(page: Page) -> Layout:
    """Columns go, the least telling first, until what was changed has room."""
    longest = max((len(each.branch) + len(_name(page, each)) for each in page.listed[:200]), default=0)
    name = max(NAME[0], min(NAME[1], longest))
    columns = list(COLUMNS)
    said = (len(_changes.fitting(each.entry.changed, WANTED)) for each in page.listed[:200])
    wanted = max(LEAST_CHANGED, min(WANTED, max(said, default=0)))
    for going in FIRST_TO_GO:
        room = wanted if going in SPARE else LEAST_CHANGED
        if page.narrow:
            room = LEAST_NARROW if going == "need" else min(wanted, MOST_NARROW)
        if page.width - _fixed(page, name, columns) >= room:
            break
        columns = [each for each in columns if each[0] != going]
    unit, unit_name = (GIB, "GiB") if (page.least or 0) >= GIB else (MIB, "MiB")  # one unit, in which no run is 0.1
    changed = max(0, page.width - _fixed(page, name, columns))
    return Layout(name, tuple(columns), changed, unit, unit_name, page.narrow)


def _fixed(page: Page, name: int, columns: Sequence[tuple[str, int]]) -> int:
    states = BOTH if page.narrow else STATE + VERDICT
    return 4 + name + 1 + states + sum(width for _, width in columns) + 2


def _list(page: Page, rows: int) -> list[Line]:
    shown = layout(page)
    top = max(0, min(page.at - rows // 2, len(page.listed) - rows))
    title = f"{plural(page.total, 'run')} in {page.root}"
    if page.words:
        title = f"{len(page.listed):,} of {page.total:,} runs with “{paint.clean(page.words)}”"
    legend = page.reading or "newest last, none is ever taken off"
    if len(page.listed) > rows:
        legend = f"{top + 1}–{min(top + rows, len(page.listed))} of {len(page.listed):,}" + (
            "   " + page.reading if page.reading else ", newest last"
        )
    role = "running" if page.pane == "list" and len(page.panes) > 1 and not page.alone else "head"
    lines: list[Line] = [paint.rule(title, legend, page.width, role), _head(shown)]
    if not page.listed:
        lines.append(((" no run has these words; esc shows all again", "text"),))
    letter = {folder: LETTERS[n] for n, folder in enumerate(page.picks)}
    for n, each in enumerate(page.listed[top : top + rows]):
        lines.append(_line(page, shown, each, n + top == page.at, letter.get(each.folder, " ")))
    return [*lines, *([paint.EMPTY] * (HEAD + rows - len(lines)))][: HEAD + rows]


def _head(shown: Layout) -> Line:
    states = f"{'state, verdict':<{BOTH}}" if shown.narrow else f"{'state':<{STATE}}{'verdict':<{VERDICT}}"
    text = f"    {'run':<{shown.name}} {states}"
    for name, width in shown.columns:
        text += f"{f'need {shown.unit_name}≥' if name == 'need' else name:>{width}}"
    wide = shown.changed >= 28
    return ((f"{text}  {'changed from its parent' if wide else 'changed'}", "dim"),)


def _name(page: Page, each: Listed) -> str:
    """The run's short name; a trial by its setting's letter, setting, seed and the digits that name it."""
    entry = each.entry
    if entry.trial is None or entry.seed is None:
        return short_id(each.folder.id)
    document = page.comparisons.get(entry.comparison or "")
    sign = _comparison_page.letters(document).get(entry.trial, " ") if document is not None else "·"
    return f"{sign} {entry.trial:<6} seed {entry.seed} {each.folder.id[-4:]}"


def _line(page: Page, shown: Layout, each: Listed, selected: bool, letter: str) -> Line:
    entry = each.entry
    sign, role = paint.glyph(entry.sign)
    name = paint.left(f"{each.branch}{_name(page, each)}", shown.name)
    here = "shown, " if each.folder == page.opened and not shown.narrow else ""
    lead: Line = ((">" if selected else " ", "head"), (letter, "head"), (sign, role), (f" {name} ", "text"))
    if entry.problem:
        spans: Line = (*lead, (f"{'unreadable':<{STATE + 1}}{entry.problem}", "text"))
        return paint.chosen(paint.fit(spans, page.width)) if selected else spans
    figures = "".join(f"{_figure(name, entry, shown):>{width}}" for name, width in shown.columns)
    changed = _changed(entry, shown.changed - len(here))
    state, word = f"{entry.state:<{STATE}}", f"{entry.word:<{VERDICT}}"
    if shown.narrow:
        state, word = f"{entry.state} ", paint.left(entry.word, BOTH - len(entry.state) - 1)
    spans = (
        *lead,
        (state, "running" if entry.state == "running" else "text"),
        (word, "fail" if "FAIL" in entry.word else "text"),
        (f"{figures}  {here}{changed}", "text"),
    )
    return paint.chosen(paint.fit(spans, page.width)) if selected else spans


def _changed(entry: Brief, width: int) -> str:
    said = _changes.fitting(entry.changed, width) or entry.origin()
    if entry.failed:
        both = f"{said}; {entry.failed}"
        return both if len(both) <= width else entry.failed if not entry.changed else said
    return said


def _figure(name: str, entry: Brief, shown: Layout) -> str:
    if name == "updates":
        return f"{entry.updates:,}" if entry.updates else "–"
    if name == "batch":
        return f"{entry.batch:,}" if entry.batch is not None else "–"
    if name == "need":
        return "–" if entry.need is None else f"{entry.need / shown.unit:,.{1 if shown.unit == GIB else 0}f}"
    if name == "s/upd":
        return f"{entry.pace:.2f}" if entry.pace is not None else "–"
    return loss_text(entry.validation)
