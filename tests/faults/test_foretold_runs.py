"""A run that predicts itself: for the ways out where memory did not suffice, and when it goes wrong.

What it says beside what it measured stands with the whole run, in test_faults_runs.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fault_runs import MEASURED, finish, plan, prepare, row
from lab import reason_of

from tui_pilot.devices.readings import Gpu
from tui_pilot.launch.foretelling import SWITCH, Foretelling
from tui_pilot.plan.model import from_json
from tui_pilot.plan.variants import with_set

GIB = 1 << 30


def foretold(work: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv(SWITCH, "1")
    return prepare(work, text)


def test_ways_out_of_an_out_of_memory_say_what_they_need(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = {"stage": "peak", "method": "loss", "do": "oom", "call": 1}
    folder = foretold(work, plan(fault, only=("peak",)), monkeypatch)
    state = finish(folder)
    assert state.state == "failed"
    ways = reason_of(row(state, "forward"), "oom")["where"]["variants"]
    smaller = next(way for way in ways if "batch.micro" in way["set"])
    assert smaller["same_experiment"] is True
    said = smaller["predicted"]
    # On a CPU nothing is known of how much there is to be had.
    assert said["fits"] is None and said["need_bytes"] > 0 and said["phase"] in MEASURED
    own = json.loads((folder.path / "prediction.json").read_text())["phases"]
    assert said["need_bytes"] < max(each["allocated_peak"] for each in own)


def test_a_prediction_that_dies_leaves_the_run_alone(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = foretold(work, plan(only=("data",)), monkeypatch)
    (folder.code / "tui_pilot" / "pilot" / "predict_stage.py").write_text("import os\nos.abort()\n")
    state = finish(folder)
    assert state.state == "finished" and "predicted" not in state.facts


def weigher(folder: Any, gpus: list[Gpu], monkeypatch: pytest.MonkeyPatch) -> Foretelling:
    run: Mapping[str, Any] = {"kind": "pilot", "python": "python", "python_choice": {"device": "cuda"}}
    monkeypatch.setenv(SWITCH, "1")
    return Foretelling(folder, run, {"folder": os.getcwd(), "plan": {}}, gpus)


def test_on_a_gpu_a_way_out_fits_or_does_not(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = prepare(work, plan())
    large = Gpu(0, "GPU-a", "NVIDIA H100 80GB HBM3", total=80 * GIB, usable=79 * GIB, capability=(9, 0))
    small = Gpu(1, "GPU-b", "NVIDIA L4", total=24 * GIB, usable=22 * GIB, capability=(8, 9))
    teller = weigher(folder, [large, small], monkeypatch)
    assert teller.gpu == small, "the one that runs out first"

    def foretells(reserved: int, missed: list[dict[str, str]] | None = None) -> dict[str, Any]:
        phases = [{"phase": "first_step", "allocated_peak": reserved, "reserved_peak": reserved}]
        return {"phases": phases, "not_predicted": missed or []}

    ways = [{"set": {"batch.micro": count}} for count in (4, 2, 1, 3)]
    missed = [{"phase": "forward", "text": "it reads a value"}]
    made = {"instead": [foretells(40 * GIB), foretells(10 * GIB), foretells(1 * GIB, missed), {}]}
    said = [way["predicted"] for way in teller.weighed(ways, made)]
    assert [each and each["fits"] for each in said] == [False, True, None, None]
    assert said[0] == {"need_bytes": 40 * GIB, "phase": "first_step", "fits": False}
    assert weigher(folder, [], monkeypatch).wanted is False, "of a GPU that nobody sees nothing is foretold"


def test_changes_are_put_at_their_keys_and_the_plan_stays() -> None:
    own = from_json({"batch": {"micro": 4, "accumulation": 2}, "model": {"adapter": None}})
    changed = with_set(own, {"batch.micro": 2, "batch.accumulation": 4, "model.adapter": {"kind": "lora"}})
    assert (changed.batch.micro, changed.batch.accumulation) == (2, 4)
    assert changed.model.adapter is not None and changed.model.adapter.kind == "lora"
    assert own.batch.micro == 4 and own.model.adapter is None
