"""The largest microbatch: which shapes hold the effective batch, and the search among them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab import pilot_tui

from tui_pilot.predict.catalogue import fits, given
from tui_pilot.predict.largest import Asked, Found, Shape, as_json, largest, shapes

GIB = 1 << 30


def asking(fixed: float, per_row: float, memory: float, seen: list[int], fail_at: int | None = None):  # type: ignore[no-untyped-def]
    """A prediction that grows with the microbatch, in GiB."""

    def ask(shape: Shape) -> Asked:
        seen.append(shape.micro)
        if shape.micro == fail_at:
            return Asked(shape, None, "the task's collate, line 7")
        peak = int((fixed + per_row * shape.micro) * GIB)
        row = {"phase": "backward", "allocated_peak": peak, "reserved_peak": peak}
        return Asked(shape, fits([row], [given(int(memory * GIB))])[0])

    return ask


@pytest.mark.parametrize(
    ("micro", "accumulation", "sizes"),
    [(2, 8, [1, 2, 4, 8, 16]), (1, 1, [1]), (3, 4, [1, 2, 3, 4, 6, 12]), (7, 1, [1, 7])],
)
def test_every_shape_holds_the_rows_of_an_update(micro: int, accumulation: int, sizes: list[int]) -> None:
    found = shapes(micro, accumulation)
    assert [shape.micro for shape in found] == sizes
    assert {shape.micro * shape.accumulation for shape in found} == {micro * accumulation}


@pytest.mark.parametrize("memory", [12, 13.4, 14, 17, 20, 50, 200])
@pytest.mark.parametrize("start", [1, 4, 64])
def test_the_search_finds_what_trying_all_would(memory: float, start: int) -> None:
    among = shapes(64, 1)
    seen: list[int] = []
    ask = asking(10, 1, memory, seen)
    found = largest(among, ask, Shape(start, 64 // start))
    first = seen[0]
    expected = max((shape.micro for shape in among if ask(shape).good), default=None)
    assert (found.best.shape.micro if found.best else None) == expected
    assert first == start
    assert len(found.asked) <= 4
    assert [each.shape.micro for each in found.asked] == sorted(each.shape.micro for each in found.asked)


def test_not_even_one_row_fits() -> None:
    found = largest(shapes(4, 4), asking(10, 1, 5, []))
    assert found.best is None and found.failed is None
    assert 1 in [each.shape.micro for each in found.asked]


def test_everything_fits() -> None:
    found = largest(shapes(4, 4), asking(1, 0.1, 100, []))
    assert found.best is not None and found.best.shape == Shape(16, 1)


def test_the_margin_counts() -> None:
    """9 GiB of 10 leave exactly the floor of 10%; a row more does not."""
    found = largest(shapes(12, 1), asking(5, 1, 10, []))
    assert found.best is not None and found.best.shape.micro == 4
    assert found.best.fit is not None and found.best.fit.margin == pytest.approx(0.1)


def test_what_cannot_be_predicted_ends_the_search_and_says_why() -> None:
    found = largest(shapes(8, 1), asking(1, 1, 100, [], fail_at=2), Shape(2, 4))
    assert found.best is None
    assert found.failed is not None and found.failed.why == "the task's collate, line 7"
    assert as_json(found.failed) == {
        "micro": 2, "accumulation": 4, "fits": False, "need_bytes": None, "margin": None, "binding_phase": None,
        "why": "the task's collate, line 7",
    }  # fmt: skip


def test_an_empty_search_is_no_answer() -> None:
    assert largest([], asking(1, 1, 100, [])) == Found(None, ())


def test_the_whole_way_on_the_demo(tmp_path: Path) -> None:
    """The command, a prediction in a process of its own, and the answer."""
    pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")
    arguments = ["fit", "--usable", "1GiB", "--set", "batch.micro=1", "--set", "batch.accumulation=1", "--json"]
    done = pilot_tui(arguments, tmp_path)
    assert done.returncode == 0, done.stderr
    (gpu,) = json.loads(done.stdout)["gpus"]
    assert gpu["best"]["micro"] == 1 and gpu["best"]["binding_phase"] in ("first_step", "steady_step")
    assert 50 << 20 < gpu["best"]["need_bytes"] < 300 << 20
