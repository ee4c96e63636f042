"""The control rows against the lock: an upgrade may change neither their ids, nor their loss, nor their gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.text import plural

Seen = Mapping[str, Any]
SAME, SAME_HALF = 1e-4, 1e-2
ELSEWHERE, ELSEWHERE_HALF = 2e-2, 5e-2
"""Relative difference of a loss that arithmetic alone explains: on the locked device and precision, and on others."""


def judge(control: Seen | None) -> list[Reason]:
    """``control``: loss, gradient norm and items, stored and now; ``same``: what of the lock still holds."""
    if not control or control.get("stored") is None:
        return []
    same = control.get("same") or {}
    moved = _moved(control, same)
    if not moved:
        return []
    if same.get("made_from") is False:
        text = f"{moved} Data, model, task file or their words in the plan changed since the lock, so nothing follows."
        return [reason("not_observed", text, advice="Run pilot-tui check PLAN --lock again.")]
    return [reason("control_loss_moved", moved)]


def _moved(control: Seen, same: Mapping[str, Any]) -> str:
    """What differs, as a sentence; empty where nothing does."""
    elsewhere = same.get("device") is False or same.get("precision") is False
    half = bool(control.get("half"))
    limit = (ELSEWHERE_HALF if half else ELSEWHERE) if elsewhere else (SAME_HALF if half else SAME)
    where = f" (locked on {control['of']})" if elsewhere and control.get("of") else ""
    if same.get("rows") is False:
        text = "The control batch has other ids than when it was locked"
        items, before = control.get("items_now"), control.get("items_stored")
        if items is not None and before is not None:
            text += f": {plural(items, 'supervised item')}, was {before:,}"
        return text + f"; loss {_shown(control.get('now'))}, was {_shown(control['stored'])}."
    stored, now = control["stored"], control.get("now")
    if _apart(stored, now) > limit:
        times = f" (x{now / stored:.2g})" if _finite(now) and stored else ""
        text = f"The control batch's loss was {_shown(stored)} when it was locked, now {_shown(now)}{times}"
        return f"{text}; expected within {limit:.0e}{where}."
    norm, norm_now = control.get("norm_stored"), control.get("norm_now")
    if norm is not None and _apart(norm, norm_now) > 10 * limit:
        text = f"The control batch's gradient norm was {norm:.4g} when it was locked, now {_shown(norm_now)}"
        return f"{text}, at the same loss; expected within {10 * limit:.0e}{where}."
    return ""


def _apart(left: float, right: Any) -> float:
    """Relative difference; infinite where one is no number."""
    return abs(right - left) / max(1.0, abs(left)) if _finite(left) and _finite(right) else math.inf


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _shown(value: Any) -> str:
    return f"{value:.4f}" if _finite(value) else "no number"
