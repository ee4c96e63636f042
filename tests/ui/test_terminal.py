"""The screen in a real terminal: what the bytes draw, signals, sizes, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import recorded
from pty_terminal import Terminal

from tui_pilot.events import schema
from tui_pilot.events.writer import Writer
from tui_pilot.run_folder import RunFolder, drop_lock
from tui_pilot.ui.terminal import ascii_reason

MAIN = Path(__file__).with_name("screen_main.py")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    folder = recorded.running(tmp_path / "runs")
    yield folder
    drop_lock(folder.lock_file)


def opened(folder: RunFolder, width: int = 120, height: int = 36) -> Terminal:
    terminal = Terminal([str(MAIN), str(folder.path.parent), str(folder.path)], width, height)
    terminal.until("RUNNING")
    terminal.until("steady_step running")
    return terminal


def test_first_frame_rooms_and_leaving(run: RunFolder) -> None:
    terminal = opened(run)
    assert terminal.text.splitlines()[0].startswith("[1 Pilot]  2 Examples   3 Memory   4 Batch   5 Runs   6 Sheet")
    for key, word in (
        ("3", "[3 Memory]"),
        ("5", "[5 Runs]"),
        ("4", "[4 Batch]"),
        ("H", "[3 Memory]"),
        ("1", "[1 Pilot]"),
    ):
        terminal.child.send(key)
        terminal.until(word)
    terminal.child.send("q")
    assert terminal.end() == 0
    assert b"\x1b[?1000h" not in terminal.raw and b"\x1b[?1003h" not in terminal.raw, "the mouse is the terminal's"
    assert b"\x1b[?1049l" in terminal.raw
    assert b"The pilot goes on: 77c1, phase 9 of 15." in terminal.raw
    assert b"Back: pilot-tui attach 77c1   Stop: pilot-tui stop 77c1" in terminal.raw


def test_resize_to_40x10_and_back(run: RunFolder) -> None:
    terminal = opened(run)
    terminal.resize(40, 10)
    terminal.until("GPU memory", gone=True)
    terminal.until(">► steady_step")
    terminal.until("? help  q leave")
    terminal.resize(80, 24)
    terminal.until("gpu of 79.1 GiB")
    terminal.resize(120, 36)
    terminal.until("GPU memory, live")
    terminal.child.send("q")
    assert terminal.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_a_clean_terminal_and_status_0(run: RunFolder, number: signal.Signals) -> None:
    terminal = opened(run)
    terminal.child.kill(number)
    assert terminal.end() == 0
    assert terminal.raw.rstrip().rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h")
    assert b"\x1b[?25h" in terminal.raw
    assert not run.control_file.exists()


def test_a_closed_terminal_ends_the_screen(run: RunFolder) -> None:
    terminal = opened(run)
    terminal.child.close(force=False)
    for _ in range(100):
        if not terminal.child.isalive():
            break
        time.sleep(0.1)
    assert not terminal.child.isalive()
    assert not run.control_file.exists()


def test_hostile_text_reaches_no_terminal_as_a_command(run: RunFolder) -> None:
    hostile = "[/x][INST]\x1b[2J\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\u202e[/INST]"
    writer = Writer(run.events, "data.rank0")
    reason = {"code": "crash", "severity": "fail", "text": hostile, "where": {"row": hostile}, "advice": hostile}
    writer.emit(schema.NOTICE, level="error", text=hostile)
    writer.emit(schema.PHASE_ENDED, phase="steady_step", attempt=1, verdict="fail", duration_s=1, reasons=[reason])
    writer.close()
    terminal = Terminal([str(MAIN), str(run.path.parent), str(run.path)])
    terminal.until("[/x][INST]")
    terminal.until("crash")
    terminal.child.send("\r")
    terminal.until("all detail")
    terminal.child.send("q")
    assert terminal.end() == 0
    for bad in (b"\x1b[2J\x1b]0;owned", b"\x1b]0;owned", b"\x1b]52;c;b3duZWQ", "\u202e".encode()):
        assert bad not in terminal.raw


def test_a_finished_run_is_silent_on_the_wire(tmp_path: Path) -> None:
    folder = recorded.finished_demo(tmp_path / "runs")
    terminal = Terminal([str(MAIN), str(folder.path.parent), str(folder.path)])
    terminal.until("FINISHED warn")
    terminal.read(2.5)
    before = len(terminal.raw)
    terminal.read(4.0)
    assert len(terminal.raw) - before < 400
    terminal.child.send("q")
    assert terminal.end() == 0


def test_ascii_is_chosen_where_glyphs_cannot_be_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ascii_reason({"TERM": "xterm-256color"}) is None
    assert "dumb" in str(ascii_reason({"TERM": "dumb"}))
    assert "PILOT_TUI_ASCII" in str(ascii_reason({"TERM": "xterm", "PILOT_TUI_ASCII": "1"}))
    fake = tmp_path / "tmux"
    fake.write_text("#!/bin/sh\necho 0\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "tmux -u attach" in str(ascii_reason({"TERM": "screen-256color", "TMUX": "/x,1,0"}))


def test_the_sample_file_gives_the_gpus_even_when_it_is_torn(tmp_path: Path) -> None:
    from tui_pilot.ui.gpu_readings import SampleTail

    folder = tmp_path / "samples"
    folder.mkdir()
    file = folder / "devices.jsonl"
    gpu = {"kind": "gpu", "gpu": "GPU-a", "index": 0, "name": "X", "total": 10, "usable": 9, "error": None}
    sample = {"kind": "sample", "gpu": "GPU-a", "used": 5, "util": 1, "power_w": None, "temperature": None}
    line = json.dumps(sample)
    file.write_text(json.dumps(gpu) + "\ngarbage\n" + line + "\n" + line[:20])
    tail = SampleTail(folder)
    tail.poll()
    (view,) = tail.views_and_reset()
    assert (view.name, view.usable, view.used, view.peak) == ("X", 9, 5, 5)
    with file.open("a") as stream:
        stream.write(line[20:].replace('"used": 5', '"used": 7') + "\n" + line.replace('"used": 5', '"used": 4') + "\n")
    tail.poll()
    (view,) = tail.views_and_reset()
    assert (view.used, view.peak) == (4, 7 if '"used"' in line[20:] else 5)


def test_a_live_run_costs_a_slow_link_little(run: RunFolder) -> None:
    terminal = opened(run)
    terminal.read(2.0)
    before = len(terminal.raw)
    writer = Writer(run.events, "peak.rank0")
    for done in range(6):  # what a second of training writes: progress and a part; the clock goes on meanwhile
        writer.emit(
            schema.PROGRESS, phase="steady_step", attempt=1, done=done, total=6, unit="updates", text=f"loss 1.{done}00"
        )
        writer.emit(
            schema.PART, phase="steady_step", attempt=1, part="forward", duration_s=0.1, allocated_peak=done << 30
        )
        terminal.read(1.0)
    writer.close()
    assert 0 < len(terminal.raw) - before < 6 * 2048
    terminal.child.send("q")
    assert terminal.end() == 0
