"""Variants: validated changes, differences, what keeps the question, and the fingerprint of a run's inputs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tui_pilot.errors import PlanError, PlanErrors
from tui_pilot.plan.document import from_document, to_document
from tui_pilot.plan.load import LoadedPlan, default_demo, load
from tui_pilot.plan.model import Adapter, Model, Plan
from tui_pilot.plan.variants import (
    HOLDABLE,
    apply,
    differences,
    identity,
    keeps_question,
    not_held,
    plan_identity,
    trial,
    variant,
)


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedPlan:
    (tmp_path / "train.jsonl").write_text("{}\n")
    path = tmp_path / "pilot.yaml"
    path.write_text(
        "task: classification\ndata: {train: train.jsonl, max_length: 64}\nbatch: {micro: 2, accumulation: 8}\n"
        "budget: {epochs: 2}\nvariants: [{id: ckpt, set: {memory.activation_checkpointing: true}}]\n"
        "compare: {trials: [{id: base}, {id: half, set: {optimizer.lr: 5e-5}}], seeds: [0, 1]}\n"
    )
    return load(path, {"seed": "4"})


def test_a_change_is_validated_and_marked(loaded: LoadedPlan) -> None:
    found = apply(loaded, {"batch.micro": 4, "batch.accumulation": 4}, "wide")
    assert found.plan.batch.micro == 4 and found.plan.effective_batch == 16
    assert found.origins["batch.micro"] == "set" and found.origins["data.train"] == "given"
    assert found.origins["seed"] == "set" and found.plan.seed == 4
    assert found.folder == loaded.folder and loaded.plan.batch.micro == 2


def test_derived_values_follow_a_change(loaded: LoadedPlan) -> None:
    found = apply(loaded, {"model.adapter": {"kind": "lora"}}, "lora")
    assert found.plan.export.kind == "adapter" and found.origins["export.kind"] == "derived"
    assert apply(found, {"model.adapter": None}, "full").plan.export.kind == "full"


def test_a_change_of_the_budget_replaces_it(loaded: LoadedPlan) -> None:
    assert apply(loaded, {"budget.updates": 7}, "short").plan.budget.held == ("updates", 7)


def test_a_plan_from_a_run_folder_can_be_varied(loaded: LoadedPlan) -> None:
    again = from_document(to_document(loaded))
    assert apply(again, {"seed": 9}, "x").plan == replace(loaded.plan, seed=9)


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"batch.micro": 0}, "batch.micro", "a whole number from 1"),
        ({"batch.micr": 1}, "batch.micr", "Nearest: batch.micro."),
        ({"data.train": "none.jsonl"}, "data.train", "does not exist"),
        ({"launch.processes": 2}, "launch.strategy", "ddp"),
    ],
)
def test_a_wrong_change_is_refused(loaded: LoadedPlan, changes: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(PlanErrors) as caught:
        apply(loaded, changes, "bad")
    (error,) = caught.value.errors
    assert error.file == "variant bad" and error.key == key and words in f"{error.text} {error.advice}"


def test_variants_and_trials_by_name(loaded: LoadedPlan) -> None:
    assert variant(loaded, "ckpt").plan.memory.activation_checkpointing
    half = trial(loaded, "half", seed=1).plan
    assert half.optimizer.lr == 5e-5 and half.seed == 1
    with pytest.raises(PlanError, match="Nearest: ckpt"):
        variant(loaded, "ckp")
    with pytest.raises(PlanError, match="Known: base, half"):
        trial(loaded, "zzz", 0)


def test_differences_name_each_changed_key() -> None:
    a = Plan(options={"x": 1, "y": [1]})
    b = replace(a, model=Model(adapter=Adapter(targets=("q",))), seed=1, options={"x": 2, "y": [1], "z": None, "w": 0})
    found = differences(a, b)
    assert found["seed"] == [0, 1] and found["options.x"] == [1, 2] and found["options.w"] == [None, 0]
    assert found["model.adapter"][0] is None and found["model.adapter"][1]["targets"] == ["q"]
    assert set(found) == {"seed", "options.x", "options.w", "model.adapter"}
    assert differences(a, a) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"batch.micro": 4, "batch.accumulation": 4},
        {"memory.activation_checkpointing": True},
        {"optimizer.implementation": "fused"},
        {"launch.processes": 4, "launch.strategy": "fsdp", "batch.accumulation": 2},
        {"data.max_length": 128},
        {"data.max_length": None},
        {"evaluate.micro": 1, "checkpoint.every": 5, "device": "cpu", "seed": 3, "name": "other"},
    ],
)
def test_changes_that_keep_the_question(loaded: LoadedPlan, changes: dict[str, Any]) -> None:
    assert keeps_question(loaded.plan, apply(loaded, changes, "same").plan) == (True, [])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch.micro": 4}, "effective batch 16 -> 32"),
        ({"launch.processes": 2, "launch.strategy": "ddp"}, "effective batch 16 -> 32"),
        ({"data.max_length": 32}, "data.max_length 64 -> 32"),
        ({"precision": "bf16"}, "precision fp32 -> bf16"),
        ({"model.adapter": {}}, "model.adapter none ->"),
        ({"optimizer.lr": 1e-3}, "optimizer.lr 0.0001 -> 0.001"),
        ({"budget.epochs": 3}, "budget.epochs 2.0 -> 3.0"),
        ({"batch.drop_last": True}, "batch.drop_last false -> true"),
        ({"evaluate.metric": "accuracy"}, "evaluate.metric loss -> accuracy"),
        ({"options.x": 1}, "options.x none -> 1"),
    ],
)
def test_changes_that_make_another_experiment(loaded: LoadedPlan, changes: dict[str, Any], words: str) -> None:
    same, reasons = keeps_question(loaded.plan, apply(loaded, changes, "other").plan)
    assert not same and any(words in reason for reason in reasons)


def test_what_a_comparison_holds(loaded: LoadedPlan) -> None:
    half = trial(loaded, "half", 1).plan
    assert not_held(loaded.plan, half, ("architecture", "data", "effective_batch", "updates")) == {}
    assert not_held(loaded.plan, half, ("lr",)) == {"lr": {"optimizer.lr": [1e-4, 5e-5]}}
    wide = apply(loaded, {"batch.micro": 4, "data.workers": 2}, "wide").plan
    assert not_held(loaded.plan, wide, tuple(HOLDABLE)) == {"effective_batch": {"effective_batch": [16, 32]}}


def test_identity_covers_results_and_nothing_else(loaded: LoadedPlan) -> None:
    revisions = {"data": {"train.jsonl": "abc"}, "torch": "2.13.0"}
    first = identity(to_document(loaded), revisions)
    assert len(first) == 64 and first == plan_identity(loaded.plan, revisions)
    same = {"name": "x", "expected": "y", "rental.memory_margin": 0.2, "keep.checkpoints": 3}
    assert identity(to_document(apply(loaded, same, "same")), revisions) == first
    plan = replace(loaded.plan, model=Model(adapter=Adapter(alpha=16)))
    twin = replace(loaded.plan, model=Model(adapter=Adapter(alpha=16.0)))
    assert plan_identity(plan, revisions) == plan_identity(twin, revisions)
    for change in ({"seed": 5}, {"optimizer.lr": 1e-3}, {"batch.micro": 1}, {"options.x": 1}):
        assert identity(to_document(apply(loaded, change, "other")), revisions) != first
    assert identity(to_document(loaded), {**revisions, "torch": "2.13.1"}) != first


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("model", "yaml pydantic torch textual click"),
        ("batch", "yaml pydantic torch textual click"),
        ("variants", "yaml pydantic torch textual click"),
        ("load", "torch textual click"),
        ("document", "torch textual click"),
    ],
)
def test_what_each_module_brings_along(module: str, absent: str) -> None:
    code = f"import sys, tui_pilot.plan.{module}; sys.exit(any(name in sys.modules for name in {absent.split()}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_demo_can_be_varied() -> None:
    assert apply(default_demo(), {"batch.micro": 2}, "small").plan.batch.micro == 2
