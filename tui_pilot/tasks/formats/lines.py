"""Rows of a text file by byte offset: a file of 100,000 rows costs an index, and a row is parsed when it is asked for.

Lines end at ``\\n`` alone (``str.splitlines`` would also cut at U+2028 inside a string); one ``\\r`` before it is
dropped.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, overload

from tui_pilot.errors import DataError
from tui_pilot.tasks.formats.table import Note, Record, note

BOM = b"\xef\xbb\xbf"
UTF16 = (b"\xff\xfe", b"\xfe\xff")

Parse = Callable[[bytes, int], Record]
"""A row's bytes and its 1-based first line to a record; raises ``DataError``."""


class LazyRows(Sequence[Record]):
    """Rows read and parsed on access; safe to share with forked workers and to pickle."""

    def __init__(self, path: Path, starts: array[int], ends: array[int], lines: array[int], parse: Parse) -> None:
        self.path, self.starts, self.ends, self.lines, self.parse = path, starts, ends, lines, parse
        self._descriptor: int | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | Sequence[Record]:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        return self.parse(self.raw(place), self.lines[place])

    def raw(self, place: int) -> bytes:
        """The row's own bytes, exactly as they stand in the file."""
        start, size = self.starts[place], self.ends[place] - self.starts[place]
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        # pread: forked loader workers share the descriptor, so its position must not matter
        content = os.pread(self._descriptor, size, start)
        if len(content) != size:
            raise DataError(
                "the file became shorter while it was read",
                "Keep data files unchanged while a run uses them.",
                file=str(self.path),
                line=self.lines[place],
            )
        return content

    def without(self, places: set[int]) -> LazyRows:
        """The same rows less some of them."""
        kept = [place for place in range(len(self)) if place not in places]
        columns = [array("Q", (source[place] for place in kept)) for source in (self.starts, self.ends, self.lines)]
        return LazyRows(self.path, columns[0], columns[1], columns[2], self.parse)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_descriptor": None}

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is not None:
            os.close(descriptor)


def index_lines(path: Path, parse: Parse) -> tuple[LazyRows, list[Note]]:
    """One row per line that is not blank, and notes on byte order mark, CRLF and blank lines."""
    starts, ends, lines = array("Q"), array("Q"), array("Q")
    blank, crlf = 0, 0
    with path.open("rb") as file:
        position = _skip_mark(path, file.read(3))
        file.seek(position)
        marked = position > 0
        for number, line in enumerate(file, start=1):
            start, position = position, position + len(line)
            content = line[:-1] if line.endswith(b"\n") else line
            if content.endswith(b"\r"):
                content = content[:-1]
                crlf += 1
            if not content.strip():
                blank += 1
                continue
            starts.append(start)
            ends.append(start + len(content))
            lines.append(number)
    return LazyRows(path, starts, ends, lines, parse), _line_notes(path, marked, crlf, blank)


def index_blocks(path: Path, parse: Parse, whole: bool = False) -> tuple[LazyRows, list[Note]]:
    """One row per block between blank lines; ``whole``: the file as one row."""
    starts, ends, lines = array("Q"), array("Q"), array("Q")
    crlf, open_block = 0, False
    with path.open("rb") as file:
        position = _skip_mark(path, file.read(3))
        file.seek(position)
        marked = position > 0
        for number, line in enumerate(file, start=1):
            start, position = position, position + len(line)
            content = line.rstrip(b"\r\n")
            crlf += line.endswith(b"\r\n")
            if not content.strip():
                open_block = open_block and whole
                continue
            if open_block:
                ends[-1] = start + len(content)
            else:
                starts.append(start)
                ends.append(start + len(content))
                lines.append(number)
                open_block = True
    return LazyRows(path, starts, ends, lines, parse), _line_notes(path, marked, crlf, 0)


def decode(content: bytes, path: Path, line: int) -> str:
    """UTF-8 text, strictly; what is no UTF-8 is an error with its byte, never replaced."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"byte {error.start + 1} of the line (0x{content[error.start]:02x}) is not UTF-8",
            "Save the file as UTF-8.",
            file=str(path),
            line=line,
        ) from None


def _skip_mark(path: Path, head: bytes) -> int:
    if head[:2] in UTF16:
        raise DataError("the file is UTF-16, not UTF-8", "Save it as UTF-8.", file=str(path), line=1)
    return len(BOM) if head == BOM else 0


def _line_notes(path: Path, marked: bool, crlf: int, blank: int) -> list[Note]:
    notes = []
    if marked:
        notes.append(note("byte_order_mark", "UTF-8 byte order mark at the start passed over", file=str(path)))
    if crlf:
        notes.append(note("crlf", f"{crlf:,} lines end in CRLF; the CR is not part of the row", file=str(path)))
    if blank:
        notes.append(note("blank_lines", f"{blank:,} blank lines passed over", file=str(path)))
    return notes
