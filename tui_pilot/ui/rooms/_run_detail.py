"""What is known of one run, below the list: its phases, what failed, what was changed, what it cost. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tui_pilot.events.schema import PHASES
from tui_pilot.run_folder import short_id
from tui_pilot.store import points
from tui_pilot.store.ledger import Entry
from tui_pilot.store.memory import binding_phase
from tui_pilot.store.state import RunState
from tui_pilot.text import ago, duration, size
from tui_pilot.text import loss as loss_text
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import checklist, curve
from tui_pilot.ui.parts.detail import flow
from tui_pilot.ui.parts.headline import unix
from tui_pilot.ui.rooms import _changes
from tui_pilot.ui.rooms._ledger import WITHOUT_VERDICT, need_of

PHASE = 12
LEAST_CURVE = 6


def when(entry: Entry, now: float) -> str:
    """``2026-12-01 19:32 UTC, 42 min ago``."""
    state = entry.state
    if not state.started:
        return "never started"
    started = unix(state.started)
    age = f", {ago(now - started)}" if started and now else ""
    return f"{state.started[:10]} {state.started[11:16]} UTC{age}"


def detail(entry: Entry, width: int) -> list[Line]:
    """Every line there is; the room scrolls."""
    if entry.problem:
        return [((f" {piece}", "text"),) for piece in paint.wrap(entry.problem, width - 1)]
    state = entry.state
    inner = width - 2
    body: list[Line] = [*_verdict(state, inner), _signs(state), *_reasons(state, inner)]
    binding = binding_phase(state.rows)
    need = need_of(state)
    if binding and need is not None:
        body += flow("need", [f"{size(need)}, set by {binding}"], inner)
    body += _changed(entry, inner)
    body += flow("cost", _cost(entry), inner)
    if state.decision:
        body += flow("decision", [f"{state.decision.get('decision')}: {state.decision.get('note')}"], inner)
    for note in state.notes:
        about = f"{note['phase']}: " if note.get("phase") else ""
        body += flow("note", [f"{about}{note.get('text')}"], inner)
    return [((" ", "text"), *each) for each in body]


def _verdict(state: RunState, width: int) -> list[Line]:
    """The state and, apart from it, the verdict: a run that did not come to its end has none."""
    fails = sum(row.verdict == "fail" for row in state.rows)
    if state.state == "lost":
        rest = "It has no verdict. Its finished rows are kept; enter opens it, and r then runs its plan again."
        return [*flow("lost", [state.text], width, "fail"), *flow("", [rest], width)]
    if state.state in WITHOUT_VERDICT:
        some = f"; {fails} of its rows FAIL" if fails else ""
        return flow(state.state, [f"no verdict: it did not come to its end{some}. {state.text}".strip()], width)
    if state.state == "running":
        row = state.running_row
        return flow("running", [f"in {row.phase}" if row else "between phases"], width)
    word = "FAIL" if state.verdict == "fail" else str(state.verdict)
    # What failed, and why, stands below as the row's own reason.
    tail = f": {state.text}" if state.text and not fails else ""
    return flow(state.state, [f"verdict {word}{tail}"], width)


def _signs(state: RunState) -> Line:
    spans: list[paint.Span] = [(f"{'phases':<{PHASE}}", "dim")]
    spans += [paint.glyph("lost" if checklist.is_lost(row) else row.verdict) for row in state.rows]
    words: dict[str, int] = {}
    for row in state.rows:
        words[str(row.verdict or "not_run")] = words.get(str(row.verdict or "not_run"), 0) + 1
    said = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in words.items())
    said = said if len(words) > 1 else f"all {len(PHASES)} {said.split(' ', 1)[1]}"
    return (*spans, (f"  {said}", "text"))


def _reasons(state: RunState, width: int) -> list[Line]:
    """The worst reason of every phase that has one, whole."""
    out: list[Line] = []
    for row in state.rows:
        worst = next((each for each in row.reasons if each.get("severity") in ("fail", "unchecked", "warn")), None)
        if worst is None or row.verdict == "not_run":
            continue
        mark = f" (marked {row.mark} by hand)" if row.mark else ""
        sign, role = paint.glyph("lost" if checklist.is_lost(row) else row.verdict)
        said = paint.wrap(f"{worst.get('code')}: {worst.get('text')}{mark}", width - PHASE - 2)
        for n, piece in enumerate(said):
            head: Line = ((f"{sign} ", role), (f"{row.phase:<{PHASE}}", "text"))
            out.append((*(head if n == 0 else ((" " * (PHASE + 2), "text"),)), (piece, "text")))
    return out


def _changed(entry: Entry, width: int) -> list[Line]:
    changed = entry.run.get("changed")
    parent = entry.run.get("parent")
    if isinstance(changed, Mapping) and changed:
        lines = flow("changed", [f"from {short_id(str(parent))}"] if parent else [], width)
        for key, pair in changed.items():
            for n, piece in enumerate(paint.wrap(_changes.one(str(key), pair), width - PHASE)):
                lines.append(((" " * PHASE + ("  " if n else "") + piece, "text"),))
        return lines
    return flow("changed", [f"nothing, from {short_id(str(parent))}"], width) if parent else []


def _cost(entry: Entry) -> list[str]:
    state, large = entry.state, entry.payload_bytes
    out = []
    if state.started_mono is not None and state.ended_mono is not None and state.ended_mono >= state.started_mono:
        out.append(f"took {duration(state.ended_mono - state.started_mono)}")
    kept = f"{size(large)} of it checkpoint and artifact" if large else "without checkpoint and artifact"
    return [*out, f"{size(entry.bytes)} on disk, {kept}"]


def losses(state: RunState, width: int, height: int) -> tuple[str, str, list[Line]]:
    """The title, the legend and the chart of a run's training loss with its validation points; no lines without room.

    The last validation value and every value that was no number are said in the title, for whoever cannot see a chart.
    """
    placed = curve.finite(state.loss)
    if not placed or height < LEAST_CURVE:
        return "", "", []
    checked = curve.validation(state.validation)
    title = f"loss {loss_text(placed[0][1])} to {loss_text(placed[-1][1])}"
    if checked:
        title += f", validation {loss_text(checked[-1][1])}"
    strange = points.strange(state.loss)
    title += f", {strange} not finite" if strange else ""
    legend = "─ train  v validation" if checked else "─ train"
    return title, legend, curve.chart(state.loss, width, height, marks=checked)
