"""Row lengths of a split: from the audit on disk where there is one, else by encoding."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tui_pilot.pilot.context import Context
from tui_pilot.pilot.row_view import plain_list
from tui_pilot.pilot.rows import Split
from tui_pilot.tasks.base import IGNORE, encode
from tui_pilot.tasks.sizes import example_length


@dataclass(frozen=True)
class Length:
    """One row: its place in the split, tokens after the cut, and supervised items."""

    place: int
    tokens: int
    supervised: int


def lengths_of(context: Context, split: Split) -> list[Length]:
    """Every row of a split in file order, read once per process."""
    found: list[Length] = context.once(
        f"lengths:{split.name}", lambda: _read(context, split) or _encode(context, split)
    )
    return found


def _read(context: Context, split: Split) -> list[Length] | None:
    try:
        with (context.run.examples / "audit.jsonl").open("rb") as stream:
            records = [json.loads(line) for line in stream]
    except (OSError, ValueError):
        return None
    found = [Length(one["n"], one["length"], one["supervised"]) for one in records if one["split"] == split.name]
    return found if len(found) == len(split) else None


def _encode(context: Context, split: Split) -> list[Length]:
    found = []
    for place, record in enumerate(split.records):
        example = encode(context.task(), record)
        found.append(Length(place, example_length(example), supervised_of(example)))
    return found


def supervised_of(example: Any) -> int:
    """Supervised items of an example."""
    labels = plain_list(example.get("labels", 0))
    if isinstance(labels, list):
        return sum(1 for label in labels[1:] if label != IGNORE)
    return 0 if labels == IGNORE else 1


def longest(context: Context, split: Split, count: int) -> list[int]:
    """Places of the longest rows, longest first, every rank the same list; wraps round when there are fewer."""
    ordered = sorted(lengths_of(context, split), key=lambda each: (-each.tokens, each.place))
    places = [each.place for each in ordered[:count]]
    return [places[number % len(places)] for number in range(count)] if places else []


def shortest_supervised(context: Context, split: Split, count: int) -> list[int]:
    """Places of the shortest rows that hold supervised items; with classes, one of each class in turn."""
    rows = sorted(
        (each for each in lengths_of(context, split) if each.supervised), key=lambda each: (each.tokens, each.place)
    )
    if len(context.task().class_names()) < 2:
        return [each.place for each in rows[:count]]
    chosen: list[int] = []
    by_class: dict[Any, list[int]] = {}
    for each in rows[:2000]:
        label = plain_list(encode(context.task(), split.records[each.place])["labels"])
        by_class.setdefault(label if not isinstance(label, list) else tuple(label), []).append(each.place)
    while len(chosen) < count and any(by_class.values()):
        for places in by_class.values():
            if places and len(chosen) < count:
                chosen.append(places.pop(0))
    return chosen
