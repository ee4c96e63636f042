"""The resolved plan as a run folder keeps it: ``plan.json`` for the stages, ``plan.yaml`` for people.

Every value stands there with its origin, so that a run explains itself after the person's file has changed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tui_pilot.errors import PlanError, PlanErrors
from tui_pilot.plan.load import LoadedPlan
from tui_pilot.plan.model import as_json, from_json, plain
from tui_pilot.version import VERSION

SCHEMA = 1


class _Dumper(yaml.SafeDumper):
    """Quotes every text that the loader would read as a number."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9._]+([eE][-+]?[0-9]+)?\Z"), None)


def to_document(loaded: LoadedPlan) -> dict[str, Any]:
    """``plan.json``: plain JSON values."""
    return {
        "schema": SCHEMA,
        "tool": VERSION,
        "plan": as_json(loaded.plan),
        "origins": dict(loaded.origins),
        "folder": str(loaded.folder),
        "file": None if loaded.file is None else str(loaded.file),
        "demo": loaded.demo,
    }


def from_document(document: Mapping[str, Any]) -> LoadedPlan:
    """The plan of a ``plan.json``; files are not looked at again, the run may be an old one from another machine."""
    try:
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']!r} is not known here (known: {SCHEMA})")
        return LoadedPlan(
            plan=from_json(document["plan"]),
            folder=Path(document["folder"]),
            file=None if document["file"] is None else Path(document["file"]),
            origins=dict(document["origins"]),
            text="",
            demo=bool(document["demo"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        text = (
            f"not a plan.json: {error}." if not isinstance(error, KeyError) else f"not a plan.json: {error} is missing."
        )
        advice = "It was written by another version, or changed by hand."
        raise PlanErrors(text, advice, errors=[PlanError(text, advice)]) from error


def plan_yaml(loaded: LoadedPlan) -> str:
    """The whole plan as YAML, each value with its origin behind it; ``load`` reads it as the same plan."""
    source = "the built-in demo" if loaded.demo else str(loaded.file or "a run")
    source = " ".join(source.split())
    head = [f"# The plan as it was resolved, from {source}.", f"# Relative paths start in {loaded.folder}.", ""]
    return "\n".join([*head, *_lines(loaded.plan, "", 0, loaded.origins)]) + "\n"


def _lines(section: Any, head: str, depth: int, origins: Mapping[str, str]) -> Iterator[str]:
    indent = "  " * depth
    for each in dataclasses.fields(section):
        value, key = getattr(section, each.name), f"{head}{each.name}"
        note = f"  # {origins.get(key, 'default')}"
        if dataclasses.is_dataclass(value):
            yield f"{indent}{each.name}:"
            yield from _lines(value, key + ".", depth + 1, origins)
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            yield f"{indent}{each.name}:{note}"
            yield from (f"{indent}  - {_flow(item)}" for item in value)
        else:
            yield f"{indent}{each.name}: {_flow(value)}{note}"


def _flow(value: Any) -> str:
    text: str = yaml.dump(
        plain(value), Dumper=_Dumper, default_flow_style=True, width=1 << 30, allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("...\n").strip()
