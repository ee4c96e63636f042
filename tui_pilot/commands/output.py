"""What commands write: one JSON document on stdout under ``--json``, lines for people else."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tui_pilot.errors import EXIT_PLAN_WRONG, PilotError, PlanErrors
from tui_pilot.events.writer import plain
from tui_pilot.text import harmless, harmless_json
from tui_pilot.version import VERSION

SCHEMA = 1


def write_json(document: Mapping[str, Any]) -> None:
    """One document; schema and version stand first."""
    whole = {"schema": SCHEMA, "tool": VERSION, **document}
    sys.stdout.write(harmless_json(json.dumps(plain(whole), ensure_ascii=False, indent=1)) + "\n")
    sys.stdout.flush()


def write_lines(lines: Iterable[str]) -> None:
    """Lines for people, on stdout; control characters of foreign text are made visible."""
    for line in lines:
        sys.stdout.write(harmless(line) + "\n")
    sys.stdout.flush()


def new_file(path: Path, text: str) -> None:
    """Write a text as a new file, whole or not at all; a file that is there is never replaced."""
    from tui_pilot.run_folder import write_whole

    if path.exists():
        raise PilotError(
            f"{path} is there already and is never replaced.", "Name a new file.", code="file_exists",
            title="Nothing was written", exit_code=EXIT_PLAN_WRONG, file=str(path),
        )  # fmt: skip
    try:
        write_whole(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise PilotError(
            f"It cannot be written: {error.strerror or error}.", "Name another place: -o FILE.", code="not_written",
            title="Nothing was written", file=str(path),
        ) from error  # fmt: skip
    say(f"written: {path}")


def say(line: str) -> None:
    """One line of narration, on stderr, at once."""
    sys.stderr.write(harmless(line) + "\n")
    sys.stderr.flush()


def error_document(error: PilotError) -> dict[str, Any]:
    """What ``--json`` prints of a failure: ``error``, and for a wrong plan all of its ``errors``."""
    if isinstance(error, PlanErrors) and error.errors:
        each = [one.as_json() for one in error.errors]
        return {"error": each[0], "errors": each}
    alone = error.as_json()
    return {"error": alone, **({"errors": [alone]} if error.code == "plan_wrong" else {})}
