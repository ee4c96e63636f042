"""Units by rule, and parts held out along them."""

from __future__ import annotations

from typing import Any

import pytest

from tui_pilot.errors import PlanError
from tui_pilot.plan.model import Held, RootUnit, TimeUnit, Unit
from tui_pilot.tasks.units import held_out, parents_of, unit_of


def test_ids_of_every_type_are_one_unit() -> None:
    assert {unit_of("id", {"id": value}) for value in ("7", 7, 7.0, " 7 ")} == {"7"}
    assert unit_of("id", {"id": None}) is unit_of("id", {}) is unit_of("id", {"id": "  "}) is None
    assert unit_of("meta.patient", {"meta": {"patient": 3}}) == "3"


def test_prefix_is_before_the_last_mark() -> None:
    rule = Unit(prefix="_")
    assert [unit_of(rule, {"id": one}) for one in ("g1_0", "g1_-1", "a_b_2", "g3")] == ["g1", "g1", "a_b", "g3"]


def test_regex_takes_its_group() -> None:
    assert unit_of(Unit(field="shape", regex=r"^(\w+) at"), {"shape": "T at 44"}) == "T"
    assert unit_of(Unit(regex="x"), {"id": "none"}) is None
    with pytest.raises(PlanError, match="regular expression"):
        unit_of(Unit(regex="("), {"id": "a"})


def test_chains_have_their_root_across_files_and_never_hang() -> None:
    rule = Unit(root_of=RootUnit("parent_id"))
    train: list[dict[str, Any]] = [{"id": 1, "parent_id": None}, {"id": "2", "parent_id": 1}, {"id": 8, "parent_id": 9}]
    held: list[dict[str, Any]] = [{"id": 3, "parent_id": "2"}, {"id": 9, "parent_id": 8}]
    parents = parents_of(rule, train, held)
    assert [unit_of(rule, row, parents) for row in [*train, *held]] == ["1", "1", "8", "1", "8"]


def test_times_are_intervals_as_wide_as_the_gap() -> None:
    rule = Unit(time=TimeUnit("when", 60))
    assert unit_of(rule, {"when": "10"}) == (10.0, 70.0)
    assert unit_of(rule, {"when": "1970-01-01T00:01:00Z"}) == (60.0, 120.0)
    assert unit_of(rule, {"when": "soon"}) is None


@pytest.mark.parametrize("seed", range(5))
def test_whole_units_are_held_out_and_the_same_ones_each_time(seed: int) -> None:
    units: list[Any] = [f"u{number // 4}" for number in range(100)]
    train, held = held_out(units, Held(0.2, seed))
    assert (train, held) == held_out(units, Held(0.2, seed))
    assert not {units[row] for row in train} & {units[row] for row in held}
    assert sorted(train + held) == list(range(100))
    assert 20 <= len(held) <= 23


def test_one_unit_alone_is_never_taken_from_training() -> None:
    assert held_out(["a"] * 5, Held(0.5)) == ([0, 1, 2, 3, 4], [])
    assert held_out([], Held()) == ([], [])
    assert held_out([None] * 10, Held(0.3))[1] == held_out([None] * 10, Held(0.3))[1]


def test_times_are_split_along_time_with_room_between() -> None:
    units = [(float(number), float(number) + 3) for number in range(10)]
    train, held = held_out(units, Held(0.2))
    assert held == [8, 9]
    assert train == [0, 1, 2, 3, 4, 5]
