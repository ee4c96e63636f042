"""Some rows of a table, each knowing its number in the file: what holding out a part of the training rows leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from tui_pilot.tasks.formats.table import Record

ROW = "_row"
"""Key of a picked record: its number in the file it was picked from."""


class PickedRows(Sequence[Record]):
    """Rows at ``places`` of a table, in that order; each carries its number there under ``_row``."""

    def __init__(self, rows: Sequence[Record], places: Sequence[int]) -> None:
        self.rows, self.places = rows, places

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | Sequence[Record]:
        if isinstance(place, slice):
            return PickedRows(self.rows, self.places[place])
        return {**self.rows[self.places[place]], ROW: self.places[place]}


def row_number(record: Record) -> int | None:
    """A picked row's number in its file; None elsewhere, as row 0 of two files is not the same row."""
    number = record.get(ROW)
    return number if isinstance(number, int) else None
