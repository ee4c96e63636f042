"""Ways out of an out-of-memory: the effective batch stays, and each way says what it changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tui_pilot.events.schema import PHASES
from tui_pilot.gates.ways_out import sentence, ways_out
from tui_pilot.plan.model import Adapter, Batch, Data, Evaluate, Model, Plan


@pytest.mark.parametrize(("micro", "accumulation"), [(8, 4), (3, 7), (2, 8), (7, 1), (6, 5)])
def test_a_smaller_microbatch_keeps_the_effective_batch(micro: int, accumulation: int) -> None:
    first = ways_out(Plan(batch=Batch(micro=micro, accumulation=accumulation)), "forward")[0]
    assert first["same_experiment"] is True
    assert first["set"]["batch.micro"] < micro
    assert first["set"]["batch.micro"] * first["set"]["batch.accumulation"] == micro * accumulation


def test_what_changes_the_question_says_so() -> None:
    plan = Plan(model=Model(path="m"), data=Data(max_length=2048), precision="fp32")
    changed = {next(iter(way["set"])): way["same_experiment"] for way in ways_out(plan, "first_step")}
    assert changed["memory.activation_checkpointing"] is True and changed["optimizer.implementation"] is True
    assert changed["data.max_length"] is False and changed["model.adapter"] is False and changed["precision"] is False
    assert "batch.micro" not in changed  # it is 1 already


def test_each_phase_gets_ways_that_help_there() -> None:
    plan = Plan(
        batch=Batch(micro=4), evaluate=Evaluate(micro=8), precision="bf16", model=Model(path="m", adapter=Adapter())
    )
    assert [way["set"] for way in ways_out(plan, "evaluate")] == [{"evaluate.micro": 4}]
    assert ways_out(Plan(data=Data(max_length=64)), "evaluate")[0]["set"] == {"data.max_length": 32}
    assert ways_out(plan, "load") == [] and sentence([]).startswith("A larger device")
    assert "batch.micro: 2, batch.accumulation: 2 (same experiment)" in sentence(ways_out(plan, "backward"))


def test_what_only_an_update_needs_is_offered_where_one_is_made() -> None:
    plan = Plan(precision="fp32", model=Model(path="m"))
    offered = {phase: [way["set"] for way in ways_out(plan, phase, rows=phase != "checkpoint")] for phase in PHASES}
    fused = {"optimizer.implementation": "fused"}
    stepping = {phase for phase, ways in offered.items() if fused in ways}
    assert stepping == {"overfit", "first_step", "steady_step", "batch", "resume"}
    assert {"precision": "bf16"} in offered["load"], "mixed precision leaves the weights as they are"
    assert {"precision": "bf16-amp"} in offered["forward"]
    assert not any("batch.micro" in way for way in offered["checkpoint"]), "a save has no batch"
    assert {"model.adapter": {"kind": "lora"}} not in offered["reload"], "the artifact is there already"


def test_what_is_foretold_stands_beside_each_way() -> None:
    plan = Plan(batch=Batch(micro=4))

    def predicted(change: Mapping[str, Any]) -> dict[str, Any] | None:
        return {"need_bytes": 7, "fits": True} if "batch.micro" in change else None

    ways = ways_out(plan, "forward", predicted=predicted)
    assert ways[0]["predicted"] == {"need_bytes": 7, "fits": True}
    assert all(way["predicted"] is None for way in ways[1:])
    assert all("predicted" not in way for way in ways_out(plan, "forward"))
