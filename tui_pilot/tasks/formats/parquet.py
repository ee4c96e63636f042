"""Parquet through pyarrow where it is installed: schema first, one row group in memory at a time."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

from tui_pilot.errors import DataError
from tui_pilot.tasks.formats.table import LINE, Note, Record, Table, note


class GroupRows(Sequence[Record]):
    """Rows of a parquet file by row group; the last group read is kept."""

    def __init__(self, path: Path, sizes: list[int]) -> None:
        self.path, self.sizes = path, sizes
        self._group: tuple[int, list[dict[str, Any]]] | None = None

    def __len__(self) -> int:
        return sum(self.sizes)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | Sequence[Record]:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        if place < 0:
            place += len(self)
        if not 0 <= place < len(self):
            raise IndexError(place)
        return {**self.raw(place), LINE: place + 1}

    def raw(self, place: int) -> dict[str, Any]:
        """The row as plain Python values; a dictionary column gives its values, never its codes."""
        offset = place
        for number, size in enumerate(self.sizes):
            if offset < size:
                if self._group is None or self._group[0] != number:
                    rows = _library(self.path).ParquetFile(self.path).read_row_group(number).to_pylist()
                    self._group = (number, rows)
                return self._group[1][offset]
            offset -= size
        raise IndexError(place)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_group": None}


def read_parquet(path: Path) -> Table:
    """The file's rows, lazily, with notes on dictionary columns and on nulls inside nested values."""
    library = _library(path)
    try:
        file = library.ParquetFile(path)
    except Exception as error:
        raise DataError(f"not a parquet file that can be read ({error})", file=str(path)) from None
    schema = file.schema_arrow
    notes: list[Note] = []
    for column in schema:
        kind = str(column.type)
        if kind.startswith("dictionary"):
            said = f"column {column.name!r} is a dictionary; its order is not the order of classes"
            notes.append(note("dictionary_column", said, file=str(path), key=column.name))
        if "struct" in kind:
            said = (
                f"column {column.name!r} is nested ({kind}): one schema for all rows, so a key that a row lacks reads "
                "as null"
            )
            notes.append(note("nested_nulls", said, file=str(path), key=column.name))
    sizes = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
    return Table(GroupRows(path, sizes), "parquet", path, notes, columns=tuple(schema.names))


def _library(path: Path) -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(
            "reading parquet needs pyarrow, which this Python does not have",
            "Install it in the training interpreter (pip install pyarrow), or write the file as JSONL.",
            file=str(path),
        ) from None
