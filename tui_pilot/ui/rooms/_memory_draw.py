"""The Memory room's panes put together for every size of terminal. Pure.

Small: one pane, its head says which of how many. From 100 x 30: the phases, what fills the peak, and the run over time
below them (or every reading). From 160 columns all of it at once.
"""

from __future__ import annotations

from dataclasses import replace

from tui_pilot.store.memory import bare
from tui_pilot.text import duration
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import units
from tui_pilot.ui.rooms import _memory_chart, _memory_page, _memory_peak, _memory_readings, _memory_said, _memory_table
from tui_pilot.ui.rooms._memory_history import Points
from tui_pilot.ui.rooms._memory_page import NAMES, PANES, Page

PEAK_WIDTH, WIDE_PEAK_WIDTH, READINGS_WIDTH = 33, 46, 124
LEAST_CHART, FIRM_CHART, MOST_CHART = 4, 6, 10


def draw(page: Page) -> list[Line]:
    """The whole room, at most ``page.height`` lines."""
    if page.tiny:
        return _tiny(page)
    if not any(row.memory for row in page.state.rows) and not page.state.live and not page.predicted:
        return [paint.rule("memory", "", page.width), ((f" {_memory_page.EMPTY}", "text"),)]
    if page.one_pane:
        return _one(page)[: page.height]
    return (_wide if page.wide else _middle)(page)[: page.height]


def _tiny(page: Page) -> list[Line]:
    lines = _memory_table.table(page, page.width, 4)
    return lines[: max(1, page.height)]


def _one(page: Page) -> list[Line]:
    after = PANES[(PANES.index(page.pane) + 1) % len(PANES)]
    legend = f"{PANES.index(page.pane) + 1} of {len(PANES)}, tab: {after}" if page.compact else "z: back"
    said = _memory_said.whole(page, page.width)
    if page.pane == PANES[0]:
        top = _memory_table.table(page, page.width, page.height, legend)
        below = said
    elif page.pane == PANES[1]:
        below = said
        rows = max(LEAST_CHART, min(24 if page.alone else 12, page.height - 3 - len(said)))
        top = over_the_run(page, page.width, rows, legend)
    elif page.pane == PANES[2]:
        top, below = _memory_peak.lines(page, page.width, legend), []
    else:
        top, below = _memory_readings.readings(page, page.width, legend), said
    room = page.height - len(top)
    if not below or room < 2:
        return top
    # Sentences are cut by whole lines, and the table is never pushed out by them.
    return [*top, paint.rule("", "", page.width), *below[: room - 1]]


def pane_text(page: Page) -> list[Line]:
    """The open pane alone and whole, for copying."""
    return _one(replace(page, alone=True, height=200))


def _middle(page: Page) -> list[Line]:
    right = PEAK_WIDTH
    left = page.width - right - 1
    open_pane = page.pane
    said = _memory_said.whole(page, page.width)
    tall = _memory_table.tall(page)
    # Table, peak, chart and sentences share the height; the peak's last lines give way first, then the sentences.
    wanted = max(tall, len(_memory_peak.lines(page, right, height=page.height - FIRM_CHART - 3 - len(said))))
    top_height = max(min(tall, page.height - LEAST_CHART - 2), min(wanted, page.height - FIRM_CHART - 3 - len(said)))
    top = _beside(page, left, right, top_height)
    room = page.height - len(top)
    if open_pane == PANES[3]:
        return [*top, *_memory_readings.readings(page, page.width, "enter: back", True)[:room]]
    rows = max(LEAST_CHART, min(MOST_CHART, room - 3 - len(said)))
    chart = over_the_run(page, page.width, rows, "", open_pane == PANES[1])
    rest = room - len(chart) - 1
    return [*top, *chart, *([paint.rule("", "", page.width), *said[:rest]] if rest > 0 and said else ())]


def _wide(page: Page) -> list[Line]:
    right = WIDE_PEAK_WIDTH
    left = page.width - right - 1
    tall = _memory_table.tall(page)
    top = _beside(page, left, right, max(17, min(tall, page.height - 20)))
    readings = _memory_readings.readings(page, READINGS_WIDTH, "", page.pane == PANES[3])
    room = page.height - len(top)
    rows = max(LEAST_CHART, min(MOST_CHART + 6, room - 2 - len(readings)))
    chart = over_the_run(page, page.width, rows, "", page.pane == PANES[1])
    beside = page.width - READINGS_WIDTH - 1
    said = [paint.rule("the run as a whole", "", beside), *_memory_said.whole(page, beside)]
    rest = room - len(chart)
    return [*top, *chart, *_joined(readings, said, READINGS_WIDTH, beside, rest)]


def _beside(page: Page, left: int, right: int, height: int) -> list[Line]:
    table = _memory_table.table(page, left, height, "", page.pane == PANES[0])
    peak = _memory_peak.lines(page, right, "", page.pane == PANES[2], height)
    return _joined(table, peak, left, right, height)


def _joined(lefts: list[Line], rights: list[Line], left: int, right: int, height: int) -> list[Line]:
    """Two stacks beside each other, their heads joined; what is longer than ``height`` is cut and marked."""
    if len(rights) > height:
        rights = [*rights[: height - 1], ((" … more: tab, then z", "dim"),)]
    out: list[Line] = []
    for n in range(min(height, max(len(lefts), len(rights)))):
        a = paint.fit(lefts[n] if n < len(lefts) else paint.EMPTY, left, "rule" if n == 0 else "text")
        b = paint.fit(rights[n], right) if n < len(rights) else paint.EMPTY
        out.append((*a, ("┬" if n == 0 else "│", "rule"), *b))
    return out


def over_the_run(page: Page, width: int, rows: int, legend: str = "", focused: bool = False) -> list[Line]:
    """Used memory of the selected GPU (on a CPU what a rank allocated) over the run, with the phases below."""
    role = "running" if focused else "head"
    history = page.history
    key, points, who = _track(page)
    how = "live" if page.snapshot.live else "all history"
    if not points:
        title = "memory over the run"
        why = "reading the samples ..." if not history.read else _why_nothing(page, key)
        return [paint.rule(title, legend, width, role), *(((f" {x}", "dim"),) for x in paint.wrap(why, width - 2))]
    sampled = history.counter == "device_used_peak"
    spans = _memory_chart.spans_of(page.state.rows, history.at or page.snapshot.now_mono)
    made = _memory_chart.chart(points, spans, width, rows, page.row.phase, back=not sampled)
    column = duration(max(0.01, made.column_s))
    name = NAMES[history.counter]
    title = f"{name} on {who} over the run, {made.unit.name}, {how}"
    said = f"{'sampled' if sampled else '10 looks a second'}, {column} a column, highest in it"
    heads = (title, f"{name} on {who}, {made.unit.name}, {how}")
    legends = (f"{said}   {legend}" if legend else said, f"{column} a column   {legend}".rstrip(), legend)
    both = [(head, each) for each in legends for head in heads]
    title, said = next((pair for pair in both if sum(map(len, pair)) + 10 <= width), both[-1])
    return [paint.rule(title, said, width, role), *made.lines]


def _track(page: Page) -> tuple[str, Points, str]:
    """(key, points, what is named) of the selected rank: its GPU by UUID, its own lines on a CPU."""
    tracks = page.history.tracks
    if page.history.counter == "allocated_peak":
        key = f"rank {page.rank}"
        return key, tracks.get(key, ()), key
    uuid = next(
        (each.get("uuid") for row in page.state.rows for each in row.memory if each.get("rank") == page.rank), None
    )
    uuid = uuid or (page.state.ranks.get(page.rank) or {}).get("uuid")
    views = {view.key: view.index for view in page.snapshot.gpus}
    if isinstance(uuid, str):
        key = next((each for each in tracks if bare(each) == bare(uuid)), uuid)
        return key, tracks.get(key, ()), f"gpu {views.get(key, page.rank)}"
    # Ranks on the CPU of a box with GPUs: the GPUs are there by their own number.
    by_index = sorted(tracks, key=lambda each: (views.get(each, len(views)), each))
    key = by_index[min(page.rank, len(by_index) - 1)] if by_index else ""
    return key, tracks.get(key, ()), f"gpu {views.get(key, page.rank)}"


def _why_nothing(page: Page, key: str) -> str:
    if page.history.tracks:
        return f"Nothing was sampled of {key or 'this one'}; ←→ goes to another."
    if page.snapshot.live:
        return "Nothing was sampled yet."
    peaks = any(units.peak(row, "allocated_peak") is not None for row in page.state.rows)
    return "Nothing was sampled over this run" + (": the table has the peak of each phase." if peaks else ".")
