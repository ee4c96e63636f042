"""The state of one run, which ``store.fold`` makes of its events.

``RunState`` is immutable: a screen may hold one as long as it likes, and two states differ in identity exactly where
something changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tui_pilot.events import schema
from tui_pilot.gates.verdict import worst
from tui_pilot.store.points import Points, as_points

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
    loss: Sequence[tuple[int, float | str]] = Points()  # update, value
    lr: Sequence[tuple[int, float | str]] = Points()
    validation: Sequence[tuple[int, Mapping[str, Any]]] = Points()
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


CURVE_GROUPS = 1024
CURVES = ("loss", "lr", "validation")
KEPT_FEED = 500


def bounded() -> RunState:
    """A state to fold into whose size does not grow with the log: its curves are thinned and keep their extremes."""
    loss, lr, validation = (Points(limit=CURVE_GROUPS) for _ in CURVES)
    return RunState(loss=loss, lr=lr, validation=validation)


class Draft(RunState):
    """A state that a fold over many events has to itself: ``changed`` changes it in place."""

    @staticmethod
    def of(state: RunState) -> Draft:
        """A draft that begins as this state."""
        draft = object.__new__(Draft)
        draft.__dict__.update(state.__dict__)
        for name in CURVES:
            draft.__dict__[name] = as_points(getattr(state, name))
        draft.__dict__["feed"] = list(state.feed)
        return draft

    def done(self) -> RunState:
        """The state as it is now, for others to hold."""
        state = object.__new__(RunState)
        state.__dict__.update(self.__dict__)
        state.__dict__["feed"] = tuple(self.feed[-KEPT_FEED:])
        return state


Value = TypeVar("Value", RunState, Row)


def changed(value: Value, /, **changes: Any) -> Value:
    """``dataclasses.replace`` without running ``__init__``: a log is folded several times as fast."""
    if type(value) is Draft:
        value.__dict__.update(changes)
        return value
    new = object.__new__(type(value))
    new.__dict__.update(value.__dict__)
    new.__dict__.update(changes)
    return new


def extended(state: RunState, name: str, point: tuple[int, Any]) -> RunState:
    """The state with one more point of the curve ``name``."""
    points = getattr(state, name)
    if type(state) is Draft:
        points.append(point)
        return state
    return changed(state, **{name: as_points(points).and_then(point)})


def fed(state: RunState, event: Event) -> RunState:
    """The state with one more event of its feed."""
    if type(state) is not Draft:
        feed = (*state.feed[-KEPT_FEED + 1 :], event)
        return changed(state, feed=feed, feed_count=state.feed_count + 1)
    held: Any = state.feed
    held.append(event)
    if len(held) > 2 * KEPT_FEED:
        del held[:-KEPT_FEED]
    return changed(state, feed_count=state.feed_count + 1)
