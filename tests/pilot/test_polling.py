"""How often a CPU's counter is read: every millisecond until a short piece of work is known, more rarely then."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")

from tui_pilot.observe.memory import (  # noqa: E402
    POLL_SECONDS,
    RARE_POLL_SECONDS,
    SEEN_OFTEN_ENOUGH,
    SHORT_SECONDS,
    Meter,
    Window,
    joined,
    poll_seconds,
)


def test_short_work_that_was_seen_is_looked_at_more_rarely() -> None:
    short, long = Window(SHORT_SECONDS / 2), Window(SHORT_SECONDS * 2)
    assert poll_seconds([]) == POLL_SECONDS
    assert poll_seconds([short] * (SEEN_OFTEN_ENOUGH - 1)) == POLL_SECONDS
    assert poll_seconds([short] * SEEN_OFTEN_ENOUGH) == RARE_POLL_SECONDS
    assert poll_seconds([short] * SEEN_OFTEN_ENOUGH + [long]) == POLL_SECONDS


def test_rows_say_how_often_they_were_read_and_keep_their_peak() -> None:
    meter = Meter(torch.device("cpu"), 0)
    count = 8_000_000
    windows: list[Window] = []
    for _ in range(SEEN_OFTEN_ENOUGH + 1):
        with meter.window(windows) as window:
            held = torch.empty(count, dtype=torch.uint8)
            time.sleep(0.05)
            del held
        windows.append(window)
    rates = [window.memory["known"]["allocated_peak"]["hz"] for window in windows]
    assert rates == [1000] * SEEN_OFTEN_ENOUGH + [200]
    for window in windows:
        assert window.memory["allocated_peak"] - window.memory["allocated_before"] >= count
        assert window.memory["allocated_after"] == window.memory["allocated_before"]
    row = joined(windows, 0, meter.device, None)
    assert row["known"]["allocated_peak"]["hz"] == 200
