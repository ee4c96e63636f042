"""A row's own words, for leak hashes: what its example depends on, and neither its name nor remarks about it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tui_pilot.pilot.row_view import plain_list
from tui_pilot.tasks.base import Task

OWN_KEYS = ("id", "_line", "split")
SAMPLED, SWAPS = 40, 3
TURN_KEYS, SAID_KEYS = ("role", "from"), ("content", "value")


class RowText:
    """Reads the words of a task's rows; ``keys`` are what the example depends on, None where that cannot be told."""

    def __init__(self, task: Task, records: Sequence[Any]) -> None:
        self.keys = content_keys(task, records)

    def __call__(self, record: Any) -> str | None:
        """The row's words, one piece a line; None where a row holds nothing but its name."""
        if not isinstance(record, Mapping):
            return str(record)
        if self.keys is not None:
            return "\n".join(piece for key in self.keys if key in record for piece in pieces_of(record[key]))
        return text_of(record)


def content_keys(task: Task, records: Sequence[Any]) -> tuple[str, ...] | None:
    """Keys of the records whose value changes what the model sees.

    Found by giving a row another row's value under one key and encoding again: a remark, a source's name or a row's
    number never makes two rows different, and a picture's path does, or an id that names its file. None where encoding
    does not tell: it draws at random, or goes by something else than the record.
    """
    rows = [dict(record) for record in records if isinstance(record, Mapping)]
    seen = [(row, found) for row in rows if (found := _inputs(task, row)) is not None]
    if len(seen) < 2 or _inputs(task, seen[0][0]) != seen[0][1]:
        return None
    names = dict.fromkeys(key for row, _ in seen for key in row)
    found = tuple(key for key in names if (key not in OWN_KEYS or key == "id") and _matters(task, key, seen))
    return found or None


def _matters(task: Task, key: str, seen: Sequence[tuple[dict[str, Any], Any]]) -> bool:
    tried = 0
    for place, (row, inputs) in enumerate(seen):
        if key not in row:
            continue
        others = (seen[(place + step) % len(seen)][0] for step in range(1, len(seen)))
        own = plain_list(row[key])
        other = next((each for each in others if key in each and plain_list(each[key]) != own), None)
        if other is None:
            continue
        if _inputs(task, {**row, key: other[key]}) != inputs:
            return True
        tried += 1
        if tried == SWAPS:
            break
    # Equal in every row sampled: it may still tell rows apart further on.
    return not tried and key in ("text", "content", "messages")


def _inputs(task: Task, record: Mapping[str, Any]) -> Any:
    """What the model sees of a row, without labels; None where the row cannot be encoded."""
    try:
        return _without_labels(task.encode(record))
    except Exception:
        return None


def _without_labels(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {key: _without_labels(each) for key, each in value.items() if "label" not in str(key)}
        lists = {key: each for key, each in kept.items() if isinstance(each, (list, dict))}
        return lists or kept
    return plain_list(value)


def text_of(record: Mapping[str, Any]) -> str | None:
    """A row's words by the usual names of its keys: messages, else text, else every string."""
    for key in ("messages", "text", "content"):
        if isinstance(record.get(key), (str, list, tuple)):
            return "\n".join(pieces_of(record[key]))
    own = {key: value for key, value in record.items() if key not in OWN_KEYS}
    if not own:
        return None
    return "\n".join(str(value) for value in own.values() if isinstance(value, str)) or json.dumps(
        own, sort_keys=True, default=str
    )


def pieces_of(value: Any) -> Iterator[str]:
    """The strings and numbers inside a value in their order; of a message what it says and not who says it."""
    value = plain_list(value)
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        if any(key in value for key in TURN_KEYS) and any(key in value for key in SAID_KEYS):
            yield from pieces_of(next(value[key] for key in SAID_KEYS if key in value) or "")
            if value.get("tool_calls"):
                yield json.dumps(value["tool_calls"], sort_keys=True, default=str, ensure_ascii=False)
        else:
            for each in value.values():
                yield from pieces_of(each)
    elif isinstance(value, list):
        if value and not any(isinstance(each, (str, Mapping, list, tuple)) for each in value):
            yield " ".join(map(str, value))
        else:
            for each in value:
                yield from pieces_of(each)
    elif value is not None:
        yield str(value)
