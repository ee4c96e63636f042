"""Line 2: run, state, place and time. The one line that is always true and always there. Pure."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from tui_pilot.events.schema import PHASES, PHASES_OF
from tui_pilot.run_folder import short_id
from tui_pilot.text import ago, duration, plural
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line, Span
from tui_pilot.ui.parts.checklist import counted_text, is_lost, progress_text
from tui_pilot.ui.snapshot import Snapshot

QUIET_S = 10.0
NAME = 20


def headline(snapshot: Snapshot, width: int, instead: str | None = None) -> Line:
    """The state in capitals after its glyph; the time at the right. ``instead`` stands in the place of the counts."""
    short = width < 100
    sign, role, word, place, time = _parts(snapshot, short)
    if instead and len(place) > 1:
        place = (*place[:-1], (f"   {instead}", "text"))
    name = f" {paint.clean(_name(snapshot)):<{NAME - 1}} "
    if snapshot.read_only:
        place = _read_only(snapshot, place, width)
    pad = " " * max(1, (9 if short else 10) - len(word)) if word in ("READY", "RUNNING", "STARTING", "OPENING") else " "
    spans: list[Span] = [(name, "text"), (f"{sign} ", role), (word, _capital_role(role)), (pad, "text"), *place]
    taken = paint.width_of(((time, "text"),)) + 2
    if width - paint.width_of(tuple(spans)) - taken < 1 and len(place) > 1 and not snapshot.read_only:
        spans.pop()  # the counts: the rows below say them too
    room = width - paint.width_of(tuple(spans)) - taken
    if room < 1 and ", " in time:  # how long ago it ended goes before anything is cut
        time = time.split(", ", maxsplit=1)[0]
        taken = paint.width_of(((time, "text"),)) + 2
        room = width - paint.width_of(tuple(spans)) - taken
    if room < 1 and word in ("LOST", "READY"):
        return tuple(spans)
    if room < 1 and time:
        spans = list(paint.fit(tuple(spans), max(10, width - len(time) - 3)))
        room = 1
    return (*spans, (" " * max(1, room), "text"), (time, "dim" if word == "READY" else "text"))


def _read_only(snapshot: Snapshot, place: tuple[Span, ...], width: int) -> tuple[Span, ...]:
    """The place, cut to its head, and who has the keys: in full where there is room, never left out."""
    who = f" (pid {snapshot.keys_pid})" if snapshot.keys_pid else ""
    head = (place[0][0].split(",")[0], place[0][1])
    said = f"READ-ONLY, another screen has the keys{who}" if width >= 100 else f"READ-ONLY{who}"
    return head, (f"   {said}", "warn")


def _capital_role(role: str) -> str:
    return f"{role}+bold" if role != "dim" else "head"


def _name(snapshot: Snapshot) -> str:
    if snapshot.folder is not None:
        return short_id(snapshot.folder.id)
    loaded = snapshot.plan
    if loaded is None:
        return "no plan"
    if loaded.demo:
        return "demo"
    return str(loaded.file.name if loaded.file is not None else loaded.plan.name)


def _parts(snapshot: Snapshot, short: bool) -> tuple[str, str, str, tuple[Span, ...], str]:
    """Glyph, role, word, place, time."""
    state = snapshot.state
    if snapshot.problem and snapshot.folder is None and snapshot.plan is None:
        return "✗", "fail", "ERROR", ((snapshot.problem, "fail"),), ""
    if snapshot.reading is not None:
        said = f"reading the log, {snapshot.reading:.0%}" + ("" if short else "; the rows are those read so far")
        return "·", "dim", "OPENING", ((said, "text"),), ""
    if snapshot.folder is None or state.state == "new":
        return _before(snapshot, short)
    if snapshot.lost:
        return _lost(snapshot, short)
    if state.state == "running":
        return _running(snapshot, short)
    ended = _took(snapshot)
    if state.state == "stopped":
        kept = plural(sum(row.verdict not in (None, "not_run") for row in state.rows), "row")
        return "–", "text", "STOPPED", ((f"{state.text or 'by you'}   {kept} kept", "text"),), ended
    verdict = state.verdict
    counts = counted(snapshot)
    if verdict == "fail" or state.state in ("failed", "diverged"):
        failed = next((row for row in state.rows if row.verdict == "fail"), None)
        if failed is None:
            return "✗", "fail", state.state.upper(), ((state.text or counts, "text"),), ended
        first = failed.reasons[0] if failed.reasons else {}
        what = "out of memory" if first.get("code") == "oom" else str(first.get("code", "")).replace("_", " ")
        place = ((f"at {failed.phase}: {what}", "fail"), (f"   {counts}", "text"))
        return "✗", "fail", "FAILED", place, ended
    sign, role = paint.glyph(verdict)
    return sign, role, "FINISHED", ((verdict or "", role), (f"   {counts}", "text")), ended


def _before(snapshot: Snapshot, short: bool) -> tuple[str, str, str, tuple[Span, ...], str]:
    if snapshot.lost:
        why = "its supervisor never began: look into logs/ of the run folder"
        return "?", "fail", "LOST", ((f"before the first phase: {why}", "fail"),), ""
    if snapshot.folder is not None and not snapshot.now_mono:
        return "·", "dim", "OPENING", (("the run is being read", "text"),), ""
    if snapshot.folder is not None:
        return "►", "running", "STARTING", (("the supervisor starts", "text"),), ""
    if snapshot.plan is None:
        return "·", "dim", "NO PLAN", (("nothing to run here", "text"),), ""
    number = len(PHASES)
    text = f"{number} phases, not run yet"
    if snapshot.plan.demo:
        text = "built-in data, not yours; " + ("under 1 min" if short else f"{number} phases, under 1 min")
    return "·", "dim", "READY", ((text, "text"),), "r runs it"


def _running(snapshot: Snapshot, short: bool) -> tuple[str, str, str, tuple[Span, ...], str]:
    state = snapshot.state
    row = state.running_row
    if row is None:
        done = sum(each.verdict is not None for each in state.rows)
        place = _between(snapshot) if state.again else f"{done}/{len(PHASES)} {_between(snapshot)}"
        place = f"resume test: {place}" if state.again else place
    else:
        place = f"{PHASES.index(row.phase) + 1}/{len(PHASES)} {row.phase}"
        said = (counted_text(row) or progress_text(row)) if short else progress_text(row)
        place += f", {said}" if said else ""
    silent = snapshot.now_mono - state.last_mono if state.last_mono is not None else 0.0
    if QUIET_S <= silent < 1e6:
        place = place.split(",")[0] + f", no event for {silent:.0f} s, {'' if short else 'process '}alive"
    if state.queued:
        place += f"   resume test {state.queued.split(':', maxsplit=1)[0]}"
    elapsed = max(0.0, snapshot.now_mono - state.started_mono) if state.started_mono is not None else None
    began = unix(state.again)
    if began is not None:  # a resume test of an ended run: its own time, not the run's age
        elapsed = max(0.0, snapshot.now - began)
    return "►", "running", "RUNNING", ((place, "text"),), clock(elapsed)


def _between(snapshot: Snapshot) -> str:
    """What goes on while no phase is open."""
    state = snapshot.state
    if state.stage is None:
        return "the next stage is prepared" if any(row.verdict for row in state.rows) else "the first stage is prepared"
    rows = [state.row(phase) for phase in PHASES_OF.get(state.stage.name, ())]
    # A row of an earlier attempt says nothing of this one.
    own = [row.verdict if row.attempt >= state.stage.attempt else None for row in rows]
    if not any(own):
        return f"stage {state.stage.name} starts"
    return f"stage {state.stage.name} " + ("ends" if all(own) else "goes on")


def _lost(snapshot: Snapshot, short: bool) -> tuple[str, str, str, tuple[Span, ...], str]:
    state = snapshot.state
    row = state.running_row or next((each for each in state.rows if is_lost(each)), None)
    since = f" since {state.last_event[11:19]} UTC" if state.last_event else ""
    where = f"in {row.phase}" if row else "between two phases"
    kept = sum(each.verdict not in (None, "running", "not_run") and not is_lost(each) for each in state.rows)
    text = f"{where}: no sign of life{since}" + ("" if short else ", process gone")
    return "?", "fail", "LOST", ((text, "fail"),), f"{plural(kept, 'row is', 'rows are')} kept"


def counted(snapshot: Snapshot) -> str:
    """``13 pass, 2 warn``, in the order people read them."""
    words = Counter(row.verdict for row in snapshot.state.rows)
    named = [("pass", "pass"), ("warn", "warn"), ("unchecked", "unchecked"), ("fail", "fail"), ("skipped", "skipped")]
    named.append(("not_run", "not run"))
    return ", ".join(f"{words[key]} {text}" for key, text in named if words[key])


def _took(snapshot: Snapshot) -> str:
    state = snapshot.state
    took = None
    if state.started_mono is not None and state.ended_mono is not None and state.ended_mono >= state.started_mono:
        took = clock(state.ended_mono - state.started_mono)
    ended = unix(state.ended)
    age = f"ended {ago(snapshot.now - ended)}" if ended is not None and snapshot.now else ""
    return ", ".join(part for part in (took, age) if part)


def clock(seconds: float | None) -> str:
    """A running clock: ``0:07``, ``1:47``, ``2h05``."""
    if seconds is None:
        return ""
    whole = int(seconds)
    return f"{whole // 60}:{whole % 60:02d}" if whole < 3600 else duration(seconds)


def unix(at: str | None) -> float | None:
    """Unix seconds of an event's clock time; None where it cannot be read."""
    try:
        return datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp() if at else None
    except ValueError:
        return None
