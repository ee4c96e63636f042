"""Memory that is not given back."""

from __future__ import annotations

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.text import size

LEAST, LEAST_SHARE = 1 << 20, 0.01


def judge(before: int | None, after: int | None, what: str) -> list[Reason]:
    """Bytes allocated before and after ``what``; a little may stay: caches of libraries, and what is opened once."""
    if before is None or after is None or after - before <= max(LEAST, LEAST_SHARE * before):
        return []
    text = f"{size(after - before)} more are allocated after {what} than before ({size(before)}); expected about 0."
    return [reason("residue", text, {"left_bytes": after - before})]
