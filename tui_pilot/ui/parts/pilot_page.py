"""The Pilot room's page at every size, as lines. Pure: the same snapshot and size give the same page."""

from __future__ import annotations

from dataclasses import dataclass

from tui_pilot.store import points
from tui_pilot.store.state import Row, RunState
from tui_pilot.text import loss as loss_text
from tui_pilot.text import rate
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import checklist, cpu, curve, detail, gpu, happenings, plan_lines, units
from tui_pilot.ui.snapshot import Snapshot


@dataclass(frozen=True)
class Page:
    """What is drawn: ``width`` and ``height`` are the room's cells, ``selected`` the number of the phase."""

    snapshot: Snapshot
    selected: int
    following: bool
    width: int
    height: int

    @property
    def row(self) -> Row:
        return self.snapshot.state.rows[self.selected]

    @property
    def wide(self) -> bool:
        return self.width >= 160 and self.height >= 27

    @property
    def compact(self) -> bool:
        return self.width < 100 or self.height < 27

    @property
    def tiny(self) -> bool:
        return self.width < 80 or self.height < 21


def draw(page: Page) -> list[Line]:
    """The whole page, exactly as high as the room."""
    if page.tiny:
        return _tiny(page)
    lines = _compact(page) if page.compact else _normal(page)
    return lines[: page.height]


def pane_lines(page: Page, pane: str, words: str = "") -> list[Line]:
    """One pane alone, whole: it is scrolled by the room."""
    snapshot = page.snapshot
    if pane == "detail":
        return detail.detail(page.row, snapshot, page.width - 2, full=True)
    if pane == "gpus":
        return _gpu_lines(page, len(snapshot.gpus) + 4, all_shown=True)
    if pane == "curve":
        room = max(6, page.height - 2)
        half = room // 2
        chart = curve.chart(snapshot.state.loss, page.width - 2, max(4, half - 1), marks=_validated(snapshot.state))
        rates = curve.chart(snapshot.state.lr, page.width - 2, max(4, room - half - 1), "lr")
        if not chart:
            return [(("no loss yet: it begins in phase 10, batch", "dim"),)]
        return [(("loss, train", "dim"),), *chart, (("learning rate", "dim"),), *rates]
    found = [happenings.feed_line(event) for event in happenings.worth(snapshot.state.feed)]
    if words:
        asked = words.lower().split()
        found = [each for each in found if all(word in paint.plain(each).lower() for word in asked)]
    return found or [(("nothing has happened yet" if not words else "no event has these words", "dim"),)]


def _table(page: Page, table: checklist.Columns) -> list[Line]:
    rows = page.snapshot.state.rows
    if page.snapshot.folder is None:
        ahead = [checklist.ahead_line(row, table.width, n == page.selected) for n, row in enumerate(rows)]
        return [checklist.ahead_head(table.width), *ahead]
    lines = [checklist.row_line(row, table, n == page.selected, page.snapshot) for n, row in enumerate(rows)]
    return [checklist.head(table), *lines]


def _tiny(page: Page) -> list[Line]:
    """Below 80 x 24: the selected row and what it says, the neighbours where there is room."""
    table = checklist.columns(page.snapshot, compact=True, reason=0)
    rows = _table(page, table)[1:]
    around = min(len(rows), max(1, page.height // 2))
    first = max(0, min(page.selected - around // 2, len(rows) - around))
    lines = rows[first : first + around]
    rest = page.height - len(lines)
    if rest > 0:
        lines += detail.detail(page.row, page.snapshot, page.width, full=False)[:rest]
    return lines[: page.height]


def _compact(page: Page) -> list[Line]:
    table = checklist.columns(page.snapshot, compact=True, reason=0)
    left = _table(page, table)
    room = page.width - table.width - 2
    right = _compact_right(page, room, len(left))
    lines = paint.beside(left, right, table.width)
    below = page.height - len(lines)
    return lines + _detail_block(page, below)


def _compact_right(page: Page, width: int, height: int) -> list[Line]:
    snapshot = page.snapshot
    lines: list[Line] = []
    shown = gpu.scene(snapshot, page.row)
    if shown.gpus:
        lines.append(gpu.compact_head(shown, width))
        for each, more in gpu.folded(shown.gpus, all_shown=False)[:8]:
            lines.append(gpu.compact_line(each, width))
            if more:
                lines.append((gpu.fold_note(each, more),))
        if any(each.allocated is not None for each in shown.gpus):
            lines.append((("▆ allocated ▄ reserved ▂ outside torch", "dim"),))
        elif shown.frozen or not snapshot.live:
            lines.append((("▂ used", "dim"),))
        else:
            lines.append((("▂ used, torch's counters at its end", "dim"),))
        if snapshot.gpus_why:
            lines += [((text, "text"),) for text in paint.wrap(snapshot.gpus_why, width)]
        how = f"peak of {page.row.phase}" if shown.frozen else "live" if snapshot.live else "no run is live"
        lines.append(((f"┊┃ highest of phase, run   {how}", "dim"),))
        lines += [((f"! {text}", "warn"),) for text in gpu.slowed(shown.gpus)]
    else:
        measured = cpu.narrow_lines(snapshot, page.row, width)
        why = gpu.why_none(snapshot, short=bool(measured))
        lines += [((text, "text"),) for text in paint.wrap(why, width)]
        lines += measured or [paint.EMPTY]
    lines += _loss_lines(page, width, height - len(lines) - 3)
    if snapshot.folder is None:
        return lines + _plan(page, width)
    rest = height - len(lines)
    if snapshot.plan is not None and rest > 4:
        lines.append(((plan_lines.batch_text(snapshot.plan.plan), "text"),))
        rest -= 1
    if rest > 0:
        feed = happenings.worth(snapshot.state.feed)[-rest:]
        lines += [happenings.feed_line(event, narrow=True, began=snapshot.state.started_mono) for event in feed]
    return lines


def _plan(page: Page, width: int) -> list[Line]:
    """Before the first run: what will run, and how to use one's own data."""
    loaded = page.snapshot.plan
    if loaded is None:
        return []
    return [*plan_lines.welcome(loaded, width), paint.EMPTY, *plan_lines.plan_lines(loaded, width)]


def _loss_lines(page: Page, width: int, room: int) -> list[Line]:
    """A small chart where there is room, else the last three losses in one line."""
    state = page.snapshot.state
    if not state.loss:
        return []
    last = [loss_text(value) if isinstance(value, (int, float)) else str(value) for _, value in state.loss[-3:]]
    lr = state.lr[-1][1] if state.lr else None
    rated = f"  lr {rate(lr)}" if isinstance(lr, (int, float)) else ""
    text = f"loss {' '.join(last)}"
    head: Line = ((text, "text"), (rated if len(text) + len(rated) <= width else "", "text"))
    values = [value for _, value in curve.finite(state.loss)]
    if room < 5 or width < 24:
        return [head, ((curve.spark(values, width), "bar"),)] if room >= 1 and values else [head]
    return [head, *curve.chart(state.loss, width, min(7, room), marks=_validated(state))]


def _detail_block(page: Page, height: int) -> list[Line]:
    """The rule that names the selected row, and as much of its detail as there is room for."""
    if height < 1:
        return []
    sign, text, role = detail.title(page.row)
    lines = detail.detail(page.row, page.snapshot, page.width - 2, full=False)
    return [
        _detail_rule(page, f"{sign} {text}", role, page.width, len(lines) > height - 1),
        *(((" ", "text"), *each) for each in lines[: height - 1]),
    ]


def _detail_rule(page: Page, text: str, role: str, width: int, more: bool) -> Line:
    live = page.snapshot.live
    follow = "following the run" if page.following and live else "your row, esc follows the run" if live else ""
    legend = "  ".join(part for part in (follow, "enter: all detail") if part)
    return paint.rule(text, legend, width, title_role=role if role in ("fail", "running") else "head")


def _normal(page: Page) -> list[Line]:
    """120 x 36 and above: table and detail beside each other, then GPUs, then loss and events."""
    snapshot = page.snapshot
    right = 44 if page.width < 160 else 56
    curve_width = min(58, page.width - 130) if page.wide else 0
    reason = max(12, min(44, page.width - curve_width - right - 52))
    table = checklist.columns(snapshot, compact=False, reason=reason)
    left = _table(page, table)
    detail_width = page.width - table.width - 2 - (curve_width + 2 if curve_width else 0)
    middle = _side_detail(page, detail_width, len(left))
    top = paint.beside(left, middle, table.width)
    if curve_width:
        side = _loss_side(page, curve_width, len(left))
        top = paint.beside(top, side, page.width - curve_width - 2)
    lines = list(top)
    rest = page.height - len(lines)
    if snapshot.folder is None:
        gpus = _gpu_lines(page, rest - 6, all_shown=False) if snapshot.gpus else _no_gpu(page)
        demo = snapshot.plan is not None and snapshot.plan.demo
        return [*lines, *gpus, paint.EMPTY, *(plan_lines.own_data(page.width) if demo else [])]
    gpus = _gpu_lines(page, min(rest - 4, 12), all_shown=False)
    lines += gpus
    rest = page.height - len(lines)
    if not curve_width and snapshot.state.loss and rest >= 12 and len(snapshot.gpus) <= 2:
        tall = min(9, rest - 6)
        lines += [
            _loss_rule(page),
            *curve.chart(snapshot.state.loss, page.width - 1, tall - 1, marks=_validated(snapshot.state)),
        ]
        return lines + _events(page, page.height - len(lines))
    return lines + _events(page, rest, "" if curve_width else _loss_said(snapshot.state))


def _side_detail(page: Page, width: int, height: int) -> list[Line]:
    if page.snapshot.folder is None and page.following:
        return _plan(page, width)
    sign, text, role = detail.title(page.row)
    lines = detail.detail(page.row, page.snapshot, width, full=False)
    head: Line = ((f"{sign} ", role), (text, "head" if role not in ("fail", "running") else role))
    if page.snapshot.live and page.following:
        head = (*head, ("   following the run", "dim"))
    elif page.snapshot.live:
        head = (*head, ("   your row, esc follows", "dim"))
    if len(lines) > height - 1:
        hidden = len(lines) - height + 2
        lines = [*lines[: height - 2], ((f"… {hidden} more lines, enter shows all", "dim"),)]
    return [head, *lines]


def _loss_side(page: Page, width: int, height: int) -> list[Line]:
    state = page.snapshot.state
    head: Line = (("loss, train, all history", "dim"),)
    if not state.loss:
        return [head, (("no loss yet: it begins in phase 10, batch", "dim"),)]
    tall = max(4, (height - 3) * 2 // 3)
    rates = curve.chart(state.lr, width, max(3, height - tall - 3), "lr")
    said = paint.wrap(_loss_said(state), width)
    return [
        *(((text, "text"),) for text in said),
        *curve.chart(state.loss, width, tall + 1 - len(said), marks=_validated(state)),
        (("learning rate", "dim"),),
        *rates,
    ]


def _loss_rule(page: Page) -> Line:
    return paint.rule(_loss_said(page.snapshot.state), "all history, from its lowest", page.width)


def _validated(state: RunState) -> list[tuple[int, float]]:
    return curve.validation(state.validation)


def _loss_said(state: RunState) -> str:
    """``loss, train: 3.785, lr 9.4e-4, validation loss 4.097 at 6``; empty before the first update."""
    if not state.loss:
        return ""
    last_lr = state.lr[-1][1] if state.lr else None
    rated = f", lr {rate(last_lr)}" if isinstance(last_lr, (int, float)) else ""
    value = state.loss[-1][1]
    shown = loss_text(value) if isinstance(value, (int, float)) else value
    checked = ""
    if state.validation:
        at, metrics = state.validation[-1]
        named = next(((name, value) for name, value in metrics.items() if isinstance(value, (int, float))), None)
        checked = f", validation {named[0]} {loss_text(named[1])} at {at}" if named else ""
    strange, thin = points.strange(state.loss), points.thinned(state.loss)
    odd = f", {strange} not finite" if strange else ""
    return f"loss, train: {shown}{rated}{checked}{odd}{f', {thin}' if thin else ''}"


def _gpu_lines(page: Page, room: int, all_shown: bool) -> list[Line]:
    snapshot = page.snapshot
    shown = gpu.scene(snapshot, page.row)
    if not shown.gpus:
        return _cpu_lines(page)
    bar = gpu.bar_width(page.width)
    lines = [paint.rule(shown.title, gpu.LEGEND, page.width), gpu.wide_head(shown, bar)]
    if not shown.frozen and all(each.allocated is None for each in shown.gpus):
        lines[0] = paint.rule(_titled(shown, snapshot), "▂ used  ┊┃ highest of phase, run", page.width)
    elif gpu.note(shown, snapshot):
        lines[0] = paint.rule(_titled(shown, snapshot), "▆ allocated  ▄ reserved", page.width)
    for each, more in gpu.folded(shown.gpus, all_shown):
        lines.append(gpu.wide_line(each, bar))
        if more:
            lines.append((gpu.fold_note(each, more),))
    lines += [((f" ! {text}", "warn"),) for text in gpu.slowed(shown.gpus)]
    if len(lines) > room and not all_shown:
        lines = [*lines[: room - 1], ((f"  … {len(lines) - room + 1} more lines, tab shows them", "dim"),)]
    return lines


def _titled(shown: gpu.Scene, snapshot: Snapshot) -> str:
    lacks = gpu.note(shown, snapshot)
    return f"{shown.title}: {lacks}" if lacks else shown.title


def _no_gpu(page: Page) -> list[Line]:
    why = gpu.why_none(page.snapshot)
    return [paint.rule("memory", "nothing measured yet", page.width), ((f" {why}", "text"),)]


def _cpu_lines(page: Page) -> list[Line]:
    """No GPU: the sentence, then what the CPU run took, the selected phase against the highest of the run."""
    snapshot, row = page.snapshot, page.row
    return [
        paint.rule(
            "memory of the run" if units.on_gpu(snapshot.state.rows) else "memory of the CPU run",
            cpu.legend(row),
            page.width,
        ),
        ((f" {gpu.why_none(snapshot)}", "text"),),
        *cpu.wide_lines(snapshot, row, page.width),
    ]


def _events(page: Page, height: int, said: str = "") -> list[Line]:
    """The newest events under their rule; ``said`` is what the rule tells of the loss where no chart stands."""
    if height < 1:
        return []
    state = page.snapshot.state
    shown = happenings.worth(state.feed)[-max(0, height - 1) :] if height > 1 else []
    broken = page.snapshot.broken_lines
    odd = f"{broken} broken lines in the log, " if broken else ""
    odd += f"{page.snapshot.unknown_kinds} of unknown kind, " if page.snapshot.unknown_kinds else ""
    legend = f"{odd}{len(shown)} of {state.feed_count}, newest last" if shown else "none yet"
    legend = f"{said}   {legend}" if said else legend
    return [paint.rule("events", legend, page.width), *(happenings.feed_line(event) for event in shown)]
