"""What a data file says about the plan it needs: rows, columns, shape, task, unit, lengths. Looks, decides nothing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tui_pilot.errors import DataError, PlanError
from tui_pilot.tasks.formats import Detected, Table, read, sniff
from tui_pilot.tasks.formats.table import LINE
from tui_pilot.tasks.formats.tables import read_table

LOOKED_AT = 20_000
"""Rows read for the proposal; a longer file is said to be longer."""

UNIT_NAME = re.compile(
    r"(conversation|conv|dialog(ue)?|chat|session|thread|group|family|source|document|doc|article|book|patient|subject"
    r"|person|user|author|speaker|reader|writer|customer|client|account|site|case)s?([_ -]?(id|key|name|uuid))?\Z",
    re.IGNORECASE,
)
PAIRS = (
    ("question", "answer"),
    ("input", "output"),
    ("prompt", "response"),
    ("instruction", "response"),
    ("source", "target"),
    ("query", "response"),
    ("problem", "solution"),
    ("question", "response"),
)
CHATS = ("messages", "sharegpt", "alpaca", "prompt_completion", "text")
_NUMBERED = re.compile(r"(.+)_-?[0-9]+\Z")


@dataclass
class Look:
    """One data file. ``columns`` and ``unit`` are as the plan writes them; ``why_unit`` is for its comment."""

    path: Path
    container: str
    shape: str
    rows: int = 0
    more: bool = False
    header: bool = True
    why_header: str = ""
    quoting_none: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    task: str = ""
    why_task: str = ""
    unit: str = ""
    why_unit: str = ""
    classes: Counter[str] = field(default_factory=Counter)
    lengths: list[int] = field(default_factory=list)
    longest_bytes: int = 0
    broken: DataError | None = None


def look(path: Path, count: Callable[[str], int] | None = None, task: str | None = None) -> Look:
    """Read the file and say what it is. ``count`` gives the tokens of a text; without it four characters are one.

    ``task`` is what the person asked for: ``sft``, ``classification``, or ``own`` for a class that reads rows itself.
    """
    found = sniff(path)
    shape = found.format if found.format in (*CHATS, "preference") else ""
    seen = Look(path, found.container, shape)
    records = _records(seen, found)
    if not records:
        fault = seen.broken
        raise fault if fault else DataError("the file has no rows", "It needs at least one.", file=str(path))
    _columns(seen, records, task)
    _unit(seen, records)
    texts = [_text(seen, record) for record in records]
    seen.longest_bytes = max(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    measure = count or _guess
    some = texts if count is None else sorted(texts, key=len)[-50:] + texts[:1000]
    seen.lengths = sorted(measure(text) for text in some)
    return seen


def tokens_of(model: Path | None) -> Callable[[str], int] | None:
    """How many tokens a text has by the model folder's tokenizer; None where it or the package is not there."""
    if model is None or not (model / "tokenizer.json").is_file():
        return None
    try:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    except Exception:  # no package, or a file it cannot read: the estimate serves
        return None
    return lambda text: len(tokenizer.encode(text).ids)


def places_of(model: Path) -> int | None:
    """How many tokens the model was made for, by its config."""
    try:
        places = json.loads((model / "config.json").read_text("utf-8")).get("max_position_embeddings")
    except (OSError, ValueError, AttributeError):
        return None
    return places if isinstance(places, int) and places > 0 else None


def _guess(text: str) -> int:
    return len(text) // 4 + 1


def _records(seen: Look, found: Detected) -> list[Mapping[str, Any]]:
    """The first rows as plain mappings; the first broken one ends the look and is kept."""
    table: Table
    if found.container in ("csv", "tsv"):
        bare = read_table(seen.path, format=found.container, header=False, errors="collect")
        seen.header, seen.why_header = _has_header(bare)
        seen.quoting_none = next((each["text"] for each in bare.notes if each["code"] == "quoting_differs"), "")
        table = read_table(seen.path, format=found.container, header=seen.header, errors="collect")
        seen.broken = table.faults[0] if table.faults else None
    else:
        table = read(seen.path)
    seen.rows = len(table.records)
    seen.more = seen.rows > LOOKED_AT
    records: list[Mapping[str, Any]] = []
    for place in range(min(seen.rows, LOOKED_AT)):
        try:
            records.append(table.records[place])
        except DataError as error:
            seen.broken = seen.broken or error
    return records


def _has_header(table: Table) -> tuple[bool, str]:
    """Whether the first line names columns: names are short, unlike each other and do not come again below."""
    first, below = table.records[0], table.records[1:LOOKED_AT]
    for name in table.columns:
        cell = str(first[name])
        if cell and any(record[name] == cell for record in below):
            return False, f"{cell[:30]!r} stands in the first line and again below: that is data"
        if len(cell) > 60 or re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", cell):
            return False, "the first line looks like data, not like names"
    return True, "the first line names the columns"


def _columns(seen: Look, records: Sequence[Mapping[str, Any]], task: str | None) -> None:
    """Task and columns: chats by their shape, a few short values beside a text are classes, two texts are a pair."""
    if task == "own":
        seen.task = task
        return
    names = [str(name) for name in records[0] if name != LINE]
    if seen.shape == "preference":
        raise PlanError(
            "the rows are preference pairs (chosen, rejected), which no built-in task trains on.",
            "Write a task of your own: pilot-tui init --task my_file.py:MyTask",
            file=str(seen.path),
        )
    label, text = _label_of(names, records), _longest_of(names, records)
    classifies = label is not None and text is not None and seen.shape in ("", "text")
    if task == "classification" and not classifies:
        advice = "Columns here: " + ", ".join(names)[:200]
        raise PlanError("no column looks like a label beside a text.", advice, file=str(seen.path))
    if classifies and task != "sft":
        assert label is not None and text is not None
        seen.task, seen.columns = "classification", {"text": text, "label": label}
        seen.classes = Counter(str(record.get(label, "")) for record in records)
        seen.why_task = f"column {label} has {len(seen.classes)} values, column {text} is the text"
        return
    seen.task, seen.why_task = "sft", f"rows are {seen.shape}"
    if seen.shape:
        return
    pair = next((pair for pair in PAIRS if set(pair) <= set(names)), None)
    if pair is None:
        raise PlanError(
            f"no format is recognised in its columns: {', '.join(names)[:200]}.",
            "Rename them (prompt, completion; text, label; messages), or write data.columns by hand.",
            file=str(seen.path),
        )
    seen.shape, seen.columns = "prompt_completion", {"prompt": pair[0], "completion": pair[1]}
    seen.why_task = f"{pair[0]} is taken as the prompt and {pair[1]} as the answer to learn"


def _label_of(names: Sequence[str], records: Sequence[Mapping[str, Any]]) -> str | None:
    """The column with the fewest different short values, a name like ``label`` first."""
    best: list[tuple[int, int, str]] = []
    for name in names:
        values = {str(record.get(name, "")) for record in records}
        if isinstance(records[0].get(name), (list, dict)) or UNIT_NAME.match(name) or name == "id":
            continue
        if 2 <= len(values) <= min(100, max(2, len(records) // 4)) and max(map(len, values)) <= 60:
            named = name.lower() in ("label", "class", "category", "target", "kind", "intent", "sentiment", "topic")
            best.append((0 if named else 1, len(values), name))
    return min(best)[2] if best else None


def _longest_of(names: Sequence[str], records: Sequence[Mapping[str, Any]]) -> str | None:
    sizes = {
        name: sum(len(record[name]) for record in records[:2000] if isinstance(record.get(name), str)) for name in names
    }
    name = max(sizes, key=lambda each: sizes[each], default=None)
    return name if name is not None and sizes[name] else None


def _unit(seen: Look, records: Sequence[Mapping[str, Any]]) -> None:
    """A field that repeats and groups rows; chains of parents; ids whose head repeats."""
    names = [str(name) for name in records[0] if name not in (LINE, "messages", *seen.columns.values())]
    if "parent_id" in names and any(record.get("parent_id") for record in records):
        seen.unit, seen.why_unit = "{root_of: parent_id}", "rows form chains: a whole chain stays on one side"
        return
    for name in sorted(names, key=lambda each: not UNIT_NAME.match(each)):
        values = Counter(str(record[name]) for record in records if isinstance(record.get(name), (str, int)))
        if name == "id" or len(values) < 3 or sum(values.values()) < len(records):
            continue
        grouped = len(values) < 0.9 * len(records) and max(values.values()) <= max(2, len(records) // 5)
        if grouped and (UNIT_NAME.match(name) or name.lower().endswith("_id")):
            seen.unit = name
            seen.why_unit = (
                f"{len(values):,} different values over {len(records):,} rows: what shares one stays together"
            )
            return
    heads = [_NUMBERED.match(str(record.get("id", ""))) for record in records]
    different = {head.group(1) for head in heads if head}
    if all(heads) and 3 <= len(different) < 0.9 * len(records):
        seen.unit = '{prefix: "_"}'
        seen.why_unit = (
            f"ids end in _number and share {len(different):,} beginnings: rows of one beginning stay together"
        )


def _text(seen: Look, record: Mapping[str, Any]) -> str:
    """All text of a row that a model would read."""
    if seen.task == "classification":
        return str(record.get(seen.columns["text"], ""))
    messages = record.get("messages")
    if isinstance(messages, list):
        parts = [message.get("content") for message in messages if isinstance(message, dict)]
        return " turn ".join(part if isinstance(part, str) else json.dumps(part) for part in parts)
    wanted = list(seen.columns.values()) or [name for name in record if name != LINE]
    return "".join(str(record.get(name, "")) for name in wanted)
