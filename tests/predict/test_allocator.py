"""The caching-allocator simulator: small sequences worked out by hand, limits, and a fuzz test of its bookkeeping."""

from __future__ import annotations

import itertools
import random

import pytest

from tui_pilot.predict.allocator import (
    Allocator,
    Block,
    LimitReached,
    Peak,
    SimulatedOutOfMemory,
    by_part,
    by_phase,
    simulate,
)
from tui_pilot.predict.trace import Mark, Trace

MIB = 1 << 20


def trace(*events: tuple[int, int], marks: tuple[tuple[int, str, str | None], ...] = ((0, "forward", None),)) -> Trace:
    return Trace(list(events), [Mark(*mark) for mark in marks])


def one(*events: tuple[int, int], limit: int | None = None) -> Peak:
    (peak,) = simulate(trace(*events), limit)
    return peak


@pytest.mark.parametrize(
    ("asked", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),  # the rest is over 1 MiB: it is cut off
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # a rest of exactly 1 MiB stays with the block
        (19 * MIB, 20 * MIB, 20 * MIB),
        (100 * MIB, 100 * MIB, 100 * MIB),
    ],
)
def test_one_allocation(asked: int, allocated: int, reserved: int) -> None:
    peak = one((1, asked))
    assert (peak.allocated_peak, peak.reserved_peak) == (allocated, reserved)
    assert (peak.allocated_after, peak.reserved_after) == (allocated, reserved)


def test_nothing_asked_is_nothing_held() -> None:
    assert one((1, 0)) == Peak("forward", None)


def test_a_freed_block_is_used_again_and_stays_reserved() -> None:
    peak = one((1, 30 * MIB), (1, -30 * MIB), (2, 30 * MIB), (2, -30 * MIB))
    assert (peak.allocated_peak, peak.reserved_peak) == (30 * MIB, 30 * MIB)
    assert (peak.allocated_after, peak.reserved_after) == (0, 30 * MIB)


def test_the_smallest_block_that_is_large_enough_is_taken() -> None:
    events = [(1, 40 * MIB), (2, 20 * MIB), (1, -40 * MIB), (2, -20 * MIB), (3, 20 * MIB), (4, 40 * MIB)]
    assert one(*events).reserved_peak == 60 * MIB


def test_a_larger_block_is_cut_and_its_rest_used() -> None:
    peak = one((1, 40 * MIB), (1, -40 * MIB), (2, 15 * MIB), (3, 25 * MIB))
    assert (peak.allocated_peak, peak.reserved_peak) == (40 * MIB, 40 * MIB)


def test_of_equal_blocks_the_lowest_address_is_taken() -> None:
    device = Allocator()
    first, second = device.malloc(16 * MIB), device.malloc(16 * MIB)
    low = min(first.address, second.address)
    device.release(second)
    device.release(first)
    assert device.malloc(16 * MIB).address == low


def test_neighbours_are_joined_on_both_sides() -> None:
    device = Allocator()
    parts = [device.malloc(5 * MIB) for _ in range(4)]
    assert device.reserved == 20 * MIB
    for place in (0, 2, 1, 3):  # the second joins both of its neighbours
        device.release(parts[place])
    assert device.free == 20 * MIB
    assert device.malloc(20 * MIB).size == 20 * MIB
    assert device.reserved == 20 * MIB


def test_small_and_large_never_share_a_segment() -> None:
    peak = one((1, 2 * MIB), (1, -2 * MIB), (2, 512 * 1024))
    assert peak.reserved_peak == 22 * MIB


def test_fragments_make_reserved_larger_than_allocated() -> None:
    """Six blocks of 6 MiB, three in a segment of 20 MiB: the two holes of 6 MiB together do not hold 8 MiB."""
    held = [(number, 6 * MIB) for number in range(6)]
    peak = one(*held, (1, -6 * MIB), (4, -6 * MIB), (9, 8 * MIB))
    assert peak.allocated_after == 32 * MIB
    assert peak.reserved_peak == 60 * MIB


def test_parts_are_reported_apart_and_a_peak_begins_at_what_is_held() -> None:
    peaks = simulate(
        trace(
            (1, 10 * MIB), (2, 30 * MIB), (2, -30 * MIB), (3, 20 * MIB), (4, 50 * MIB), (4, -50 * MIB), (1, -10 * MIB),
            marks=((0, "load", None), (3, "steady_step", "forward"), (4, "steady_step", "step"),
                   (6, "steady_step", "forward")),
        )
    )  # fmt: skip
    assert [(peak.phase, peak.part, peak.allocated_peak // MIB) for peak in peaks] == [
        ("load", None, 40), ("steady_step", "forward", 30), ("steady_step", "step", 80), ("steady_step", "forward", 30)
    ]  # fmt: skip
    seen = {name: (peak.allocated_peak, peak.allocated_after) for name, peak in by_part(peaks).items()}
    assert seen == {
        ("load", None): (40 * MIB, 10 * MIB),
        ("steady_step", "forward"): (30 * MIB, 20 * MIB),
        ("steady_step", "step"): (80 * MIB, 30 * MIB),
    }
    whole = by_phase(peaks)
    assert list(whole) == ["load", "steady_step"]
    assert whole["steady_step"].allocated_peak == 80 * MIB


def test_events_before_the_first_mark_are_held_and_reported_nowhere() -> None:
    (peak,) = simulate(trace((1, 10 * MIB), (2, 10 * MIB), (1, -10 * MIB), marks=((2, "forward", None),)))
    assert (peak.allocated_peak, peak.allocated_after) == (20 * MIB, 10 * MIB)
    assert simulate(trace((1, 10 * MIB), marks=())) == []


def test_a_limit_empties_the_cache_before_it_refuses() -> None:
    events = [(1, 30 * MIB), (2, 20 * MIB), (1, -30 * MIB), (3, 40 * MIB)]
    free = one(*events)
    tight = one(*events, limit=70 * MIB)
    assert (free.reserved_peak, free.retries) == (90 * MIB, 0)
    assert (tight.reserved_peak, tight.reserved_after, tight.retries) == (60 * MIB, 60 * MIB, 1)
    assert tight.allocated_peak == free.allocated_peak


def test_a_segment_in_which_something_lives_is_not_given_back() -> None:
    events = [(1, 5 * MIB), (2, 5 * MIB), (1, -5 * MIB), (3, 30 * MIB)]
    assert one(*events, limit=50 * MIB).reserved_peak == 50 * MIB
    with pytest.raises(SimulatedOutOfMemory) as caught:
        one(*events, limit=50 * MIB - 1)
    error = caught.value
    assert (error.index, error.phase, error.asked) == (3, "forward", 30 * MIB)
    assert (error.allocated, error.reserved) == (5 * MIB, 20 * MIB)
    assert error.peaks[0].allocated_peak == 10 * MIB
    assert error.peaks[0].retries == 1
    assert "forward" in str(error)


def test_a_free_of_what_was_never_allocated_is_an_error() -> None:
    with pytest.raises(ValueError, match="event 1: block 2"):
        one((1, 512), (2, -512))


def sizes(chance: random.Random) -> int:
    kind = chance.random()
    if kind < 0.5:
        return chance.randint(1, MIB)
    return chance.randint(MIB, 12 * MIB) if kind < 0.9 else chance.randint(10 * MIB, 200 * MIB)


@pytest.mark.parametrize("seed", range(10))
def test_fuzz_free_and_allocated_are_reserved(seed: int) -> None:
    chance = random.Random(seed)
    limit = None if seed % 2 else 1500 * MIB
    device = Allocator(limit)
    held: dict[Block, int] = {}
    for number in range(2000):
        if held and chance.random() < (0.5 if len(held) < 200 else 0.8):
            block = chance.choice(list(held))
            device.release(block)
            del held[block]
        else:
            asked = sizes(chance)
            try:
                block = device.malloc(asked)
            except LimitReached:
                continue
            assert block.size >= asked
            held[block] = asked
        if number % 500 == 0:
            device.empty_cache()
        assert device.allocated == sum(block.size for block in held)
        assert device.allocated + device.free == device.reserved
        assert limit is None or device.reserved <= limit
    spans = sorted((block.address, block.address + block.size) for block in held)
    assert all(low[1] <= high[0] for low, high in itertools.pairwise(spans))
    for block in list(held):
        device.release(block)
    assert device.allocated == 0
    assert device.free == device.reserved
    device.empty_cache()
    assert device.reserved == 0
    assert device.free == 0
