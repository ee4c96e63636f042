"""The gate of the checkpoint that a campaign leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import size

Seen = Mapping[str, Any]


def checkpoint(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: the states written, hashes of both saves, memory before and two updates after, an error if one came."""
    reasons: list[Reason] = []
    error = seen.get("error")
    if error:
        code = "disk_too_small" if error.get("full") else "unsafe_state" if error.get("unsafe") else "incomplete"
        where = {"file": error.get("file"), "key": error.get("key")}
        return [reason(code, error["text"], {key: value for key, value in where.items() if value})]
    missing = [name for name in seen.get("states_expected") or () if name not in (seen.get("states") or ())]
    if missing:
        reasons.append(reason("state_missing", f"Not in the checkpoint: {', '.join(missing)}.", {"key": missing[0]}))
    first, second = seen.get("hashes") or {}, seen.get("second_hashes")
    if second is not None:
        differ = sorted(name for name in set(first) | set(second) if first.get(name) != second.get(name))
        if differ:
            text = f"Two saves of the same state differ in {', '.join(differ)}."
            reasons.append(reason("hashes_differ", text, {"file": differ[0]}))
    left = seen.get("left_over") or []
    if left:
        reasons.append(reason("incomplete", f"The save left {', '.join(left[:3])} behind.", {"file": left[0]}))
    before, after = seen.get("allocated_before"), seen.get("allocated_later")
    if before is not None and after is not None and after - before > max(1 << 20, 0.01 * before):
        text = (
            f"{size(after - before)} more are allocated two updates after the save than right before it "
            f"({size(before)}); expected about 0."
        )
        reasons.append(reason("residue", text))
    return reasons
