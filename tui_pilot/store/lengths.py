"""Lengths of a run's training rows from its audit: one pass, two numbers a row."""

from __future__ import annotations

import json
from pathlib import Path

from tui_pilot.plan.batch_tokens import Row

FILE = "audit.jsonl"


def of_audit(examples: Path) -> list[Row]:
    """Training rows with supervised tokens, in file order; a line that cannot be read is left out."""
    found: list[Row] = []
    try:
        with (examples / FILE).open("rb") as lines:
            for line in lines:
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if row.get("split") == "train" and isinstance(row.get("length"), int):
                    found.append(Row(row["length"], int(row.get("supervised") or 0)))
    except OSError:
        return []
    return found
