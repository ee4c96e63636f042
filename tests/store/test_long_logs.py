"""Logs that are long: curves stay bounded and keep their extremes, files are read in pieces in the clock's order."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tui_pilot.events.reader import Reader
from tui_pilot.store.fold import fold, reduce
from tui_pilot.store.points import Points
from tui_pilot.store.state import RunState, bounded

VALUES = st.lists(st.one_of(st.floats(-9, 9), st.just("nan"), st.just(float("nan"))), max_size=200)


@given(VALUES, st.sampled_from([2, 4, 8]))
def test_thinned_points_keep_extremes_order_the_first_and_the_newest(values: list[Any], limit: int) -> None:
    points = list(enumerate(values))
    kept = Points(points, limit=limit)
    assert kept.came == len(points) and len(kept) <= 4 * limit + max(2 * kept.each, 8)
    assert [at for at, _ in kept] == sorted({at for at, _ in kept}) and set(kept) <= set(points)
    assert kept[-3:] == tuple(points[-3:]) and kept[:1] == tuple(points[:1])
    numbers = [value for value in values if isinstance(value, float) and isfinite(value)]
    assert kept.strange == len(values) - len(numbers)
    if numbers:
        shown = [value for _, value in kept if isinstance(value, float) and isfinite(value)]
        assert (min(shown), max(shown)) == (min(numbers), max(numbers))


@given(st.lists(st.booleans(), max_size=40))
def test_points_that_somebody_holds_never_change(again: list[bool]) -> None:
    held = [Points(limit=2), Points()]
    seen = [tuple(each) for each in held]
    for n, from_the_start in enumerate(again):
        for limit in (0, 1):
            before = held[limit if from_the_start else -2 + limit]
            held.append(before.and_then((n, float(n % 7))))
            seen.append(tuple(held[-1]))
    assert [tuple(each) for each in held] == seen
    assert held[1::2][-1] == seen[1::2][-1]


def event(at: int, kind: str = "update", **more: Any) -> bytes:
    body = {"v": 1, "kind": kind, "at": f"2026-12-01T10:{at // 60:02d}:{at % 60:02d}.000Z", "mono": float(at), **more}
    return json.dumps(body).encode() + b"\n"


def test_pieces_come_in_the_order_of_the_clock_and_a_file_keeps_its_own(tmp_path: Path) -> None:
    for source in range(5):
        said = [event(n * 5 + source, update=n, loss=1.0, filler="x" * 300) for n in range(200)]
        said.insert(100, event(3, "note", text="the clock was set back"))
        (tmp_path / f"train.rank{source}.jsonl").write_bytes(b"".join(said))
    reader, pieces, shares = Reader(tmp_path), [], []
    while not pieces or reader.behind:
        pieces.append(reader.poll(1 << 15))
        shares.append(reader.share)
    told = [each for piece in pieces for each in piece]
    assert len(told) == 1005 and len(pieces) > 5 and shares == sorted(shares) and shares[-1] == 1.0
    updates = [each for each in told if each["kind"] == "update"]
    assert [each["mono"] for each in updates] == sorted(each["mono"] for each in updates)
    for source in range(5):
        own = [each for each in told if each["source"] == f"train.rank{source}"]
        assert own[100]["kind"] == "note" and [each["update"] for each in own if "update" in each] == list(range(200))
    with (tmp_path / "train.rank3.jsonl").open("ab") as stream:
        stream.write(event(2000) + b'{"v": 1, "ki')
    assert [each["mono"] for each in reader.poll(1 << 15)] == [2000.0]
    assert not reader.behind and reader.broken == 0


def test_a_fold_of_many_is_the_fold_one_by_one_and_old_states_stay(tmp_path: Path) -> None:
    said = [
        event(0, "run_started", run="r"),
        event(1, "phase_started", phase="batch", attempt=1),
        *(event(2 + n, update=n, loss=1.0 / (n + 1), lr=0.1) for n in range(600)),
        event(700, "live", phase="batch", rank=3, allocated=7, reserved=9),
        event(701, "validation", update=3, metrics={"loss": 1.0}),
        event(702, "phase_ended", phase="batch", attempt=1, verdict="pass"),
    ]
    (tmp_path / "train.rank0.jsonl").write_bytes(b"".join(said))
    events = Reader(tmp_path).poll()
    one_by_one = RunState()
    for each in events:
        one_by_one = reduce(one_by_one, each)
    first = fold(events[:300])
    held = (first.loss[-1], first.feed_count, len(first.feed))
    assert fold(events[300:], first) == one_by_one == fold(events)
    assert (first.loss[-1], first.feed_count, len(first.feed)) == held == ((297, 1 / 298), 300, 300)
    assert len(one_by_one.feed) == 500 and len(one_by_one.loss) == 600
    thin = fold(events * 20, bounded())
    assert len(thin.loss) < 5000 and thin.loss == fold(events * 20, bounded()).loss
