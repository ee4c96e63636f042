"""Whose class names count, and where plan, model and data name the same id differently. Pure.

Two classes swapped between the data and a model's head train without a word and answer the wrong way round.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from tui_pilot.tasks.formats.table import Note, note

Names = dict[int, str]
"""Class names by id."""

_GENERIC = re.compile(r"LABEL_[0-9]+\Z")


class Findings(Protocol):
    """Where problems and notes go."""

    problems: list[dict[str, Any]]
    notes: list[Note]


def settle(plan: Names, model: Names, named: Names, spoken: set[str], findings: Findings) -> tuple[Names, str]:
    """The names that count and who gave them; ``{}`` where nobody did.

    ``spoken`` are the labels of the data where they are names. A model whose names are none of the data's and none of
    the plan's was trained for something else: its names are replaced.
    """
    if model and all(_GENERIC.match(name) for name in model.values()):
        model = {}
    wanted = {fold(name) for name in (*plan.values(), *spoken)}
    if model and wanted and not wanted & {fold(name) for name in model.values()}:
        text = f"the model's head knows {listed(model.values())}, none of the classes here: these replace them"
        findings.notes.append(note("head_replaced", text, key="model.path"))
        model = {}
    sources = [("model", model), ("plan", plan), ("data", named)]
    known, source = next(((names, source) for source, names in sources if names), ({}, "data"))
    for other, names in sources:
        if known and names and other != source:
            _compare(source, known, other, names, findings)
    return known, source


def _compare(source: str, known: Names, other: str, names: Names, findings: Findings) -> None:
    """A problem where two tables give one id two names; another letter case is a note."""
    words = {"model": "the model", "plan": "data.classes", "data": "the data"}
    first, second = words[source], words[other]
    both = sorted(set(known) | set(names)) if other == "plan" else sorted(names)
    differ = [number for number in both if fold(known.get(number)) != fold(names.get(number))]
    if differ:
        swapped = sorted(fold(known.get(each)) for each in differ) == sorted(fold(names.get(each)) for each in differ)
        pairs = "; ".join(f"{each}: {known.get(each)} and {names.get(each)}" for each in differ[:6])
        one = len(differ) == 1
        text = (
            f"{'id' if one else 'ids'} {_joined(differ)} {'is' if one else 'are'} {'swapped' if swapped else 'named'}"
            f"{'' if swapped else ' differently'} between {first} and {second} ({pairs}); the order of {first} is taken"
        )
        value = {"ids": differ, source: in_order(known), other: in_order(names)}
        findings.problems.append(
            {"row": None, "split": None, "code": "class_names_disagree", "text": text, "value": value}
        )
    elif any(known[number] != name for number, name in names.items()):
        text = f"class names of {first} and {second} differ in letter case alone and are taken as equal"
        findings.notes.append(note("class_case", text, key="data.classes"))


def fold(name: str | None) -> str:
    """A name without letter case and with single blanks, for comparison alone."""
    return "" if name is None else " ".join(name.casefold().split())


def in_order(names: Names) -> tuple[str, ...]:
    """The names by id; an id between that nobody names is its number."""
    return tuple(names.get(number, str(number)) for number in range(max(names) + 1))


def listed(names: Iterable[Any]) -> str:
    """The first six, and how many more."""
    found = [str(name) for name in names]
    return ", ".join(found[:6]) + (f" and {len(found) - 6:,} more" if len(found) > 6 else "")


def _joined(numbers: Sequence[int]) -> str:
    return " and ".join(", ".join(str(number) for number in numbers).rsplit(", ", 1))
