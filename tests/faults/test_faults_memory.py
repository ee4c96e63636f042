"""Out of memory and numbers that are not finite: a result of exactly that phase, with rows, shape and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fault_runs import TINY, finish, plan, prepare, row
from lab import codes, reason_of

from tui_pilot.events.schema import PHASES, PHASES_OF, STAGE_OF

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

LONGEST = ["row-2", "row-5"]
ASKED = {"oom": 2 << 30, "cpu_oom": 1 << 30}

# phase: (method, its n-th call in that stage; 0: each), rows on the device then, part
PLACES: dict[str, tuple[str, int, Any, str | None]] = {
    "overfit": ("loss", 3, ["row-0", "row-3"], "forward"),
    "load": ("build_model", 1, None, None),
    "forward": ("loss", 1, LONGEST, "forward"),
    "backward": ("backward", 1, LONGEST, "backward"),
    "first_step": ("step", 1, ["row-8", "row-11"], "optimizer.step"),
    "steady_step": ("loss", 5, LONGEST, "forward"),
    "evaluate": ("evaluation_loss", 1, ["row-20", "row-23"], "evaluation"),
    "batch": ("step", 2, 2, "optimizer.step"),
    "checkpoint": ("state_dict", 0, None, None),
    "export": ("save_artifact", 1, None, None),
    "resume": ("loss", 2, 2, "forward"),
    "reload": ("predict", 1, 4, None),
}
STATES = ("parameters", "gradients", "optimizer state")
PARAMETERS = 4 * (30 * 32 + 16 * 32 + 32 * 32 + 32 + 30 * 32 + 30)
# What of the training's state stands there at that moment.
HELD: dict[str, set[str]] = {
    **{phase: {"parameters", "optimizer state"} for phase in PLACES},
    **{phase: set(STATES) for phase in ("batch", "resume")},
    **{phase: {"parameters"} for phase in ("forward", "backward", "reload")},
    "first_step": {"parameters", "gradients"},
    "load": set(),
}
assert set(PLACES) == set(PHASES[PHASES.index("overfit") :]), "each phase from overfit to reload"
NEEDS_TRAIN = ("resume", "reload")


def run_with(lab: Lab, phase: str, kind: str) -> Any:
    """Run the phase's stage with the fault in it; returns the row."""
    method, call, _, _ = PLACES[phase]
    stage = STAGE_OF[phase]
    fault = {"stage": stage, "method": method, "do": kind, **({"call": call} if call else {})}
    lab.prepare(plan(fault), {"tiny.py": TINY})
    if phase in NEEDS_TRAIN:
        lab.stage("train")
    state = lab.stage(stage)
    assert lab.code.returncode == 0, lab.code.stderr.decode()
    assert not any(each.running for each in state.rows)
    return state


CASES = [*((phase, "oom") for phase in PLACES), ("overfit", "cpu_oom"), ("backward", "cpu_oom"), ("export", "cpu_oom")]


@pytest.mark.parametrize(("phase", "kind"), CASES)
def test_out_of_memory_is_a_result_of_its_phase(lab: Lab, phase: str, kind: str) -> None:
    state = run_with(lab, phase, kind)
    found = row(state, phase)
    assert found.verdict == "fail" and codes(found) == ["oom"], found.reasons
    oom = reason_of(found, "oom")
    where, text = oom["where"], oom["text"]
    assert where["asked_bytes"] == ASKED[kind] and where["device"] == "cpu" and where["rank"] == 0
    assert isinstance(where["allocated_bytes"], int) and (where["allocated_bytes"] > 0 or phase == "load")
    _, _, rows, part = PLACES[phase]
    if rows is None:
        assert "rows" not in where and "part" not in where, "rows of an earlier phase"
    else:
        assert len(where["rows"]) == rows if isinstance(rows, int) else where["rows"] == rows
        assert where.get("part") == part
        assert f"{where['rows'][0]}" in text
    if isinstance(rows, list) or phase in ("batch", "resume"):
        assert where["dtype"] == "fp32" and where["shape"].startswith("2 x ") and where["shape"] in text
    assert phase in text and ("2.0 GiB" if kind == "oom" else "1.0 GiB") in text
    assert lab.run is not None
    helps = phase not in (
        "load",
        "evaluate",
        "checkpoint",
        "export",
        "reload",
    )  # a smaller microbatch does nothing there
    assert ("batch.accumulation" in oom["advice"]) is helps, oom["advice"]
    assert all(way["set"] and way["changes"] for way in where["variants"])
    held = where["largest"]
    assert {name for name in held if name in STATES} == HELD[phase], held
    assert list(held.values()) == sorted(held.values(), reverse=True)
    assert sum(held.values()) == where["allocated_bytes"], "every byte stands in one category"
    assert held.get("parameters", PARAMETERS) == PARAMETERS
    assert held.get("optimizer state", 2 * PARAMETERS) == 2 * PARAMETERS
    assert "Largest: " + next(iter(held), "") in text or not held
    assert where["snapshot"].startswith("none: a CPU") and not list(lab.run.path.rglob("*.pickle"))
    assert found.memory and found.memory[0]["rank"] == 0, "the counters at that moment"
    assert not list(lab.run.path.rglob("*.part")), "a half-written file is left"
    order = PHASES_OF[STAGE_OF[phase]]
    at = order.index(phase)
    assert all(row(state, each).verdict in ("pass", "warn") for each in order[:at]), "rows above are kept"
    assert all(row(state, each).verdict == "not_run" for each in order[at + 1 :])
    assert all(codes(row(state, each)) == ["needs_model"] for each in order[at + 1 :])


def test_out_of_memory_in_overfit_does_not_stop_the_run(work: Path) -> None:
    text = plan({"stage": "overfit", "method": "loss", "do": "cpu_oom"}, more="")
    text += 'gates: {skip: ["resume", "reload", "batch", "checkpoint", "export", "stack", "examples", "splits"]}\n'
    folder = prepare(work, text)
    state = finish(folder)
    assert codes(row(state, "overfit")) == ["oom"] and row(state, "overfit").verdict == "fail"
    assert {row(state, each).verdict for each in PHASES_OF["peak"]} == {"pass"}
    assert state.state == "failed" and "Out of memory in overfit" in state.text


def test_out_of_memory_in_the_twin_has_its_rows(lab: Lab) -> None:
    """The reference updates after a save belong to the checkpoint phase, and they have a batch."""
    updates = {"stage": "train", "method": "step", "call": 3, "do": "oom"}
    lab.prepare(plan(updates), {"tiny.py": TINY})
    found = row(lab.stage("train"), "checkpoint")
    where = reason_of(found, "oom")["where"]
    assert (
        len(where["rows"]) == 2 and where["part"] == "optimizer.step" and "batch.micro" in where["variants"][0]["set"]
    )
    assert found.parts["first"]["allocated_peak"] > 0 and found.parts["second"]["allocated_peak"] > 0


ONE_ROW = """\
from tiny import Tiny


class Mine(Tiny):
    def loss(self, model, batch):
        total = super().loss(model, batch)
        return total * float("nan") if (batch["input_ids"][:, 1] == 4 + 5).any() else total
"""


def test_row_whose_loss_is_not_finite_is_named(lab: Lab) -> None:
    lab.prepare(plan(task="mine.py:Mine"), {"tiny.py": TINY, "mine.py": ONE_ROW})
    state = lab.stage("peak")
    found = reason_of(row(state, "forward"), "not_finite")
    assert found["where"]["rows"] == ["row-5"] and "nan" in found["text"].lower()
    assert "row-5" in reason_of(row(state, "backward"), "not_finite")["where"]["rows"]
    assert reason_of(row(state, "steady_step"), "not_finite")["where"]["rows"]


def test_loss_that_is_not_finite_fails_overfit_and_says_when(lab: Lab) -> None:
    lab.prepare(plan({"stage": "overfit", "method": "loss", "call": 7, "do": "nan"}), {"tiny.py": TINY})
    found = reason_of(row(lab.stage("overfit"), "overfit"), "not_finite")
    assert found["where"]["update"] == 4 and found["where"]["rows"] == ["row-0", "row-3", "row-6", "row-9"]
    assert "nan" in found["text"]


def test_loss_that_is_not_finite_in_the_timed_updates_is_named(lab: Lab) -> None:
    lab.prepare(plan(task="mine.py:Mine"), {"tiny.py": TINY, "mine.py": ONE_ROW.replace("== 4 + 5", "> 4")})
    state = lab.stage("train")
    found = reason_of(row(state, "batch"), "not_finite")
    assert found["where"]["update"] == 1 and len(found["where"]["rows"]) == 4
    assert row(state, "batch").verdict == "fail"
