"""What is sent to the terminal: whatever was updated before, the cells are right, and nothing is sent twice."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyte
import pytest
import recorded
from hypothesis import given, settings
from hypothesis import strategies as st
from pty_terminal import Terminal
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from tui_pilot.run_folder import RunFolder, drop_lock
from tui_pilot.ui.wire import Wire, split

MAIN = Path(__file__).with_name("screen_main.py")
WIDTH, HEIGHT = 24, 3
STYLES = (
    Style(color="color(252)", bgcolor="color(234)"),
    Style(color="color(203)", bgcolor="color(234)", bold=True),
    Style(color="color(252)", bgcolor="color(234)", reverse=True),
    Style(color="cyan"),
    Style(),
)
CONSOLE = Console(file=io.StringIO(), force_terminal=True, color_system="256")
SPAN = st.tuples(st.text("ab ▆─│コ…", max_size=9), st.sampled_from(STYLES))


def strip(spans: list[tuple[str, Style]], width: int) -> Strip:
    return Strip([Segment(text, style) for text, style in spans]).adjust_cell_length(width, STYLES[0])


def update(change: tuple[Any, ...]) -> LayoutUpdate | ChopsUpdate:
    """A whole screen, or one line in two pieces of which one or both were made anew."""
    kind, spans, y, cut, which = change
    if kind == "whole":
        return LayoutUpdate([[strip(each, WIDTH)] for each in spans], Region(0, 0, WIDTH, HEIGHT))
    pieces = {0: strip(spans[0], cut), cut: strip(spans[1], WIDTH - cut)}
    shown = {x: piece if which in (x > 0, 2) else None for x, piece in pieces.items()}
    chops: list[Any] = [shown if n == y else {0: None, cut: None} for n in range(HEIGHT)]
    return ChopsUpdate(chops, [(y, 0, WIDTH)], [[cut, WIDTH]] * HEIGHT)


CHANGES = st.tuples(
    st.sampled_from(["whole", "line", "line", "line"]),
    st.lists(st.lists(SPAN, max_size=4), min_size=HEIGHT, max_size=HEIGHT),
    st.integers(0, HEIGHT - 1),
    st.integers(4, 20),
    st.integers(0, 2),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(CHANGES, min_size=1, max_size=6))
def test_the_terminal_shows_what_sending_everything_would_have_shown(changes: list[tuple[Any, ...]]) -> None:
    wire, quiet, loud = Wire(), pyte.Screen(WIDTH, HEIGHT), pyte.Screen(WIDTH, HEIGHT)
    changes = [("whole", [[("", STYLES[0])]] * HEIGHT, 0, 4, 2), *changes]
    for each in map(update, changes):
        pyte.Stream(quiet).feed(wire.quiet(each).render_segments(CONSOLE))
        pyte.Stream(loud).feed(each.render_segments(CONSOLE).replace("\n", ""))
        assert cells(quiet) == cells(loud)
        assert wire.difference(each, CONSOLE) == ""


def cells(screen: pyte.Screen) -> list[list[Any]]:
    """Character, colours and attributes of each cell; half of a wide character that was overwritten is blank."""
    return [[screen.buffer[y][x] for x in range(WIDTH)] for y in range(HEIGHT)]


def test_a_cell_for_each_place_of_a_text() -> None:
    assert split("aコe\u0301") == ("a", "コ", "", "e\u0301")


def test_a_terminal_that_was_forgotten_is_sent_everything_and_a_changed_digit_a_digit() -> None:
    wire = Wire()
    first = LayoutUpdate([[strip([("used 34.7", STYLES[0])], WIDTH)]], Region(0, 0, WIDTH, 1))
    second = LayoutUpdate([[strip([("used 34.8", STYLES[0])], WIDTH)]], Region(0, 0, WIDTH, 1))
    whole = wire.difference(first, CONSOLE)
    assert wire.difference(second, CONSOLE) == "\x1b[1;9H\x1b[38;5;252;48;5;234m8\x1b[0m"
    wire.forget()
    assert len(wire.difference(first, CONSOLE)) == len(whole)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    folder = recorded.running(tmp_path / "runs")
    yield folder
    drop_lock(folder.lock_file)


def test_eight_gpus_whose_memory_moves_cost_a_slow_link_little(run: RunFolder) -> None:
    terminal = Terminal([str(MAIN), str(run.path.parent), str(run.path)], 160, 48)
    terminal.until("steady_step running")
    assert len(terminal.raw) < 40_000
    begin, before = time.monotonic(), len(terminal.raw)
    with (run.samples / "devices.jsonl").open("a") as stream:
        for turn in range(10):
            for n in range(8):
                used = (20 + (turn * 7 + n * 3) % 50) << 30
                said = {"kind": "sample", "gpu": f"GPU-{n}", "mono": 1.0, "time": 1.0, "used": used}
                said |= {"util": 90 + turn, "power_w": 600.0 + turn, "temperature": 50 + turn}
                stream.write(json.dumps(said) + "\n")
            stream.flush()
            terminal.read(0.3)
    # Measured: 2 KB/s. Lines sent whole would be 7 KB/s, and whole screens 40.
    assert 100 < (len(terminal.raw) - before) / (time.monotonic() - begin) < 5_000
    terminal.child.send("\x0c")
    before = len(terminal.raw)
    terminal.read(0.7)
    assert len(terminal.raw) - before > 8_000
    terminal.child.send("q")
    assert terminal.end() == 0
