"""Earlier runs that predictions can learn from: their documents, each with the prediction that was made of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tui_pilot.errors import RunFolderError
from tui_pilot.run_folder import RunFolder, all_runs
from tui_pilot.store.view import snapshot

PREDICTION_FILE = "prediction.json"


def documents(root: Path) -> Iterator[dict[str, Any]]:
    """The ``show --json`` documents of the runs below ``root`` that hold a prediction, under ``prediction``.

    A folder that cannot be read teaches nothing and is left out.
    """
    for folder in all_runs(root):
        with contextlib.suppress(RunFolderError):
            prediction = prediction_of(folder)
            if prediction is not None:
                yield {**snapshot(folder), "prediction": prediction}


def prediction_of(folder: RunFolder) -> dict[str, Any] | None:
    """What was predicted of a run before it measured; None where nothing was."""
    path = folder.path / PREDICTION_FILE
    return folder.read_json(path) if path.is_file() else None
