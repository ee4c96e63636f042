"""One phase from its first event to its verdict: measured windows, observations, crashes and out-of-memory named."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tui_pilot.errors import PilotError
from tui_pilot.events import schema
from tui_pilot.events.writer import utc_now
from tui_pilot.gates import judge
from tui_pilot.gates.codes import reason
from tui_pilot.gates.crash_words import translated
from tui_pilot.gates.verdict import Reason, Verdict
from tui_pilot.observe import host_memory
from tui_pilot.observe.live import HOST_EVERY, HZ, Held, Live, Look
from tui_pilot.observe.memory import Window, joined
from tui_pilot.pilot import out_of_memory
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.out_of_memory import is_out_of_memory

_LOST_TEXT = re.compile(r"gloo/transport|Connection (?:closed|reset) by peer|remote process exited", re.IGNORECASE)
_LOST_KINDS = ("DistBackendError", "DistNetworkError", "DistStoreError")
PATIENCE_S = 20.0
PART_KEYS = (
    "allocated_before",
    "allocated_peak",
    "allocated_after",
    "reserved_before",
    "reserved_peak",
    "reserved_after",
    "active_peak",
    "host_peak",
)


class PhaseBroken(Exception):
    """The phase ended by a crash or out of memory; its row is written, and the stage decides what can still run."""


@dataclass
class Phase:
    """An open phase. ``inputs`` and ``seen`` fill while it runs; ``at`` says which rows are on the device now."""

    context: Context
    name: str
    inputs: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)
    at: dict[str, Any] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    parts: dict[str, list[Window]] = field(default_factory=dict)
    started: str = field(default_factory=utc_now)
    reachable: int | None = None
    verdict: Verdict | None = None
    held: Held | None = None
    """What the live thread saw of this phase on the host, once it is over."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further keys of the row, beside those that every row has: ``quality`` of a variant."""

    @contextmanager
    def measure(self, part: str | None = None) -> Iterator[Window]:
        """A measured window of this phase; with ``part`` it is also a row of its own in ``parts``."""
        with self.context.meter.window(self.parts.get(part or "", [])) as window:
            self.windows.append(window)
            if part is not None:
                self.parts.setdefault(part, []).append(window)
            yield window
        # A part that runs many times says so once, and again only when it is slow enough to be watched.
        if part is not None and self.context.main and (len(self.parts[part]) == 1 or window.duration_s > 0.5):
            self.context.emit(
                schema.PART,
                phase=self.name,
                part=part,
                duration_s=round(window.duration_s, 4),
                allocated_peak=window.memory.get("allocated_peak"),
                reserved_peak=window.memory.get("reserved_peak"),
            )

    def progress(self, done: int, total: int | None, unit: str, text: str = "") -> None:
        """How far the phase is, for the screen."""
        if self.context.main:
            self.context.emit(schema.PROGRESS, phase=self.name, done=done, total=total, unit=unit, text=text)

    @property
    def duration_s(self) -> float:
        return sum(window.duration_s for window in self.windows)

    def memory(self) -> list[dict[str, Any]]:
        """This phase's memory rows, one per rank."""
        meter = self.context.meter
        row = joined(self.windows, self.context.rank, meter.device, meter.uuid)
        row["reachable"] = self.reachable
        if self.held is not None and self.windows:
            host_memory.with_samples(row, self.held.highest, self.held.readings, HZ / HOST_EVERY)
        if self.reachable is not None:
            row["known"]["reachable"] = {"kind": "exact", "source": "parameters, gradients, buffers, optimizer state"}
            after = row.get("allocated_after")
            if not meter.cuda and after is not None:
                # Weights that are views of a mapped file were never given out by torch's allocator.
                # Activations alive at a phase's end would hide them, so the largest seen so far stands.
                mapped = max(0, self.reachable - after, self.context.cache.get("mapped", 0))
                row["mapped"] = self.context.cache["mapped"] = mapped
        return [part for part in self.context.gather(row) if part]


@contextmanager
def phase(context: Context, name: str, inputs: dict[str, Any] | None = None) -> Iterator[Phase]:
    """Open a phase, run its body, judge what it saw and write its row.

    An exception inside becomes the row's verdict (``oom`` or ``crash``) and leaves as ``PhaseBroken``. A phase that
    the plan skips must not be opened; ``skip`` writes its row.
    """
    current = Phase(context, name, dict(inputs or {}))
    context.writer.emit(
        schema.PHASE_STARTED,
        sync=True,
        phase=name,
        stage=context.stage,
        attempt=context.attempt,
        rank=context.rank,
        inputs=current.inputs,
    )
    out_of_memory.watch(context)
    try:
        with _watched(current):
            yield current
    except PhaseBroken:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in (0, None):
            raise
        if context.world > 1 and lost_a_rank(error):
            leave_the_word(error)
        broken = describe(current, error)
        _write(current, Verdict("fail", (broken,)), alone=True)
        raise PhaseBroken(name) from error
    # A stage may have judged early, to decide what runs next.
    verdict = current.verdict or judge.judge(name, current.seen, context.plan)
    current.verdict = verdict
    _write(current, verdict)


@contextmanager
def _watched(current: Phase) -> Iterator[None]:
    """Say what this rank holds while the phase runs."""
    context = current.context

    def say(phase: str, look: Look) -> None:
        context.emit(schema.LIVE, phase=phase, rank=context.rank, allocated=look.allocated, reserved=look.reserved)

    live: Live = context.once("live", lambda: Live(context.meter.highest, say))
    live.begin(current.name)
    try:
        yield
    finally:
        current.held = live.end()


def skip(context: Context, name: str, verdict: str = "skipped", why: Reason | None = None) -> None:
    """The row of a phase that does not run: ``skipped`` by the plan, or ``not_run`` because its input is missing."""
    if context.main:
        context.writer.emit(
            schema.PHASE_ENDED,
            sync=True,
            phase=name,
            stage=context.stage,
            attempt=context.attempt,
            rank=0,
            verdict=verdict,
            reasons=[why.as_json()] if why else [],
            duration_s=None,
        )


def _write(current: Phase, verdict: Verdict, alone: bool = False) -> None:
    context = current.context
    if alone and context.world > 1:
        meter = context.meter
        memory = [joined(current.windows, context.rank, meter.device, meter.uuid)]
        parts = _parts(current)
    else:
        memory = current.memory()
        parts = over_ranks(context.gather(_parts(current)))
        if not context.main:
            return
    context.writer.emit(
        schema.PHASE_ENDED,
        sync=True,
        phase=current.name,
        stage=context.stage,
        attempt=context.attempt,
        rank=context.rank,
        verdict=verdict.word,
        reasons=[each.as_json() for each in verdict.reasons],
        inputs=current.inputs,
        thresholds=dict(verdict.thresholds),
        started=current.started,
        duration_s=round(current.duration_s, 6) if current.windows else None,
        parts=parts,
        memory=memory,
        **current.extra,
    )


def _parts(current: Phase) -> dict[str, dict[str, Any]]:
    """This rank's parts, each over all its windows: seconds of all, how many, and its memory."""
    meter = current.context.meter
    found = {}
    for name, windows in current.parts.items():
        row = joined(windows, current.context.rank, meter.device, meter.uuid)
        seconds = sum(window.duration_s for window in windows)
        found[name] = {
            "duration_s": round(seconds, 6),
            "times": len(windows),
            **{key: row.get(key) for key in PART_KEYS},
        }
    return found


def over_ranks(every: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Parts as rank 0 timed them with the highest memory of all ranks, and each rank's own peaks beside."""
    parts = {name: dict(part) for rank in reversed(every) for name, part in rank.items()}
    if len(every) == 1:
        return parts
    for name, part in parts.items():
        own = [rank.get(name, {}) for rank in every]
        for key in (each for each in PART_KEYS if each.endswith("_peak")):
            part[key] = max((one[key] for one in own if one.get(key) is not None), default=None)
        peaks = ("allocated_peak", "reserved_peak", "host_peak")
        part["ranks"] = [{"rank": n, **{key: one.get(key) for key in peaks}} for n, one in enumerate(own)]
    return parts


def describe(current: Phase, error: BaseException) -> Reason:
    """The reason of a phase that raised: out of memory as a result, everything else with the person's frame first."""
    context = current.context
    if is_out_of_memory(error):
        _keep_traceback(current, error)
        return out_of_memory.describe(context, current.name, current.at, error)
    place = _person_frame(error, context.folder)
    file = _keep_traceback(current, error)
    where: dict[str, Any] = {"file": place[0], "line": place[1]} if place else {}
    if "rows" in current.at:
        where["rows"] = current.at["rows"]
    if context.world > 1:
        where["rank"] = context.rank
    spot = f" in {place[2]} ({Path(place[0]).name}:{place[1]})" if place else ""
    if isinstance(error, PilotError):
        where = {**where, **{key: value for key, value in (("file", error.file), ("line", error.line)) if value}}
        # A code of its own that no gate has stands for its family: the model, the data, the plan.
        code = next((each for each in (error.code, type(error).code) if judge.known(each)), "crash")
        said = str(error).removesuffix(error.advice).rstrip()
        return reason(code, f"{error.title}: {said}", where=where, advice=error.advice or None)
    first = str(error).strip().split("\n")[0][:500]
    known = translated(first)
    if known is not None:
        return reason(known[0], f"{known[1]}: {first}{spot}", where={**where, "log": file})
    return reason("crash", f"{type(error).__name__}{spot}: {first or 'no message'}", where={**where, "log": file})


def lost_a_rank(error: BaseException) -> bool:
    """Whether a collective broke because another rank went away: that rank is the cause, this one only noticed."""
    kinds = tuple(kind for kind in (getattr(torch.distributed, name, None) for name in _LOST_KINDS) if kind is not None)
    return isinstance(error, (*kinds, ConnectionError)) or (
        isinstance(error, RuntimeError) and bool(_LOST_TEXT.search(str(error)))
    )


def leave_the_word(error: BaseException) -> None:
    """Wait for torchrun to end this rank, so that the cause is named and not its echo; return if nobody does."""
    traceback.print_exception(error)
    time.sleep(PATIENCE_S)


def _person_frame(error: BaseException, folder: Path) -> tuple[str, int, str] | None:
    if isinstance(error, SyntaxError) and error.filename:  # a file that never ran has no frame of its own
        return error.filename, error.lineno or 0, "<module>"
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__).resolve().parents[1])
    for frame in reversed(frames):
        if frame.filename.startswith(str(folder)) and not frame.filename.startswith(ours):
            if "site-packages" in frame.filename:
                continue
            return frame.filename, frame.lineno or 0, frame.name
    last = frames[-1] if frames else None
    return (last.filename, last.lineno or 0, last.name) if last else None


def _keep_traceback(current: Phase, error: BaseException) -> str:
    context = current.context
    name = f"{context.stage}-{current.name}-{context.attempt}.rank{context.rank}.txt"
    path = context.run.crash / name
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(traceback.format_exception(error)), "utf-8", "backslashreplace")
    except OSError:
        return str(path)
    return str(path)
