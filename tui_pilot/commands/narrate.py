"""A run as plain lines, one per event that a person waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.commands.tables import sentence
from tui_pilot.events import schema
from tui_pilot.store.state import RunState
from tui_pilot.text import duration, plural

VERDICT_WORDS = {"fail": "FAIL", "not_run": "not run"}


def line(event: Mapping[str, Any], state: RunState) -> str | None:
    """The line of one event, with the state after it; None for what is only detail."""
    maker = _LINES.get(str(event.get("kind")))
    return maker(event, state) if maker is not None else None


def _phase(event: Mapping[str, Any], state: RunState) -> str | None:
    phase = str(event.get("phase"))
    if phase not in schema.PHASES:
        return None
    number = schema.PHASES.index(phase) + 1
    verdict = str(event.get("verdict"))
    again = f", attempt {event['attempt']}" if int(event.get("attempt") or 1) > 1 else ""
    took = duration(event.get("duration_s"), "")
    reason = sentence(event)
    head = f"{number:>2}/{len(schema.PHASES)} {phase:<11} {VERDICT_WORDS.get(verdict, verdict):<9} {took:>6}{again}"
    return f"{head}  {reason}".rstrip()


def _notice(event: Mapping[str, Any], state: RunState) -> str:
    advice = f" {event['advice']}" if event.get("advice") else ""
    return f"{event.get('level', 'note')}: {event.get('text', '')}{advice}"


def _queued(event: Mapping[str, Any], state: RunState) -> str:
    return f"resume test: {event.get('text', '')}"


def _request(event: Mapping[str, Any], state: RunState) -> str | None:
    return "stop asked: the stage is ended, rows are kept" if event.get("what") == "stop" else None


def _ended(event: Mapping[str, Any], state: RunState) -> str:
    return ending(state)


def ending(state: RunState) -> str:
    """``finished: warn, 13 pass, 2 warn``."""
    found: dict[str, int] = {}
    looked_at = schema.PHASES_OF["data"] if state.run_kind == "check" else schema.PHASES
    for row in state.rows:
        if row.verdict is not None and row.phase in looked_at:
            found[row.verdict] = found.get(row.verdict, 0) + 1
    order = ("pass", "warn", "unchecked", "skipped", "fail", "not_run")
    words = ", ".join(f"{found[word]} {word.replace('_', ' ')}" for word in order if word in found)
    text = f" {state.text}" if state.text else ""
    return f"{state.state}{text}; {words or plural(0, 'row')}"


_LINES = {
    schema.PHASE_ENDED: _phase,
    schema.NOTICE: _notice,
    schema.TEST_QUEUED: _queued,
    schema.REQUEST_SEEN: _request,
    schema.RUN_ENDED: _ended,
}
