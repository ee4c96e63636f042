"""Entities of token labels: spans that B- and I- names mark, counted over words and over sub-words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

IGNORE = -100
_BEGIN, _INSIDE = ("B-", "b-", "B_", "S-", "U-"), ("I-", "i-", "I_", "E-", "L-", "M-")


def marks_entities(names: Sequence[str]) -> bool:
    """Whether class names mark beginnings and insides of entities."""
    return any(name.startswith(_BEGIN) for name in names) and any(name.startswith(_INSIDE) for name in names)


def entities(labels: Sequence[Any], names: Sequence[str]) -> int:
    """How many entities a row of labels (ids or names) holds; -100 is passed over.

    An entity begins at a B- label, and at an I- label that has none of its kind before it.
    """
    count, inside = 0, ""
    for label in labels:
        if label == IGNORE or label is None:
            continue
        name = names[label] if isinstance(label, int) and 0 <= label < len(names) else str(label)
        kind = name[2:]
        if name.startswith(_BEGIN):
            count, inside = count + 1, kind
        elif name.startswith(_INSIDE):
            count += inside != kind
            inside = kind
        else:
            inside = ""
    return count


def word_labels(record: Any, names: Sequence[str], aligned: Sequence[Any]) -> list[Any] | None:
    """The record's own labels by word: a list of class ids or names as long as a list of words; None: there is none."""
    if not hasattr(record, "items") or not marks_entities(names):
        return None
    lists = {key: value for key, value in record.items() if isinstance(value, (list, tuple)) and value}
    words = {len(value) for value in lists.values() if all(isinstance(each, str) for each in value)}
    known = set(names)
    for value in lists.values():
        ids = all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each < len(names) for each in value)
        if len(value) in words and (ids or all(each in known for each in value)):
            return list(value)
    return None
