"""What was changed from a parent, in as many words as there is room for. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tui_pilot.text import cut, rate

LONGEST = 40
"""Characters of one value in a sentence; the plan has it whole."""


def full(changed: Mapping[str, Any]) -> str:
    """Every change with its whole key and both values."""
    return ", ".join(one(str(key), value) for key, value in changed.items())


def fitting(changed: Mapping[str, Any], width: int) -> str:
    """The longest wording of these that fits: a section named once, bare keys, tight arrows, then the first few.

    ``batch.micro 4 → 8, accumulation 2 → 1`` becomes ``micro 4→8, accumulation 2→1`` and ``micro 4→8, 1 more``.
    """
    keys = [str(key) for key in changed]
    pairs = list(changed.values())
    once = [key if n == 0 or _section(key) != _section(keys[n - 1]) else _leaf(key) for n, key in enumerate(keys)]
    leaves = [_leaf(key) for key in keys]
    said = ""
    for names, arrow in ((keys, " → "), (once, " → "), (leaves, " → "), (leaves, "→")):
        parts = [one(name, pair, arrow, key) for name, pair, key in zip(names, pairs, keys, strict=True)]
        said = ", ".join(parts)
        if len(said) <= width:
            return said
    parts = [one(name, pair, "→", key) for name, pair, key in zip(leaves, pairs, keys, strict=True)]
    for some in range(len(parts) - 1, 0, -1):
        shorter = f"{', '.join(parts[:some])}, {len(parts) - some} more"
        if len(shorter) <= width:
            return shorter
    return f"{len(keys)} changes" if len(keys) > 1 else said


def one(name: str, pair: Any, arrow: str = " → ", key: str = "") -> str:
    """One change; contents that are known by a hash alone are another, whatever the hash."""
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return name
    if any(_is_hash(each) for each in pair):
        return f"another {name}"
    before, after = (value(key or name, each) for each in pair)
    return name if before == after else f"{name} {before}{arrow}{after}"


def value(key: str, given: Any) -> str:
    """A setting as people write it: rates as rates, an adapter by its kind and rank, hashes by their beginning."""
    if given is None:
        return "none"
    if isinstance(given, bool):
        return "on" if given else "off"
    if isinstance(given, float):
        return rate(given) if key.endswith("lr") else f"{given:g}"
    if isinstance(given, Mapping):
        if given.get("kind"):
            return f"{given['kind']} r{given['r']}" if given.get("r") else str(given["kind"])
        return cut(json.dumps(given, ensure_ascii=False), LONGEST)
    if _is_hash(given):
        return str(given)[:8]
    return cut(str(given), LONGEST)


def _section(key: str) -> str:
    return key.rpartition(".")[0]


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def _is_hash(given: Any) -> bool:
    return isinstance(given, str) and len(given) >= 32 and all(each in "0123456789abcdef" for each in given)
