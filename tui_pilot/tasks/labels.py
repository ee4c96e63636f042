"""One table from what stands in a label column to class ids, and every label that it cannot place, by row.

Nothing is cast: a label that is missing, out of range or no class at all is named with its row before a loss can meet
it (a CPU raises an IndexError there, a GPU stops the whole process). Pure, standard library alone.

Ids depend on the set of labels and never on the order of rows. Words: the names sorted by code point. Whole numbers:
the number is the id where they run from 0 without a gap; else they are numbered in their order. The plan's
``data.classes`` wins over both, and names that a model's head already has win over the plan.
"""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tui_pilot.tasks.class_names import Names, fold, in_order, listed, settle
from tui_pilot.tasks.formats.table import Note, note
from tui_pilot.tasks.formats.tables import MISSING_WORDS
from tui_pilot.text import plural

IGNORED = -100
Problem = dict[str, Any]

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}\Z")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][+-]?[0-9]{1,3})?\Z")


@dataclass(frozen=True)
class Labelled:
    """The label of one row as the file has it."""

    row: Any
    split: str
    value: Any


class Read(NamedTuple):
    """What a label is: ``kind`` is ``number`` (whole), ``word``, ``missing``, ``decimal`` or ``other``."""

    kind: str
    key: Any
    dotted: bool = False


@dataclass
class LabelTable:
    """Class names by id and the way from a label to its id. ``counts`` are of all rows given, by id.

    ``problems`` are ``{row, split, code, text, value}``; ``row`` is None where the whole table is meant.
    """

    names: tuple[str, ...] = ()
    source: str = "data"
    problems: list[Problem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    ignored: int = 0
    numbers: bool = False
    ids: dict[Any, int] = field(default_factory=dict)

    def id_of(self, value: Any) -> int:
        """The class id. A whole number outside the table stays itself, so that it can be seen; the rest is -100."""
        kind, key, _ = read_label(value)
        if kind == "number" and (self.numbers or key == IGNORED):
            outside = IGNORED if 0 <= key < len(self.names) else int(key)
            return self.ids.get(key, outside)
        if kind in ("number", "word"):
            return self.ids.get(str(key), self.ids.get(fold(str(key)), IGNORED))
        return IGNORED


def read_label(value: Any) -> Read:
    """Kind and key of one cell. ``"1"``, ``1``, ``1.0`` and ``" 1"`` are the same number."""
    if value is None:
        return Read("missing", None)
    if isinstance(value, bool):
        return Read("word", str(value).lower())
    if isinstance(value, int):
        return Read("number", value)
    if isinstance(value, float):
        return _decimal(value)
    if not isinstance(value, str):
        return Read("other", type(value).__name__)
    text = value.strip()
    if not text:
        return Read("missing", "")
    if _WHOLE.match(text):
        return Read("number", int(text))
    return _decimal(float(text)) if _DECIMAL.match(text) else Read("word", text)


def _decimal(value: float) -> Read:
    if math.isnan(value):
        return Read("missing", "nan", True)
    if math.isfinite(value) and value.is_integer():
        return Read("number", int(value), True)
    return Read("decimal", value, True)


def build_labels(
    rows: Sequence[Labelled],
    declared: Sequence[str] = (),
    model: Mapping[int, str] | None = None,
    named: Mapping[int, str] | None = None,
) -> LabelTable:
    """The table of all rows' labels; classes that nobody declares are those of ``train`` rows.

    ``model`` are the id to name pairs of a model's head, ``named`` those that the data itself has beside its numbers.
    """
    read = [(row, read_label(row.value)) for row in rows]
    train = [label for row, label in read if row.split == "train"] or [label for _, label in read]
    plan = {number: str(name) for number, name in enumerate(declared)}
    numbers = [label.key for label in train if label.kind == "number" and label.key != IGNORED]
    words = [label.key for label in train if label.kind == "word"]
    table = LabelTable()
    table.numbers = bool(numbers) and all(_says_missing(word) for word in words)
    if plan and all(read_label(name).kind == "number" for name in plan.values()):
        table.numbers = False
    spoken = {str(key) for key in (*words, *numbers)}
    known, table.source = settle(plan, dict(model or {}), dict(named or {}), set() if table.numbers else spoken, table)
    if table.numbers:
        _number_classes(table, known, numbers)
    else:
        _word_classes(table, known, spoken)
    _judge_rows(table, read)
    if len(table.names) == 1:
        text = f"every label is {table.names[0]!r}: with one class the loss is 0 whatever the model answers"
        table.problems.append(problem(None, "loss_mismatch", text, table.names[0]))
    return table


def problem(row: Labelled | None, code: str, text: str, value: Any) -> Problem:
    """One label, or the whole table, that the loss cannot take."""
    place = {"row": None, "split": None} if row is None else {"row": row.row, "split": row.split}
    return {**place, "code": code, "text": text, "value": value}


def _says_missing(word: Any) -> bool:
    return str(word).lower() in MISSING_WORDS


def _number_classes(table: LabelTable, known: Names, numbers: list[int]) -> None:
    if known:
        table.names = in_order(known)
        table.ids = {number: number for number in range(len(table.names))}
        return
    counts = Counter(number for number in numbers if number >= 0)
    gap = next(number for number in range(len(counts) + 1) if number not in counts)
    beyond = sum(count for number, count in counts.items() if number > gap)
    # a few labels past a gap are slips; many are classes that are numbered in another way
    slips = gap > 1 and 0 < beyond <= max(1, len(numbers) // 100)
    values: Iterable[int] = range(gap) if slips else sorted(counts)
    table.ids = {value: number for number, value in enumerate(values)}
    table.names = tuple(str(value) for value in table.ids)
    if any(value != number for value, number in table.ids.items()):
        text = (
            f"labels {listed(table.names)} do not run from 0 without a gap: their ids are 0 to {len(table.names) - 1}"
        )
        table.notes.append(note("classes_numbered", text))


def _word_classes(table: LabelTable, known: Names, spoken: set[str]) -> None:
    table.names = in_order(known) if known else tuple(sorted(spoken))
    groups: dict[str, list[str]] = {}
    for name in table.names:
        groups.setdefault(fold(name), []).append(name)
    for group in groups.values():
        if len(group) > 1:
            text = f"classes {listed(map(repr, group))} differ in letter case or blanks alone: two ids for one class"
            table.problems.append(problem(None, "class_names_disagree", text, group))
    exact = {name: number for number, name in enumerate(table.names)}
    table.ids = {folded: exact[group[0]] for folded, group in groups.items()} | exact


def _judge_rows(table: LabelTable, read: Sequence[tuple[Labelled, Read]]) -> None:
    dotted = any(label.dotted for _, label in read)
    counts: Counter[int] = Counter()
    for row, label in read:
        found = table.id_of(row.value)
        if label.kind == "number" and label.key == IGNORED:
            table.ignored += 1
        elif label.kind == "missing" or (table.numbers and label.kind == "word" and _says_missing(label.key)):
            table.problems.append(_missing(table, row, label, dotted))
        elif label.kind in ("decimal", "other"):
            what = f"{row.value} is no whole number" if label.kind == "decimal" else f"the label is a {label.key}"
            text = f"{what}: the loss in force, cross entropy, takes one class id a row"
            table.problems.append(problem(row, "loss_mismatch", text, row.value))
        elif not 0 <= found < len(table.names):
            table.problems.append(_out_of_range(table, row, label))
        else:
            counts[found] += 1
    table.counts = {number: counts[number] for number in range(len(table.names))}
    if table.ignored:
        text = f"{plural(table.ignored, 'label is', 'labels are')} -100: left out of the loss"
        table.notes.append(note("ignored_labels", text, count=table.ignored))


def _missing(table: LabelTable, row: Labelled, label: Read, dotted: bool) -> Problem:
    if table.numbers and dotted:
        text = f"no label ({row.value!r}): a missing value made a reader write the whole numbers as decimals"
        return problem(row, "values_invented_missing", text, row.value)
    if label.kind == "word" or label.key == "nan":
        text = f"{row.value!r} stands where other rows have a label: a reader took a word or a blank for missing"
        return problem(row, "values_invented_missing", text, row.value)
    return problem(row, "label_out_of_range", "no label: the field is empty", row.value)


def _out_of_range(table: LabelTable, row: Labelled, label: Read) -> Problem:
    total = len(table.names)
    plain = table.numbers and list(table.ids) == list(range(total))
    text = f"label {label.key!r} is none of the {total} classes" + (f", 0 to {total - 1}" if plain else "")
    if label.key == -1:
        text += "; a row to leave out has -100, and a class -1 is named in data.classes"
    near = difflib.get_close_matches(str(label.key), table.names, 1) if label.kind == "word" else []
    return problem(row, "label_out_of_range", text + (f"; nearest: {near[0]!r}" if near else ""), row.value)
