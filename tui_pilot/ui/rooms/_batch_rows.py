"""What the Batch room reads of a run's folder: the trained tokens of its rows, and the prediction. For a worker."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from typing import Any

from tui_pilot.errors import PilotError
from tui_pilot.run_folder import RunFolder

MOST_ROWS = 1_000_000
# A quote inside a JSON string is escaped, so a key with both its quotes is never found inside somebody's text.
_TRAIN = re.compile(rb'"split": ?"train"')
_SUPERVISED = re.compile(rb'"supervised": ?(\d+)')


def supervised(folder: RunFolder) -> array[int] | None:
    """Trained tokens of every training row of the audit, in file order; None where there is none or too many."""
    found = array("I")
    try:
        with (folder.examples / "audit.jsonl").open("rb") as stream:
            for line in stream:
                tokens = _SUPERVISED.search(line)
                if tokens is not None and _TRAIN.search(line) is not None:
                    found.append(min(int(tokens[1]), 2**32 - 1))
                    if len(found) > MOST_ROWS:
                        return None
    except OSError:
        return None
    return found or None


def predicted(folder: RunFolder) -> Mapping[str, Mapping[str, Any]]:
    """What was predicted of the run, by phase; nothing where nobody asked."""
    try:
        document = folder.read_json(folder.path / "prediction.json")
        return {str(one["phase"]): one for one in document["phases"]}
    except (PilotError, KeyError, TypeError, ValueError):
        return {}
