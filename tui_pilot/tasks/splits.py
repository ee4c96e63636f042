"""The plan's data files as splits: read once, and a validation part held out along the unit where the plan says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tui_pilot.errors import DataError
from tui_pilot.plan.model import Held, Plan
from tui_pilot.tasks.formats.reader import read
from tui_pilot.tasks.formats.table import Record, Table, note
from tui_pilot.tasks.picked_rows import PickedRows
from tui_pilot.tasks.units import describe, held_out, parents_of, unit_of


class SplitFiles:
    """``train``, ``validation``, ``test`` and ``benchmark`` of a plan; a split that is not planned has no rows."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._tables: dict[str, Table] = {}
        self._held: tuple[list[int], list[int]] | None = None

    def records(self, split: str) -> Sequence[Record]:
        """The split's rows in file order; broken ones raise when they are asked for."""
        held = isinstance(self.plan.data.validation, Held)
        if held and split in ("train", "validation"):
            train, validation = self._split(self.whole("train"))
            return PickedRows(self.whole("train"), train if split == "train" else validation)
        return self.whole(split)

    def whole(self, split: str) -> Sequence[Record]:
        """All rows of the split's file, before anything is held out."""
        table = self.table(split)
        return [] if table is None else table.records

    def table(self, split: str) -> Table | None:
        """The split's file as read; None where the plan names none."""
        path = self._path(split)
        if path is None:
            return None
        if split not in self._tables:
            self._tables[split] = self._read(path)
        return self._tables[split]

    def faults(self, split: str) -> list[DataError]:
        """Every row of the split's file that cannot be read; reads the whole file."""
        path = self._path(split)
        return [] if path is None else self._read(path, "collect").faults

    def notes(self, split: str) -> list[dict[str, Any]]:
        """What reading the split noticed so far."""
        table = self.table("train" if self._is_held(split) else split)
        # how the format was told is said when a plan is written; only what is unusual belongs beside a verdict
        notes = [] if table is None else [one for one in table.notes if one["code"] != "format"]
        if self._is_held(split) and self.plan.data.train is not None:
            rule = self.plan.data.unit
            along = "by row: no unit is known" if rule is None else f"along {describe(rule)}"
            train, validation = self._split(self.whole("train"))
            left = len(self.whole("train")) - len(train) - len(validation)
            said = f"{len(validation):,} of {len(train) + len(validation):,} rows held out {along}"
            said += f"; {left:,} rows overlap them in time and are on neither side" if left else ""
            notes.append(note("held_out", said, file=self.plan.data.train))
        return notes

    def path_of(self, record: Record) -> str | None:
        """The file a record came from, where only one is planned."""
        paths = {path for path in map(self._path, ("train", "validation", "test")) if path}
        return next(iter(paths)) if len(paths) == 1 else None

    def packages(self) -> list[str]:
        """What reading the files needs beside the standard library."""
        paths = [self._path(split) or "" for split in ("train", "validation", "test", "benchmark")]
        parquet = self.plan.data.format == "parquet" or any(path.endswith(".parquet") for path in paths)
        return ["pyarrow"] if parquet else []

    def _is_held(self, split: str) -> bool:
        return split == "validation" and isinstance(self.plan.data.validation, Held)

    def _path(self, split: str) -> str | None:
        data = self.plan.data
        named = {"train": data.train, "validation": data.validation, "test": data.test, "benchmark": data.benchmark}
        value = named.get(split)
        return value if isinstance(value, str) else None

    def _read(self, path: str, errors: Any = "raise") -> Table:
        data, options = self.plan.data, self.plan.options
        return read(
            Path(path),
            format=data.format,
            columns=data.columns,
            header=data.header,
            quoting=data.quoting,
            errors=errors,
            roles=options.get("roles") or {},
            documents=str(options.get("documents", "auto")),
        )

    def _split(self, rows: Sequence[Record]) -> tuple[list[int], list[int]]:
        if self._held is None:
            held, rule = self.plan.data.validation, self.plan.data.unit
            assert isinstance(held, Held)
            if rule is None:
                units: list[Any] = [None] * len(rows)
            else:
                parents = parents_of(rule, rows)
                units = [unit_of(rule, row, parents) for row in rows]
            self._held = held_out(units, held)
        return self._held
