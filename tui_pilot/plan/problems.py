"""Collects every fault of a plan with its place, so that a person sees all of them at once.

A fault is placed by its path: the line of that key, or of the nearest section around it that the file has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tui_pilot.errors import PlanError, PlanErrors
from tui_pilot.plan.keys import Path, dotted
from tui_pilot.text import cut, harmless, plural

NOTHING_RUN = "Nothing was run."


@dataclass(frozen=True)
class Place:
    """Where a value was written: a file and its line, or ``--set`` without one."""

    file: str | None
    line: int | None = None


@dataclass
class Problems:
    """The faults found so far; ``places`` knows where each key was written."""

    file: str | None
    places: Mapping[Path, Place] = field(default_factory=dict)
    found: list[PlanError] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)

    def add(
        self,
        path: Path,
        text: str,
        advice: str = "",
        value: Any = None,
        *,
        near: Path | None = None,
        line: int | None = None,
    ) -> None:
        """One fault; ``near`` names the key that made it matter, for a key that the file does not have."""
        place = self.place(path) if line is None else Place(self.file, line)
        if place.line is None and place.file == self.file and near is not None:
            place = self.place(near)
        self.paths.append(path)
        self.found.append(
            PlanError(text, advice, file=place.file, line=place.line, key=dotted(path) or None, value=_json(value))
        )

    def add_text(self, text: str, advice: str = "", line: int | None = None) -> None:
        """One fault of the file as a whole."""
        self.found.append(PlanError(text, advice, file=self.file, line=line))

    def place(self, path: Path) -> Place:
        """Where a path was written, or the nearest thing around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return Place(self.file)

    def touches(self, path: Path) -> bool:
        """Whether a fault is already known at a path, above it or below it."""
        return any(path[: len(other)] == other[: len(path)] for other in self.paths)

    def raise_all(self) -> None:
        """Raise what was found, in file order; the last one says that nothing was run."""
        if not self.found:
            return
        errors = sorted(self.found, key=lambda error: (error.file != self.file, error.line or 0))
        errors[-1].advice = f"{errors[-1].advice} {NOTHING_RUN}".strip()
        first = errors[0]
        raise PlanErrors(
            f"{plural(len(errors), 'fault')} in the plan.",
            NOTHING_RUN,
            errors=errors,
            file=first.file,
            line=first.line,
            key=first.key,
            value=first.value,
        )


def shown(value: Any) -> str:
    """A value as a message shows it: short, one line, nothing that a terminal obeys."""
    if isinstance(value, str):
        return cut(f'"{harmless(value)}"', 80)
    return cut(harmless(json.dumps(value, ensure_ascii=False, default=str)), 80)


def _json(value: Any) -> Any:
    """The value for ``--json``: as it is when JSON has it, else as text."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)
    return value
