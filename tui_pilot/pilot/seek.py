"""How long it takes to reach a row far into the data: at once, or by reading everything before it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

PROBED = 200
NOTICED_S = 2e-3
TIMES = 5.0


def estimate(records: Sequence[Any], position: int) -> dict[str, Any]:
    """Seconds to the row at ``position`` and to the last one, extrapolated from the first ``PROBED`` rows.

    Access that costs the same wherever a row lies is measured at the last row itself. Where a later row costs more,
    nothing beyond the probe is read: the cost grows with the place, and the last row's follows from it.
    """
    last = len(records) - 1
    far = min(last, PROBED)
    if far < 1:
        return {"now_s": 0.0, "end_s": 0.0, "per_row_s": 0.0, "probed": far, "rows": len(records), "position": position}
    near_s, far_s = _seconds(records, 0), _seconds(records, far)
    per_row = (far_s - near_s) / far
    replays = far_s > NOTICED_S and far_s > TIMES * near_s
    if replays:
        now, end = near_s + per_row * position, near_s + per_row * last
    else:
        per_row = 0.0
        now, end = near_s, _seconds(records, last)
    return {"now_s": now, "end_s": end, "per_row_s": per_row, "probed": far, "rows": len(records), "position": position}


def _seconds(records: Sequence[Any], place: int) -> float:
    """The shorter of two reads: a first one may open files."""
    found = []
    for _ in range(2):
        started = time.monotonic()
        records[place]
        found.append(time.monotonic() - started)
    return min(found)
