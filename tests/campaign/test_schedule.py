"""Packing against brute force, hours against a loop that counts one update at a time, and what is said of both."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui_pilot.campaign import packing, schedule
from tui_pilot.campaign.jobs import Seconds, of_run, parts_of, seconds_of
from tui_pilot.cli import run_command
from tui_pilot.plan.batch import answer, question_of
from tui_pilot.plan.model import (
    Batch,
    Budget,
    Checkpoint,
    Compare,
    Evaluate,
    KeepFor,
    Plan,
    Rental,
    Trial,
    Variant,
    as_json,
)
from tui_pilot.plan.variants import with_set

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
WANTS = st.lists(st.builds(packing.Want, st.integers(1, 3), st.integers(0, 40)), max_size=7)


@settings(max_examples=150, deadline=None)
@given(WANTS, st.integers(0, 80))
def test_no_set_that_fits_is_better_by_priority(wants: list[packing.Want], hours: int) -> None:
    """Of all sets that fit, the rule's is the first in the order of priorities: bit by bit, taken before left out."""
    found = packing.pack(wants, hours)
    places = packing.order(wants)
    fitting = [
        taken
        for taken in itertools.product((True, False), repeat=len(wants))
        if sum(wants[place].hours for place, one in zip(places, taken, strict=True) if one) <= hours
    ]
    assert tuple(place in found.taken for place in places) == max(fitting)
    assert found.unused == hours - sum(wants[place].hours for place in found.taken)
    assert set(found.taken) | set(found.lacks) == set(range(len(wants)))
    for place, lacks in found.lacks.items():
        before = [each for each in found.taken if places.index(each) < places.index(place)]
        assert lacks == wants[place].hours - (hours - sum(wants[each].hours for each in before)) > 0


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 60), st.integers(1, 25), st.integers(1, 25))
def test_the_seconds_of_a_job_are_those_of_a_loop(updates: int, evaluate: int, save: int) -> None:
    known = Seconds(update=2.0, evaluation=5.0, save_first=9.0, save=3.0, export=4.0, load=6.0, setup=7.0)
    plan = Plan(evaluate=Evaluate(every=evaluate), checkpoint=Checkpoint(every=save))
    spent, saved = 7.0 + 6.0, 0
    for update in range(1, updates + 1):
        spent += 2.0
        spent += 5.0 if update % evaluate == 0 or update == updates else 0.0
        if update % save == 0 or update == updates:
            spent, saved = spent + (3.0 if saved else 9.0), saved + 1
    assert sum(parts_of(plan, updates, known).values()) == spent + 4.0


def run(plan: Plan, rows: int = 100, update: float | None = 36.0, id: str = "20261201-190000-a-0001") -> dict[str, Any]:
    timed = {"update": update, "evaluate": 0.0, "save_first": 0.0, "save_second": 0.0, "export": 0.0}
    return {
        "run": id, "kind": "pilot", "name": plan.name, "plan": as_json(plan), "phases": [], "metrics": {},
        "facts": {"examples": {"train_rows": rows}, "sizes": {"seconds": timed}, "resume": {"load_seconds": 18.0}},
    }  # fmt: skip


PLAN = Plan(
    batch=Batch(micro=1, accumulation=2),
    budget=Budget(updates=100),
    checkpoint=Checkpoint(every=10),
    variants=(
        Variant("long", {"budget.updates": 9000}, "", 3),
        Variant("wide", {"batch.accumulation": 4}, "", 2),
        Variant("short", {"budget.updates": 50}, "", 4),
    ),
    compare=Compare(trials=(Trial("base", {}), Trial("half", {"optimizer.lr": 5e-5})), seeds=(0,)),
    rental=Rental(keep_for=KeepFor(4, 2), time_margin=0.15, prices={"H100 80GB": 2.4}),
)


def test_time_is_kept_first_and_what_does_not_fit_says_what_it_lacks() -> None:
    found = schedule.document([(run(PLAN), PLAN)], 3)
    assert found["kept"] == {"evaluation": 4, "export": 2, "margin": 10.8}
    assert found["available"] == pytest.approx(55.2)
    # An update takes 36 s: 100 of them an hour. The trial "base" is the plan itself and is there once.
    assert [(each["id"], each["hours"]) for each in found["packed"]] == [
        ("base", 1.0), ("half", 1.0), ("wide", 2.0), ("short", 0.5),
    ]  # fmt: skip
    assert [(each["id"], each["hours"], each["lacks"]) for each in found["left_out"]] == [("long", 90.0, 38.8)]
    assert found["unused"] == pytest.approx(50.7)
    assert found["prices"] == [{"gpu": "H100 80GB", "an_hour": 2.4, "gpus": 1, "total": 172.8}]
    assert schedule.document([(run(PLAN), PLAN)], 7)["left_out"] == []


def test_what_was_not_measured_is_predicted_from_the_baseline_and_says_so() -> None:
    (base, half, _, wide, _) = of_run(run(PLAN), PLAN)
    assert (base.basis, base.scaled) == ("measured", 1.0)
    assert (half.basis, half.scaled) == ("predicted from baseline", 1.0)
    assert (wide.basis, wide.scaled) == ("predicted from baseline", 2.0)
    said = "\n".join((*schedule.lines(one := schedule.document([(run(PLAN), PLAN)], 3)), *schedule.notes(one)))
    assert "half: ~1.0 h" in said and "~ predicted from baseline: not measured" in said
    assert "long" in said and "lacks 38.8 h" in said


def test_a_run_of_the_variant_is_where_it_was_measured() -> None:
    wide = with_set(PLAN, {"batch.accumulation": 4})
    other = run(wide, update=90.0, id="20261201-200000-a-0002")
    job = next(each for each in of_run(run(PLAN), PLAN, [(other, wide)]) if each.id == "wide")
    assert (job.basis, job.run, job.hours) == ("measured", other["run"], 2.5)


def test_nothing_is_priced_before_an_update_was_measured() -> None:
    found = schedule.document([(run(PLAN, update=None), PLAN)], 3)
    assert found["packed"] == [] and {each["id"] for each in found["unpriced"]} >= {"base", "wide"}
    assert "no update was measured" in found["unpriced"][0]["why"]


def test_what_a_trial_has_trained_is_not_trained_again() -> None:
    show = {**run(PLAN), "kind": "trial", "metrics": {"loss": [[n, 1.0] for n in range(1, 41)]}}
    assert of_run(show, PLAN)[0].updates == 60
    show["metrics"] = {"loss": [[n, 1.0] for n in range(1, 101)]}
    assert "base" not in [job.kind for job in of_run(show, PLAN)]


def test_a_restart_costs_the_measured_resume_and_the_updates_since_the_last_save() -> None:
    found = schedule.document([(run(PLAN), PLAN)], 3, restarts=10)
    assert found["restart"]["each_seconds"] == 18 + 10 * 36
    assert found["kept"]["restarts"] == pytest.approx(10 * 378 / 3600)
    assert found["available"] == pytest.approx(55.2 - 1.05)


def test_a_package_that_keeps_more_than_it_has_leaves_no_hours() -> None:
    plan = Plan(budget=Budget(updates=1), rental=Rental(keep_for=KeepFor(100, 100)))
    found = schedule.document([(run(plan), plan)], 3)
    assert found["available"] == 0 and found["left_out"][0]["lacks"] == pytest.approx(0.01)


def test_the_recorded_demo_through_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["schedule", str(RECORDED / "demo"), "--days", "7"]
    assert run_command([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"days", "hours", "kept", "packed", "left_out"} <= found.keys() and found["hours"] == 168.0
    assert {"id", "run", "priority", "updates", "hours", "basis"} <= found["packed"][0].keys()
    assert run_command(arguments) == 0
    said = capsys.readouterr().out
    assert "7 days: 168.0 hours" in said and "foretell neither" in said


def test_seconds_of_the_recorded_demo_are_all_there() -> None:
    from tui_pilot.run_folder import RunFolder
    from tui_pilot.store.view import snapshot

    show = snapshot(RunFolder(RECORDED / "demo"))
    known = seconds_of(show)
    assert known.missing == [] and known.update and known.resume
    plan_rows = show["facts"]["examples"]["train_rows"]
    assert answer(question_of(Plan(batch=Batch(4, 2), budget=Budget(epochs=1)), plan_rows)).updates
