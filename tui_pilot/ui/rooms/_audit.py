"""The audit of the examples on disk: any row by its offset, one pass for counts and lengths. Never all of it in memory.

``audit.jsonl`` has one short record per row, ``audit.idx`` its byte offsets as little-endian 64-bit numbers.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Record = dict[str, Any]

# A quote inside a JSON string is escaped, so a key with both its quotes is never found inside somebody's text.
_REASONS = re.compile(rb'"reasons": ?\[([^\]]*)\]')
_TOKENS = re.compile(rb'"tokens": ?(\d+)')
_LOST = re.compile(rb'"lost": ?(\d+)')
_CODE = re.compile(rb'"([^"]+)"')
_CHECK_EVERY = 4096
_AHEAD = 256  # records; both files are written through buffers of 8 KiB


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Survey:
    """What one pass over the audit found: rows by reason, and every row's untruncated length in tokens."""

    rows: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    lengths: array[int] = field(default_factory=lambda: array("I"))


class Audit:
    """One run's audit. Rows are numbered in file order from 0; a file that grew is seen by ``stamp``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "audit.jsonl"
        self.index = folder / "audit.idx"

    def stamp(self) -> tuple[int, int]:
        """Changes whenever there is more to read; (0, 0) while there is no audit."""
        try:
            return self.file.stat().st_size, self.index.stat().st_size
        except OSError:
            return 0, 0

    def count(self) -> int:
        """Rows that can be read whole: while the audit is written, the index may be a little ahead of the records."""
        rows = self.stamp()[1] // 8
        for _ in range(_AHEAD):
            if rows == 0 or self.record(rows - 1) is not None:
                break
            rows -= 1
        return rows

    def record(self, number: int) -> Record | None:
        """One row's record; None where it cannot be read."""
        try:
            with self.index.open("rb") as offsets:
                offsets.seek(number * 8)
                place = offsets.read(8)
            if len(place) < 8:
                return None
            with self.file.open("rb") as rows:
                rows.seek(int.from_bytes(place, "little"))
                value = json.loads(rows.readline())
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def survey(self, cancelled: Callable[[], bool] = _never) -> Survey:
        """Count reasons and gather lengths in one pass; stops early, with what it has, once ``cancelled`` says so."""
        found = Survey(0, Counter(), array("I"))
        rows = 0
        for number, line in self._lines(cancelled):
            rows = number + 1
            listed = _REASONS.search(line)
            if listed and listed[1]:
                found.reasons.update({code.decode("utf-8", "replace") for code in _CODE.findall(listed[1])})
            tokens = _TOKENS.search(line)
            if tokens:
                found.lengths.append(min(int(tokens[1]), 0xFFFFFFFF))
        return Survey(rows, found.reasons, found.lengths)

    def matching(self, reason: str | None, words: str = "", cancelled: Callable[[], bool] = _never) -> array[int]:
        """Numbers of the rows with this reason (None: any) whose record has ``words``; most response tokens lost first.

        ``words`` is compared without case with the row's id, unit, split and reasons.
        """
        needle = f'"{reason}"'.encode() if reason is not None else b""
        wanted = words.casefold()
        found: list[tuple[int, int]] = []
        for number, line in self._lines(cancelled):
            if needle:
                listed = _REASONS.search(line)
                if listed is None or needle not in listed[1]:
                    continue
            if wanted and not _mentions(line, wanted):
                continue
            lost = _LOST.search(line)
            found.append((-int(lost[1]) if lost else 0, number))
        if reason is not None:
            found.sort()
        return array("Q", (number for _, number in found))

    def tokens(self, record: Record) -> Record | None:
        """The token view that was kept of a row; None where none was kept."""
        path = self.folder / "rows" / f"{record.get('split')}-{record.get('n')}.json"
        if path.parent != self.folder / "rows":
            return None
        try:
            value = json.loads(path.read_text("utf-8", "backslashreplace"))
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def _lines(self, cancelled: Callable[[], bool]) -> Iterator[tuple[int, bytes]]:
        try:
            stream = self.file.open("rb", buffering=1 << 20)
        except OSError:
            return
        with stream:
            for number, line in enumerate(stream):
                if number % _CHECK_EVERY == 0 and cancelled():
                    return
                if line.endswith(b"\n"):
                    yield number, line


def _mentions(line: bytes, wanted: str) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return False
    named = [record.get("row"), record.get("unit"), record.get("split"), *(record.get("reasons") or ())]
    return any(wanted in str(each).casefold() for each in named if each is not None)
