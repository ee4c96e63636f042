"""The whole thing as a person does it: an empty folder, a real terminal, a real run of the demo, every key of it."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
from pty_terminal import Terminal

from tui_pilot.events.schema import PHASES
from tui_pilot.run_folder import RunFolder, all_runs, is_live
from tui_pilot.store.state import RunState
from tui_pilot.store.view import load_state

SLOW = 2400  # turns of 0.2 s: a busy machine trains many times slower than a quiet one


def pilot_tui(work: Path, *words: str, width: int = 120, height: int = 36) -> Terminal:
    return Terminal(["-m", "tui_pilot.cli", *words], width, height, work, OMP_NUM_THREADS="1")


def only_run(work: Path) -> RunFolder:
    (folder,) = all_runs(work / "runs")
    return folder


def state_of(folder: RunFolder) -> RunState:
    return load_state(folder)[0]


def leave(terminal: Terminal) -> None:
    terminal.child.send("q")
    assert terminal.end() == 0
    assert terminal.raw.rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h")


@pytest.mark.timeout(1500)
def test_the_demo_from_an_empty_folder_to_its_sheet(tmp_path: Path) -> None:
    work = tmp_path

    # One command opens the screen and starts the built-in demo.
    first = pilot_tui(work, "run")
    first.until("READY", gone=True)
    first.until("► RUNNING", turns=SLOW)
    first.until("✓ stack       pass", turns=SLOW)
    folder = only_run(work)

    # Leaving ends nothing, and says how to come back.
    leave(first)
    short = folder.id[-4:]
    assert re.search(rb"The pilot goes on: " + short.encode() + rb"(, phase \d+ of 15)?\.", first.raw)
    assert f"Back: pilot-tui attach {short}   Stop: pilot-tui stop {short}".encode() in first.raw
    assert is_live(folder)

    # It is there again; a second screen on it only reads.
    back = pilot_tui(work, "attach", "latest")
    back.until("► RUNNING")
    second = pilot_tui(work, "attach", "latest", width=140)
    second.until(f"READ-ONLY, another screen has the keys (pid {back.child.pid})")
    second.child.send("s")
    second.until("this one reads only")
    second.child.send("n")
    second.until("n: another screen has the keys")

    # A hang-up of the first leaves its terminal clean, the run alive, and the keys to the second.
    back.child.kill(signal.SIGHUP)
    assert back.end() == 0
    assert back.raw.rfind(b"\x1b[?1049l") > back.raw.rfind(b"\x1b[?1049h")
    second.until("READ-ONLY", gone=True)
    second.child.kill(signal.SIGTERM)
    assert second.end() == 0
    assert is_live(folder)

    # It finishes by itself, and the screen shows fifteen verdicts.
    screen = pilot_tui(work, "attach", "latest")
    screen.until("✓ FINISHED", turns=SLOW)
    rows = [line[3:].split() for line in screen.text.splitlines()[3:18]]
    assert [row[0] for row in rows] == list(PHASES)
    assert all(row[1] in ("pass", "warn") for row in rows), screen.text
    assert "15 pass" in screen.text.splitlines()[1]

    # p marks the selected phase, with a note; the mark stands beside the verdict, never in its place.
    screen.child.send("g")
    screen.until(">✓ stack")
    screen.child.send("p")
    screen.until("stack pass, why")
    screen.child.send("seen it\r")
    screen.until("stack: your mark is pass")
    row = state_of(folder).row("stack")
    assert (row.verdict, row.mark, row.note) == ("pass", "pass", "seen it")
    screen.until("pass      p")

    # n notes on the phase, and the mark's own note stays.
    screen.child.send("\x1b")
    screen.until("your mark is pass", gone=True)
    screen.child.send("n")
    screen.until("note on stack")
    screen.child.send("2 cores\r")
    screen.until("the note is kept")
    state = state_of(folder)
    assert state.row("stack").note == "seen it"
    assert [(note["phase"], note["text"]) for note in state.notes] == [("stack", "2 cores")]
    screen.until("note        2 cores")

    # t tests the resume again, in a new process: attempt 2 of the row, the first one kept.
    screen.child.send("\x1b")
    screen.until("the note is kept", gone=True)
    screen.child.send("t")
    screen.until("attempt 2 of resume runs now")
    screen.until("► RUNNING", turns=SLOW)
    screen.until("✓ FINISHED", turns=SLOW)
    row = state_of(folder).row("resume")
    assert (row.attempt, row.verdict, len(row.attempts)) == (2, "pass", 1)
    assert row.inputs["bit_equal"] is True
    screen.child.send("G")
    screen.child.send("k")
    screen.until("resume, pass, attempt 2")

    # e writes the sheet beside the person, with everything above in it.
    screen.child.send("\x1b")
    screen.read(1.0)  # apart from esc: together they would be alt+e
    screen.child.send("e")
    screen.until("fetch it: scp")
    (sheet,) = work.glob("sheet-*.md")
    text = sheet.read_text("utf-8")
    assert "seen it" in text and "stack: 2 cores" in text

    # The operator's own files say the same.
    written = [json.loads(line) for path in folder.events.glob("operator-*.jsonl") for line in path.open()]
    assert [event["kind"] for event in written if event["kind"] in ("mark", "note")] == ["mark", "note"]
    leave(screen)
    assert b"The pilot goes on" not in screen.raw  # nothing goes on
    assert not is_live(folder)
    assert not os.path.exists(folder.control_file)
