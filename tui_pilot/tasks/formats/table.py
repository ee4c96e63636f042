"""What every reader gives back: the records of one file, and what was noticed while reading.

A reader never repairs in silence: whatever differs from the plain case (a byte order mark, CRLF, a broken line that was
passed over) becomes a note, so that the ``examples`` gate can show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tui_pilot.errors import DataError

Record = Mapping[str, Any]
Note = dict[str, Any]

LINE = "_line"
"""Key that every record carries: the 1-based physical line (or row, where a file has no lines) it starts at."""


@dataclass(frozen=True)
class Table:
    """One data file as rows.

    ``records`` may be lazy: it has a length, and an item is parsed when asked for. ``columns`` are the file's own names
    in file order where it has them (csv, tsv, parquet). ``skipped`` counts rows that are in the file and not in
    ``records``; ``faults`` says why, one per row, and is only filled by ``errors="collect"``.
    """

    records: Sequence[Record]
    format: str
    path: Path
    notes: list[Note] = field(default_factory=list)
    skipped: int = 0
    faults: list[DataError] = field(default_factory=list)
    columns: tuple[str, ...] = ()


def note(code: str, text: str, **where: Any) -> Note:
    """A remark about the file: a stable ``code``, a sentence, and where (``file``, ``line``, ``lines``, ``key``)."""
    return {"code": code, "text": text, "where": where}
