"""The rows of the plan's files beside the records of a person's own task: what its loader made, changed or left out.

Only files whose rows can be found again are looked at: JSONL, a JSON array, CSV and TSV. A record finds its row by the
line it names, by its id, or by its number where both sides have as many rows and plainly stand in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tui_pilot.errors import DataError
from tui_pilot.gates.source_rows import Differences, blank, compare, missing
from tui_pilot.pilot.rows import Split
from tui_pilot.plan.model import Plan
from tui_pilot.tasks.formats.table import LINE
from tui_pilot.tasks.units import plain
from tui_pilot.text import plural

SPLITS = ("train", "validation", "test")
ORDER_LOOKED_AT = 100
"""Rows by which it is told whether records stand in the file's order, or come from the file at all."""
TABLES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv"}


def texts_of(value: Any) -> list[str]:
    """Every text inside a record, however deep; keys that begin with ``_`` belong to readers."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key, each in value.items() if not str(key).startswith("_") for text in texts_of(each)]
    return [text for each in value for text in texts_of(each)] if isinstance(value, (list, tuple)) else []


def longest_text(record: Any) -> str:
    """The text that tells a row best from others."""
    return max(texts_of(record), key=len, default="")


def resembles(record: Any, source: Any, other: Any) -> bool | None:
    """Whether a record holds the longest text that its row has and another row has not; None: nothing tells them."""
    told = max(set(texts_of(source)) - set(texts_of(other)), key=len, default="")
    return any(told in text for text in texts_of(record)) if told else None


class SourceFile:
    """One file of the plan as it stands on disk, untouched by any shape."""

    def __init__(self, path: Path, rows: Sequence[Mapping[str, Any]], tabular: bool) -> None:
        self.path, self.rows, self.tabular = path, rows, tabular
        self._lines: dict[int, int] | None = None
        self._ids: dict[str, int] | None = None

    @property
    def lines(self) -> dict[int, int]:
        """Physical line to place."""
        if self._lines is None:
            numbers = getattr(self.rows, "lines", None) or [row[LINE] for row in self.rows]
            self._lines = {int(line): place for place, line in enumerate(numbers)}
        return self._lines

    @property
    def ids(self) -> dict[str, int]:
        """Id to place, empty unless every row has one of its own."""
        if self._ids is None:
            found: dict[str, int] = {}
            for place in range(len(self.rows)):
                name = plain((self.row(place) or {}).get("id"))
                if name is None or name in found:
                    found = {}
                    break
                found[name] = place
            self._ids = found
        return self._ids

    def row(self, place: int) -> Mapping[str, Any] | None:
        """The row at a place; None where it cannot be read or there is none."""
        try:
            return self.rows[place] if 0 <= place < len(self.rows) else None
        except DataError:
            return None


def open_source(plan: Plan, split: str) -> SourceFile | None:
    """The split's own file; None where the plan names none or its rows cannot be told apart."""
    value = {"train": plan.data.train, "validation": plan.data.validation, "test": plan.data.test}.get(split)
    if not isinstance(value, str) or not Path(value).is_file():
        return None
    path = Path(value)
    try:
        return _open(path, plan)
    except (DataError, OSError, ValueError):
        return None


def _open(path: Path, plan: Plan) -> SourceFile | None:
    from tui_pilot.tasks.formats.json_rows import read_array, read_lines

    form = plan.data.format if plan.data.format in ("csv", "tsv") else TABLES.get(path.suffix.lower())
    if form is not None:
        from tui_pilot.tasks.formats.tables import read_table

        data = plan.data
        columns: Mapping[str, Any] = data.columns
        table = read_table(
            path, format=form, header=data.header, quoting=data.quoting, columns=columns, errors="collect"
        )
        return SourceFile(path, table.records, True)
    if path.suffix.lower() in (".jsonl", ".ndjson", ".json"):
        with path.open("rb") as stream:
            first = stream.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        if first == b"[":
            return SourceFile(path, read_array(path, "collect").records, False)
        return SourceFile(path, read_lines(path)[0], False)
    return None


class SourceCheck:
    """Goes along the audit of an own task and counts what its records have against their rows in the file."""

    def __init__(self, plan: Plan, splits: Mapping[str, Split]) -> None:
        self.plan, self.splits = plan, splits
        self.sizes = {name: len(split) for name, split in splits.items()}
        self.in_order: dict[str, bool] = {}
        self.files = {split: source for split in SPLITS if (source := open_source(plan, split)) is not None}
        self.compared = 0
        self.rows: dict[str, list[tuple[str, Any, Differences]]] = {}
        self.lines_seen: dict[str, set[int]] = {split: set() for split in self.files}
        self.strange: list[Any] = []
        self.strange_texts: list[str] = []
        self.known = 0
        self.empty: Counter[str] = Counter()
        self.empty_rows: dict[str, list[Any]] = {}
        self.counts: Counter[str] = Counter()

    def file_of(self, split: str) -> SourceFile | None:
        """The file a split's records come from: its own, or train's where the task holds rows out by itself."""
        return self.files.get(split) or (self.files.get("train") if self._held(split) else None)

    def _held(self, split: str) -> bool:
        return not isinstance(getattr(self.plan.data, split), str)

    def source_of(self, split: str, number: int, record: Any) -> Mapping[str, Any] | None:
        """The file's row of a record; None where it cannot be told."""
        file = self.file_of(split)
        if file is None or not isinstance(record, Mapping):
            return None
        place: int | None = None
        line = record.get(LINE)
        if isinstance(line, int):
            place = file.lines.get(line)
        elif record.get("id") is not None and file.ids:
            place = file.ids.get(plain(record["id"]) or "")
        elif split in self.files and self.sizes.get(split) == len(file.rows) and self._ordered(split, file):
            place = number
        row = None if place is None else file.row(place)
        if row is None or place is None:
            return None
        self.lines_seen.setdefault("train" if split not in self.files else split, set()).add(place)
        named = {key: row[str(name)] for key, name in self.plan.data.columns.items() if str(name) in row}
        return {**row, **named}

    def _ordered(self, split: str, file: SourceFile) -> bool:
        """Whether the first records are the first rows of the file, told by the longest text of each."""
        if split not in self.in_order:
            records = self.splits[split].records
            numbers = range(min(ORDER_LOOKED_AT, len(records)))
            told = [resembles(records[number], file.row(number), file.row(number - 1)) for number in numbers if number]
            told = [each for each in told if each is not None]
            self.in_order[split] = told.count(True) >= 0.8 * len(told)
        return self.in_order[split]

    def look(self, row: Any, split: str, record: Any, source: Mapping[str, Any] | None) -> None:
        """Compare one record; rows that plainly are another row are passed over."""
        file = self.file_of(split)
        if file is None or not isinstance(record, Mapping):
            return
        self._count_missing(row, record, file)
        if source is None:
            name = plain(record.get("id"))
            if name is not None and file.ids and name not in file.ids:
                self.strange.append(row)
                self.strange_texts += [longest_text(record)] if len(self.strange_texts) < ORDER_LOOKED_AT else []
            elif name is not None and file.ids:
                self.known += 1
            return
        found = compare(record, source)
        self.compared += 1
        for kind in ("invented", "nulls", "emptied", "lost", "changed"):
            if getattr(found, kind):
                self.counts[kind] += 1
                kept = self.rows.setdefault(kind, [])
                if len(kept) < 1000:
                    kept.append((split, row, found))

    def _count_missing(self, row: Any, record: Mapping[str, Any], file: SourceFile) -> None:
        if not file.tabular:
            return
        for key, value in record.items():
            if missing(value):
                self.empty[str(key)] += 1
                self.empty_rows.setdefault(str(key), []).append(row)

    def problems(self) -> list[dict[str, Any]]:
        """Everything found, as problems of the ``examples`` gate."""
        found = [self._invented(), self._nulls(), *self._missing(), self._lost(), self._stale(), *self._left_out()]
        return [problem for problem in found if problem is not None]

    def _first(self, kind: str) -> tuple[list[Any], str, Any, Differences]:
        listed = self.rows[kind]
        return [row for _, row, _ in listed], *listed[0]

    def _where(self, kind: str, split: str, rows: list[Any]) -> dict[str, Any]:
        file = self.file_of(split)
        return {"rows": rows, "rows_count": self.counts[kind], "split": split, "file": str(file.path) if file else None}

    def _invented(self) -> dict[str, Any] | None:
        if "invented" not in self.rows:
            return None
        rows, split, row, first = self._first("invented")
        path = first.invented[0]
        text = (
            f"{plural(self.counts['invented'], 'row')} of {self.compared:,}: invented key {path.rpartition('.')[2]}: "
            f"{path} is in the loaded row and has no value in its line of the file. First: row {row}."
        )
        return {"code": "invented_field", "text": text, "where": {**self._where("invented", split, rows), "key": path}}

    def _nulls(self) -> dict[str, Any] | None:
        if "nulls" not in self.rows:
            return None
        rows, split, row, first = self._first("nulls")
        text = (
            f"{plural(self.counts['nulls'], 'row')} of {self.compared:,}: {first.nulls[0]} is null in the loaded row "
            f"and absent in its line of the file. First: row {row}."
        )
        where = {**self._where("nulls", split, rows), "key": first.nulls[0]}
        return {"code": "invented_field", "text": text, "where": where, "severity": "note"}

    def _missing(self) -> list[dict[str, Any]]:
        if "emptied" in self.rows:
            rows, split, row, first = self._first("emptied")
            path, value = first.emptied[0]
            count = self.counts["emptied"]
            empty = self._empty_fields(split, path)
            text = (
                f"reader invented {plural(count, 'missing value')}: {path} of row {row} is missing and the file has "
                f"{value!r}{empty}."
            )
            return [{"code": "values_invented_missing", "text": text, "where": self._where("emptied", split, rows)}]
        if self.compared or "train" not in self.files:
            return []
        # no record could be matched with its row: whole columns can still be counted
        file = self.files["train"]
        found = []
        for key, count in self.empty.items():
            fields = [row[key] for row in file.rows if key in row]
            blanks = sum(1 for value in fields if blank(value))
            if fields and count > blanks:
                text = (
                    f"reader invented {plural(count - blanks, 'missing value')} in {key}: {count:,} loaded rows lack "
                    f"it, and the file has {plural(blanks, 'empty field')}."
                )
                where = {"rows": self.empty_rows[key], "file": str(file.path), "key": key}
                found.append({"code": "values_invented_missing", "text": text, "where": where})
        return found

    def _empty_fields(self, split: str, path: str) -> str:
        file = self.file_of(split)
        if file is None or not file.tabular:
            return ""
        count = sum(1 for row in file.rows if path in row and blank(row[path]))
        return f"; the column has {plural(count, 'empty field')}"

    def _lost(self) -> dict[str, Any] | None:
        if "lost" not in self.rows:
            return None
        rows, split, row, first = self._first("lost")
        text = (
            f"{plural(self.counts['lost'], 'row')} of {self.compared:,}: {first.lost[0]} is in the file and not in the "
            f"loaded row. First: row {row}."
        )
        return {"code": "field_lost", "text": text, "where": {**self._where("lost", split, rows), "key": first.lost[0]}}

    def _stale(self) -> dict[str, Any] | None:
        """Rows that the file does not hold as it is now. When most rows differ, the task changes texts on purpose."""
        total = self.compared + len(self.strange)
        changed = self.counts["changed"]
        if self.strange and (self.compared or not self._from_the_file()):
            text = (
                f"{plural(len(self.strange), 'row')} of {total:,} carry an id that the file does not have, first "
                f"{self.strange[0]}: they come from another state of it, such as a cache."
            )
            return {"code": "stale_cache", "text": text, "where": {"rows": self.strange}}
        if not changed or 2 * changed >= total:
            return None
        rows, split, row, first = self._first("changed")
        text = (
            f"{plural(changed, 'row')} of {total:,} differ from their line of the file in {first.changed[0]}, while "
            f"the others are equal. First: row {row}."
        )
        where = {**self._where("changed", split, rows), "key": first.changed[0]}
        return {"code": "stale_cache", "text": text, "where": where}

    def _from_the_file(self) -> bool:
        """Whether rows whose ids the task made itself have their texts from the file all the same."""
        texts = [text for text in self.strange_texts if len(text) >= 3]
        middles = {text[len(text) // 3 : len(text) - len(text) // 3] for text in texts}
        wanted = set(middles)
        for file in self.files.values():
            for place in range(len(file.rows)):
                said = "\0".join(texts_of(file.row(place)))
                wanted -= {middle for middle in wanted if middle in said}
                if len(wanted) <= len(middles) // 2:
                    return True
        return not middles

    def _left_out(self) -> list[dict[str, Any]]:
        """Rows of a file that no split yields."""
        found: list[dict[str, Any]] = []
        for split, file in self.files.items():
            takers = [split, *(each for each in SPLITS if split == "train" and self._held(each))]
            loaded = sum(self.sizes.get(each, 0) for each in dict.fromkeys(takers))
            if loaded >= len(file.rows):
                continue
            seen = self.lines_seen.get(split, set())
            first = ""
            where: dict[str, Any] = {"file": str(file.path), "split": split}
            if len(seen) == loaded:
                line = next(line for line, place in file.lines.items() if place not in seen)
                first, where["line"] = f"; first left out: line {line:,}", line
            text = (
                f"{file.path.name} has {plural(len(file.rows), 'row')} and the task yields {loaded:,} "
                f"({', '.join(takers)}): {len(file.rows) - loaded:,} are left out{first}."
            )
            found.append({"code": "rows_left_out", "text": text, "where": where})
        return found
