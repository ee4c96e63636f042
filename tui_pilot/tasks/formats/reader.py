"""One door to every data file: which container it is, which shape its rows have, and the rows themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, overload

from tui_pilot.errors import DataError
from tui_pilot.tasks.formats.json_rows import read_array, read_lines
from tui_pilot.tasks.formats.lines import BOM, LazyRows, decode, index_blocks, index_lines
from tui_pilot.tasks.formats.parquet import read_parquet
from tui_pilot.tasks.formats.shapes import KEYS, Shaper, shape_of
from tui_pilot.tasks.formats.table import LINE, Record, Table, note

CONTAINERS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".txt": "text",
    ".md": "text",
}
PACKED = {b"\x1f\x8b": "gzip", b"PK": "zip", b"\x28\xb5\x2f\xfd": "zstandard", b"BZ": "bzip2", b"\xfd7zXZ": "xz"}
Errors = Literal["raise", "collect"]


@dataclass(frozen=True)
class Detected:
    """What a file looks like: ``container`` is how rows are cut, ``format`` their shape (else the container)."""

    format: str
    container: str
    reason: str


def detect(path: str | Path, columns: Mapping[str, str] | None = None) -> str:
    """The format's name as the plan writes it; ``sniff`` also says why."""
    return sniff(path, columns).format


def sniff(path: str | Path, columns: Mapping[str, str] | None = None, header: bool = True) -> Detected:
    """Look at the name and the first bytes, then at the keys of the first row."""
    path, columns = Path(path), columns or {}
    container, why = _container(path, "auto")
    if container == "text":
        return Detected("text", "text", why)
    table = _rows(path, container=container, columns=columns, header=header)
    shape, because = shape_of(_first(table), columns) if len(table.records) else (None, "no rows")
    return Detected(shape or container, container, f"{why}; {because}")


def read(
    path: str | Path,
    *,
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    header: bool = True,
    quoting: str = "auto",
    errors: Errors = "raise",
    roles: Mapping[str, str] | None = None,
    documents: str = "auto",
) -> Table:
    """A data file as a table of records in file order.

    ``format`` names a shape (the container is then told from the file), a container, or ``auto``. ``columns`` maps a
    shape's keys to the file's own names. ``errors="raise"``: a broken row raises ``DataError`` with file and line when
    it is asked for; ``"collect"``: every row is parsed now, broken ones are left out and listed in ``faults``.
    ``roles`` adds names of speakers. ``documents`` cuts plain text: ``line``, ``blank`` (blank lines between),
    ``whole``, or ``auto``.
    """
    path, columns, roles = Path(path), columns or {}, roles or {}
    shape = format if format in KEYS else None
    container, why = _container(path, "auto" if shape and shape != "text" else format)
    if container == "text" and shape not in (None, "text"):
        raise DataError(
            f"the file is plain text, not rows of {shape}", "Write one JSON object per line.", file=str(path), line=1
        )
    table = _rows(
        path,
        container=container,
        columns=columns,
        header=header,
        quoting=quoting,
        documents=documents,
        errors=errors,
    )
    if shape is None and container != "text" and len(table.records):
        shape, because = shape_of(_first(table), columns)
        if shape:
            table.notes.append(note("format", f"read as {shape}: {because} ({why})", file=str(path)))
    if container == "text":
        return replace(table, format="text")
    shaper = Shaper(path, shape, columns, roles)
    return _shaped(table, shaper, container, shape, errors)


def _container(path: Path, format: str) -> tuple[str, str]:
    """How rows are cut, and why; refuses what is missing, empty or packed."""
    if not path.exists():
        raise DataError("there is no such file", "Paths are relative to the plan's folder.", file=str(path))
    if path.is_dir():
        raise DataError("this is a folder, not a data file", "Name one file.", file=str(path))
    with path.open("rb") as file:
        head = file.read(4096)
    if not head.removeprefix(BOM).strip():
        raise DataError("the file is empty", "It needs at least one row.", file=str(path))
    for magic, name in PACKED.items():
        if head.startswith(magic):
            raise DataError(f"the file is packed with {name}", "Unpack it first.", file=str(path))
    if head.startswith(b"PAR1"):
        return "parquet", "it starts with PAR1"
    first = head.removeprefix(BOM).lstrip()[:1]
    if format in ("csv", "tsv", "parquet"):
        return format, "data.format says so"
    if format in ("auto", "jsonl", "text"):
        named = CONTAINERS.get(path.suffix.lower(), "")
        if format == "jsonl" or named == "jsonl":
            return ("json", "it starts with [") if first == b"[" else ("jsonl", "one object per line")
        if format == "text" and path.suffix.lower() in ("", ".txt", ".md"):
            return "text", "data.format says so"
        if named and not (named == "text" and first in (b"{", b"[") and _is_json(head)):
            return named, f"its name ends in {path.suffix}"
    if first == b"[" and (path.suffix == ".json" or _is_json(head)):
        return "json", "it starts with ["
    if first == b"{":
        return "jsonl", "it starts with {"
    if format == "auto" and head.count(b"\t") >= head.count(b"\n") > 0:
        return "tsv", "it has tabs in its lines"
    return "text", "it is neither JSON nor a table"


def _is_json(head: bytes) -> bool:
    """Whether the first line is JSON, or the opening of an array of objects."""
    line = head.removeprefix(BOM).strip().split(b"\n", 1)[0].rstrip()
    if line.startswith(b"[") and line[1:].lstrip()[:1] in (b"{", b""):
        return True
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _rows(
    path: Path,
    *,
    container: str,
    columns: Mapping[str, str],
    header: bool = True,
    quoting: str = "auto",
    documents: str = "auto",
    errors: Errors = "raise",
) -> Table:
    if container == "jsonl":
        rows, notes = read_lines(path)
        return Table(rows, "jsonl", path, notes)
    if container == "json":
        return read_array(path, errors)
    if container == "parquet":
        return read_parquet(path)
    if container in ("csv", "tsv"):
        from tui_pilot.tasks.formats.tables import read_table

        return read_table(path, format=container, header=header, quoting=quoting, columns=columns, errors=errors)
    return _documents(path, documents)


def _documents(path: Path, rule: str) -> Table:
    """Plain text as documents, the rule stated in a note."""

    blank, notes = index_blocks(path, _Document(path))
    lines, _ = index_lines(path, _Document(path))
    if rule == "auto":
        rule = "line" if len(blank) == 1 else "blank"
    if rule == "whole":
        rows, notes = index_blocks(path, _Document(path), whole=True)
    else:
        rows = lines if rule == "line" else blank
    said = {"line": "one document per line", "blank": "documents are separated by blank lines", "whole": "one document"}
    counted = f"{said[rule]}: {len(rows):,} document" + ("" if len(rows) == 1 else "s")
    return Table(rows, "text", path, [*notes, note("documents", counted, file=str(path), rule=rule)])


@dataclass(frozen=True)
class _Document:
    path: Path

    def __call__(self, content: bytes, line: int) -> Record:
        return {"text": decode(content, self.path, line), LINE: line}


class ShapedRows(Sequence[Record]):
    """Rows of a table read as a shape, each on access."""

    def __init__(self, rows: Sequence[Record], shaper: Shaper) -> None:
        self.rows, self.shaper = rows, shaper

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | Sequence[Record]:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        row = self.rows[place]
        return self.shaper(row, row[LINE])


def _first(table: Table) -> Mapping[str, Any]:
    """The first row that can be read: a broken one must not decide the shape of the file."""
    fault: DataError | None = None
    for place in range(min(len(table.records), 100)):
        try:
            return table.records[place]
        except DataError as error:
            fault = fault or error
    assert fault is not None
    raise fault


def _shaped(table: Table, shaper: Shaper, container: str, shape: str | None, errors: Errors) -> Table:
    format = shape or container
    rows = ShapedRows(table.records, shaper)
    if errors == "raise":
        return replace(table, records=rows, format=format)
    faults, broken = list(table.faults), set()
    for place in range(len(rows)):
        try:
            rows[place]
        except DataError as error:
            faults.append(error)
            broken.add(place)
    kept = table.records
    if broken and isinstance(kept, LazyRows):
        kept = kept.without(broken)
    elif broken:
        kept = [row for place, row in enumerate(kept) if place not in broken]
    rows = ShapedRows(kept, shaper)
    return replace(table, records=rows, format=format, skipped=len(faults), faults=faults)


__all__ = ["Detected", "Table", "detect", "read", "sniff"]
