"""Memory inside a phase: what the live thread says, when it says nothing, and what of the host stands in a row."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")

from tui_pilot.devices import host  # noqa: E402
from tui_pilot.observe import host_memory  # noqa: E402
from tui_pilot.observe.categories import categories  # noqa: E402
from tui_pilot.observe.live import HOST_EVERY, Live, Look, moved  # noqa: E402
from tui_pilot.observe.memory import Meter, joined  # noqa: E402

MIB = 1 << 20


def until(condition: Callable[[], object], what: str) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, what
        time.sleep(0.002)


class Scripted:
    """Counters that a test sets, and what was said of them."""

    def __init__(self) -> None:
        self.value: tuple[int | None, int | None] = (0, None)
        self.looks = 0
        self.said: list[tuple[str, int | None, int | None]] = []
        self.live = Live(self.read, self.say, hz=500)

    def read(self) -> tuple[int | None, int | None]:
        self.looks += 1
        return self.value

    def say(self, phase: str, look: Look) -> None:
        self.said.append((phase, look.allocated, look.reserved))

    def look(self, times: int = 3) -> None:
        goal = self.looks + times
        until(lambda: self.looks >= goal, "the thread stopped looking")


@pytest.mark.parametrize(
    ("last", "now", "said"),
    [
        (None, 0, True),
        (0, 0, False),
        (100 * MIB, 100 * MIB + 512, False),
        (100 * MIB, 102 * MIB, True),  # above 1 MiB and above 1%
        (60 << 30, (60 << 30) + 2 * MIB, True),  # above 1 MiB
        (40_000, 39_000, True),  # above 1%
        (5, None, True),
        (None, None, False),
    ],
)
def test_what_is_worth_a_line(last: int | None, now: int | None, said: bool) -> None:
    assert moved(last, now) is said


def test_lines_come_with_changes_alone_and_none_between_phases() -> None:
    seen = Scripted()
    seen.live.begin("forward")
    seen.look()
    seen.value = (50 * MIB, 60 * MIB)
    seen.look()
    seen.look()
    held = seen.live.end()
    seen.value = (90 * MIB, 90 * MIB)
    assert seen.said == [("forward", 0, None), ("forward", 50 * MIB, 60 * MIB)], "a change is said once"
    assert 1 <= held.readings <= seen.looks // HOST_EVERY + 1 and held.highest["rss_anon_peak"] > 0
    looks = seen.looks
    seen.live.begin("backward")
    until(lambda: len(seen.said) == 3, "the next phase says its first figure")
    seen.live.end()
    assert seen.said[-1] == ("backward", 90 * MIB, 90 * MIB) and looks < seen.looks
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("memory-live") >= 1


def test_a_device_that_fails_ends_no_thread() -> None:
    seen = Scripted()
    seen.live.begin("forward")
    seen.look()
    good, seen.live._read = seen.live._read, lambda: (_ for _ in ()).throw(RuntimeError("device-side assert"))
    time.sleep(0.02)
    seen.live._read = good
    seen.value = (7 * MIB, None)
    seen.look()
    seen.live.end()
    assert seen.said[-1] == ("forward", 7 * MIB, None)


def test_the_highest_since_the_last_look_is_seen_inside_a_window() -> None:
    meter = Meter(torch.device("cpu"), 0)
    with meter.window() as window:
        meter.highest()
        big = torch.zeros(32 * MIB, dtype=torch.uint8)
        until(lambda: (meter._poll._since if meter._poll else 0) >= 32 * MIB, "the poll saw the tensor")
        del big
        first, _ = meter.highest()
        until(lambda: meter.highest()[0] < 32 * MIB, "later looks are of what is held now")
    assert first >= 32 * MIB and window.memory["allocated_peak"] >= first
    assert window.memory["allocated_after"] < first


def test_a_row_has_the_hosts_memory_by_kind_and_its_limit() -> None:
    meter = Meter(torch.device("cpu"), 0)
    ctypes.CDLL(None).malloc_trim(0)  # what earlier tests freed would be taken again, and nothing would grow
    before = host.process_memory().rss_anon or 0
    with meter.window() as window:
        held = torch.ones(48 * MIB, dtype=torch.uint8)
    row = joined([window], 0, meter.device, None)
    assert row["rss_anon_after"] - before > 40 * MIB
    assert row["rss_anon_peak"] >= row["rss_anon_after"] and row["rss_file_peak"] > 0
    assert row["known"]["rss_anon_peak"]["bound"] == "lower"
    limit, source = host.memory_limit()
    assert row["host_limit"] == limit and row["known"]["host_limit"]["source"] == source
    assert row["pinned_peak"] is None and "no accelerator" in row["known"]["pinned_peak"]["why"]
    host_memory.with_samples(row, {"rss_anon_peak": 1 << 50, "rss_file_peak": 1}, 12, 10.0)
    assert row["rss_anon_peak"] == 1 << 50 and row["rss_file_peak"] > 1
    assert row["known"]["rss_anon_peak"]["readings"] == 14 and row["known"]["rss_anon_peak"]["hz"] == 10.0
    assert len(held) == 48 * MIB


def test_every_tensor_stands_in_one_category() -> None:
    device = torch.device("cpu")
    before = categories(device, None)
    model = torch.nn.Linear(256, 256, bias=False)
    tied = torch.nn.Linear(256, 256, bias=False)
    tied.weight = model.weight  # one storage, counted once
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 256)).sum().backward()
    optimizer.step()
    found = categories(device, None)
    size = 4 * 256 * 256
    for name in ("parameters", "gradients", "optimizer state"):
        assert found.get(name, 0) - before.get(name, 0) == size, name
    assert list(found.values()) == sorted(found.values(), reverse=True)
    whole = categories(device, sum(found.values()) + 1000)
    assert whole["activations and temporaries"] == 1000
