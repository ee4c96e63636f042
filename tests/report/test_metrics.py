"""Metrics as a table: every value of the event log that was measured, and nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

from tui_pilot.events import schema
from tui_pilot.events.writer import Writer
from tui_pilot.report.metrics import COLUMNS, csv_of
from tui_pilot.run_folder import find_run
from tui_pilot.store.view import snapshot

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from record_run import RECORDED, copy_all, recorded_id

RUN = recorded_id(RECORDED / "desk")


def rows(text: str) -> list[dict[str, str]]:
    found = list(csv.DictReader(io.StringIO(text)))
    assert tuple(found[0]) == COLUMNS
    return found


def test_the_table_has_the_values_that_show_has(tmp_path: Path) -> None:
    copy_all(tmp_path)
    folder = find_run(tmp_path, RUN)
    found, show = rows(csv_of([folder])), snapshot(folder)
    losses = [
        [int(row["update"]), float(row["value"])]
        for row in found
        if (row["kind"], row["stage"], row["metric"]) == ("update", "train", "loss")
    ]
    assert losses == show["metrics"]["loss"]
    for update, metrics in show["metrics"]["validation"]:
        for name, value in metrics.items():
            assert any(
                row["kind"] == "validation" and (row["update"], row["metric"]) == (str(update), name)
                and float(row["value"]) == value
                for row in found
            )  # fmt: skip
    for phase in show["phases"]:
        if phase["duration_s"] is not None:
            assert any(
                (row["phase"], row["metric"]) == (phase["phase"], "duration_s")
                and float(row["value"]) == phase["duration_s"]
                for row in found
            )


def test_several_runs_one_head(tmp_path: Path) -> None:
    copy_all(tmp_path)
    found = rows(csv_of([find_run(tmp_path, "ebbd"), find_run(tmp_path, "9b08")]))
    assert {row["run"][-4:] for row in found} == {"ebbd", "9b08"}
    assert "run" not in {row["run"] for row in found}


def test_losses_that_are_not_finite_are_words_and_names_are_no_formulas(tmp_path: Path) -> None:
    copy_all(tmp_path)
    folder = find_run(tmp_path, RUN)
    writer = Writer(folder.events, "more.rank0")
    writer.emit(schema.UPDATE, stage="train", update=10, loss=float("nan"), lr=1e-4)
    writer.emit(
        schema.VALIDATION, stage="train", update=10, metrics={"=cmd|'/c x'!A1": 1.0, "b\x1b[31m": float("-inf")}
    )
    writer.close()
    last = rows(csv_of([folder]))[-4:]
    assert [(row["metric"], row["value"]) for row in last] == [
        ("loss", "nan"), ("lr", "0.0001"), ("'=cmd|'/c x'!A1", "1.0"), ("b␛[31m", "-inf"),
    ]  # fmt: skip
