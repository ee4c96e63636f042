"""The model of several GPUs, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tui_pilot.predict.sharding import BASIS, Units, shard, units_of

GIB = 1 << 30
#: 8 blocks of 1.5 GiB and 4 GiB beside them, all trained.
UNITS = Units(total=16 * GIB, trainable=16 * GIB, largest=3 * GIB // 2, root=4 * GIB)


def phase(name: str, **held: float) -> dict[str, Any]:
    names = ("parameters", "gradients", "optimizer_state", "activations", "temporary")
    at_peak = {key: int(held.get(key, 0) * GIB) for key in names}
    total = sum(at_peak.values())
    return {"phase": name, "allocated_peak": total, "reserved_peak": total * 5 // 4, "at_peak": at_peak, "parts": {}}


def gib(row: dict[str, Any]) -> dict[str, float]:
    return {key: count / GIB for key, count in row["at_peak"].items() if count}


def one(row: dict[str, Any], strategy: Any = "fsdp", replicas: int = 4, units: Units = UNITS) -> dict[str, Any]:
    (found,) = shard([row], strategy, replicas, units)
    return found


@pytest.mark.parametrize(("strategy", "replicas"), [("none", 4), ("ddp", 1), ("fsdp", 1)])
def test_one_replica_is_the_prediction_itself(strategy: str, replicas: int) -> None:
    row = phase("backward", parameters=16, gradients=16, activations=5)
    found = one(row, strategy, replicas)
    assert found == {**row, "basis": "predicted"}


def test_ddp_keeps_a_copy_of_the_gradients_in_every_phase() -> None:
    assert gib(one(phase("load", parameters=16), "ddp")) == {"parameters": 16, "gradients": 16}
    found = one(phase("backward", parameters=16, gradients=16, activations=5), "ddp")
    assert gib(found) == {"parameters": 16, "gradients": 32, "activations": 5}
    assert found["basis"] == BASIS["ddp"]
    assert found["reserved_peak"] == 53 * GIB * 5 // 4


def test_ddp_of_an_adapter_copies_the_adapters_gradients_alone() -> None:
    units = Units(total=16 * GIB, trainable=GIB // 8, largest=GIB, root=GIB)
    assert gib(one(phase("forward", parameters=16), "ddp", units=units))["gradients"] == 0.125


def test_fsdp_shards_and_gathers() -> None:
    found = one(phase("forward", parameters=16, activations=5))
    assert gib(found) == {"parameters": 4 + 4 + 3, "activations": 5}
    found = one(phase("backward", parameters=16, gradients=16, activations=5, temporary=1))
    assert gib(found) == {"parameters": 11, "gradients": 4 + 3, "activations": 5, "temporary": 1}
    assert found["basis"] == BASIS["fsdp"]


def test_fsdp_load_is_built_whole_and_sharded_block_by_block() -> None:
    assert gib(one(phase("load", parameters=16))) == {"parameters": 16 + 1.5 / 4}


def test_a_backward_with_its_peak_at_its_start_holds_no_gradients() -> None:
    assert gib(one(phase("backward", parameters=16, activations=5))) == {"parameters": 11, "activations": 5}


def test_fsdp_divides_the_step_and_its_temporaries() -> None:
    found = one(phase("first_step", parameters=16, gradients=16, optimizer_state=32, temporary=16))
    assert gib(found) == {"parameters": 8, "gradients": 4, "optimizer_state": 8, "temporary": 4}


def test_parts_are_worked_out_one_by_one_and_the_highest_binds() -> None:
    """On one GPU the step binds by its temporaries; divided by four, they are less than what a backward gathers."""
    row = phase("steady_step", parameters=16, gradients=16, optimizer_state=32, temporary=16)
    backward = phase("", parameters=16, gradients=16, optimizer_state=32, activations=10)
    row["parts"] = {"step": dict(row), "backward": backward}
    found = one(row)
    assert gib(found["parts"]["step"]) == {"parameters": 8, "gradients": 4, "optimizer_state": 8, "temporary": 4}
    assert gib(found) == {"parameters": 11, "gradients": 7, "optimizer_state": 8, "activations": 10}
    assert found["allocated_peak"] == 36 * GIB == found["parts"]["backward"]["allocated_peak"]
    assert gib(one(row, "ddp")) == {"parameters": 16, "gradients": 32, "optimizer_state": 32, "temporary": 16}


def test_the_rest_of_the_first_window_computes() -> None:
    row = phase("first_step", parameters=16, gradients=16, activations=9)
    row["parts"] = {"window": phase("", parameters=16, gradients=16, activations=9)}
    assert gib(one(row)) == {"parameters": 11, "gradients": 4, "activations": 9}


def test_a_save_gathers_the_whole_model() -> None:
    found = one(phase("checkpoint", parameters=16, optimizer_state=32))
    assert gib(found) == {"parameters": 8, "optimizer_state": 8, "temporary": 16}


def test_more_is_never_gathered_than_there_is() -> None:
    """A model of two large blocks: both gathered, and the share."""
    units = Units(total=16 * GIB, trainable=16 * GIB, largest=8 * GIB, root=0)
    assert gib(one(phase("forward", parameters=16), units=units))["parameters"] == 20


def test_reserved_that_a_phase_only_inherits_is_not_scaled_up() -> None:
    """One GPU keeps 100 GiB after a step of 80; a save of 20 still shows them, and needs no more than the step did."""
    step = phase("steady_step", parameters=16, gradients=16, optimizer_state=32, activations=16)
    save = phase("export", parameters=16, optimizer_state=4)
    step["reserved_peak"] = save["reserved_peak"] = 100 * GIB
    shared = shard([step, save], "fsdp", 4, UNITS)
    assert gib(shared[0]) == {"parameters": 11, "gradients": 7, "optimizer_state": 8, "activations": 16}
    assert shared[0]["reserved_peak"] == 42 * GIB * 100 // 80
    assert shared[1]["allocated_peak"] == 25 * GIB
    assert shared[1]["reserved_peak"] == shared[0]["reserved_peak"]


def test_more_replicas_never_need_more() -> None:
    row = phase("backward", parameters=16, gradients=16, activations=5)
    needs = [one(row, replicas=count)["allocated_peak"] for count in (2, 3, 4, 8, 64)]
    assert needs == sorted(needs, reverse=True)


def test_what_was_not_predicted_claims_nothing() -> None:
    row = {"phase": "evaluate", "allocated_peak": None, "reserved_peak": None, "at_peak": None}
    found = one(row)
    assert found["allocated_peak"] is None
    assert found["basis"] == "not predicted"


def test_units_of_a_model() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(10, 4)
            self.blocks = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)])

    model = Model()
    model.embed.weight.requires_grad_(False)
    found = units_of(model)
    assert found.largest == (4 * 8 + 8) * 4
    assert found.root == 10 * 4 * 4
    assert found.total == found.root + (20 + 40 + 36) * 4
    assert found.trainable == found.total - found.root
    alone = units_of(torch.nn.Linear(3, 3))
    assert (alone.largest, alone.root) == (0, 48)
