"""One run as others read it: the ``show --json`` document, from the fold, ``run.json``, ``plan.json`` and the lock."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from tui_pilot.errors import (
    EXIT_GATE_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_STOPPED,
    EXIT_TOOL_FAILED,
    EXIT_UNCHECKED,
    RunFolderError,
)
from tui_pilot.events.reader import PIECE_BYTES, Reader
from tui_pilot.events.schema import PHASES, PHASES_OF
from tui_pilot.gates.verdict import Reason
from tui_pilot.run_folder import RunFolder, is_live
from tui_pilot.store.fold import fold, reduce
from tui_pilot.store.memory import binding_phase, with_devices
from tui_pilot.store.state import Row, RunState
from tui_pilot.version import VERSION

SCHEMA = 1
OPEN_VERDICTS = ("unchecked", "skipped", "not_run")
OnEvent = Callable[[dict[str, Any], RunState], None]


def load_state(
    folder: RunFolder, on_event: OnEvent | None = None, start: RunState | None = None
) -> tuple[RunState, Reader]:
    """The fold of everything written so far, and the reader that goes on from there; ``start`` is folded into."""
    reader = Reader(folder.events)
    return reload_state(start or RunState(), reader, on_event), reader


def reload_state(state: RunState, reader: Reader, on_event: OnEvent | None = None) -> RunState:
    """The state after what was written since the reader's last look."""
    if on_event is not None:
        for event in reader.stream():
            state = reduce(state, event)
            on_event(event, state)
        return state
    while True:
        state = fold(reader.poll(PIECE_BYTES), state)
        if not reader.behind:
            return state


def as_seen(state: RunState, live: bool) -> RunState:
    """The state as a person must see it: a run whose events say it runs while nobody holds its lock is lost.

    Its open row is unchecked, because nobody could look at how it ended; rows that it never reached did not run.
    """
    if live or state.state not in ("new", "running"):
        return state
    since = f"no sign of life since {clock(state.last_event)}, process gone"
    rows = tuple(_lost_row(row, since) for row in state.rows)
    text = since if state.state == "running" else "it was prepared, but no supervisor ever wrote a word"
    return replace(state, state="lost", text=text, stage=None, queued=None, rows=rows)


def _lost_row(row: Row, since: str) -> Row:
    if row.verdict is None:
        return replace(row, verdict="not_run")
    if not row.running:
        return row
    reason = Reason("lost", f"The run was lost in {row.phase}: {since}.", "unchecked", advice="Start it as a new run.")
    return replace(row, verdict="unchecked", reasons=(reason.as_json(),), progress=None)


def clock(at: str | None) -> str:
    """``18:02:11 UTC`` of an event's clock time."""
    return f"{at[11:19]} UTC" if at and len(at) >= 19 else "an unknown time"


def see(folder: RunFolder, start: RunState | None = None) -> tuple[RunState, Reader]:
    """``load_state`` with the lock taken into account; the lock is asked before the last read."""
    state, reader = load_state(folder, start=start)
    live = is_live(folder)
    if not live:
        state = reload_state(state, reader)
    return as_seen(state, live), reader


def snapshot(folder: RunFolder, allow_unchecked: Collection[str] = ()) -> dict[str, Any]:
    """The document of ``show RUN --json`` and ``run --headless --json``."""
    state, reader = see(folder)
    run = folder.read_json(folder.run_file)
    plan: Mapping[str, Any] = {}
    with contextlib.suppress(RunFolderError):
        plan = folder.read_json(folder.plan_file)
    return document(folder, state, reader, run=run, plan=plan, allow_unchecked=allow_unchecked)


def document(
    folder: RunFolder,
    state: RunState,
    reader: Reader,
    *,
    run: Mapping[str, Any],
    plan: Mapping[str, Any],
    allow_unchecked: Collection[str] = (),
) -> dict[str, Any]:
    """The document from its parts."""
    live = state.state == "running"
    values = plan.get("plan") or {}
    return {
        "schema": SCHEMA,
        "tool": VERSION,
        "run": folder.id,
        "kind": run.get("kind", state.run_kind),
        "name": run.get("name", state.name),
        "demo": bool(run.get("demo", state.demo)),
        "state": state.state,
        "text": state.text,
        "verdict": state.verdict,
        "exit_code": exit_code(state, allow_unchecked),
        "started": state.started,
        "ended": None if live else state.ended,
        "stage": state.stage.name if state.stage is not None else None,
        "binding_phase": binding_phase(state.rows),
        "plan": values,
        "revisions": run.get("revisions") or {},
        "parent": run.get("parent"),
        "changed": run.get("changed") or {},
        "variant": run.get("variant"),
        "decision": None if state.decision is None else dict(state.decision),
        "notes": [dict(each) for each in state.notes],
        "child_exit": None,
        "open": open_questions(state, values),
        "phases": [row_json(row, foretold(state, row.phase)) for row in state.rows],
        "metrics": {
            "loss": [list(point) for point in state.loss],
            "lr": [list(point) for point in state.lr],
            "validation": [list(point) for point in state.validation],
        },
        "batch": state.facts.get("batch") or {"planned": None, "counted": None},
        "facts": dict(state.facts),
        "cleaned": [dict(each) for each in state.cleaned],
        "events": {"read": reader.read, "broken_lines": reader.broken, "unknown_kinds": reader.unknown},
    }


def foretold(state: RunState, phase: str) -> Mapping[str, Any] | None:
    """What was predicted of a phase of this run before it measured: ``allocated_peak``, ``reserved_peak``."""
    known = state.facts.get("predicted")
    return known.get(phase) if isinstance(known, Mapping) else None


def row_json(row: Row, predicted: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One phase's row; readings of the devices are joined to the memory of the ranks that used them."""
    return {
        "phase": row.phase,
        "verdict": row.verdict,
        "reasons": [dict(each) for each in row.reasons],
        "mark": row.mark,
        "note": row.note,
        "attempt": row.attempt,
        "attempts": [_attempt_json(each) for each in row.attempts],
        "inputs": dict(row.inputs),
        "thresholds": dict(row.thresholds),
        "started": row.started,
        "ended": row.ended,
        "duration_s": row.duration_s,
        "parts": dict(row.parts),
        "memory": with_devices(row.memory, row.devices),
        "predicted": None if predicted is None else dict(predicted),
        **row.extra,
    }


def _attempt_json(attempt: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in attempt.items() if key != "devices"}
    return {**kept, "memory": with_devices(attempt.get("memory") or (), attempt.get("devices") or ())}


def open_questions(state: RunState, plan: Mapping[str, Any]) -> list[str]:
    """What this run leaves open, in words: rows nobody could check or that the plan left out, what was not asked."""
    if state.state in ("new", "running"):
        return []
    found = []
    for row in state.rows:
        if row.verdict in OPEN_VERDICTS and not left_to_the_pilot(state, row):
            why = f": {row.reasons[0].get('text')}" if row.reasons else ""
            found.append(f"{row.phase}: {str(row.verdict).replace('_', ' ')}{why}")
    generates = plan.get("task") != "classification"
    if plan and generates and not (plan.get("evaluate") or {}).get("max_new_tokens"):
        found.append("generation not rehearsed")
    return found


def left_to_the_pilot(state: RunState, row: Row) -> bool:
    """Whether a trial skips this row because its pilot has it."""
    return state.run_kind == "trial" and row.verdict == "skipped"


def unaccepted(state: RunState, allow_unchecked: Collection[str] = ()) -> list[Row]:
    """Rows without a verdict on the matter (unchecked, skipped, not run) that the person did not accept."""
    asked = PHASES_OF["data"] if state.run_kind == "check" else PHASES
    return [
        row
        for row in state.rows
        if row.phase in asked
        and row.phase not in allow_unchecked
        and row.verdict in OPEN_VERDICTS
        and not left_to_the_pilot(state, row)
    ]


def exit_code(state: RunState, allow_unchecked: Collection[str] = ()) -> int | None:
    """0 pass or warnings, 1 a gate failed, 3 lost, 4 something is unchecked or skipped, 5 stopped, 130 interrupted.

    None while the run is live. A person's mark changes no exit code.
    """
    if state.state == "running":
        return None
    if state.state in ("new", "lost"):
        return EXIT_TOOL_FAILED
    if state.state == "stopped":
        return EXIT_INTERRUPTED if state.interrupted else EXIT_STOPPED
    if state.state in ("failed", "diverged") or any(row.verdict == "fail" for row in state.rows):
        return EXIT_GATE_FAILED
    return EXIT_UNCHECKED if unaccepted(state, allow_unchecked) else EXIT_OK


def counts(state: RunState) -> dict[str, int]:
    """How many rows have each verdict."""
    found: dict[str, int] = {}
    for row in state.rows:
        if row.verdict is not None:
            found[row.verdict] = found.get(row.verdict, 0) + 1
    return found
