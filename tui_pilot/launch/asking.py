"""Asks the training interpreter something that is no stage of a run: a process of its own, JSON in and JSON out."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tui_pilot.errors import PilotError

SAID = ("text", "advice", "code", "title", "file", "line", "key")


class Died(Exception):
    """The process ended without an answer. ``words`` are its last, as a sentence; empty where it said nothing."""

    def __init__(self, exit_code: int, words: str) -> None:
        super().__init__(f"exit {exit_code}")
        self.exit_code, self.words = exit_code, words


def ask(
    python: str, code: Path, script: str, request: Mapping[str, Any], folder: Path, timeout_s: float | None = None
) -> dict[str, Any]:
    """The answer of ``pilot/SCRIPT`` in the copy ``code``, run in ``folder``.

    Raises Died without an answer, and PilotError where the answer is an ``error``.
    """
    question, result = code.parent / f"{script}.json", code.parent / f"{script}.found.json"
    question.write_text(json.dumps(request), "utf-8")
    result.unlink(missing_ok=True)
    done = subprocess.run(
        [python, str(code / "tui_pilot" / "pilot" / script), str(question), str(result)],
        cwd=folder, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        timeout=timeout_s, check=False,
    )  # fmt: skip
    if not result.exists():
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise Died(done.returncode, f" Its last words: {lines[-1][:300]}" if lines else "")
    found: dict[str, Any] = json.loads(result.read_text("utf-8"))
    if "error" in found:
        raise PilotError(**{key: found["error"].get(key) for key in SAID})
    return found


def _environment() -> dict[str, str]:
    """No GPU is touched: a context would show in what a live pilot measures."""
    return {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
