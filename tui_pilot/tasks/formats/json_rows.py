"""JSON values as rows: one object per line, or one array in a file. Keys and values stay as they are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tui_pilot.errors import DataError
from tui_pilot.tasks.formats.lines import BOM, LazyRows, decode, index_lines
from tui_pilot.tasks.formats.table import LINE, Note, Record, Table, note


class RowParser:
    """One line of JSON to an object; a key that occurs twice is noted once per line in ``notes``, which may grow."""

    def __init__(self, path: Path, notes: list[Note]) -> None:
        self.path, self.notes = path, notes
        self._noted: set[tuple[int, str]] = set()
        self._twice: list[str] = []
        self.decoder = json.JSONDecoder(object_pairs_hook=self._pairs)

    def __call__(self, content: bytes, line: int) -> Record:
        """The line's record; a line that is no JSON object raises ``DataError`` with file and line."""
        text = decode(content, self.path, line)
        try:
            value = self.decoder.decode(text)
        except (json.JSONDecodeError, RecursionError) as error:
            self._twice.clear()
            raise DataError(
                f"not a whole JSON object ({_said(error)})",
                "One object per line: escape line breaks inside strings as \\n, or write one JSON array.",
                file=str(self.path),
                line=line,
            ) from None
        return self.finish(value, text, line)

    def finish(self, value: Any, text: str, line: int) -> Record:
        """Check one parsed value and give it its line."""
        for key in self._twice:
            if (line, key) not in self._noted:
                self._noted.add((line, key))
                said = f"line {line:,} has the key {key!r} twice; the last value counts"
                self.notes.append(note("duplicate_key", said, file=str(self.path), line=line, key=key))
        self._twice.clear()
        if not isinstance(value, dict):
            raise DataError(
                f"a row is {_kind(value)}, not an object",
                "Each row is a JSON object: {...}.",
                file=str(self.path),
                line=line,
            )
        if "\\ud" in text or "\\uD" in text:
            _refuse_lone_surrogates(value, self.path, line)
        return {**value, LINE: line}

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "decoder"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.decoder = json.JSONDecoder(object_pairs_hook=self._pairs)

    def _pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    self._twice.append(key)
                seen.add(key)
        return value


def read_lines(path: Path) -> tuple[LazyRows, list[Note]]:
    """JSONL, indexed: nothing is parsed yet, so a broken line raises when it is asked for."""
    notes: list[Note] = []
    parser = RowParser(path, notes)
    rows, line_notes = index_lines(path, parser)
    notes[:0] = line_notes
    return rows, notes


def read_array(path: Path, errors: str) -> Table:
    """A JSON array of objects, parsed whole; each record knows the line it starts at."""
    content = path.read_bytes()
    notes: list[Note] = []
    if content.startswith(BOM):
        content = content[len(BOM) :]
        notes.append(note("byte_order_mark", "UTF-8 byte order mark at the start passed over", file=str(path)))
    text = decode(content, path, 1)
    parser = RowParser(path, notes)
    records: list[Record] = []
    faults: list[DataError] = []
    position, line = _skip(text, text.index("[") + 1), 1
    counted = 0
    while position < len(text) and text[position] != "]":
        line += text.count("\n", counted, position)
        counted = position
        try:
            value, end = parser.decoder.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError) as error:
            at = getattr(error, "lineno", line)
            wrong = DataError(f"broken JSON ({_said(error)})", "The rest was not read.", file=str(path), line=at)
            if errors == "raise":
                raise wrong from None
            faults.append(wrong)
            break
        try:
            records.append(parser.finish(value, text[position:end], line))
        except DataError as error:
            if errors == "raise":
                raise
            faults.append(error)
        position = _skip(text, end)
        if text[position : position + 1] == ",":
            position = _skip(text, position + 1)
        elif text[position : position + 1] != "]":
            at = text.count("\n", 0, position) + 1
            wrong = DataError("the array is not closed or a comma is missing", file=str(path), line=at)
            if errors == "raise":
                raise wrong
            faults.append(wrong)
            break
    return Table(records, "json", path, notes, len(faults), faults)


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _said(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "nested too deeply"


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def _refuse_lone_surrogates(value: Any, path: Path, line: int) -> None:
    """Half of a surrogate pair is no character: no tokenizer can take it and no file can hold it."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(
                f"a text holds half a surrogate pair (\\u{ord(value[error.start]):04x})",
                "The character was cut in two before the file was written; restore or remove it.",
                file=str(path),
                line=line,
            ) from None
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_lone_surrogates(key, path, line)
            _refuse_lone_surrogates(item, path, line)
    elif isinstance(value, list):
        for item in value:
            _refuse_lone_surrogates(item, path, line)
