"""Ways out of an out-of-memory: the effective batch stays, and each way says what it changes."""

from __future__ import annotations

import pytest

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
    assert ways_out(plan, "load") == [] and sentence([]).startswith("A larger device")
    assert "batch.micro: 2, batch.accumulation: 2 (same experiment)" in sentence(ways_out(plan, "backward"))
