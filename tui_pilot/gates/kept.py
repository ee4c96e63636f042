"""What an evaluation keeps of every batch: its growth, and what that would be over all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.text import size

Seen = Mapping[str, Any]
LEAST, LEAST_SHARE = 1 << 20, 0.01
ID_BYTES, MORE_THAN_IDS = 8, 4
LEAST_RESIDENT = 64 << 20
MUCH = 1 << 30


def judge(seen: Seen) -> list[Reason]:
    """``seen``: bytes after each batch, its rows and cells (rows x places), all rows, bytes free, what predict gave."""
    return _allocated(seen) or _resident(seen) or _predicted(seen)


def _allocated(seen: Seen) -> list[Reason]:
    after = [value for value in seen.get("allocated_after") or () if value is not None]
    if len(after) < 3:
        return []
    steps = [later - earlier for earlier, later in pairwise(after)]
    total = after[-1] - after[0]
    if min(steps) <= 0 or total <= max(LEAST, LEAST_SHARE * after[0]):
        return []
    cells = sum((seen.get("cells") or ())[1:])
    need = _over_all(total, seen)
    # Answers kept as ids grow too, and by little: that is what should be kept.
    few = bool(cells) and total <= MORE_THAN_IDS * ID_BYTES * cells
    return [] if few and not _too_much(need, seen) else [_kept(min(steps), total, need, seen, "")]


def _resident(seen: Seen) -> list[Reason]:
    """Growth that the allocator's counter does not see: copies on the host beside a GPU, arrays, Python's numbers."""
    after = [value for value in seen.get("resident_after") or () if value is not None]
    if len(after) < 4:
        return []
    steps = [later - earlier for earlier, later in pairwise(after)]
    total, half = after[-1] - after[0], after[len(after) // 2]
    even = min(steps) > 0.5 * median(steps) and after[-1] - half > 0.3 * total
    if total <= LEAST_RESIDENT or not even:
        return []
    return [_kept(min(steps), total, _over_all(total, seen), seen, " on the host")]


def _kept(step: int, total: int, need: int | None, seen: Seen, where: str) -> Reason:
    text = f"Evaluation keeps at least {size(step)} of every batch{where}, {size(total)} in all"
    if need is not None:
        text += f": {size(need)} over all {seen['all_rows']:,} rows, {size(seen.get('have'))} are free"
    return reason("logits_kept", text + "; expected about 0.", {"need_bytes": need, "free_bytes": seen.get("have")})


def _predicted(seen: Seen) -> list[Reason]:
    found = seen.get("predicted")
    if not found or not seen.get("all_rows"):
        return []
    need = found["bytes_per_row"] * seen["all_rows"]
    if need <= MUCH and not _too_much(need, seen):
        return []
    shape = " x ".join(f"{side:,}" for side in found["shape"])
    text = (
        f"predict returns {shape} numbers of {found['dtype']} a row, not ids: {size(need)} over all "
        f"{seen['all_rows']:,} rows, {size(seen.get('have'))} are free."
    )
    where = {"need_bytes": need, "free_bytes": seen.get("have")}
    return [reason("logits_kept", text, where, severity=None if _too_much(need, seen) else "warn")]


def _over_all(total: int, seen: Seen) -> int | None:
    """The growth over every batch but the first, carried on to all rows."""
    rows: Sequence[int] = seen.get("rows_after") or ()
    counted = sum(rows[1:])
    return int(total / counted * seen["all_rows"]) if counted and seen.get("all_rows") else None


def _too_much(need: int | None, seen: Seen) -> bool:
    have = seen.get("have")
    return need is not None and have is not None and need > have
