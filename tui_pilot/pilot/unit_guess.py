"""Fields that group rows and stand on both sides of a split: what a person without a unit rule may want to name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.tasks.units import plain, value_at

ROWS = 5000
MARKS = "_-.:/#"
NO_UNIT = re.compile(r"^_|label|class|categor|lang|split|role|type|format|difficulty|score|date|time", re.IGNORECASE)


def guesses(records: Mapping[str, Sequence[Any]], content: Sequence[str] | None) -> list[dict[str, Any]]:
    """``{"rule", "values", "shared", "first"}`` of each field, or beginning of an id, whose groups are split."""
    sides = {name: [row for row in rows[:ROWS] if isinstance(row, Mapping)] for name, rows in records.items()}
    names = dict.fromkeys(str(key) for rows in sides.values() for row in rows[:50] for key in row)
    found: list[dict[str, Any]] = []
    for name in names:
        if name not in (content or ()) and name != "id" and not NO_UNIT.search(name):
            found += _shared(name, _values(sides, name))
    ids = _values(sides, "id")
    for mark in MARKS:
        heads = {side: [(each or "").rpartition(mark)[0] or None for each in values] for side, values in ids.items()}
        found += _shared(f'{{prefix: "{mark}"}}', heads)
    return found[:3]


def _values(sides: Mapping[str, Sequence[Mapping[str, Any]]], name: str) -> dict[str, list[str | None]]:
    return {side: [plain(value_at(row, name)) for row in rows] for side, rows in sides.items()}


def _shared(rule: str, values: Mapping[str, Sequence[str | None]]) -> list[dict[str, Any]]:
    counts = Counter(value for each in values.values() for value in each if value is not None)
    groups = sum(1 for count in counts.values() if count > 1)
    on = Counter(value for each in values.values() for value in {one for one in each if one is not None})
    both = sorted(value for value, count in on.items() if count > 1)
    # One value for nearly all rows says where they come from, not what they are one of.
    if len(counts) < 2 or not groups or not both or max(counts.values()) > 0.5 * sum(counts.values()):
        return []
    return [{"rule": rule, "values": len(counts), "shared": len(both), "first": both[0]}]
