"""A run as sentences on stdout: one an event, and a short summary while nothing else is said.

For terminals without a cursor, logs and screen readers: no columns, no signs, no line that is written twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from tui_pilot.commands import narrate
from tui_pilot.commands.output import write_lines
from tui_pilot.commands.tables import sentence
from tui_pilot.events import schema
from tui_pilot.store.state import RunState
from tui_pilot.text import plural, size

SUMMARY_S = 30.0
DUMB = ("dumb", "")


def is_dumb() -> bool:
    """Whether the terminal cannot place a cursor, so that no screen can be drawn on it."""
    return os.environ.get("TERM", "") in DUMB


def seconds(value: float | None) -> str:
    """``3.9 seconds``, ``1 minute 47 seconds``, ``2 hours 5 minutes``: as one reads it aloud."""
    if value is None:
        return "a time that is not known"
    if value < 59.95:
        return f"{value:.2f} seconds" if value < 1 else f"{value:.1f} seconds"
    whole = round(value)
    if whole < 3600:
        return _two(plural(whole // 60, "minute"), whole % 60, "second")
    return _two(plural(whole // 3600, "hour"), whole % 3600 // 60, "minute")


def _two(large: str, small: int, unit: str) -> str:
    return f"{large} {plural(small, unit)}" if small else large


class Speaker:
    """Writes one line an event, and a summary when ``every`` seconds passed without a line."""

    def __init__(
        self,
        write: Callable[[str], None] = lambda line: write_lines([line]),
        every: float = SUMMARY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._every = every
        self._clock = clock
        self._spoke = clock()

    def event(self, event: Mapping[str, Any], state: RunState) -> None:
        """One event, with the state after it."""
        maker = _LINES.get(str(event.get("kind")))
        words = maker(event, state) if maker is not None else narrate.line(event, state)
        if words:
            self._say(words)

    def look(self, state: RunState) -> None:
        """Called again and again between events; ``state`` is that of a live run."""
        if state.state == "running" and self._clock() - self._spoke >= self._every:
            self._say(summary(state, self._clock()))

    def _say(self, words: str) -> None:
        self._spoke = self._clock()
        self._write(words)


def summary(state: RunState, now: float) -> str:
    """Where a live run is; ``now`` is time.monotonic()."""
    row = state.running_row
    ended = sum(each.verdict not in (None, "running") for each in state.rows)
    if row is None:
        parts = [f"running, between two phases; {ended} of {len(schema.PHASES)} ended"]
    else:
        since = f" for {seconds(now - row.started_mono)}" if row.started_mono is not None else ""
        parts = [f"running: {_phase(row.phase)}{since}"]
        done = row.progress or {}
        if done.get("done") is not None:
            of = f" of {done['total']}" if done.get("total") is not None else ""
            parts.append(f"{done.get('unit') or 'step'} {done['done']}{of}")
    if state.loss:
        update, loss = list(state.loss)[-1]
        parts.append(f"loss {_number(loss)} at update {update}")
    if state.last_mono is not None:
        parts.append(f"last event {seconds(max(0.0, now - state.last_mono))} ago")
    return "; ".join(parts)


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _phase(phase: str) -> str:
    return f"phase {schema.PHASES.index(phase) + 1} of {len(schema.PHASES)}, {phase}"


def _run_started(event: Mapping[str, Any], state: RunState) -> str:
    return "a resume test begins" if event.get("again") else f"run {state.run} began"


def _phase_started(event: Mapping[str, Any], state: RunState) -> str | None:
    phase = str(event.get("phase"))
    return f"{_phase(phase)}: began" if phase in schema.PHASES else None


def _phase_ended(event: Mapping[str, Any], state: RunState) -> str | None:
    phase = str(event.get("phase"))
    if phase not in schema.PHASES:
        return None
    verdict = str(event.get("verdict"))
    word = narrate.VERDICT_WORDS.get(verdict, verdict)
    again = f", attempt {event['attempt']}" if int(event.get("attempt") or 1) > 1 else ""
    took = f" after {seconds(event['duration_s'])}" if event.get("duration_s") is not None else ""
    reason = sentence(event)
    parts = [f"{_phase(phase)}{again}: {word}{took}", *_memory(event)]
    return f"{', '.join(parts)}{f'; {reason}' if reason else ''}"


def _memory(event: Mapping[str, Any]) -> list[str]:
    """The highest over the ranks, by the widest counter that was read."""
    for counter, said in (("device_used_peak", "of the GPU used"), ("allocated_peak", "allocated")):
        values = [rank.get(counter) for rank in event.get("memory") or ()]
        known = [value for value in values if isinstance(value, int)]
        if known:
            return [f"at most {size(max(known))} {said}"]
    return []


def _validation(event: Mapping[str, Any], state: RunState) -> str:
    metrics = event.get("metrics") or {}
    said = ", ".join(f"{name} {_number(value)}" for name, value in metrics.items())
    return f"validation at update {event.get('update')}: {said}"


def _mark(event: Mapping[str, Any], state: RunState) -> str:
    verdict, note = event.get("verdict"), event.get("note")
    said = (
        f"your mark on {event.get('phase')}: {verdict}"
        if verdict
        else f"your mark on {event.get('phase')} is taken back"
    )
    return f"{said}; {note}" if note else said


def _note(event: Mapping[str, Any], state: RunState) -> str:
    on = f" on {event['phase']}" if event.get("phase") else ""
    return f"note{on}: {event.get('text', '')}"


def _stage_started(event: Mapping[str, Any], state: RunState) -> str:
    return f"stage {event.get('stage')} began, process {event.get('pid')}"


_LINES: dict[str, Callable[[Mapping[str, Any], RunState], str | None]] = {
    schema.RUN_STARTED: _run_started,
    schema.PHASE_STARTED: _phase_started,
    schema.PHASE_ENDED: _phase_ended,
    schema.STAGE_STARTED: _stage_started,
    schema.VALIDATION: _validation,
    schema.MARK: _mark,
    schema.NOTE: _note,
}
