"""What the ``splits`` phase looks at: units, ids and texts of what the loaders yield, on every rank."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from tui_pilot.gates.verdict import LIST_LIMIT
from tui_pilot.pilot import benchmark
from tui_pilot.pilot.audit import split_of
from tui_pilot.pilot.likeness import digest, fold, likenesses
from tui_pilot.pilot.phase import Phase
from tui_pilot.pilot.row_facts import is_own
from tui_pilot.pilot.row_text import SAMPLED, RowText, pieces_of
from tui_pilot.pilot.rows import Split, epoch_order, rank_share
from tui_pilot.pilot.unit_guess import ROWS, guesses
from tui_pilot.pilot.windows import overlapping
from tui_pilot.tasks.base import NotDefined, Task, defines
from tui_pilot.tasks.units import describe, plain

NAMES = ("train", "validation", "test")
EPOCHS_LOOKED_AT = 3


@dataclass
class Side:
    """The rows of one split that its loader yields, as they are compared; lists run in step."""

    split: Split
    places: list[int]
    ids: list[Any] = field(default_factory=list)
    own: list[bool] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    hashes: list[bytes | None] = field(default_factory=list)
    exact: list[bytes] = field(default_factory=list)
    units: list[Any] = field(default_factory=list)
    foreign: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.places)


def look(current: Phase) -> None:
    """Compare every pair of splits and fill the row."""
    context = current.context
    task = context.task()
    rule = unit_rule(task)
    splits = {name: split for name in NAMES if (split := split_of(context, name)).records}
    read = RowText(task, [record for split in splits.values() for record in _sample(split)])
    sides = {name: read_side(current, split, read, rule is not None) for name, split in splits.items()}
    lacking = [] if rule is None else [without_unit(name, side) for name, side in sides.items() if None in side.units]
    current.seen |= {
        "rows": {name: len(side) for name, side in sides.items()},
        "unit": rule,
        "without_unit": lacking,
        "guesses": [] if rule is not None else guesses({n: _sample(s, ROWS) for n, s in splits.items()}, read.keys),
        "same_files": same_files(task),
        "units": [],
        "windows": [],
        "texts": [],
        "same_ids": [],
        "foreign": [{"split": name, **_of(side, sides)} for name, side in sides.items() if side.foreign],
        "near": [],
        "repeated": [one for name, side in sides.items() if (one := repeated(name, side)) is not None],
        "repeated_over_all": over_all(sides),
        "ranks": between_ranks(task, sides.get("train"), context.plan.replicas),
    }
    for left, right in combinations(sides, 2):
        current.progress(0, None, "rows", f"{left} beside {right}")
        compare(current, left, right, sides[left], sides[right], rule)
    path = context.plan.data.benchmark
    if path and "train" in sides:
        current.progress(0, None, "rows", "benchmark")
        side = sides["train"]
        pieces = [list(pieces_of(side.split.records[place])) for place in side.places]
        current.seen["benchmark"] = benchmark.compare(Path(path), side.ids, [text or "" for text in side.texts], pieces)
    current.inputs |= {"rows": current.seen["rows"], "unit": rule or "none given"}
    if read.keys is not None:
        current.inputs["compared_by"] = list(read.keys)
    shared = [unit for pair in current.seen["units"] for unit in pair["units"]]
    count = sum(pair["count"] for pair in current.seen["units"])
    texts = sum(pair["count"] for pair in current.seen["texts"])
    context.facts(
        "splits",
        {
            "unit": rule,
            "rows": current.seen["rows"],
            "shared": shared[:LIST_LIMIT],
            "shared_count": count,
            "shared_texts_count": texts,
            "repeated": current.seen["repeated_over_all"]["messages"],
        },
    )


def unit_rule(task: Task) -> str | None:
    """The unit in force, for people: a person's own task has the word before the plan's rule."""
    if defines(task, "unit") and is_own(task, "unit"):
        return f"{type(task).__name__}.unit"
    planned = task.plan.data.unit
    if planned is not None:
        return describe(planned)
    return "conversation_id" if task.plan.task == "demo" or _demo(task) else None


def _demo(task: Task) -> bool:
    return any(kind.__name__ == "DemoTask" for kind in type(task).__mro__)


def _sample(split: Split, count: int = SAMPLED) -> list[Any]:
    return [split.records[place] for place in range(min(count, len(split)))]


def read_side(current: Phase, split: Split, read: RowText, with_units: bool) -> Side:
    """Texts, hashes and units of every row that the split's loader yields."""
    task = current.context.task()
    places, foreign = yielded(task, split)
    side = Side(split, places, foreign=foreign)
    for number, place in enumerate(places):
        if number % 5000 == 0:
            current.progress(number, len(places), "rows", split.name)
        record = split.records[place]
        text = read(record)
        side.ids.append(split.ids[place])
        side.own.append(task.row_id(record) is not None)
        side.texts.append(text)
        side.hashes.append(None if text is None else digest(fold(text)))
        if text is not None:
            side.exact.append(digest(text))
        side.units.append(unit_of_row(task, record) if with_units else None)
    return side


def yielded(task: Task, split: Split) -> tuple[list[int], list[Any]]:
    """Places of the rows that the split's loader yields, and names it yields that are not the split's own.

    Validation is read in file order, whole. A task's own order may leave training rows out; the first few epochs
    together are what counts.
    """
    orders = [task.order(split.name, epoch, task.plan.seed) for epoch in range(EPOCHS_LOOKED_AT)]
    if split.name != "train" or any(order is None for order in orders):
        return list(range(len(split))), []
    places: dict[int, None] = {}
    foreign: dict[Any, None] = {}
    for row in (row for order in orders for row in order or ()):
        if row in split.place:
            places[split.place[row]] = None
        elif isinstance(row, int) and 0 <= row < len(split):
            places[row] = None
        else:
            foreign[row] = None
    return sorted(places), list(foreign)


def _of(side: Side, sides: Mapping[str, Side]) -> dict[str, Any]:
    """Whose rows the foreign names are."""
    owner = next((name for name, other in sides.items() if any(row in other.split.place for row in side.foreign)), None)
    return {"rows": side.foreign, "count": len(side.foreign), "of": owner}


def unit_of_row(task: Task, record: Any) -> Any:
    """A row's unit: text, or ``(start, end)`` for an interval; two parts that are no numbers are a name."""
    try:
        unit = task.unit(record)
    except NotDefined:
        return None
    if isinstance(unit, (list, tuple)):
        numbers = [each for each in unit if isinstance(each, (int, float)) and not isinstance(each, bool)]
        if len(unit) == len(numbers) == 2:
            return (float(unit[0]), float(unit[1]))
        return " / ".join(str(plain(each)) for each in unit)
    return plain(unit)


def without_unit(name: str, side: Side) -> dict[str, Any]:
    """Rows of a split that do not say their unit: whether they leak cannot be told."""
    rows = [row for row, unit in zip(side.ids, side.units, strict=True) if unit is None]
    return {"split": name, "count": len(rows), "rows": rows, "of": len(side)}


def compare(current: Phase, left: str, right: str, one: Side, other: Side, rule: str | None) -> None:
    """Everything two splits may share."""
    seen = current.seen
    base = {"left": left, "right": right}
    if rule is not None:
        hits, example = overlapping(one.units, other.units)
        if hits:
            gap = getattr(getattr(current.context.plan.data.unit, "time", None), "gap", 0.0)
            rows = [other.ids[number] for number in hits]
            seen["windows"].append({**base, "count": len(hits), "rows": rows, "example": example, "gap": gap})
        shared = _names(one.units) & _names(other.units)
        if shared:
            sides = [
                [row for row, unit in zip(each.ids, each.units, strict=True) if unit in shared] for each in (one, other)
            ]
            units = {"units": sorted(shared), "count": len(shared), "left_rows": sides[0], "rows": sides[1]}
            seen["units"].append({**base, **units})
    known = {value: number for number, value in reversed(list(enumerate(one.hashes))) if value is not None}
    same = [number for number, value in enumerate(other.hashes) if value in known]
    if same:
        first = other.hashes[same[0]]
        seen["texts"].append(
            {
                **base,
                "count": len({other.hashes[number] for number in same}),
                "rows_count": len(same),
                "rows": [other.ids[number] for number in same],
                "pair": [one.ids[known[first]] if first in known else None, other.ids[same[0]]],
                "example": other.texts[same[0]],
            }
        )
    ids = same_ids(one, other, set(same))
    if ids:
        seen["same_ids"].append({**base, **ids})
    near = near_duplicates(one, other, set(same))
    if near:
        seen["near"].append({**base, **near})


def _names(units: Iterable[Any]) -> set[str]:
    return {unit for unit in units if isinstance(unit, str)}


def same_ids(one: Side, other: Side, same: set[int]) -> dict[str, Any] | None:
    """Row ids that both sides yield: rows that are nothing but their id, and ids whose rows differ.

    Two files that each number their rows from the start share ids and no rows; those are left alone.
    """
    names = {plain(row): number for number, row in enumerate(one.ids) if one.own[number]}
    hits = [
        number
        for number, row in enumerate(other.ids)
        if other.own[number] and number not in same and plain(row) in names
    ]
    if not hits:
        return None
    bare = [number for number in hits if other.texts[number] is None]
    if not bare and _counts(one.ids) and _counts(other.ids):
        return None
    rows = [other.ids[number] for number in bare or hits]
    return {"rows": rows, "count": len(rows), "of": len(other), "other_content": not bare}


def _counts(ids: Sequence[Any]) -> bool:
    """Whether ids are a row counter: the number in each is one more than in the row before."""
    digits = ["".join(letter for letter in str(row) if letter.isdigit()) for row in ids]
    if not all(digits):
        return False
    numbers = [int(each) for each in digits]
    return numbers[0] in (0, 1) and all(right == left + 1 for left, right in pairwise(numbers))


def near_duplicates(one: Side, other: Side, same: set[int]) -> dict[str, Any] | None:
    """Rows of ``other`` that share at least half of their 8-word runs with one row of ``one``."""
    left, right = [text or "" for text in one.texts], [text or "" for text in other.texts]
    found = likenesses(left, right, skip=same)
    if not found:
        return None
    first = min(found, key=lambda number: (-found[number].share, number))
    return {
        "count": len(found),
        "rows": [other.ids[number] for number in sorted(found)],
        "of": len(other),
        "whole": sum(like.whole for like in found.values()),
        "share": min(like.share for like in found.values()),
        "pair": [one.ids[found[first].place], other.ids[first]],
        "examples": [left[found[first].place], right[first]],
    }


def repeated(name: str, side: Side) -> dict[str, Any] | None:
    """Texts that stand more than once in one split."""
    places: dict[bytes, list[int]] = defaultdict(list)
    for number, value in enumerate(side.hashes):
        if value is not None:
            places[value].append(number)
    groups = [numbers for numbers in places.values() if len(numbers) > 1]
    if not groups:
        return None
    rows = [side.ids[number] for numbers in groups for number in numbers]
    return {
        "split": name,
        "messages": len(groups),
        "rows": rows,
        "rows_count": len(rows),
        "example": side.texts[groups[0][0]],
    }


def over_all(sides: Mapping[str, Side]) -> dict[str, Any]:
    """Texts that stand more than once over all splits together: to the letter, and with case and blanks folded."""
    exact = Counter(value for side in sides.values() for value in side.exact)
    folded = Counter(value for side in sides.values() for value in side.hashes if value is not None)
    return {
        "messages": sum(1 for count in exact.values() if count > 1),
        "folded": sum(1 for count in folded.values() if count > 1),
        "total": sum(len(side.texts) for side in sides.values()),
    }


def same_files(task: Task) -> list[dict[str, Any]]:
    """Split files with equal bytes, by content and not by name."""
    data = task.plan.data
    paths = {
        name: value
        for name, value in (("train", data.train), ("validation", data.validation), ("test", data.test))
        if isinstance(value, str) and Path(value).is_file()
    }
    hashes = {name: file_hash(Path(path)) for name, path in paths.items()}
    return [
        {"left": left, "right": right, "file_left": paths[left], "file_right": paths[right]}
        for left, right in combinations(paths, 2)
        if hashes[left] == hashes[right]
    ]


def file_hash(path: Path) -> str:
    """SHA-256 of a file, streamed."""
    value = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            value.update(block)
    return value.hexdigest()


def between_ranks(task: Task, train: Side | None, replicas: int) -> dict[str, Any] | None:
    """Rows that more than one rank would see in epoch 0, padding and what the order itself repeats aside."""
    if train is None or replicas < 2 or train.foreign:
        return None
    order = epoch_order(task, train.split, 0, task.plan.seed)
    drop = task.plan.batch.drop_last
    shares = [rank_share(order, rank, replicas, drop) for rank in range(replicas)]
    meant = Counter(order)
    met = Counter(place for share, padding in shares for place in set(share[: len(share) - padding]))
    shared = sorted(place for place, count in met.items() if count > 1 and meant[place] == 1)
    rows = [train.split.ids[place] for place in shared]
    return {"replicas": replicas, "shared": rows, "shared_count": len(rows)}
