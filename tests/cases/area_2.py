"""Two sides of rows, judged by the ``splits`` phase of a real data stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from area_1 import WORDS, jsonl
from lab import Lab

from tui_pilot.store.state import Row

Rows = Sequence[Mapping[str, Any]] | str


def splits(
    lab: Lab,
    train: Rows | None,
    held: Rows | None,
    *,
    data: str = "",
    more: str = "",
    task: str = "words.py:Words",
    code: str = "",
    files: Mapping[str, str | bytes] | None = None,
) -> Row:
    """The ``splits`` row of two files of rows, read by the right task or by a class of ``code``."""
    written: dict[str, str | bytes] = {"words.py": WORDS, "own.py": code, **(files or {})}
    named = ""
    for key, rows in (("train", train), ("validation", held)):
        if rows is not None:
            written[f"{key}.jsonl"] = rows if isinstance(rows, str) else jsonl(rows)
            named += f"{key}: {key}.jsonl, "
    where = f"own.py:{task}" if code else task
    plan = f"name: case\ntask: {where}\ndata: {{{named}train_on: all, {data}}}\ndevice: cpu\n"
    lab.prepare(plan + f"gates: {{skip: [stack, examples]}}\n{more}", written)
    row = next(each for each in lab.stage("data").rows if each.phase == "splits")
    assert row.verdict is not None, lab.code.stdout.decode()
    assert not [each for each in row.reasons if each["code"] == "crash"], row.reasons
    return row


def text(*rows: tuple[str, str], **more: Any) -> list[dict[str, Any]]:
    """Rows of an id and a text."""
    return [{"id": row, "text": words, **more} for row, words in rows]
