"""The state of one run, which ``store.fold`` makes of its events.

``RunState`` is immutable: a screen may hold one as long as it likes, and two states differ in identity exactly where
something changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tui_pilot.events import schema
from tui_pilot.gates.verdict import worst

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One phase. ``verdict`` is None before it was reached, ``running`` while it runs."""

    phase: str
    verdict: str | None = None
    reasons: tuple[Mapping[str, Any], ...] = ()
    mark: str | None = None
    note: str | None = None
    attempt: int = 0
    attempts: tuple[Mapping[str, Any], ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    started: str | None = None
    started_mono: float | None = None
    ended: str | None = None
    duration_s: float | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)
    memory: tuple[Mapping[str, Any], ...] = ()
    devices: tuple[Mapping[str, Any], ...] = ()
    progress: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        return self.verdict == "running"


@dataclass(frozen=True)
class Live:
    """What one rank holds in a running phase, bytes: as it last said, and the highest it said since the phase began.

    Not exact: between two looks, a tenth of a second apart, there may have been more. The phase's own row will say.
    """

    phase: str
    allocated: int | None = None
    reserved: int | None = None
    allocated_highest: int | None = None
    reserved_highest: int | None = None


@dataclass(frozen=True)
class Stage:
    """The stage that runs now."""

    name: str
    attempt: int
    pid: int | None
    pid_start: int | None
    started: str
    started_mono: float


@dataclass(frozen=True)
class RunState:
    """What is known of a run; ``state`` is what its own events say (a dead supervisor is found by its lock)."""

    run: str = ""
    run_kind: str = "pilot"
    name: str = ""
    demo: bool = False
    parent: str | None = None
    changed: Mapping[str, Any] = field(default_factory=dict)
    state: str = "new"
    text: str = ""
    started: str | None = None
    started_mono: float | None = None
    ended: str | None = None
    ended_mono: float | None = None
    again: str | None = None  # since when a resume test of this ended run goes on
    interrupted: bool = False  # stopped by an interrupt from the terminal
    last_event: str | None = None
    last_mono: float | None = None
    supervisor: Mapping[str, Any] = field(default_factory=dict)
    stage: Stage | None = None
    rows: tuple[Row, ...] = tuple(Row(phase) for phase in schema.PHASES)
    ranks: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    live: Mapping[int, Live] = field(default_factory=dict)  # of the phase that runs, by rank
    loss: tuple[tuple[int, float | str], ...] = ()
    lr: tuple[tuple[int, float | str], ...] = ()
    validation: tuple[tuple[int, Mapping[str, Any]], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Mapping[str, Any], ...] = ()
    decision: Mapping[str, Any] | None = None
    requests: tuple[Mapping[str, Any], ...] = ()
    queued: str | None = None
    cleaned: tuple[Mapping[str, Any], ...] = ()
    feed: tuple[Event, ...] = ()
    feed_count: int = 0

    def row(self, phase: str) -> Row:
        """The phase's row."""
        return self.rows[schema.PHASES.index(phase)]

    @property
    def verdict(self) -> str | None:
        """The worst verdict over the rows; None while the run is live or before anything ran."""
        if self.state in ("new", "running"):
            return None
        return worst(row.verdict for row in self.rows if row.verdict not in (None, "running"))

    @property
    def running_row(self) -> Row | None:
        """The phase that runs now."""
        return next((row for row in self.rows if row.running), None)
