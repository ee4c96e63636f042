"""What a plan may say and this version does not run is refused by name, before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tui_pilot.errors import PlanErrors
from tui_pilot.launch.not_yet import refuse
from tui_pilot.launch.start import prepare
from tui_pilot.plan.load import load
from tui_pilot.plan.model import Data, Launch, Model, Plan


@pytest.mark.parametrize(
    ("plan", "key"),
    [
        (Plan(launch=Launch(processes=2, strategy="fsdp")), "launch.strategy"),
        (Plan(launch=Launch(processes=2, strategy="ddp", nodes=2)), "launch.nodes"),
        (Plan(launch=Launch(processes=2, strategy="ddp", tensor_parallel=2)), "launch.tensor_parallel"),
        (Plan(task="command", command="python train.py"), "task"),
        (Plan(task="sft", data=Data(packing="bfd")), "data.packing"),
        (Plan(data=Data(train="mine.jsonl")), "data.train"),
        (Plan(model=Model(path="./model")), "model.path"),
    ],
)
def test_it_is_refused_with_its_key(plan: Plan, key: str) -> None:
    with pytest.raises(PlanErrors) as refused:
        refuse(plan, "pilot.yaml")
    assert [error.key for error in refused.value.errors] == [key]
    assert "Nothing was run." in str(refused.value)


def test_what_is_only_predicted_may_be_sharded() -> None:
    refuse(Plan(launch=Launch(processes=2, strategy="fsdp", nodes=2)), None, run=False)
    with pytest.raises(PlanErrors):
        refuse(Plan(launch=Launch(processes=2, strategy="fsdp", tensor_parallel=2)), None, run=False)


def test_what_is_run_is_not_refused() -> None:
    refuse(Plan(), None)
    refuse(Plan(launch=Launch(processes=8, strategy="ddp")), None)
    refuse(Plan(task="mine.py:Mine", data=Data(packing="own", train="mine.jsonl")), None)


def test_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_text('{"messages": []}\n')
    (tmp_path / "pilot.yaml").write_text("task: demo\ndata: {train: chats.jsonl}\n")
    with pytest.raises(PlanErrors):
        prepare(load(tmp_path / "pilot.yaml"), tmp_path / "runs", argv=["test"])
    assert not (tmp_path / "runs").exists()
