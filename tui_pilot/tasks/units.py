"""The unit that must stay on one side of a split, read from a record by the plan's rule. Standard library only."""

from __future__ import annotations

import math
import random
import re
import unicodedata
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from tui_pilot.errors import PlanError
from tui_pilot.plan.model import Held, RootUnit, TimeUnit, Unit

Rule = str | Unit
Record = Mapping[str, Any]
Parents = Mapping[str, str | None]

_PARENT = re.compile(r"(?:^|[_.])(?:parent|reply_to|in_reply_to|prev(?:ious)?)(?:$|[_.])|parentid$", re.IGNORECASE)


def whole_rule(rule: Rule) -> Rule:
    """The rule in force: a field that names a row's parent stands for the root of its chain.

    The parent's id alone would cut a chain of three into two units, and call them apart.
    """
    if isinstance(rule, str) and _PARENT.search(rule):
        return Unit(root_of=RootUnit(rule))
    return rule


def unit_of(rule: Rule, record: Record, parents: Parents | None = None) -> Any:
    """The record's unit as text, or ``(start, end)`` for a time; None where the record does not say.

    ``prefix`` is what stands before the *last* occurrence of the mark, ``regex`` its first group (or the whole match),
    both of ``field``, by default ``id``. ``root_of`` needs ``parents``, the chain links of *all* splits
    (``parents_of``): a chain whose root is in another file is still one unit.
    """
    rule = whole_rule(rule)
    if isinstance(rule, str):
        return plain(value_at(record, rule))
    if rule.time is not None:
        return _moment(rule.time, record)
    if rule.root_of is not None:
        own = plain(value_at(record, rule.root_of.id))
        above = plain(value_at(record, rule.root_of.parent))
        if own is None:
            return _root(above, parents or {})
        return _root(own, {own: above} if parents is None else parents)
    text = plain(value_at(record, rule.field or "id"))
    if text is None:
        return None
    if rule.prefix is not None:
        head, mark, _ = text.rpartition(rule.prefix)
        return head if mark else text
    if rule.regex is not None:
        found = _pattern(rule.regex).search(text)
        if found is None:
            return None
        return found.group(1) if found.re.groups else found.group(0)
    return text


def parents_of(rule: Rule | None, *tables: Iterable[Record]) -> dict[str, str | None]:
    """Row id to parent id over all splits, for ``root_of``; empty for other rules."""
    links: dict[str, str | None] = {}
    rule = None if rule is None else whole_rule(rule)
    if rule is None or isinstance(rule, str) or rule.root_of is None:
        return links
    for table in tables:
        for record in table:
            own = plain(value_at(record, rule.root_of.id))
            if own is not None:
                # A second row of the same id that names no parent does not undo the link.
                links[own] = plain(value_at(record, rule.root_of.parent)) or links.get(own)
    return links


def fields_of(rule: Rule) -> list[str]:
    """The keys of a record that the rule reads."""
    rule = whole_rule(rule)
    if isinstance(rule, str):
        return [rule]
    if rule.time is not None:
        return [rule.time.field]
    if rule.root_of is not None:
        return [rule.root_of.id, rule.root_of.parent]
    return [rule.field or "id"]


def describe(rule: Rule) -> str:
    """The rule in a few words, for a verdict that says which unit was used."""
    rule = whole_rule(rule)
    if isinstance(rule, str):
        return rule
    if rule.time is not None:
        return f"time in {rule.time.field}, {rule.time.gap:g} apart"
    if rule.root_of is not None:
        return f"root of {rule.root_of.parent} chains"
    name = rule.field or "id"
    if rule.prefix is not None:
        return f"{name} before its last {rule.prefix!r}"
    if rule.regex is not None:
        return f"{name} matched by {rule.regex}"
    return name


def value_at(record: Record, name: str) -> Any:
    """A record's value by key, or by a dotted path (``meta.patient``) where no key has that name."""
    if name in record:
        return record[name]
    value: Any = record
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def plain(value: Any) -> str | None:
    """An id as text, so that ``"7"``, ``7`` and ``7.0`` are one, and two spellings of an accent.

    Null, blank, not-a-number and nested values are none.
    """
    if value is None or isinstance(value, (list, dict)) or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = unicodedata.normalize("NFC", str(value)).strip()
    return text or None


def held_out(units: Sequence[Any], held: Held) -> tuple[list[int], list[int]]:
    """Row numbers ``(train, validation)`` of one table: whole units go to validation until the fraction is reached.

    ``units`` is one unit per row; a row without one stands alone. Intervals are split along time: the latest go to
    validation, and a row that overlaps them goes to neither side.
    """
    count = len(units)
    wanted = max(1, round(count * held.fraction)) if count > 1 else 0
    if units and any(isinstance(unit, tuple) for unit in units):
        return _latest(units, wanted)
    rows: dict[Hashable, list[int]] = {}
    for number, unit in enumerate(units):
        rows.setdefault(("row", number) if unit is None else ("unit", unit), []).append(number)
    groups = list(rows.values())
    random.Random(f"held-{held.seed}").shuffle(groups)
    validation: list[int] = []
    for place, group in enumerate(groups):
        if len(validation) >= wanted or place == len(groups) - 1:
            break
        validation += group
    kept = set(validation)
    return [number for number in range(count) if number not in kept], sorted(validation)


def _latest(units: Sequence[Any], wanted: int) -> tuple[list[int], list[int]]:
    dated = sorted((unit[0], number) for number, unit in enumerate(units) if isinstance(unit, tuple))
    validation = {number for _, number in dated[len(dated) - wanted :]}
    first = min((units[number][0] for number in validation), default=float("inf"))
    train = [
        number
        for number, unit in enumerate(units)
        if number not in validation and isinstance(unit, tuple) and unit[1] <= first
    ]
    return train, sorted(validation)


def _root(start: str | None, parents: Parents) -> str | None:
    seen: set[str] = set()
    while start is not None and start not in seen:
        seen.add(start)
        above = parents.get(start)
        if above is None:
            return start
        start = above
    # a chain that closes on itself has no root; its smallest id names it from wherever one starts
    return min(seen) if seen else None


def _moment(rule: TimeUnit, record: Record) -> tuple[float, float] | None:
    value = value_at(record, rule.field)
    if isinstance(value, bool) or value is None:
        return None
    try:
        start = float(value)
    except (TypeError, ValueError):
        try:
            moment = datetime.fromisoformat(str(value).strip().replace("Z", "+00:00"))
        except ValueError:
            return None
        start = (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    return (start, start + rule.gap)


def _pattern(regex: str) -> re.Pattern[str]:
    try:
        return re.compile(regex)
    except re.error as error:
        raise PlanError(f"not a regular expression ({error})", key="data.unit.regex", value=regex) from None
