"""Replays allocations through the rules of torch's CUDA caching allocator: what it would count and reserve.

The rules and constants are those of torch 2.13 with its default settings (``c10/core/AllocatorConfig.h``,
``c10/cuda/CUDACachingAllocator.cpp``): sizes are rounded to 512 bytes; at most 1 MiB goes to the small pool, in
segments of 2 MiB; below 10 MiB a segment of 20 MiB is cut; from 10 MiB on a segment is the size rounded to 2 MiB. The
smallest free block that is large enough is taken, of equal ones the lowest address; what is left of it becomes a free
block unless it is too small to keep. Such an uncut rest counts as allocated, as in ``torch.cuda.memory_allocated``.

Not in it: other streams, ``expandable_segments``, scratch that kernels take outside the allocator. Standard library
only.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from tui_pilot.predict.trace import Trace

MIN_BLOCK = 512
SMALL_LIMIT = 1 << 20
SMALL_SEGMENT = 2 << 20
LARGE_SEGMENT = 20 << 20
WHOLE_SEGMENT_FROM = 10 << 20
ROUND_SEGMENT = 2 << 20

#: A free block's place in its sorted pool: size first, then address, as one number.
_ADDRESS_BITS = 52
_ADDRESS = (1 << _ADDRESS_BITS) - 1


@dataclass
class Peak:
    """Bytes over one part of a phase: highest, and at its end. ``retries``: times the cache was emptied to go on.

    As after ``reset_peak_memory_stats``, a peak begins at what is held when the part begins.
    """

    phase: str
    part: str | None
    allocated_peak: int = 0
    reserved_peak: int = 0
    allocated_after: int = 0
    reserved_after: int = 0
    retries: int = 0


@dataclass
class SimulatedOutOfMemory(Exception):
    """The limit is too small even with an emptied cache; ``peaks`` are those up to here."""

    index: int
    phase: str | None
    part: str | None
    asked: int
    allocated: int
    reserved: int
    limit: int
    peaks: list[Peak] = field(default_factory=list)

    def __post_init__(self) -> None:
        where = " ".join(name for name in (self.phase, self.part) if name) or "before the first phase"
        super().__init__(
            f"{where}: {self.asked:,} bytes asked with {self.allocated:,} allocated and {self.reserved:,} reserved of "
            f"{self.limit:,}"
        )


class LimitReached(Exception):
    """No segment of that size below the limit, with an emptied cache."""


class Block:
    """A piece of a segment; ``before`` and ``after`` are its neighbours there, None at the segment's ends."""

    __slots__ = ("address", "after", "before", "free", "size", "small")

    def __init__(self, address: int, size: int, small: bool) -> None:
        self.address = address
        self.size = size
        self.small = small
        self.free = False
        self.before: Block | None = None
        self.after: Block | None = None


class Allocator:
    """One device, one stream. ``limit``: bytes that segments may take together; None: as many as are asked for."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.allocated = 0
        self.reserved = 0
        self.retries = 0
        self._small: list[int] = []
        self._large: list[int] = []
        self._free: dict[int, Block] = {}
        self._end = ROUND_SEGMENT  # addresses are given out upwards and never twice

    @property
    def free(self) -> int:
        """Bytes in free blocks, counted one by one: with ``allocated`` they must make ``reserved``."""
        return sum(block.size for block in self._free.values())

    def malloc(self, count: int) -> Block:
        """A block for ``count`` bytes; raises LimitReached."""
        size = (count + MIN_BLOCK - 1) // MIN_BLOCK * MIN_BLOCK
        small = size <= SMALL_LIMIT
        pool = self._small if small else self._large
        place = bisect_left(pool, size << _ADDRESS_BITS)
        if place < len(pool):
            block = self._free.pop(pool.pop(place) & _ADDRESS)
            block.free = False
        else:
            block = self._segment(size, small)
        rest = block.size - size
        if rest >= MIN_BLOCK if small else rest > SMALL_LIMIT:
            other = Block(block.address + size, rest, small)
            other.free = True
            other.before = block
            after = other.after = block.after
            if after is not None:
                after.before = other
            block.after = other
            block.size = size
            self._free[other.address] = other
            insort(pool, rest << _ADDRESS_BITS | other.address)
        self.allocated += block.size
        return block

    def release(self, block: Block) -> None:
        """Give a block back; it is joined with free neighbours of its segment."""
        self.allocated -= block.size
        pool = self._small if block.small else self._large
        before, after = block.before, block.after
        if before is not None and before.free:
            self._take(pool, before)
            block.address = before.address
            block.size += before.size
            block.before = before.before
            if block.before is not None:
                block.before.after = block
        if after is not None and after.free:
            self._take(pool, after)
            block.size += after.size
            block.after = after.after
            if block.after is not None:
                block.after.before = block
        block.free = True
        self._free[block.address] = block
        insort(pool, block.size << _ADDRESS_BITS | block.address)

    def empty_cache(self) -> None:
        """Give every segment back in which nothing is allocated."""
        for pool in (self._small, self._large):
            kept = []
            for key in pool:
                block = self._free[key & _ADDRESS]
                if block.before is None and block.after is None:
                    del self._free[block.address]
                    self.reserved -= block.size
                else:
                    kept.append(key)
            pool[:] = kept

    def _take(self, pool: list[int], block: Block) -> None:
        del pool[bisect_left(pool, block.size << _ADDRESS_BITS | block.address)]
        del self._free[block.address]

    def _segment(self, size: int, small: bool) -> Block:
        if small:
            count = SMALL_SEGMENT
        elif size < WHOLE_SEGMENT_FROM:
            count = LARGE_SEGMENT
        else:
            count = (size + ROUND_SEGMENT - 1) // ROUND_SEGMENT * ROUND_SEGMENT
        if self.limit is not None and self.reserved + count > self.limit:
            self.retries += 1
            self.empty_cache()
            if self.reserved + count > self.limit:
                raise LimitReached
        block = Block(self._end, count, small)
        self._end += count
        self.reserved += count
        return block


def simulate(trace: Trace, limit: int | None = None) -> list[Peak]:
    """One entry for each mark, in their order. ``by_phase`` and ``by_part`` join those of the same name.

    Raises SimulatedOutOfMemory where ``limit`` bytes do not hold what is asked, as torch would.
    """
    device = Allocator(limit)
    held: dict[int, Block] = {}
    peaks: list[Peak] = []
    marks = sorted(trace.marks, key=lambda mark: mark.index)
    first = marks[0].index if marks else len(trace.events)
    _replay(trace, 0, first, device, held, Peak("", None), peaks)  # held from then on, reported nowhere
    for number, mark in enumerate(marks, 1):
        end = marks[number].index if number < len(marks) else len(trace.events)
        peaks.append(Peak(mark.phase, mark.part))
        _replay(trace, mark.index, end, device, held, peaks[-1], peaks)
    return peaks


def _replay(
    trace: Trace,
    start: int,
    end: int,
    device: Allocator,
    held: dict[int, Block],
    peak: Peak,
    peaks: list[Peak],
) -> None:
    malloc, release = device.malloc, device.release
    allocated, reserved = device.allocated, device.reserved
    retries = device.retries
    index, asked = start, 0
    try:
        for index, (name, asked) in enumerate(trace.events[start:end], start):
            if asked > 0:
                held[name] = malloc(asked)
                # Comparisons, not max(): no call for each of a million events.
                if device.allocated > allocated:  # noqa: PLR1730
                    allocated = device.allocated
                if device.reserved > reserved:  # noqa: PLR1730
                    reserved = device.reserved
            elif asked < 0:
                block = held.pop(name, None)
                if block is None:
                    raise ValueError(f"event {index}: block {name} is freed and was not allocated")
                release(block)
    except LimitReached:
        _close(peak, device, allocated, reserved, retries)
        raise SimulatedOutOfMemory(
            index, peak.phase or None, peak.part, asked, device.allocated, device.reserved, device.limit or 0, peaks
        ) from None
    _close(peak, device, allocated, reserved, retries)


def _close(peak: Peak, device: Allocator, allocated: int, reserved: int, retries: int) -> None:
    peak.allocated_peak, peak.reserved_peak = allocated, reserved
    peak.allocated_after, peak.reserved_after = device.allocated, device.reserved
    peak.retries += device.retries - retries


def by_phase(peaks: Iterable[Peak]) -> dict[str, Peak]:
    """Whole phases: the highest peaks of their parts, the end of the last one."""
    phases: dict[str, Peak] = {}
    for peak in peaks:
        _join(phases.setdefault(peak.phase, Peak(peak.phase, None)), peak)
    return phases


def by_part(peaks: Iterable[Peak]) -> dict[tuple[str, str | None], Peak]:
    """Parts of phases; one that comes again (a second forward) is one entry."""
    parts: dict[tuple[str, str | None], Peak] = {}
    for peak in peaks:
        _join(parts.setdefault((peak.phase, peak.part), Peak(peak.phase, peak.part)), peak)
    return parts


def _join(whole: Peak, peak: Peak) -> None:
    whole.allocated_peak = max(whole.allocated_peak, peak.allocated_peak)
    whole.reserved_peak = max(whole.reserved_peak, peak.reserved_peak)
    whole.allocated_after, whole.reserved_after = peak.allocated_after, peak.reserved_after
    whole.retries += peak.retries
