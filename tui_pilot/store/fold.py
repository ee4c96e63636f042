"""A run's state after each of its events: pure, one small handler per kind.

Live view, replay, tests, screenshots and the sheet all use this one fold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tui_pilot.events import schema
from tui_pilot.store.memory import with_devices
from tui_pilot.store.state import Draft, Event, Live, Row, RunState, Stage, changed, extended, fed


def fold(events: Iterable[Event], state: RunState | None = None) -> RunState:
    """``reduce`` over many events."""
    begin = state or RunState()
    draft: RunState = Draft.of(begin)
    told = False
    for event in events:
        draft, told = reduce(draft, event), True
    return draft.done() if told and isinstance(draft, Draft) else begin


def reduce(state: RunState, event: Event) -> RunState:
    """The state after one event. Unknown kinds change nothing; the order of different files' events may vary."""
    handler = _HANDLERS.get(str(event.get("kind")))
    if handler is None:
        return state
    after = handler(state, event)
    if event["kind"] in _FED:
        after = fed(after, event)
    at = event.get("at")
    if at is not None and (after.last_event is None or at >= after.last_event):
        after = changed(after, last_event=at, last_mono=event.get("mono"))
    return after


def _with_row(state: RunState, phase: str, **changes: Any) -> RunState:
    if phase not in schema.PHASES:
        return state
    place = schema.PHASES.index(phase)
    rows = list(state.rows)
    rows[place] = changed(rows[place], **changes)
    return changed(state, rows=tuple(rows))


def _run_started(state: RunState, event: Event) -> RunState:
    supervisor = {key: event.get(key) for key in ("pid", "pid_start", "host", "boot")}
    if event.get("again"):
        # A resume test of an ended run: its rows, its start and its end stay what they are.
        return changed(state, state="running", again=event.get("at"), supervisor=supervisor)
    return changed(
        state,
        run=event.get("run", ""),
        run_kind=event.get("run_kind", "pilot"),
        name=event.get("name", ""),
        demo=bool(event.get("demo")),
        parent=event.get("parent"),
        changed=event.get("changed") or {},
        state="running",
        started=event.get("at"),
        started_mono=event.get("mono"),
        supervisor=supervisor,
    )


def _run_ended(state: RunState, event: Event) -> RunState:
    rows = tuple(
        changed(row, verdict="not_run") if row.verdict in (None, "running") else changed(row, progress=None)
        for row in state.rows
    )
    first = state.again is None
    return changed(
        state,
        state=event.get("state", "finished"),
        text=event.get("text", ""),
        ended=event.get("at") if first or state.ended is None else state.ended,
        ended_mono=event.get("mono") if first or state.ended_mono is None else state.ended_mono,
        again=None,
        interrupted=bool(event.get("interrupted")) or state.interrupted,
        stage=None,
        queued=None,
        rows=rows,
    )


def _stage_started(state: RunState, event: Event) -> RunState:
    stage = Stage(
        event.get("stage", ""),
        event.get("attempt", 1),
        event.get("pid"),
        event.get("pid_start"),
        event.get("at", ""),
        event.get("mono", 0.0),
    )
    # A queued test waits for an attempt of its own, past the stages that run before it.
    taken_up = stage.name == "resume" and (stage.attempt > 1 or state.again is not None)
    return changed(state, stage=stage, queued=None if taken_up else state.queued)


def _stage_ended(state: RunState, event: Event) -> RunState:
    if state.stage is None or state.stage.name != event.get("stage"):
        return state
    return changed(state, stage=None, live={})


def _rank_started(state: RunState, event: Event) -> RunState:
    facts = {key: value for key, value in event.items() if key not in ("v", "kind", "n", "source")}
    return changed(state, ranks={**state.ranks, int(event.get("rank", 0)): facts})


def _phase_started(state: RunState, event: Event) -> RunState:
    if event.get("rank", 0) != 0 or event.get("phase") not in schema.PHASES:
        return state
    row = state.row(event["phase"])
    attempt = event.get("attempt", 1)
    if row.verdict == "fail" and row.attempt == attempt and row.memory and all(one.get("rank") for one in row.memory):
        return state  # another rank was here first and failed: rank 0 only comes to the same phase
    attempts = row.attempts
    if row.verdict not in (None, "running") and row.attempt and attempt > row.attempt:
        attempts = (*attempts, _attempt(row))
    return _with_row(
        changed(state, live={}),
        row.phase,
        verdict="running",
        reasons=(),
        attempt=attempt,
        attempts=attempts,
        inputs=event.get("inputs") or {},
        thresholds={},
        started=event.get("at"),
        started_mono=event.get("mono"),
        ended=None,
        duration_s=None,
        parts={},
        memory=(),
        devices=(),
        progress=None,
    )


def _attempt(row: Row) -> dict[str, Any]:
    return {
        "attempt": row.attempt,
        "verdict": row.verdict,
        "reasons": list(row.reasons),
        "started": row.started,
        "ended": row.ended,
        "duration_s": row.duration_s,
        "inputs": dict(row.inputs),
        "parts": dict(row.parts),
        "memory": list(row.memory),
        "devices": list(row.devices),
    }


def _phase_ended(state: RunState, event: Event) -> RunState:
    if event.get("phase") not in schema.PHASES:
        return state
    row = state.row(event["phase"])
    if event.get("attempt", row.attempt) > row.attempt and row.attempt:
        # A new attempt that ended before it could say that it began.
        state = _phase_started(state, {**event, "at": None, "mono": None})
        row = state.row(event["phase"])
    if _another_rank_failed_too(row, event):
        joined = sorted((*row.memory, *(event.get("memory") or ())), key=lambda one: int(one.get("rank") or 0))
        reasons = (*row.reasons, *(event.get("reasons") or ()))
        return _with_row(state, row.phase, reasons=reasons, memory=tuple(joined), ended=event.get("at"))
    return _with_row(
        changed(state, live={} if row.running else state.live),
        row.phase,
        verdict=event.get("verdict"),
        reasons=tuple(event.get("reasons") or ()),
        attempt=event.get("attempt", row.attempt or 1),
        inputs=event.get("inputs") or row.inputs,
        thresholds=event.get("thresholds") or {},
        started=event.get("started") or row.started or event.get("at"),
        ended=event.get("at"),
        duration_s=event.get("duration_s"),
        parts=event.get("parts") or row.parts,
        memory=tuple(with_devices(event.get("memory") or (), row.devices)),
        progress=None,
        extra={key: event[key] for key in ("quality", "trace") if key in event},
    )


def _another_rank_failed_too(row: Row, event: Event) -> bool:
    """Ranks that fail each say so themselves: the first one's reasons stay first, the others stand behind them."""
    rank, said = event.get("rank"), [one.get("rank") for one in row.memory]
    same = row.verdict == event.get("verdict") == "fail" and event.get("attempt", row.attempt) == row.attempt
    return same and rank is not None and bool(said) and rank not in said


def _live(state: RunState, event: Event) -> RunState:
    """What a rank holds now. A line that comes after its phase ended says nothing any more."""
    phase = event.get("phase")
    row = state.row(phase) if phase in schema.PHASES else None
    if row is None or not row.running or event.get("attempt", row.attempt) != row.attempt:
        return state
    rank, old = int(event.get("rank") or 0), state.live.get(int(event.get("rank") or 0))
    if old is None or old.phase != row.phase:
        old = Live(row.phase)
    allocated, reserved = event.get("allocated"), event.get("reserved")
    new = Live(
        row.phase, allocated, reserved, _most(old.allocated_highest, allocated), _most(old.reserved_highest, reserved)
    )
    return changed(state, live={**state.live, rank: new})


def _most(*values: int | None) -> int | None:
    return max((value for value in values if isinstance(value, int)), default=None)


def _progress(state: RunState, event: Event) -> RunState:
    if event.get("phase") not in schema.PHASES or not state.row(event["phase"]).running:
        return state
    progress = {key: event.get(key) for key in ("done", "total", "unit", "text")}
    return _with_row(state, event["phase"], progress=progress)


def _part(state: RunState, event: Event) -> RunState:
    if event.get("phase") not in schema.PHASES:
        return state
    row = state.row(event["phase"])
    part = {key: value for key, value in event.items() if key in ("duration_s", "allocated_peak", "reserved_peak")}
    return _with_row(state, row.phase, parts={**row.parts, str(event.get("part")): part})


def _device_peaks(state: RunState, event: Event) -> RunState:
    if event.get("phase") not in schema.PHASES:
        return state
    row = state.row(event["phase"])
    if event.get("attempt", row.attempt) != row.attempt:
        return state
    gpus = tuple(event.get("gpus") or ())
    return _with_row(state, row.phase, devices=gpus, memory=tuple(with_devices(row.memory, gpus)))


def _update(state: RunState, event: Event) -> RunState:
    if event.get("stage", "train") not in ("train", schema.TRIAL):
        return state
    step = int(event.get("update", 0))
    loss, lr = event.get("loss"), event.get("lr")
    if loss is not None:
        state = extended(state, "loss", (step, loss))
    return state if lr is None else extended(state, "lr", (step, lr))


def _validation(state: RunState, event: Event) -> RunState:
    return extended(state, "validation", (int(event.get("update", 0)), event.get("metrics") or {}))


def _facts(state: RunState, event: Event) -> RunState:
    name, value = str(event.get("name")), event.get("value")
    state = changed(state, facts={**state.facts, name: value})
    if name == "ways_out" and isinstance(value, dict):
        for phase, ways in value.items():
            state = _with_ways(state, phase, ways)
    return state


def _with_ways(state: RunState, phase: str, ways: Any) -> RunState:
    """What was predicted of the ways out of an out-of-memory stands with the reason that names them."""
    if phase not in schema.PHASES:
        return state
    reasons = tuple(
        {**reason, "where": {**reason["where"], "variants": ways}}
        if reason.get("code") == "oom" and (reason.get("where") or {}).get("variants")
        else reason
        for reason in state.row(phase).reasons
    )
    return _with_row(state, phase, reasons=reasons)


def _mark(state: RunState, event: Event) -> RunState:
    phase, verdict = str(event.get("phase")), event.get("verdict")
    note = event.get("note") if verdict is not None else None
    return _with_row(state, phase, mark=verdict, note=note)


def _note(state: RunState, event: Event) -> RunState:
    # A note on a phase stands beside the mark's own note, never in its place.
    note = {"at": event.get("at"), "text": event.get("text", "")}
    if event.get("phase") in schema.PHASES:
        note["phase"] = event["phase"]
    return changed(state, notes=(*state.notes, note))


def _decision(state: RunState, event: Event) -> RunState:
    decision = {"decision": event.get("decision"), "note": event.get("note"), "at": event.get("at")}
    return changed(state, decision=decision)


def _request(state: RunState, event: Event) -> RunState:
    return changed(state, requests=(*state.requests, dict(event)))


def _queued(state: RunState, event: Event) -> RunState:
    return changed(state, queued=event.get("text"))


def _cleaned(state: RunState, event: Event) -> RunState:
    return changed(state, cleaned=(*state.cleaned, *(event.get("removed") or ())))


def _same(state: RunState, event: Event) -> RunState:
    return state


_HANDLERS = {
    schema.RUN_STARTED: _run_started,
    schema.RUN_ENDED: _run_ended,
    schema.STAGE_STARTED: _stage_started,
    schema.STAGE_ENDED: _stage_ended,
    schema.RANK_STARTED: _rank_started,
    schema.PHASE_STARTED: _phase_started,
    schema.PHASE_ENDED: _phase_ended,
    schema.LIVE: _live,
    schema.PROGRESS: _progress,
    schema.PART: _part,
    schema.DEVICE_PEAKS: _device_peaks,
    schema.UPDATE: _update,
    schema.VALIDATION: _validation,
    schema.FACTS: _facts,
    schema.MARK: _mark,
    schema.NOTE: _note,
    schema.DECISION: _decision,
    schema.REQUEST: _request,
    schema.REQUEST_SEEN: _same,
    schema.TEST_QUEUED: _queued,
    schema.CLEANED: _cleaned,
    schema.NOTICE: _same,
}

_FED = frozenset(
    {
        schema.RUN_STARTED,
        schema.RUN_ENDED,
        schema.STAGE_ENDED,
        schema.PHASE_STARTED,
        schema.PHASE_ENDED,
        schema.UPDATE,
        schema.VALIDATION,
        schema.MARK,
        schema.NOTE,
        schema.DECISION,
        schema.REQUEST,
        schema.TEST_QUEUED,
        schema.NOTICE,
        schema.CLEANED,
    }
)
