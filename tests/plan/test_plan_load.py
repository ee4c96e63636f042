"""Loading: what is read as what, where values come from, and that a plan survives its documents."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tui_pilot.errors import PlanErrors
from tui_pilot.plan.document import from_document, plan_yaml, to_document
from tui_pilot.plan.load import LoadedPlan, default_demo, load, parse_set, parse_value
from tui_pilot.plan.model import Adapter, Held, RootUnit, TimeUnit, Unit, as_json, from_json
from tui_pilot.version import VERSION

FULL = """\
name: repair-desk
task: sft
model: {path: ./model, adapter: {kind: lora, r: 16, alpha: 32, targets: [q_proj, v_proj]}}
data:
  train: train.jsonl
  validation: {fraction: 0.2, seed: 3}
  test: test.jsonl
  columns: {prompt: question, completion: answer}
  unit: conversation_id
  max_length: 512
batch: {micro: 2, accumulation: 8}
budget: {epochs: 1.5}
optimizer: {lr: 2e-5, warmup: 10, weight_decay: 1E-2}
precision: bf16
launch: {processes: 4, strategy: ddp, tensor_parallel: 2}
gates: {skip: [overfit], overfit: {lr: 1e-3}, severity: {unit_unknown: warn}}
options: {rate: 1e-4, text: "1e-4", flag: no, word: "no", deep: {list: [1, 2.5, yes]}}
expected: "answers with the number after ####"
variants:
  - {id: ckpt, why: "less activation memory", set: {memory.activation_checkpointing: yes}}
  - {id: long, set: {data.max_length: 1e3, budget.updates: 2e2}}
compare:
  trials: [{id: base}, {id: half, set: {optimizer.lr: 1e-5}}]
  seeds: [0, 1]
  stop: {loss_above_start: 3}
rental: {prices: {"H100 80GB": 2.4}}
"""


def write(folder: Path, text: str, name: str = "pilot.yaml") -> Path:
    """A plan beside the files that it may name."""
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "config.json").write_text("{}")
    (folder / "model" / "model.safetensors").write_bytes(b"weights")
    for each in ("train.jsonl", "test.jsonl"):
        (folder / each).write_text('{"id": 1}\n')
    path = folder / name
    path.write_text(text)
    return path


def test_a_full_plan_is_read_as_it_is_meant(tmp_path: Path) -> None:
    plan = load(write(tmp_path, FULL)).plan
    assert plan.model.adapter == Adapter(r=16, alpha=32, targets=("q_proj", "v_proj"))
    assert plan.data.validation == Held(0.2, 3)
    assert plan.optimizer.lr == 2e-5 and plan.optimizer.weight_decay == 0.01
    assert plan.gates.overfit.lr == 1e-3
    assert plan.budget.held == ("epochs", 1.5)
    assert plan.replicas == 2 and plan.effective_batch == 32
    assert plan.options["rate"] == 1e-4 and plan.options["text"] == "1e-4"
    assert plan.options["flag"] is False and plan.options["word"] == "no"
    assert plan.options["deep"] == {"list": [1, 2.5, True]}
    assert plan.variants[0].set == {"memory.activation_checkpointing": True}
    assert plan.variants[1].set == {"data.max_length": 1000, "budget.updates": 200}
    assert plan.compare.trials[1].set == {"optimizer.lr": 1e-5}
    assert plan.export.kind == "adapter"


def test_origins_say_where_each_value_comes_from(tmp_path: Path) -> None:
    found = load(write(tmp_path, FULL), {"seed": "7", "optimizer.lr": "3e-5"})
    assert found.plan.seed == 7 and found.plan.optimizer.lr == 3e-5
    assert found.origins["seed"] == found.origins["optimizer.lr"] == "set"
    assert found.origins["optimizer.warmup"] == found.origins["data.validation.seed"] == "given"
    assert found.origins["optimizer.clip"] == found.origins["launch.nodes"] == "default"
    assert found.origins["export.kind"] == "derived"
    assert found.folder == tmp_path and found.file == tmp_path / "pilot.yaml" and not found.demo


def test_relative_paths_start_at_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, FULL)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = load(Path("../pilot.yaml"))
    assert found.path("train.jsonl") == tmp_path / "train.jsonl"


def test_a_home_folder_is_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = load(write(tmp_path, "task: classification\ndata: {train: ~/train.jsonl}\n"))
    assert found.plan.data.train == os.path.join(tmp_path, "train.jsonl")


@pytest.mark.parametrize("text", ["{}", "task: demo", "batch:\nbudget:\n", "# nothing but this\n---\ntask: demo\n"])
def test_a_short_plan_has_defaults(tmp_path: Path, text: str) -> None:
    found = load(write(tmp_path, text))
    assert found.plan.budget.updates == 200 and found.origins["budget.updates"] == "default"
    assert found.plan.export.kind == "full" and found.origins["export.kind"] == "derived"


@pytest.mark.parametrize(
    ("written", "unit"),
    [
        ("conversation_id", "conversation_id"),
        ('{prefix: "_"}', Unit(field="id", prefix="_")),
        ('{field: name, prefix: "_"}', Unit(field="name", prefix="_")),
        ('{field: id, regex: "^(.*)_"}', Unit(field="id", regex="^(.*)_")),
        ("{field: chat}", Unit(field="chat")),
        ("{root_of: parent_id}", Unit(root_of=RootUnit(parent="parent_id"))),
        ("{root_of: {parent: up, id: key}}", Unit(root_of=RootUnit(parent="up", id="key"))),
        ("{time: {field: date, gap: 7}}", Unit(time=TimeUnit("date", 7))),
        ("{time: date}", Unit(time=TimeUnit("date"))),
        ("2", "2"),
    ],
)
def test_short_forms_of_the_unit(tmp_path: Path, written: str, unit: Any) -> None:
    found = load(write(tmp_path, f"data: {{unit: {written}}}"))
    assert found.plan.data.unit == unit
    assert from_json(json.loads(json.dumps(as_json(found.plan)))) == found.plan


@pytest.mark.parametrize(
    ("written", "key", "value"),
    [
        ("optimizer: {lr: 1e-4}", "optimizer.lr", 1e-4),
        ("optimizer: {lr: 1E-4}", "optimizer.lr", 1e-4),
        ("optimizer: {lr: '2e-5'}", "optimizer.lr", 2e-5),
        ("optimizer: {lr: 1.5e-4}", "optimizer.lr", 1.5e-4),
        ("optimizer: {lr: 1}", "optimizer.lr", 1.0),
        ("budget: {tokens: 1e5}", "budget.tokens", 100_000),
        ("budget: {tokens: 1_000}", "budget.tokens", 1000),
        ("batch: {drop_last: yes}", "batch.drop_last", True),
        ("batch: {drop_last: off}", "batch.drop_last", False),
        ("name: 1e4", "name", "1e4"),
        ("name: no", "name", "no"),
        ("name: 2026-01-01", "name", "2026-01-01"),
        ("name: 1:30", "name", "1:30"),
        ("optimizer: {clip: null}", "optimizer.clip", None),
        ("data: {columns: {text: 1, label: y}}", "data.columns", {"text": "1", "label": "y"}),
    ],
)
def test_values_are_read_by_what_belongs_at_their_place(tmp_path: Path, written: str, key: str, value: Any) -> None:
    found: Any = load(write(tmp_path, written)).plan
    for part in key.split("."):
        found = getattr(found, part)
    assert found == value and type(found) is type(value)


def test_changing_the_budget_replaces_what_was_held(tmp_path: Path) -> None:
    found = load(write(tmp_path, FULL), {"budget.updates": "30"})
    assert found.plan.budget.held == ("updates", 30) and found.plan.budget.epochs is None


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("data.unit.field", "chat", lambda plan: plan.data.unit == Unit(field="chat")),
        ("data.unit", '{prefix: "-"}', lambda plan: plan.data.unit == Unit(field="id", prefix="-")),
        ("model.adapter", "null", lambda plan: plan.model.adapter is None and plan.export.kind == "full"),
        ("batch", "{micro: 3}", lambda plan: plan.batch.micro == 3 and plan.batch.accumulation == 1),
        ("compare.seeds", "[4, 5]", lambda plan: plan.compare.seeds == (4, 5)),
        ("options.deep.more", "1e-3", lambda plan: plan.options["deep"]["more"] == 1e-3),
        ("rental.prices.RTX 4.5", "0.5", lambda plan: plan.rental.prices["RTX 4.5"] == 0.5),
        ("data.test", "", lambda plan: plan.data.test is None),
    ],
)
def test_overrides_reach_every_place(tmp_path: Path, key: str, text: str, expected: Any) -> None:
    assert expected(load(write(tmp_path, FULL), {key: text}).plan)


def test_overrides_may_be_values() -> None:
    assert default_demo({"batch.micro": 2, "data.columns": {"a": "b"}}).plan.batch.micro == 2


def test_the_command_line_form() -> None:
    assert parse_set(["seed=1", "name=a=b"]) == {"seed": "1", "name": "a=b"}
    with pytest.raises(Exception, match="no key=value"):
        parse_set(["seed"])
    assert parse_value("[1, 2]") == [1, 2]
    with pytest.raises(PlanErrors, match="not readable"):
        parse_value("[1, 2")


def test_the_demo_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = default_demo()
    assert found.demo and found.file is None and found.folder == tmp_path
    assert found.plan.task == "demo" and found.plan.effective_batch == 8 and found.plan.expected


@pytest.mark.parametrize("demo", [True, False])
def test_a_plan_survives_its_documents(tmp_path: Path, demo: bool) -> None:
    found = default_demo({"seed": "3"}) if demo else load(write(tmp_path, FULL), {"name": "'1e-4: \"x\" # y'"})
    document = json.loads(json.dumps(to_document(found)))
    assert set(document) == {"schema", "tool", "plan", "origins", "folder", "file", "demo"}
    assert document["schema"] == 1 and document["tool"] == VERSION
    again = from_document(document)
    assert again == LoadedPlan(found.plan, found.folder, found.file, found.origins, "", found.demo)
    assert to_document(again) == document
    written = tmp_path / "plan.yaml"
    written.write_text(plan_yaml(found))
    reread = load(written)
    assert reread.plan == found.plan
    assert set(reread.origins.values()) == {"given"}


def test_the_written_plan_says_origins() -> None:
    lines = plan_yaml(default_demo({"seed": "3"})).splitlines()
    assert "seed: 3  # set" in lines and "  micro: 4  # given" in lines and "  kind: full  # derived" in lines


@pytest.mark.parametrize("document", [{}, {"schema": 2}, {"schema": 1, "plan": 3}, []])
def test_a_strange_document_is_refused(document: Any) -> None:
    with pytest.raises(PlanErrors, match=r"plan\.json"):
        from_document(document)


def test_predicting_needs_only_a_config(tmp_path: Path) -> None:
    path = write(tmp_path, FULL)
    (tmp_path / "model" / "model.safetensors").unlink()
    with pytest.raises(PlanErrors, match="no weights"):
        load(path)
    assert load(path, need_weights=False).plan.model.path == "./model"


@pytest.mark.parametrize("name", ["model.bin", "pytorch_model-00001-of-00002.bin", "model.PT", "consolidated.00.pth"])
def test_pickled_weights_are_left_to_the_gates(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, FULL)
    (tmp_path / "model" / "model.safetensors").rename(tmp_path / "model" / name)
    load(path)


def test_an_own_task_needs_neither_model_nor_data(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from base import Task\n\nclass Mine(Task):\n    pass\n")
    assert load(write(tmp_path, "task: mine.py:Mine")).plan.task == "mine.py:Mine"
    (tmp_path / "mine.py").write_text("from elsewhere import *\n")
    load(write(tmp_path, "task: mine.py:Mine"))
    (tmp_path / "mine.py").write_text("class Mine(Task: pass\n")
    load(write(tmp_path, "task: mine.py:Mine"))


def test_a_command_task(tmp_path: Path) -> None:
    text = "task: command\ncommand: [python, train.py]\nresume_command: python train.py --resume\nartifact: out\n"
    plan = load(write(tmp_path, text)).plan
    assert plan.command == ("python", "train.py") and plan.resume_command == "python train.py --resume"
