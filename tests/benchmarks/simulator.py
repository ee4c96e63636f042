"""How fast the caching-allocator simulator replays events.

    python tests/benchmarks/simulator.py [--events 1000000] [--repeat 3]

Prints one JSON line: events, wall and CPU seconds of each replay, the least wall time, events a second, and the peaks,
which a change of the simulator must not move. The log is made up like a training run's: weights stay, activations are
freed in reverse order after each forward, temporaries live for two events; sizes from 4 bytes to 200 MiB.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tui_pilot.predict.allocator import simulate
from tui_pilot.predict.trace import Mark, Trace

MIB = 1 << 20


def made_up(events: int) -> Trace:
    """A log of that many events: layers' weights, then forward and backward over them again and again."""
    chance = random.Random(0)
    found: list[tuple[int, int]] = []
    marks = [Mark(0, "load", None)]
    name = 0

    def new(size: int) -> tuple[int, int]:
        nonlocal name
        name += 1
        found.append((name, size))
        return name, size

    for _ in range(300):
        new(chance.choice([4096, 32 * 1024, 2 * MIB, 8 * MIB, 32 * MIB]))
    shapes = [chance.choice([4, 1024, 64 * 1024, MIB, 3 * MIB, 16 * MIB, 200 * MIB]) for _ in range(400)]
    while len(found) < events:
        length = chance.choice([0.5, 0.75, 1.0])
        marks.append(Mark(len(found), "steady_step", "forward"))
        kept = []
        for shape in shapes:
            size = max(4, int(shape * length))
            short = new(size)
            kept.append(new(size))
            found.append((short[0], -short[1]))
        marks.append(Mark(len(found), "steady_step", "backward"))
        for block, size in reversed(kept):
            short = new(size)
            found.append((block, -size))
            found.append((short[0], -short[1]))
    return Trace(found[:events], [mark for mark in marks if mark.index < events])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    trace = made_up(arguments.events)
    seconds, busy = [], []
    for _ in range(arguments.repeat):
        started, used = time.perf_counter(), time.process_time()
        peaks = simulate(trace)
        seconds.append(round(time.perf_counter() - started, 3))
        busy.append(round(time.process_time() - used, 3))
    result = {
        "events": len(trace.events),
        "seconds": seconds,
        "least": min(seconds),
        "cpu_seconds": busy,
        "events_per_second": round(len(trace.events) / min(seconds)),
        "allocated_peak": max(peak.allocated_peak for peak in peaks),
        "reserved_peak": max(peak.reserved_peak for peak in peaks),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
