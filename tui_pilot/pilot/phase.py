"""One phase from its first event to its verdict: measured windows, observations, crashes and out-of-memory named."""

from __future__ import annotations

import errno
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
from tui_pilot.gates import judge, ways_out
from tui_pilot.gates.codes import reason
from tui_pilot.gates.crash_words import translated
from tui_pilot.gates.verdict import Reason, Verdict
from tui_pilot.observe.memory import Window, joined
from tui_pilot.pilot.context import Context
from tui_pilot.text import size

_OOM_TEXT = re.compile(
    r"out of memory|(?:can't|cannot|failed to) allocate|not enough memory|DefaultCPUAllocator|_ALLOC_FAILED",
    re.IGNORECASE,
)
_LOST_TEXT = re.compile(r"gloo/transport|Connection (?:closed|reset) by peer|remote process exited", re.IGNORECASE)
_LOST_KINDS = ("DistBackendError", "DistNetworkError", "DistStoreError")
PATIENCE_S = 20.0
_ASKED = re.compile(r"(?:Tried to allocate|tried to allocate)\s+([\d.]+)\s*(bytes|[KMGT]i?B)?", re.IGNORECASE)


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
    extra: dict[str, Any] = field(default_factory=dict)
    """Further keys of the row, beside those that every row has: ``quality`` of a variant."""

    @contextmanager
    def measure(self, part: str | None = None) -> Iterator[Window]:
        """A measured window of this phase; with ``part`` it is also a row of its own in ``parts``."""
        with self.context.meter.window() as window:
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
    try:
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
    else:
        memory = current.memory()
        if not context.main:
            return
    parts = {name: _part(current, windows) for name, windows in current.parts.items()}
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


def _part(current: Phase, windows: list[Window]) -> dict[str, Any]:
    """One part over all its windows: seconds of all, how many, and its memory."""
    meter = current.context.meter
    row = joined(windows, current.context.rank, meter.device, meter.uuid)
    keys = ("allocated_before", "allocated_peak", "allocated_after", "reserved_peak", "active_peak", "host_peak")
    seconds = sum(window.duration_s for window in windows)
    return {"duration_s": round(seconds, 6), "times": len(windows), **{key: row.get(key) for key in keys}}


def describe(current: Phase, error: BaseException) -> Reason:
    """The reason of a phase that raised: out of memory as a result, everything else with the person's frame first."""
    if is_out_of_memory(error):
        return _out_of_memory(current, error)
    context = current.context
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


def is_out_of_memory(error: BaseException) -> bool:
    """``torch.OutOfMemoryError``, CUDA's own text, the CPU allocator's plain RuntimeError, or what came of one."""
    kinds: tuple[type[BaseException], ...] = (MemoryError,)
    out_of_memory = getattr(torch, "OutOfMemoryError", None)
    if out_of_memory is not None:
        kinds = (*kinds, out_of_memory)
    for cause in causes(error):
        if isinstance(cause, kinds) or (isinstance(cause, OSError) and cause.errno == errno.ENOMEM):
            return True
        if isinstance(cause, RuntimeError) and _OOM_TEXT.search(str(cause)):
            return True
    return False


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from, outermost first."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__


def asked_bytes(text: str) -> int | None:
    """How many bytes an out-of-memory message says were asked for."""
    found = _ASKED.search(text)
    if not found:
        return None
    unit = (found[2] or "bytes").upper().replace("I", "")
    return int(float(found[1]) * {"BYTES": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}.get(unit, 1))


def _out_of_memory(current: Phase, error: BaseException) -> Reason:
    context = current.context
    asked = asked_bytes("\n".join(str(cause) for cause in causes(error)))
    allocated, reserved = context.meter.now()
    at = current.at
    where: dict[str, Any] = {"rank": context.rank, "device": str(context.device)}
    where |= {key: at[key] for key in ("rows", "shape", "dtype", "part") if key in at}
    where |= {"asked_bytes": asked, "allocated_bytes": allocated, "reserved_bytes": reserved}
    rows = at.get("rows") or []
    listed = ", ".join(str(row) for row in rows[:4]) + (f", {len(rows) - 4} more" if len(rows) > 4 else "")
    sentence = f"Out of memory in {current.name}" + (f", {at['part']}" if at.get("part") else "")
    sentence += f" on {context.device}: asked {size(asked, 'an unknown amount')}, {size(allocated)} were allocated"
    if rows:
        sentence += f"; row{'s' if len(rows) > 1 else ''} {listed}, {at.get('shape')} {at.get('dtype', '')}".rstrip()
    _keep_traceback(current, error)
    ways = ways_out.ways_out(context.plan, current.name, bool(rows))
    return reason("oom", sentence + ".", where | {"variants": ways}, advice=ways_out.sentence(ways))


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
