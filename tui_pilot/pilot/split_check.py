"""What the ``splits`` phase looks at: units, ids and texts of what the loaders yield, on every rank."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from tui_pilot.gates.verdict import LIST_LIMIT
from tui_pilot.pilot.audit import split_of
from tui_pilot.pilot.phase import Phase
from tui_pilot.pilot.rows import Split, epoch_order, rank_share
from tui_pilot.tasks.base import NotDefined, Task, defines
from tui_pilot.tasks.units import describe

WORDS = re.compile(r"\w+", re.UNICODE)
RUN = 8
NEAR_SHARE = 0.5
NAMES = ("train", "validation", "test")
OWN_KEYS = ("id", "_line", "split")


@dataclass
class Side:
    """One split as it is compared."""

    split: Split
    texts: list[str]
    hashes: list[bytes] = field(default_factory=list)
    exact: list[bytes] = field(default_factory=list)
    units: list[Any] = field(default_factory=list)


def look(current: Phase) -> None:
    """Compare every pair of splits and fill the row."""
    context = current.context
    task = context.task()
    rule = unit_rule(task)
    sides: dict[str, Side] = {}
    for name in NAMES:
        split = split_of(context, name)
        if split.records:
            current.progress(0, len(split), "rows", name)
            sides[name] = read_side(task, split, rule is not None)
    if any(None in side.units for side in sides.values()) and all(
        unit is None for side in sides.values() for unit in side.units
    ):
        rule = None
    current.seen |= {
        "rows": {name: len(side.texts) for name, side in sides.items()},
        "unit": rule,
        "same_files": same_files(task),
        "units": [],
        "windows": [],
        "texts": [],
        "same_ids": [],
        "near": [],
        "repeated": [repeated(name, side) for name, side in sides.items() if len(set(side.hashes)) < len(side.hashes)],
        "repeated_over_all": over_all(sides),
        "ranks": between_ranks(task, sides.get("train"), context.plan.replicas),
    }
    for left, right in combinations(sides, 2):
        compare(current, left, right, sides[left], sides[right], rule)
    if context.plan.data.benchmark:
        current.seen["benchmark"] = benchmark(Path(context.plan.data.benchmark), sides["train"])
    current.inputs |= {"rows": current.seen["rows"], "unit": rule or "none given"}
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
            "repeated": (current.seen["repeated_over_all"] or {}).get("messages", 0),
        },
    )


def unit_rule(task: Task) -> str | None:
    """The unit in force, for people: the task's own, or the plan's."""
    planned = task.plan.data.unit
    if planned is not None:
        return describe(planned)
    if defines(task, "unit") and not type(task).__module__.startswith("tui_pilot.tasks."):
        return f"{type(task).__name__}.unit"
    if task.plan.task == "demo":
        return "conversation_id"
    return None


def read_side(task: Task, split: Split, with_units: bool) -> Side:
    """Texts, hashes and units of every row of a split."""
    side = Side(split, [])
    for record in split.records:
        text = text_of(record)
        side.texts.append(text)
        side.hashes.append(digest(fold(text)))
        side.exact.append(digest(text))
        unit = None
        if with_units:
            try:
                unit = normal_unit(task.unit(record))
            except NotDefined:
                unit = None
        side.units.append(unit)
    return side


def normal_unit(unit: Any) -> Any:
    """``7`` and ``"7"`` are one unit; an interval stays an interval."""
    if isinstance(unit, (list, tuple)):
        return tuple(unit)
    return None if unit is None else str(unit)


def text_of(record: Any) -> str:
    """A row's own words, without its names: ids and line numbers never make two rows different."""
    if not isinstance(record, Mapping):
        return str(record)
    messages = record.get("messages")
    if isinstance(messages, (list, tuple)):
        return "\n".join(str(m.get("content") or "") if isinstance(m, Mapping) else str(m) for m in messages)
    for key in ("text", "content"):
        if isinstance(record.get(key), str):
            return str(record[key])
    strings = [str(value) for key, value in record.items() if key not in OWN_KEYS and isinstance(value, str)]
    if strings:
        return "\n".join(strings)
    return json.dumps({k: v for k, v in record.items() if k not in OWN_KEYS}, sort_keys=True, default=str)


def fold(text: str) -> str:
    """Text for leak hashes alone: composed, without accents' other forms, case and doubled blanks."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).digest()


def runs_of(text: str) -> set[int]:
    """Hashes of every run of eight words."""
    words = WORDS.findall(fold(text))
    return {hash(tuple(words[start : start + RUN])) for start in range(len(words) - RUN + 1)}


def compare(current: Phase, left: str, right: str, one: Side, other: Side, rule: str | None) -> None:
    """Everything two splits may share."""
    seen = current.seen
    base = {"left": left, "right": right}
    if rule is not None:
        if any(isinstance(unit, tuple) for unit in one.units):
            overlap = overlapping(one, other, gap_of(current.context.plan.data.unit))
            if overlap:
                seen["windows"].append({**base, **overlap})
        else:
            shared = {unit for unit in one.units if unit is not None} & {
                unit for unit in other.units if unit is not None
            }
            if shared:
                rows = [row for row, unit in zip(other.split.ids, other.units, strict=True) if unit in shared]
                seen["units"].append({**base, "units": sorted(shared, key=str), "count": len(shared), "rows": rows})
    known = set(one.hashes)
    same = [number for number, value in enumerate(other.hashes) if value in known]
    if same:
        rows = [other.split.ids[number] for number in same]
        distinct = len({other.hashes[number] for number in same})
        seen["texts"].append(
            {**base, "count": distinct, "rows_count": len(rows), "rows": rows, "example": other.texts[same[0]]}
        )
    near = near_duplicates(one, other, set(same))
    if near:
        seen["near"].append({**base, **near})


def near_duplicates(one: Side, other: Side, same: set[int]) -> dict[str, Any] | None:
    """Rows of ``other`` that share at least half of their 8-word runs with one row of ``one``."""
    wanted: dict[int, list[int]] = defaultdict(list)
    runs: dict[int, int] = {}
    for number, text in enumerate(other.texts):
        if number not in same:
            own = runs_of(text)
            runs[number] = len(own)
            for value in own:
                wanted[value].append(number)
    found: dict[int, tuple[float, int]] = {}
    for place, text in enumerate(one.texts):
        hits: dict[int, int] = defaultdict(int)
        for value in runs_of(text):
            for number in wanted.get(value, ()):
                hits[number] += 1
        for number, count in hits.items():
            share = count / runs[number]
            if share >= NEAR_SHARE and share > found.get(number, (0.0, 0))[0]:
                found[number] = (share, place)
    if not found:
        return None
    first = min(found)
    share = min(value for value, _ in found.values())
    return {
        "count": len(found),
        "rows": [other.split.ids[number] for number in sorted(found)],
        "share": share,
        "pair": [one.split.ids[found[first][1]], other.split.ids[first]],
        "example": other.texts[first],
    }


def overlapping(one: Side, other: Side, gap: float) -> dict[str, Any] | None:
    """Windows of two splits that overlap, or stand closer than the gap."""
    rows: list[Any] = []
    example = ""
    spans = sorted(unit for unit in one.units if isinstance(unit, tuple))
    for row, unit in zip(other.split.ids, other.units, strict=True):
        if not isinstance(unit, tuple):
            continue
        hit = next((span for span in spans if span[0] < unit[1] + gap and unit[0] < span[1] + gap), None)
        if hit is not None:
            rows.append(row)
            example = example or f"{list(hit)} and {list(unit)}"
    return {"count": len(rows), "rows": rows, "example": example, "gap": gap} if rows else None


def gap_of(unit: Any) -> float:
    time = getattr(unit, "time", None)
    return float(time.gap) if time is not None else 0.0


def repeated(name: str, side: Side) -> dict[str, Any]:
    """Texts that stand more than once in one split."""
    places: dict[bytes, list[int]] = defaultdict(list)
    for number, value in enumerate(side.hashes):
        places[value].append(number)
    groups = [numbers for numbers in places.values() if len(numbers) > 1]
    rows = [side.split.ids[number] for numbers in groups for number in numbers]
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
    folded = Counter(value for side in sides.values() for value in side.hashes)
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
    """Rows that more than one rank would see in epoch 0, padding aside."""
    if train is None or replicas < 2:
        return None
    order = epoch_order(task, train.split, 0, task.plan.seed)
    drop = task.plan.batch.drop_last
    shares = [rank_share(order, rank, replicas, drop) for rank in range(replicas)]
    sets = [set(share[: len(share) - padding]) for share, padding in shares]
    shared = sorted(set.intersection(*sets))
    rows = [train.split.ids[place] for place in shared]
    return {"replicas": replicas, "shared": rows, "shared_count": len(rows)}


def benchmark(path: Path, train: Side) -> dict[str, Any]:
    """Rows of a benchmark file that occur in train, wholly or in 8-word runs."""
    texts = benchmark_texts(path)
    inside = {fold(text) for text in train.texts}
    parts = [set(fold(text).split("\n")) for text in train.texts]
    pieces = set().union(*parts) if parts else set()
    pieces |= {fold(piece) for text in train.texts for piece in text.split("\n")}
    whole = [text for text in texts if fold(text) in inside or fold(text) in pieces]
    pool = set().union(*(runs_of(text) for text in train.texts)) if train.texts else set()
    near = [text for text in texts if text not in whole and _contained(text, pool)]
    return {
        "file": str(path),
        "count": len(whole),
        "rows": whole[:LIST_LIMIT],
        "example": whole[0] if whole else "",
        "near": len(near),
        "near_rows": near[:LIST_LIMIT],
        "near_example": near[0] if near else "",
    }


def _contained(text: str, pool: set[int]) -> bool:
    own = runs_of(text)
    return bool(own) and len(own & pool) / len(own) >= NEAR_SHARE


def benchmark_texts(path: Path) -> Sequence[str]:
    """Every text of a benchmark file: the strings of JSON lines, else its lines."""
    found: list[str] = []
    for line in path.read_text("utf-8-sig", "replace").split("\n"):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            found.append(line.strip())
            continue
        found += _strings(value)
    return found


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        return [value] if len(value.split()) > 2 else []
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _strings(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _strings(item)]
    return []
