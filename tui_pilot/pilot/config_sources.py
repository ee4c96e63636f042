"""Other places that say how large a batch is: files and settings that the plan's options or its command name."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tui_pilot.gates.sources import batch_of, from_arguments
from tui_pilot.plan.model import Plan

LARGEST = 1 << 20
DEEP = 4


def sources(plan: Plan, folder: Path) -> list[dict[str, Any]]:
    """Each configuration that says something of the batch, with its name and what it says."""
    words = shlex.split(plan.command) if isinstance(plan.command, str) else list(plan.command or ())
    command = from_arguments(words)
    found = []
    for name, document in [
        *_documents("options", plan.options, folder, 0),
        *([("command", command)] if command else []),
        *((value, read) for value in command.values() if (read := _file(value, folder)) is not None),
    ]:
        said = batch_of(document, plan.replicas)
        if said is not None:
            found.append({"name": name, **said})
    return found


def _documents(name: str, value: Any, folder: Path, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping) and depth < DEEP:
        yield name, value
        for key, inner in value.items():
            yield from _documents(f"{name}.{key}", inner, folder, depth + 1)
    elif isinstance(value, str):
        read = _file(value, folder)
        if read is not None:
            yield value, read


def _file(value: str, folder: Path) -> Mapping[str, Any] | None:
    """A small JSON file of one object, by its path from the plan's folder."""
    if not value.endswith(".json"):
        return None
    path = folder / Path(value).expanduser()
    try:
        if path.stat().st_size > LARGEST:
            return None
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, Mapping) else None
