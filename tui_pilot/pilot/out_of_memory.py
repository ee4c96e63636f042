"""Out of memory as a result: which phase and rows, what was asked, what was held by what, and the ways out."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from tui_pilot.gates import ways_out
from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.observe.categories import categories
from tui_pilot.observe.refused import Refusals, keep_snapshot
from tui_pilot.pilot.context import Context
from tui_pilot.text import size

_OOM_TEXT = re.compile(
    r"out of memory|(?:can't|cannot|failed to) allocate|not enough memory|DefaultCPUAllocator|_ALLOC_FAILED",
    re.IGNORECASE,
)
_ASKED = re.compile(r"(?:Tried to allocate|tried to allocate)\s+([\d.]+)\s*(bytes|[KMGT]i?B)?", re.IGNORECASE)
NAMED = 3


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


def watch(context: Context) -> Refusals:
    """The allocator's refusals from now on; called as a phase opens, so that none of an earlier phase is taken."""
    refusals: Refusals = context.once("refusals", lambda: Refusals(context.device))
    refusals.forget()
    return refusals


def describe(context: Context, phase: str, at: Mapping[str, Any], error: BaseException) -> Reason:
    """The ``oom`` reason. ``at`` says which rows were on the device; an allocator snapshot is kept beside the log."""
    refusals: Refusals = context.once("refusals", lambda: Refusals(context.device))
    refused = refusals.last
    asked = refused.asked if refused else asked_bytes("\n".join(str(cause) for cause in causes(error)))
    allocated, reserved = context.meter.now()
    if refused is not None and refused.allocated is not None:
        allocated, reserved = refused.allocated, refused.reserved
    largest = categories(context.device, allocated)
    where: dict[str, Any] = {"rank": context.rank, "device": str(context.device)}
    where |= {key: at[key] for key in ("rows", "shape", "dtype", "part") if key in at}
    where |= {"asked_bytes": asked, "free_bytes": refused.free if refused else None}
    where |= {"allocated_bytes": allocated, "reserved_bytes": reserved, "largest": largest}
    where["snapshot"] = _snapshot(context, phase, refusals)
    rows = at.get("rows") or []
    ways = ways_out.ways_out(context.plan, phase, bool(rows))
    text = _sentence(context, phase, at, asked, refused.free if refused else None, allocated, largest)
    return reason("oom", text, where | {"variants": ways}, advice=ways_out.sentence(ways))


def _sentence(
    context: Context,
    phase: str,
    at: Mapping[str, Any],
    asked: int | None,
    free: int | None,
    allocated: int | None,
    largest: Mapping[str, int],
) -> str:
    rows = at.get("rows") or []
    listed = ", ".join(str(row) for row in rows[:4]) + (f", {len(rows) - 4} more" if len(rows) > 4 else "")
    text = f"Out of memory in {phase}" + (f", {at['part']}" if at.get("part") else "")
    text += f" on {context.device}: asked {size(asked, 'an unknown amount')}"
    text += f", {size(free)} were free" if free is not None else ""
    text += f", {size(allocated)} were allocated"
    if rows:
        text += f"; row{'s' if len(rows) > 1 else ''} {listed}, {at.get('shape')} {at.get('dtype', '')}".rstrip()
    held = ", ".join(f"{name} {size(count)}" for name, count in list(largest.items())[:NAMED])
    return f"{text}. Largest: {held}." if held else f"{text}."


def _snapshot(context: Context, phase: str, refusals: Refusals) -> str:
    """Where the allocator's segments were kept, from the run's folder on; or why there are none."""
    if context.device.type != "cuda":
        return str(refusals.why)
    name = f"{context.stage}-{phase}-{context.attempt}.rank{context.rank}.snapshot.pickle"
    failed = keep_snapshot(refusals.last, context.run.crash / name)
    return f"{context.run.crash.name}/{name}" if failed is None else f"none: {refusals.why or failed}"
