"""What seeds can say: held against plain arithmetic, and the rule's edges."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_pilot.campaign import stats
from tui_pilot.campaign.trials import check_direction, known_direction
from tui_pilot.errors import PlanError
from tui_pilot.plan.model import Evaluate, Plan

VALUE = st.floats(-100, 100, allow_nan=False).map(lambda value: round(value, 4))
SIDE = st.dictionaries(st.integers(0, 12), VALUE, max_size=9)
DIRECTION = st.sampled_from(["min", "max"])


@given(SIDE, SIDE, DIRECTION)
def test_told_apart_is_the_rule_and_nothing_else(one: dict[int, float], other: dict[int, float], way: str) -> None:
    pair = stats.paired(one, other, way, "x")
    shared = sorted(set(one) & set(other))
    listed = [one[seed] - other[seed] for seed in shared]
    assert list(pair.differences) == shared and list(pair.differences.values()) == listed
    expected = False
    if len(listed) >= 3:
        mean, error = math.fsum(listed) / len(listed), statistics.stdev(listed) / math.sqrt(len(listed))
        one_sign = len({value > 0 for value in listed}) == 1 and 0 not in listed
        expected = one_sign and abs(mean) > 2 * error
    assert pair.told_apart is expected
    assert (pair.better is None) is (not pair.told_apart)


@given(SIDE, SIDE, DIRECTION)
def test_turned_round_it_says_the_opposite(one: dict[int, float], other: dict[int, float], way: str) -> None:
    there, back = stats.paired(one, other, way), stats.paired(other, one, way)
    assert there.told_apart is back.told_apart
    assert there.better is (None if back.better is None else not back.better)
    flipped = stats.paired(one, other, "max" if way == "min" else "min")
    assert flipped.told_apart is there.told_apart
    assert flipped.better is (None if there.better is None else not there.better)


@given(VALUE, VALUE, DIRECTION)
def test_one_seed_is_never_told_apart(one: float, other: float, way: str) -> None:
    pair = stats.paired({0: one}, {0: other}, way)
    assert not pair.told_apart and pair.standard_error is None and stats.seeds_wanted(pair) == 3


def test_the_edges_of_the_rule() -> None:
    base = {0: 1.0, 1: 2.0, 2: 3.0}
    lower = stats.paired({0: 0.9, 1: 1.89, 2: 2.91}, base, "min")
    assert lower.told_apart and lower.better is True
    assert stats.paired({0: 0.9, 1: 1.89, 2: 2.91}, base, "max").better is False
    two = stats.paired({0: 0.9, 1: 1.9}, base, "min")
    assert not two.told_apart and "3 are needed" in two.why
    crossing = stats.paired({0: 0.9, 1: 1.9, 2: 3.01}, base, "min")
    assert not crossing.told_apart and "sign" in crossing.why
    wide = stats.paired({0: 0.99, 1: 1.99, 2: 2.0}, base, "min")
    assert not wide.told_apart and "standard errors" in wide.why
    assert not stats.paired(base, base, "min").told_apart
    assert stats.paired({5: 1.0}, base, "min").differences == {}


@given(st.lists(VALUE, min_size=3, max_size=6))
def test_seeds_to_add_are_more_than_there_are_and_would_do_at_this_spread(listed: list[float]) -> None:
    pair = stats.paired(dict(enumerate(listed)), dict.fromkeys(range(len(listed)), 0.0), "min")
    wanted = stats.seeds_wanted(pair)
    if pair.told_apart or wanted is None:
        return
    assert len(listed) < wanted <= stats.MOST_SEEDS
    deviation = statistics.stdev(listed)
    assert abs(pair.mean or 0.0) > 2 * deviation / math.sqrt(wanted) or math.isclose(
        abs(pair.mean or 0.0), 2 * deviation / math.sqrt(wanted)
    )


@given(st.lists(st.integers(0, 50), unique=True, max_size=8), st.integers(0, 20))
def test_new_seeds_are_new_and_as_many_as_are_missing(seeds: list[int], wanted: int) -> None:
    added = stats.new_seeds(seeds, wanted)
    assert not set(added) & set(seeds) and len(set(added)) == len(added) == max(0, wanted - len(seeds))


@given(st.lists(st.tuples(st.integers(0, 99), st.floats()), max_size=9), DIRECTION)
def test_the_best_point_is_the_best_finite_one(points: list[tuple[int, float]], way: str) -> None:
    best = stats.best_of(points, way)
    finite = [value for _, value in points if math.isfinite(value)]
    assert (best[1] if best else None) == ((min if way == "min" else max)(finite) if finite else None)


@pytest.mark.parametrize(
    ("metric", "way"),
    [("loss", "min"), ("eval_loss", "min"), ("word_error", "min"), ("accuracy", "max"), ("exact_match", "max"),
     ("macro_f1", "max"), ("rougeL", "max"), ("my_own", None)],
)  # fmt: skip
def test_the_direction_of_a_known_metric_is_checked(metric: str, way: str | None) -> None:
    assert known_direction(metric) == way
    for given_way in ("min", "max"):
        plan = Plan(evaluate=Evaluate(metric=metric, direction=given_way))  # type: ignore[arg-type]
        if way in (None, given_way):
            check_direction(plan)
        else:
            with pytest.raises(PlanError) as caught:
                check_direction(plan)
            assert caught.value.key == "evaluate.direction" and way in caught.value.advice
