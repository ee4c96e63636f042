"""YAML into plain values with the line of every key. Reads less than YAML allows, so that nothing is a surprise.

Only ``true``/``false``, ``null``, decimal numbers and text are told apart here. A plain word that YAML versions read
differently (``1e-4``, ``yes``) stays a ``Plain`` text; ``shape`` decides by what belongs at its place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from tui_pilot.plan.keys import Path
from tui_pilot.plan.problems import Place, Problems, shown

MAX_VALUES = 50_000
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]{0,30})\Z")
_FLOAT = re.compile(r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9]+)\Z")
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_SPECIAL = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}


class Plain(str):
    """Text that was written without quotes: it may still become a number or a yes, where one belongs."""


class _Composer(yaml.SafeLoader):
    """Composes nodes only; resolves nothing, so that quotes alone decide what is text."""


_Composer.yaml_implicit_resolvers = {}


@dataclass
class Composed:
    """A document's value and where each of its paths was written."""

    value: Any = None
    places: dict[Path, Place] = field(default_factory=dict)


def compose(text: str, problems: Problems) -> Composed:
    """Read one YAML document; faults go to ``problems``, and what could be read comes back."""
    try:
        node = yaml.compose(text, Loader=_Composer)
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        said = ", ".join(part for part in (error.context, error.problem) if part)
        advice = "Indent with spaces." if "'\\t'" in said else ""
        problems.add_text(f"not readable as YAML: {said}.", advice, line)
        return Composed()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1 if isinstance(error.position, int) else None
        problems.add_text("not readable as YAML: it holds a control character.", "Take it out.", line)
        return Composed()
    except RecursionError:
        problems.add_text("not readable as YAML: nested too deeply.")
        return Composed()
    reader = _Reader(problems)
    return Composed() if node is None else Composed(reader.read(node, ()), reader.places)


@dataclass
class _Reader:
    problems: Problems
    places: dict[Path, Place] = field(default_factory=dict)
    open: list[int] = field(default_factory=list)
    count: int = 0

    def read(self, node: yaml.Node, path: Path) -> Any:
        self.count += 1
        if id(node) in self.open:
            return self.refuse(node, path, "an alias that holds itself.", "Write the values out.")
        if self.count > MAX_VALUES:
            if self.count == MAX_VALUES + 1:
                self.refuse(
                    node, path, f"more than {MAX_VALUES:,} values.", "A plan is small; write it without aliases."
                )
            return None
        self.open.append(id(node))
        try:
            return self.value(node, path)
        finally:
            self.open.pop()

    def value(self, node: yaml.Node, path: Path) -> Any:
        if node.tag not in _TAGS:
            return self.refuse(node, path, f"the tag {shown(node.tag)} is not read.", "Take it out.")
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for number, item in enumerate(node.value):
                inner = (*path, number)
                self.places[inner] = Place(self.problems.file, self.line(item))
                items.append(self.read(item, inner))
            return items
        if not isinstance(node, yaml.ScalarNode):
            return None
        if any(0xD800 <= ord(character) <= 0xDFFF for character in node.value):
            return self.refuse(node, path, "half a character (a lone surrogate) is no text.", "Take it out.")
        return plain_value(node.value) if node.style is None else node.value

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self.refuse(key_node, path, "a key must be one word.", "Write it as text.")
                continue
            key = key_node.value
            place = (*path, key)
            if key == "<<" and key_node.style is None:
                self.refuse(key_node, path, "merge keys (<<) are not read.", "Write the keys out.")
            elif key in found:
                first = self.places[place].line
                self.problems.add(
                    place,
                    f"given twice, first in line {first}.",
                    "Keep one.",
                    _scalar(value_node),
                    line=self.line(key_node),
                )
            else:
                self.places[place] = Place(self.problems.file, self.line(key_node))
                found[key] = self.read(value_node, place)
        return found

    def refuse(self, node: yaml.Node, path: Path, text: str, advice: str) -> None:
        self.problems.add(path, text, advice, _scalar(node), line=self.line(node))

    @staticmethod
    def line(node: yaml.Node) -> int:
        return int(node.start_mark.line) + 1


def _scalar(node: yaml.Node) -> str | None:
    return node.value if isinstance(node, yaml.ScalarNode) else None


_TAGS = {"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:str"}


def plain_value(text: str) -> Any:
    """What an unquoted word is where anything may stand, as long as every YAML version agrees."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INTEGER.match(text):
        return int(text.replace("_", ""))
    if _FLOAT.match(text):
        return float(text.replace("_", ""))
    if text.lower() in _SPECIAL:
        return float(_SPECIAL[text.lower()])
    return Plain(text)


def compose_value(text: str, path: Path, problems: Problems) -> Any:
    """The value of one ``--set key=value``: a YAML scalar, or a list or section in flow style."""
    inner = Problems("--set")
    value = compose(text, inner).value
    for error in inner.found:
        problems.add(path, error.text, error.advice, text)
    return value
