"""The worked example of a person's own task, as a training loop meets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tui_pilot.pilot.context import build_task
from tui_pilot.plan.load import load
from tui_pilot.tasks.base import IGNORE, Task, defines, encode, row_names

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def task() -> Task:
    loaded = load(CONFIGS / "own-task.yaml")
    return build_task(loaded.plan, loaded.folder)


def test_the_example_stays_short() -> None:
    assert len((CONFIGS / "own_task.py").read_text("utf-8").splitlines()) < 80


def test_what_it_defines_lets_the_checks_look(task: Task) -> None:
    names = ("records", "unit", "source_text", "encode", "spans", "special_ids", "build_model", "loss", "predict")
    assert all(defines(task, name) for name in (*names, "decode", "metrics"))


def test_splits_share_no_unit_and_ids_are_unique(task: Task) -> None:
    sides = {side: task.records(side) for side in ("train", "validation", "test")}
    units = [{task.unit(record) for record in records} for records in sides.values()]
    assert all(len(records) >= 30 for records in sides.values())
    assert not units[0] & units[1] and not units[0] & units[2] and not units[1] & units[2]
    names = [name for records in sides.values() for name in row_names(task, records)]
    assert len(set(names)) == len(names)


def test_labels_are_the_answer_and_its_end(task: Task) -> None:
    end = task.special_ids()["end"]
    for record in task.records("train"):
        example = encode(task, record)
        trained = [label for label in example["labels"] if label != IGNORE]
        assert trained[-1] == end
        assert task.decode(trained[:-1]) == task.source_text(record) == record["word"][::-1]
        (_, middle, user, _), (start, stop, assistant, _) = task.spans(record, example)
        assert (middle, stop, user, assistant) == (start, len(example["input_ids"]), "user", "assistant")
        assert example["labels"][:start] == [IGNORE] * start


def test_four_rows_are_recovered_and_the_artifact_answers_the_same(task: Task, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model: Any = task.build_model()
    rows = sorted(task.records("train"), key=lambda record: len(record["word"]))[:4]
    batch = task.collate([encode(task, record) for record in rows])
    optimizer = task.build_optimizer(model)
    for _ in range(60):
        (task.loss(model, batch) / task.count(batch)).backward()
        optimizer.step()
        optimizer.zero_grad()
    pairs = zip(task.predict(model, batch).tolist(), batch["labels"].tolist(), strict=True)
    assert task.metrics([{"predicted": a, "labels": b} for a, b in pairs]) == {"words_right": 1.0}
    task.save_artifact(model, tmp_path)
    inputs = task.control_inputs()
    again = task.load_artifact(tmp_path)
    assert torch.equal(task.predict(model, inputs), task.predict(again, inputs))
