"""The token view, packing, two settings and the learning rate rules, against brute force over small rows."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui_pilot.cli import run_command
from tui_pilot.errors import PlanError
from tui_pilot.plan.batch import BatchQuestion, answer
from tui_pilot.plan.batch_sides import document, keep, lines, lr_options, other
from tui_pilot.plan.batch_tokens import Row, pack, view

DEMO = str(Path(__file__).resolve().parents[1] / "recorded" / "demo")
ROWS = st.lists(
    st.integers(1, 20).flatmap(lambda length: st.builds(Row, st.just(length), st.integers(0, length))),
    min_size=1, max_size=14,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(ROWS, st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(0, 5))
def test_the_view_is_what_a_loop_counts(
    rows: list[Row], micro: int, accumulation: int, replicas: int, seed: int
) -> None:
    found = view(BatchQuestion(micro, accumulation, len(rows), replicas), rows, seed=seed)
    order = random.Random(seed).sample(rows, len(rows))
    each = -(-len(rows) // replicas)
    streams = [[order[(rank + n * replicas) % len(rows)] for n in range(each)] for rank in range(replicas)]
    totals, sizes, padded, real = [], [], 0, 0
    while any(streams):
        total = size = 0
        for stream in streams:
            for _ in range(accumulation):
                taken = [stream.pop(0) for _ in range(min(micro, len(stream)))]
                total += sum(row.supervised for row in taken)
                size += len(taken)
                real += sum(row.length for row in taken)
                padded += max((row.length for row in taken), default=0) * len(taken)
        totals.append(total)
        sizes.append(size)
    full = [total for total, size in zip(totals, sizes, strict=True) if size == max(sizes)]
    assert (found.updates, found.least, found.most) == (len(totals), min(full), max(full))
    assert found.mean == pytest.approx(sum(full) / len(full))
    assert found.padding_share == pytest.approx(1 - real / padded)
    if replicas == 1:
        assert found.least_possible <= found.least <= found.most <= found.most_possible


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(9, 12))
def test_packing_is_within_its_known_bound_of_the_best(lengths: list[int], capacity: int) -> None:
    """Best fit decreasing takes at most 11/9 of the fewest sequences and one more; brute force tries them all."""
    found = pack(lengths, capacity)
    assert found is not None
    best = next(
        count
        for count in range(1, len(lengths) + 1)
        if any(
            all(sum(n for n, at in zip(lengths, places, strict=True) if at == bin) <= capacity for bin in range(count))
            for places in itertools.product(range(count), repeat=len(lengths))
        )
    )
    assert best <= found.sequences <= math.floor(11 / 9 * best + 6 / 9)
    assert found.padding_share == pytest.approx(1 - sum(lengths) / (found.sequences * capacity))


def test_a_row_that_does_not_fit_is_not_packed() -> None:
    assert pack([5, 9], 8) is None and pack([], 8) is None


@given(st.integers(1, 64), st.integers(1, 64), st.floats(1e-6, 1.0))
def test_learning_rate_rules_are_labelled_and_none_changes_nothing(old: int, new: int, lr: float) -> None:
    none, linear, root = lr_options(lr, old, new)
    assert (none["rule"], none["lr"]) == ("none", lr)
    assert (linear["rule"], root["rule"]) == ("linear", "square root")
    assert linear["lr"] * old == pytest.approx(lr * new)
    assert (root["lr"] / lr) ** 2 == pytest.approx(new / old)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 4), st.integers(1, 8), st.integers(1, 4))
def test_the_accumulation_that_keeps_the_batch(micro: int, accumulation: int, replicas: int, m: int, r: int) -> None:
    a, b = BatchQuestion(micro, accumulation, 100, replicas), BatchQuestion(m, 1, 100, r)
    found = keep(a, b)
    tried = [n for n in range(1, 300) if m * n * r == micro * accumulation * replicas]
    assert found == (tried[0] if tried else None)


def test_two_settings_side_by_side() -> None:
    a = BatchQuestion(2, 8, 3200)
    b = other(a, ["micro=1,accumulation=4", "replicas=8"])
    assert (b.micro, b.accumulation, b.replicas, b.held) == (1, 4, 8, "epochs")
    found = document(a, b, 1e-4)
    assert found["against"]["effective_batch"] == 32 and "updates" in found["differs"]
    assert found["accumulation_that_keeps_the_batch"] == 2
    said = "\n".join(lines(answer(a), answer(b), 1e-4))
    assert "another experiment" in said and "not applied" in said and "linear" in said and "0.0002" in said
    with pytest.raises(PlanError, match="no setting"):
        other(a, ["batch=7"])


def test_a_run_gives_its_own_setting_and_lengths(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["calc", "--run", DEMO, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["effective_batch"] == 8 and found["tokens"]["packing"]["sequences"] > 0
    assert found["tokens"]["possible"]["min"] <= found["tokens"]["supervised_per_update"]["min"]
    assert run_command(["calc", "--run", DEMO, "--against", "accumulation=4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["rule"] for each in found["lr_options"]] == ["none", "linear", "square root"]
    assert found["effective_batch"] == 8 and found["against"]["effective_batch"] == 16
