"""A delimited file's text into rows of cells, with or without quoting rules; who decides, decides from the file.

Quotes are the one thing that such a file does not say of itself: read as quoting rules where they are plain text, they
merge rows without a word; read as plain text where they are rules, they cut fields. So both readings are made and
compared, and the one that differs is reported.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tui_pilot.errors import DataError
from tui_pilot.tasks.formats.table import Note, note

Row = tuple[int, list[str]]
"""The physical line a row starts at (from 1) and its cells; a blank line has none."""

DELIMITERS = {"csv": ",", "tsv": "\t"}

_NUL, _NUL_STAND_IN = "\0", "\ufdd0"
_CSV_TAKES_NUL = sys.version_info >= (3, 11)


def file_text(path: Path) -> tuple[str, list[Note]]:
    """The file as text with its newlines untouched, and notes on a byte order mark and CRLF."""
    notes: list[Note] = []
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", "Check the path in the plan.", file=str(path)) from None
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError("the file is UTF-16, not UTF-8", "iconv -f UTF-16 -t UTF-8 converts it.", file=str(path))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"byte 0x{raw[error.start]:02x} is not UTF-8",
            "If the file is in another encoding, convert it: iconv -f LATIN1 -t UTF-8.",
            file=str(path),
            line=raw.count(b"\n", 0, error.start) + 1,
        ) from None
    if raw.startswith(b"\xef\xbb\xbf"):
        notes.append(note("byte_order_mark", "the file begins with a byte order mark; it is not data", file=str(path)))
    if b"\r\n" in raw:
        count = raw.count(b"\r\n")
        notes.append(note("crlf", f"{count:,} lines end in CRLF; the CR is not data", file=str(path)))
    if not text.strip():
        raise DataError("the file is empty", "Check that the export finished.", file=str(path))
    return text, notes


def delimiter_of(text: str, format: str, path: Path, notes: list[Note]) -> str:
    """The format's delimiter, or the one that the first line has in its place, with a note."""
    delimiter = DELIMITERS[format]
    first = text.lstrip("\r\n").split("\n", 1)[0]
    if delimiter in first:
        return delimiter
    for other, word in ((";", "semicolons"), ("\t", "tabs"), (",", "commas")):
        if other in first:
            text = f"the first line has no {'comma' if format == 'csv' else 'tab'}; read with {word} between fields"
            notes.append(note("delimiter", text, file=str(path)))
            return other
    return delimiter


def split_rows(text: str, delimiter: str, quoting: str, path: Path, notes: list[Note]) -> list[Row]:
    """The rows, and a note wherever quoting rules change what is read. ``quoting`` is ``none`` or ``auto``."""
    plain = list(_unquoted(text, delimiter))
    if '"' not in text:
        return plain
    quoted = _quoted(text, delimiter)
    if quoted.fault is None and [cells for _, cells in plain] == [cells for _, cells in quoted.rows]:
        return plain
    if quoting == "none":
        notes.append(_difference(plain, quoted.rows, "quoting: none, every line is one row", path))
        return plain
    take_plain, why = _prefers_plain(plain, quoted, delimiter)
    if take_plain:
        notes.append(_difference(plain, quoted.rows, f"quotes are taken as plain characters: {why}", path))
        return plain
    if quoted.fault is not None and (quoted.unclosed or not _even(quoted.rows)):
        raise DataError(
            "a quoted field is never closed" if quoted.unclosed else "a quoted field goes on after its closing quote",
            "If quotes are part of the text, set data.quoting: none.",
            file=str(path),
            line=quoted.fault,
        )
    several = sum(1 for _, cells in quoted.rows if any("\n" in cell for cell in cells))
    where = {"file": str(path)} if quoted.fault is None else {"file": str(path), "line": quoted.fault}
    notes.append(note("quoting", f"quotes enclose fields: {why}; {several:,} rows hold a newline", **where))
    return quoted.rows


@dataclass(frozen=True)
class _Quoted:
    """Rows by the usual quoting rules; ``fault`` is the line where these break, and rows are then read leniently."""

    rows: list[Row]
    fault: int | None
    unclosed: bool


def _prefers_plain(plain: list[Row], quoted: _Quoted, delimiter: str) -> tuple[bool, str]:
    """Whether quotes are plain characters in this file, and the reason in words.

    Where both readings fit, a comma file is taken by the rules that its format has, and a tab file by its lines.
    """
    plain_fits, quoted_fits = _even(plain), quoted.fault is None and _even(quoted.rows)
    if quoted_fits and not plain_fits:
        return False, "only so every row has the same number of fields"
    if plain_fits and not quoted_fits:
        return True, "every line has the same number of fields, with quoting rules not"
    odd = next((line for line, cells in plain for cell in cells if not _well_quoted(cell)), None)
    if plain_fits and odd is not None and delimiter == "\t":
        return True, f"every line has the same number of fields, and a quote of line {odd:,} closes nothing"
    if not plain_fits and delimiter == "\t" and quoted.fault is not None:
        return True, f"quoting rules break at line {quoted.fault:,}"
    return False, "quotes open and close whole fields"


def _even(rows: list[Row]) -> bool:
    """Whether all rows have the same number of fields, at least two."""
    widths = {len(cells) for _, cells in rows if cells}
    return len(widths) == 1 and min(widths) > 1


def _well_quoted(cell: str) -> bool:
    """Whether a cell is a whole quoted field, or has quotes only inside, where they are plain for every reader."""
    if not cell.startswith('"'):
        return True
    return len(cell) > 1 and cell.endswith('"') and '"' not in cell[1:-1].replace('""', "")


def _difference(plain: list[Row], quoted: list[Row], why: str, path: Path) -> Note:
    rows, with_quoting = (sum(1 for _, cells in each if cells) for each in (plain, quoted))
    lines = [line for line, cells in quoted if any("\n" in cell for cell in cells)][:10]
    text = f"{why}; with quoting rules {with_quoting:,} rows would be read of {rows:,}"
    return note("quoting_differs", text, file=str(path), rows=rows, rows_with_quoting=with_quoting, lines=lines)


def _unquoted(text: str, delimiter: str) -> Iterator[Row]:
    """Rows of a file without quoting rules: physical lines, split at line feeds alone."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        bare = line[:-1] if line.endswith("\r") else line
        yield number, bare.split(delimiter) if bare else []


def _quoted(text: str, delimiter: str) -> _Quoted:
    fault, unclosed = None, False
    try:
        return _Quoted(_parse(text, delimiter, strict=True), None, False)
    except _Broken as broken:
        fault, unclosed = broken.line, "end of data" in str(broken)
    return _Quoted(_parse(text, delimiter, strict=False), fault, unclosed)


class _Broken(Exception):
    """The csv parser's complaint, with the physical line where the row starts."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


def _parse(text: str, delimiter: str, strict: bool) -> list[Row]:
    """Rows by the csv module. Its limit on field lengths is lifted meanwhile: long documents are data."""
    rows: list[Row] = []
    lines: Iterator[str] = iter(io.StringIO(text, newline=""))
    if not _CSV_TAKES_NUL:
        lines = (line.replace(_NUL, _NUL_STAND_IN) for line in lines)
    limit = csv.field_size_limit(sys.maxsize)
    reader = csv.reader(lines, delimiter=delimiter, strict=strict)
    start = 1
    try:
        for cells in reader:
            rows.append((start, cells if _CSV_TAKES_NUL else [c.replace(_NUL_STAND_IN, _NUL) for c in cells]))
            start = reader.line_num + 1
    except csv.Error as error:
        raise _Broken(start, str(error)) from None
    finally:
        csv.field_size_limit(limit)
    return rows
