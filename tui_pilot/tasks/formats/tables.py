"""Comma and tab separated files through the standard library's parser, every cell kept as the text that stands there.

Nothing is guessed about cells: the words None, NA, null and nan stay words, a number stays its digits, an empty cell is
``""`` and counted. What can be read in two ways (quotes that are part of the text) is decided from the file and noted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tui_pilot.errors import DataError
from tui_pilot.tasks.formats.delimited import Row, delimiter_of, file_text, split_rows
from tui_pilot.tasks.formats.table import LINE, Note, Record, Table, note
from tui_pilot.text import plural

MISSING_WORDS = frozenset({"none", "na", "n/a", "null", "nan", "nil", "<na>", "#n/a", "-"})
"""Words that other readers turn into missing values; here they stay text."""


def read_table(
    path: str | Path,
    *,
    format: str = "csv",
    header: bool = True,
    quoting: str = "auto",
    columns: Mapping[str, str | int] | None = None,
    errors: Literal["raise", "collect"] = "raise",
) -> Table:
    """All rows of a csv or tsv file.

    With a header the record's keys are the file's own names. Without one a column has the names that ``columns`` gives
    its number (``{"label": 0, "text": 1}``), else the number itself as text. ``quoting`` ``none`` takes quotes as plain
    characters, so that rows are physical lines; ``auto`` decides. Rows whose number of fields differs raise a
    ``DataError`` with the line, or are skipped and listed in ``faults`` with ``errors="collect"``.
    """
    path, columns = Path(path), columns or {}
    text, notes = file_text(path)
    rows = split_rows(text, delimiter_of(text, format, path, notes), quoting, path, notes)
    blank = sum(1 for _, cells in rows if not cells)
    if blank:
        notes.append(note("blank_lines", f"{plural(blank, 'blank line')} passed over", file=str(path)))
    rows = [row for row in rows if row[1]]
    names = _names(rows[0][1] if header else None, rows, columns, path, notes)
    body = rows[1:] if header else rows
    if not body:
        raise DataError(
            "the file has a header line and no rows",
            "If its first line is data, set data.header: false.",
            file=str(path),
            line=1,
        )
    table = Table([], format, path, notes, columns=names.own)
    records, faults = _records(body, names, path)
    if faults and errors == "raise":
        raise faults[0]
    notes.extend(_cell_notes(records, names.own, path))
    return Table(records, table.format, path, notes, len(faults), faults, names.own)


def column_key(columns: Mapping[str, str | int], role: str, names: Sequence[str]) -> str | None:
    """The record key that holds ``role`` (``text``, ``label``): the plan's name or number, else the role; None: none.

    ``names`` are the keys that the records have.
    """
    wanted = str(columns.get(role, role))
    if wanted in names:
        return wanted
    if role in names and (role not in columns or wanted.isdigit()):
        return role
    if role in columns and wanted.isdigit() and int(wanted) < len(names):
        return names[int(wanted)]
    return None


@dataclass(frozen=True)
class _Names:
    """Keys by column: ``keys[i]`` are the names of column ``i``, usually one; ``own`` is the first of each."""

    keys: list[list[str]] = field(default_factory=list)

    @property
    def own(self) -> tuple[str, ...]:
        return tuple(keys[0] for keys in self.keys)


def _names(
    first: list[str] | None, rows: list[Row], columns: Mapping[str, str | int], path: Path, notes: list[Note]
) -> _Names:
    """The keys of each column, from the header line or from the plan."""
    if first is None:
        width = Counter(len(cells) for _, cells in rows).most_common(1)[0][0]
        by_number: dict[int, list[str]] = {}
        for name, place in columns.items():
            if not str(place).isdigit() or int(place) >= width:
                raise DataError(
                    f"{place!r} is no column of a file without a header; it has columns 0 to {width - 1}",
                    "Give data.columns as numbers, counted from 0, or set data.header: true.",
                    file=str(path),
                    key=f"data.columns.{name}",
                    value=place,
                )
            by_number.setdefault(int(place), []).append(name)
        return _Names([by_number.get(number, [str(number)]) for number in range(width)])
    names = [name.strip() for name in first]
    if names != first:
        notes.append(
            note("header_blanks", "blanks around names in the header line are not part of them", file=str(path))
        )
    names = [name or str(number) for number, name in enumerate(names)]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(
            f"the header names {twice[0]!r} {names.count(twice[0])} times",
            "Give every column its own name; if the file has no header line, set data.header: false.",
            file=str(path),
            line=rows[0][0],
        )
    if any(str(place).isdigit() and str(place) not in names for place in columns.values()):
        text = f"columns are given by number, and the first line was taken as their names: {', '.join(names)[:80]}"
        notes.append(note("header_assumed", text, file=str(path), line=rows[0][0]))
    return _Names([[name] for name in names])


def _records(body: list[Row], names: _Names, path: Path) -> tuple[list[Record], list[DataError]]:
    width = len(names.keys)
    records: list[Record] = []
    wrong: list[Row] = []
    for line, cells in body:
        if len(cells) != width:
            wrong.append((line, cells))
            continue
        record: dict[str, object] = {}
        for keys, cell in zip(names.keys, cells, strict=True):
            for key in keys:
                record[key] = cell
        record[LINE] = line
        records.append(record)
    more = f" ({len(wrong) - 1:,} more rows like it)" if len(wrong) > 1 else ""
    faults = [
        DataError(
            f"{len(cells):,} fields where {width:,} are due{more if number == 0 else ''}",
            "Quote a field that holds a delimiter; if quotes are plain text here, set data.quoting: none.",
            file=str(path),
            line=line,
        )
        for number, (line, cells) in enumerate(wrong)
    ]
    return records, faults


def _cell_notes(records: Sequence[Record], names: Sequence[str], path: Path) -> Iterator[Note]:
    """Counts of empty cells and of words that other readers would call missing, by column."""
    for name in names:
        empty = [record[LINE] for record in records if not record[name]]
        if empty:
            text = f"{plural(len(empty), 'empty cell')} in column {name!r}, kept as empty text"
            yield note("empty_cells", text, file=str(path), key=name, lines=empty[:10], count=len(empty))
        words = Counter(record[name] for record in records if record[name].strip().lower() in MISSING_WORDS)
        if words:
            listed = ", ".join(f"{word} x {count:,}" for word, count in words.most_common(6))
            text = f"column {name!r} has words that some readers take for missing values, kept as text: {listed}"
            yield note("missing_words", text, file=str(path), key=name, count=sum(words.values()))
