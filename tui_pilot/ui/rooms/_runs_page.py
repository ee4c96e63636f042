"""The Runs room as lines: every run, variants below their parents, and what is known of the selected one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tui_pilot.events.schema import PHASES
from tui_pilot.run_folder import RunFolder, short_id
from tui_pilot.store.ledger import Entry
from tui_pilot.store.memory import binding_phase
from tui_pilot.store.state import RunState
from tui_pilot.text import ago, duration, plural, rate, size
from tui_pilot.text import loss as loss_text
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import checklist, curve, units
from tui_pilot.ui.parts.detail import flow
from tui_pilot.ui.parts.headline import unix
from tui_pilot.ui.rooms import _comparison_page

NESTED = ("variant", "trial")
DETAIL_LINES = 13
CURVE_LINES = 10
STATES = {"finished": 0, "running": 1, "failed": 2, "diverged": 3, "stopped": 4, "lost": 5, "new": 6}


@dataclass(frozen=True)
class Listed:
    """One run as a line: its entry and the strokes that lead to it from its parent."""

    entry: Entry
    branch: str = ""

    @property
    def folder(self) -> RunFolder:
        return self.entry.folder

    @property
    def state(self) -> RunState:
        return self.entry.state

    def words(self) -> str:
        """What a filter looks in."""
        return f"{self.folder.id} {self.state.state} {self.state.verdict} {changed_text(self.entry)}".lower()


@dataclass(frozen=True)
class Page:
    """What is drawn. ``now`` is Unix seconds; ``opened`` the run that the other rooms show."""

    width: int
    height: int
    root: str
    listed: Sequence[Listed]
    total: int
    at: int
    now: float
    opened: RunFolder | None
    words: str = ""
    comparisons: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Comparison documents by their id."""

    @property
    def narrow(self) -> bool:
        return self.width < 100

    @property
    def comparison(self) -> Mapping[str, Any] | None:
        """The comparison that the selected run is a trial of."""
        return self.comparisons.get(str(self.listed[self.at].entry.run.get("comparison"))) if self.listed else None


def tree(entries: Sequence[Entry]) -> list[Listed]:
    """Oldest first; a variant or a trial stands below the run it was changed from, wherever that is listed."""
    here = {each.folder.id for each in entries}
    below: dict[str, list[Entry]] = {}
    roots = []
    for each in entries:
        parent = each.run.get("parent")
        if each.run.get("kind") in NESTED and parent in here and parent != each.folder.id:
            below.setdefault(str(parent), []).append(each)
        else:
            roots.append(each)
    out: list[Listed] = []
    done: set[str] = set()

    def add(each: Entry, branch: str, deeper: str) -> None:
        if each.folder.id in done:
            return
        done.add(each.folder.id)
        out.append(Listed(each, branch))
        children = below.get(each.folder.id, [])
        for n, child in enumerate(children):
            last = n == len(children) - 1
            add(child, deeper + ("└ " if last else "├ "), deeper + ("  " if last else "│ "))

    for each in roots:
        add(each, "", "")
    for each in entries:  # runs that name each other as parents are still runs
        add(each, "", "")
    return out


def counted(listed: Sequence[Listed]) -> str:
    """``12 finished, 1 failed, 1 lost``."""
    words: dict[str, int] = {}
    for each in listed:
        words[each.state.state] = words.get(each.state.state, 0) + 1
    return ", ".join(f"{words[name]} {name}" for name in sorted(words, key=lambda name: STATES.get(name, 9)))


def draw(page: Page) -> list[Line]:
    """The list, and below it the selected run where there is room."""
    room = page.height - 2
    least = min(len(page.listed), max(3, room // 2))
    compared = page.comparison
    below = detail(page) if page.listed else []
    if compared is not None:
        # What is known of one trial stands on its own line; below it, what all of them say together.
        least = min(least, max(3, room - _comparison_page.MOST_HEIGHT))
        below = _comparison_page.pane(compared, page.width, room - least) or below
    below = below[: max(0, room - least)]
    shown = max(1, room - len(below))
    top = max(0, min(page.at - shown // 2, len(page.listed) - shown))
    legend = (
        f"with “{paint.clean(page.words)}”: {len(page.listed)}" if page.words else "newest last, none is ever taken off"
    )
    lines: list[Line] = [paint.rule(f"{plural(page.total, 'run')} in {page.root}", legend, page.width), _head(page)]
    lines += [_line(page, each, n + top == page.at) for n, each in enumerate(page.listed[top : top + shown])]
    free = page.height - len(lines) - len(below)
    drawn = _curve(page, free - 1) if page.listed and compared is None else []
    lines += [paint.EMPTY] * (free - len(drawn))
    return [*lines, *drawn, *below]


def _curve(page: Page, room: int) -> list[Line]:
    """The selected run's losses where the list leaves room."""
    state = page.listed[page.at].state
    if room < 6 or page.narrow or not curve.finite(state.loss):
        return []
    chart = curve.chart(state.loss, page.width - 1, min(CURVE_LINES, room - 1))
    name = short_id(page.listed[page.at].folder.id)
    first, last = (loss_text(curve.finite(state.loss)[n][1]) for n in (0, -1))
    return [paint.rule(f"{name}: loss, train, {first} to {last}", "all history, from its lowest", page.width), *chart]


def _name_width(page: Page) -> int:
    return 24 if page.narrow else 30


def _head(page: Page) -> Line:
    text = f"   {'run':<{_name_width(page)}}{'state':<10}{'verdict':<10}"
    text += (
        f"{'need':>10}  " if page.narrow else f"{'updates':>7}{'batch':>7}{'need':>11}{'s/upd':>7}{'val loss':>10}  "
    )
    return ((paint.left(text + ("changed" if page.narrow else "changed from its parent"), page.width), "dim"),)


def _line(page: Page, each: Listed, selected: bool) -> Line:
    state = each.state
    sign, role = _sign(state)
    # A run that was stopped or lost has no verdict of its own, only rows that have one.
    whole = state.state not in ("stopped", "lost")
    word = "FAIL" if state.verdict == "fail" else state.verdict if whole and state.verdict else "–"
    name = paint.left(f"{each.branch}{short_id(each.folder.id)}", _name_width(page) - 1)
    if each.entry.problem:
        return ((">" if selected else " ", "head"), ("? ", "fail"), (f"{name} {each.entry.problem}", "text"))
    figures = f"{_need(state):>10}  "
    if not page.narrow:
        figures = f"{len(state.loss) or '–':>7}{_batch(state):>7}{_need(state):>11}"
        figures += f"{_pace(state):>7}{_validation(state):>10}  "
    here = "shown, " if each.folder == page.opened else ""
    spans: Line = (
        (">" if selected else " ", "head"),
        (sign, role),
        (f" {name} ", "text"),
        (f"{state.state:<10}", "running" if state.state == "running" else "text"),
        (f"{word:<10}", "fail" if word == "FAIL" else "text"),
        (f"{figures}{here}{changed_text(each.entry)}", "text"),
    )
    return paint.chosen(paint.fit(spans, page.width)) if selected else spans


def _sign(state: RunState) -> paint.Span:
    if state.state == "stopped":
        return "–", "dim"
    return paint.glyph({"running": "running", "lost": "lost"}.get(state.state, state.verdict))


def _need(state: RunState) -> str:
    """The highest used memory, on a CPU what was allocated."""
    for counter in ("device_used_peak", "allocated_peak"):
        most = max((units.peak(row, counter) or 0 for row in state.rows), default=0)
        if most:
            return size(most)
    return "–"


def _batch(state: RunState) -> str:
    counted = (state.facts.get("batch") or {}).get("planned")
    number = counted.get("effective_batch") if isinstance(counted, Mapping) else None
    return f"{number:,}" if isinstance(number, int) else "–"


def _pace(state: RunState) -> str:
    seconds = (state.facts.get("sizes") or {}).get("seconds")
    took = seconds.get("update") if isinstance(seconds, Mapping) else None
    return f"{took:.2f}" if isinstance(took, (int, float)) else "–"


def _validation(state: RunState) -> str:
    for _, metrics in reversed(state.validation):
        if isinstance(metrics.get("loss"), (int, float)):
            return loss_text(metrics["loss"])
    return "–"


def changed_text(entry: Entry) -> str:
    """``optimizer.lr 1.0e-3 → 5.0e-4``; the first run of a plan has no parent."""
    changed = entry.run.get("changed")
    if not isinstance(changed, Mapping) or not changed:
        alike = entry.run.get("replicate_of")
        if alike:
            return f"nothing: a replicate of {str(alike)[-4:]}"
        return "nothing" if entry.run.get("parent") else "first run"
    return ", ".join(_change(str(key), value) for key, value in changed.items())


def _change(key: str, value: Any) -> str:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return key
    before, after = (_short(key, each) for each in value)
    return key if before == after else f"{key} {before} → {after}"


def _short(key: str, value: Any) -> str:
    """Hashes by their beginning, rates as rates."""
    if isinstance(value, float) and key.endswith("lr"):
        return rate(value)
    if isinstance(value, str) and len(value) >= 32 and all(each in "0123456789abcdef" for each in value):
        return value[:8]
    return "none" if value is None else str(value)


def detail(page: Page) -> list[Line]:
    """The selected run: when, how long, every phase's sign, what failed, what was changed, what people said."""
    each = page.listed[page.at]
    state, width = each.state, page.width - 2
    started = unix(state.started)
    when = f"{state.started[:10]} {state.started[11:19]} UTC" if state.started else "never started"
    age = f", {ago(page.now - started)}" if started and page.now else ""
    lines: list[Line] = [paint.rule(short_id(each.folder.id), f"{when}{age}", page.width)]
    signs: list[paint.Span] = [(f"{'phases':<12}", "dim")]
    for row in state.rows:
        sign, role = paint.glyph("lost" if checklist.is_lost(row) else row.verdict)
        signs.append((sign, role))
    text = f"  {_counts(state)}"
    signs.append((text, "text"))
    body: list[Line] = [tuple(signs)]
    for row in state.rows:
        worst = next(
            (reason for reason in row.reasons if reason.get("severity") in ("fail", "unchecked", "warn")), None
        )
        if worst is None:
            continue
        mark = f" (marked {row.mark} by hand)" if row.mark else ""
        said = f"{worst.get('code')}: {worst.get('text')}{mark}"
        sign, role = paint.glyph(row.verdict)
        body.append(((f"{sign} ", role), (f"{row.phase:<12}", "text"), (paint.left(said, width - 14), "text")))
    binding = binding_phase(state.rows)
    if binding:
        body += flow("need", [f"{_need(state)}, set by {binding}"], width)
    took = _took(state)
    large = each.entry.payload_bytes
    kept = f"{size(each.entry.bytes)} on disk, "
    kept += f"{size(large)} of it checkpoint and artifact" if large else "without checkpoint and artifact"
    body += flow("cost", [part for part in (took, kept) if part], width)
    changed = each.entry.run.get("changed")
    if isinstance(changed, Mapping) and changed:
        parent = short_id(str(each.entry.run.get("parent")))
        body += flow(
            "changed", [f"from {parent}:", *(_change(str(key), value) for key, value in changed.items())], width
        )
    if state.decision:
        body += flow("decision", [f"{state.decision.get('decision')}: {state.decision.get('note')}"], width)
    for note in state.notes:
        about = f"{note['phase']}: " if note.get("phase") else ""
        body += flow("note", [f"{about}{note.get('text')}"], width)
    if state.state == "lost":
        body += flow(
            "lost", [f"{state.text}. Its finished rows are kept; r on its plan starts a new run."], width, "fail"
        )
    room = DETAIL_LINES - 1
    if len(body) > room:
        body = [*body[: room - 1], ((f"… {len(body) - room + 1} more lines, enter opens the run", "dim"),)]
    return [*lines, *((((" ", "text"), *each_line)) for each_line in body)]


def _counts(state: RunState) -> str:
    words: dict[str, int] = {}
    for row in state.rows:
        words[str(row.verdict or "not_run")] = words.get(str(row.verdict or "not_run"), 0) + 1
    said = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in words.items())
    return said if len(words) > 1 else f"all {len(PHASES)} {said.split(' ', 1)[1]}"


def _took(state: RunState) -> str:
    if state.started_mono is None or state.ended_mono is None or state.ended_mono < state.started_mono:
        return ""
    return f"took {duration(state.ended_mono - state.started_mono)}"
