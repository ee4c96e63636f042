"""Fits what was written to the plan's types: unknown keys out, numbers read, then pydantic, strict, over the rest.

YAML reads ``1e-4`` as text and ``yes`` as it likes; here the type that belongs at a place decides. Nothing else is
converted: text is no number, a number is no text, true is no number.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from typing import Any

import pydantic

from tui_pilot.plan import keys
from tui_pilot.plan.keys import Path
from tui_pilot.plan.model import Plan
from tui_pilot.plan.positions import Plain
from tui_pilot.plan.problems import Problems, shown

_ADAPTER = pydantic.TypeAdapter(Plan)
_EXPONENT = re.compile(r"[-+]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)[eE][-+]?[0-9]{1,4}\Z")
_WORDS = {"yes": True, "on": True, "no": False, "off": False}


def fit(document: Any, problems: Problems) -> dict[str, Any]:
    """The document with only known keys, each value read as what belongs there; the rest becomes problems."""
    fitted = _fit(Plan, expand(document), (), problems)
    return fitted if isinstance(fitted, dict) else {}


def validate(document: dict[str, Any], problems: Problems) -> Plan:
    """The plan; a value of a wrong type is a problem, and its default stands in so that the other checks can go on."""
    document = copy.deepcopy(document)
    for _ in range(100):
        try:
            return _ADAPTER.validate_json(json.dumps(document), strict=True)
        except pydantic.ValidationError as error:
            for path in _paths(error, document):
                if path not in problems.paths:
                    _report(path, document, problems)
                _prune(document, path)
    return Plan()


def expand(document: Any) -> Any:
    """Short forms of ``data.unit`` written out: ``{prefix: "_"}``, ``{root_of: parent}``, ``{time: date}``."""
    data = document.get("data") if isinstance(document, dict) else None
    unit = data.get("unit") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(unit, dict):
        return document
    unit = dict(unit)
    if isinstance(unit.get("root_of"), str):
        unit["root_of"] = {"parent": unit["root_of"]}
    if isinstance(unit.get("time"), str):
        unit["time"] = {"field": unit["time"]}
    return {**document, "data": {**data, "unit": unit}}


def _fit(kind: Any, value: Any, path: Path, problems: Problems) -> Any:
    if kind is Any:
        return _free(value)
    section = keys.section_of(kind)
    if section is not None and value is None and type(None) not in keys.options_of(kind):
        return {}
    if section is not None and isinstance(value, dict):
        return _fit_section(section, value, path, problems)
    item = keys.item_of(kind, dict)
    if item is not None and isinstance(value, dict):
        if path[-1] == "set":
            return _fit_set(value, path, problems)
        return {name: _fit(item, each, (*path, name), problems) for name, each in value.items()}
    item = keys.item_of(kind, tuple)
    if item is not None and isinstance(value, (list, tuple)):
        return [_fit(item, each, (*path, number), problems) for number, each in enumerate(value)]
    return _scalar(keys.options_of(kind), value, path)


def _fit_section(section: Any, value: dict[str, Any], path: Path, problems: Problems) -> dict[str, Any]:
    fields = keys.fields_of(section)
    found: dict[str, Any] = {}
    for name, each in value.items():
        inner = (*path, name)
        if name in fields:
            found[name] = _fit(fields[name], each, inner, problems)
            continue
        near = keys.nearest_key(inner)
        advice = f"Nearest: {near}." if near else f"Known here: {', '.join(fields)}."
        problems.add(inner, "unknown key.", advice, each)
    return found


def _fit_set(value: dict[str, Any], path: Path, problems: Problems) -> dict[str, Any]:
    """The changes of a variant or trial: dotted keys of the plan, each value read as its key wants it."""
    found: dict[str, Any] = {}
    for name, each in value.items():
        target = keys.split(name)
        if target is None:
            near = keys.nearest_dotted(name)
            advice = f"Nearest: {near}." if near else "A dotted key of the plan belongs here, like optimizer.lr."
            problems.add((*path, name), "unknown key.", advice, each)
        elif target[0] in ("variants", "compare"):
            problems.add((*path, name), "cannot be changed here.", "Change a setting of the run itself.", each)
        else:
            found[name] = _fit(keys.kind_at(target), each, (*path, name), problems)
    return found


def _scalar(options: tuple[Any, ...], value: Any, path: Path) -> Any:
    if isinstance(value, str):
        if (int in options or float in options) and _EXPONENT.match(value):
            number = float(value.replace("_", ""))
            return int(number) if float not in options and number.is_integer() else number
        if bool in options and isinstance(value, Plain):
            return _WORDS.get(value.lower(), value)
    if isinstance(value, int) and not isinstance(value, bool) and path[:1] == ("data",):
        names_column = path[1:2] in (("columns",), ("unit",)) and str in options
        return str(value) if names_column else value
    return value


def _free(value: Any) -> Any:
    """A value of the person's own (``options``, ``set``), where YAML 1.1 readers would see a number or a yes."""
    if isinstance(value, Plain):
        if _EXPONENT.match(value):
            return float(value.replace("_", ""))
        return _WORDS.get(value.lower(), str(value))
    if isinstance(value, dict):
        return {name: _free(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_free(each) for each in value]
    return value


def _paths(error: pydantic.ValidationError, document: Any) -> list[Path]:
    """Places of the faults, the deepest only: pydantic names each alternative of a union, we name the key once."""
    paths: list[Path] = []
    for each in error.errors(include_url=False, include_context=False):
        path: list[str | int] = []
        value = document
        location = each["loc"]
        for part in location:
            inside_dict = isinstance(value, dict) and part in value
            inside_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
            if inside_dict or inside_list:
                path.append(part)
                value = value[part]
        if each["type"] == "missing":
            path.append(location[-1])
        if tuple(path) not in paths:
            paths.append(tuple(path))
    return [path for path in paths if not any(other[: len(path)] == path and other != path for other in paths)]


def _report(path: Path, document: Any, problems: Problems) -> None:
    kind = keys.kind_at(path)
    parent = _get(document, path[:-1])
    if isinstance(path[-1], str) and isinstance(parent, dict) and path[-1] not in parent:
        problems.add(path, "missing.", f"Needed: {keys.describe(kind)}.")
        return
    value = _get(document, path)
    advice = f"Allowed: {keys.describe(kind)}."
    choices = keys.choices_of(kind)
    if isinstance(value, str):
        near = keys.nearest(value, choices)
        advice += f" Nearest: {near}." if near else ""
        if not choices and value.lower() in {*_WORDS, "true", "false"} and bool in keys.options_of(kind):
            advice = "Allowed: true or false, without quotes."
        elif _numeric(value) and {int, float} & set(keys.options_of(kind)):
            advice += " Write it without quotes."
    elif str in keys.options_of(kind) and isinstance(value, (bool, int, float)):
        advice += f' Write it in quotes: "{json.dumps(value)}".'
    problems.add(path, f"{shown(value)} is not allowed.", advice, value)


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _get(document: Any, path: Path) -> Any:
    for part in path:
        document = document[part]
    return document


def _prune(document: Any, path: Path) -> None:
    """Take a faulty value out; one that lacks a needed key goes whole, and lists keep their numbering."""
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, dict) and last in parent:
        del parent[last]
    else:
        parent[last] = _stand_in(keys.kind_at(path))


def _stand_in(kind: Any) -> Any:
    section = keys.section_of(kind)
    if section is not None:
        needed = [each for each in dataclasses.fields(section) if each.default is dataclasses.MISSING]
        plain = [each for each in needed if each.default_factory is dataclasses.MISSING]
        return {each.name: _stand_in(keys.fields_of(section)[each.name]) for each in plain}
    choices = keys.choices_of(kind)
    return choices[0] if choices else {int: 1, float: 1.0, bool: False}.get(keys.options_of(kind)[0], "")
