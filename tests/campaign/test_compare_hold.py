"""What trials hold equal, found by what they would really do: secret changes are refused, declared ones labelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_trials import PLAN, TASK

from tui_pilot.campaign import hold
from tui_pilot.campaign.hold import Held
from tui_pilot.errors import PlanError
from tui_pilot.plan import variants
from tui_pilot.plan.load import load


def looked(folder: Path, second: dict[str, Any], secret: str = "", seeds: tuple[int, ...] = (0,)) -> Held:
    """Two trials, the plan as it is and ``second``, probed in this process."""
    pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")
    from tui_pilot.pilot.trial_probe import look

    (folder / "task.py").write_text(TASK, "utf-8")
    plan = folder / "pilot.yaml"
    plan.write_text(PLAN + f"options: {{secret: '{secret}'}}\n", "utf-8")
    loaded = load(plan)
    trials, probes = [], {}
    for seed in seeds:
        for id, changes in (("base", {}), ("other", second)):
            one = variants.apply(loaded, {**changes, "seed": seed}, id).plan
            trials.append((id, seed, one))
            probes[(id, seed)] = look(one, folder, folder / f"{id}-{seed}", seed == 0)
    return hold.verify(loaded.plan, trials, probes)


@pytest.mark.parametrize(
    ("secret", "aspect", "words"),
    [
        ("order", "data order", "9"),
        ("batch", "effective batch", "4 -> 2 rows"),
        ("warmup", "warm-up share", "2 of 12) -> 33.33% (4 of 12)"),
        ("labels", "data", "train rows are encoded otherwise"),
        ("shape", "architecture", "float32 (17, 6)"),
        ("start", "initial weights", "0.bias"),
    ],
)
def test_a_secret_change_is_refused_with_the_difference_named(
    tmp_path: Path, secret: str, aspect: str, words: str
) -> None:
    found = looked(tmp_path, {"optimizer.lr": 0.1}, secret)
    assert [each.aspect for each in found.refused] == [aspect], found.refused
    assert found.not_matched == []
    with pytest.raises(PlanError) as caught:
        hold.refuse(found, "pilot.yaml")
    assert caught.value.code == "not_held" and aspect in str(caught.value) and "other, seed 0" in str(caught.value)
    assert words in str(caught.value) or secret == "order"


def test_another_rate_alone_holds_everything_at_every_seed(tmp_path: Path) -> None:
    found = looked(tmp_path, {"optimizer.lr": 0.1}, seeds=(0, 1))
    assert found.refused == [] and found.not_matched == []
    assert set(found.held) == set(hold.ASPECTS)
    assert "12 updates" in found.held["updates"] and "16.7%, 2 updates" in found.held["warm-up share"]


@pytest.mark.parametrize(
    ("changes", "aspects"),
    [
        ({"batch.accumulation": 4}, {"effective batch"}),
        ({"optimizer.warmup": 4}, {"warm-up share"}),
        ({"budget.updates": 24, "optimizer.warmup": 4}, {"updates"}),
        ({"batch.micro": 1, "batch.accumulation": 4}, set()),
    ],
)
def test_a_declared_change_is_labelled_and_not_refused(
    tmp_path: Path, changes: dict[str, Any], aspects: set[str]
) -> None:
    found = looked(tmp_path, changes)
    assert found.refused == []
    assert {each.aspect for each in found.not_matched} == aspects
    assert all(text.startswith("other: ") for text in hold.labels(found))
    assert not aspects & set(found.held)


def test_what_ran_otherwise_than_it_was_verified_is_found(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")
    probe = {
        "order": {"at": {"1": "aa", "2": "bb"}},
        "windows": [{"rows": 4}, {"rows": 4}],
        "schedule": {"at": {"1": 0.1, "2": 0.2}},
        "weights_digest": "w",
    }
    same = {"order": {"at": {"1": "aa"}}, "windows": [{"rows": 4}], "rates": {"1": 0.1}, "weights": "w"}
    assert hold.afterwards(probe, same) == []
    other = {"order": {"at": {"1": "aa", "2": "cc"}}, "windows": [{"rows": 4}, {"rows": 3}], "weights": "v"}
    said = hold.afterwards(probe, {**other, "rates": {"2": 0.21}})
    assert [each.partition(":")[0] for each in said] == [
        "data order", "effective batch", "initial weights", "learning rate"
    ]  # fmt: skip
