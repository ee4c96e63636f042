"""A loaded record against the row of the file it came from: keys, nulls and values that reading made or lost. Pure.

A loader may rename, join and add at the top level; what it may not do in silence is change the inside of a value that
it hands on: unify the keys of nested objects, read words as missing values, or turn nulls into words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_WORDS_OF_NOTHING = ("nan", "none", "null", "<na>", "nat")


@dataclass
class Differences:
    """Paths (``calls[0].arguments.theta``) by kind. ``nulls`` are missing values at the top level alone."""

    invented: list[str] = field(default_factory=list)
    nulls: list[str] = field(default_factory=list)
    emptied: list[tuple[str, Any]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    equal: int = 0


def compare(record: Mapping[str, Any], source: Mapping[str, Any]) -> Differences:
    """What differs in the keys that both have; keys that begin with ``_`` belong to readers."""
    found = Differences()
    for key, value in record.items():
        if str(key).startswith("_"):
            continue
        if key in source:
            _walk(value, source[key], str(key), found)
        elif missing(value):
            found.nulls.append(str(key))
    return found


def missing(value: Any) -> bool:
    """None, NaN, or what other libraries have for them."""
    if value is None:
        return True
    if isinstance(value, float):
        return math.isnan(value)
    return type(value).__name__ in ("NAType", "NaTType")


def blank(value: Any) -> bool:
    """Whether a field of the file says nothing."""
    return missing(value) or (isinstance(value, str) and not value.strip())


def _walk(value: Any, source: Any, path: str, found: Differences) -> None:
    if isinstance(value, Mapping) and isinstance(source, Mapping):
        for key in value:
            if key in source:
                _walk(value[key], source[key], f"{path}.{key}", found)
            else:
                found.invented.append(f"{path}.{key}")
        found.lost += [f"{path}.{key}" for key in source if key not in value and not missing(source[key])]
    elif isinstance(value, (list, tuple)) and isinstance(source, (list, tuple)):
        if len(value) == len(source):
            for place, (one, other) in enumerate(zip(value, source, strict=True)):
                _walk(one, other, f"{path}[{place}]", found)
    elif missing(value):
        if not blank(source):
            found.emptied.append((path, source))
    elif isinstance(value, str) and blank(source) and value.strip().lower() in _WORDS_OF_NOTHING:
        found.invented.append(path)
    elif isinstance(value, str) and isinstance(source, str):
        if value == source:
            found.equal += 1
        else:
            found.changed.append(path)
    elif same_number(value, source):
        found.equal += 1


def same_number(value: Any, source: Any) -> bool:
    """Whether a value and a field of the file are the same number, whatever types a reader gave them."""
    if isinstance(value, (list, tuple, Mapping)) or isinstance(source, (list, tuple, Mapping)):
        return False
    if value == source:
        return True
    try:
        return float(value) == float(source)
    except (TypeError, ValueError, OverflowError):
        return False
