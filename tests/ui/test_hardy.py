"""What a terminal may do to the screen: stall, change its size sixty times, paste anything, lack glyphs or colours."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import recorded
from lab import until
from pty_terminal import Terminal
from record_run import RECORDED, copy_all

from tui_pilot.events import schema
from tui_pilot.events.writer import Writer
from tui_pilot.run_folder import RunFolder, all_runs, drop_lock
from tui_pilot.store.view import load_state

MAIN = Path(__file__).with_name("screen_main.py")
STALL_S = 10.0


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    folder = recorded.running(tmp_path / "runs")
    yield folder
    drop_lock(folder.lock_file)


def opened(folder: RunFolder, width: int = 120, height: int = 36, *words: str, **environment: str) -> Terminal:
    terminal = Terminal(
        [str(MAIN), str(folder.path.parent), str(folder.path), *words], width, height, folder.path.parent.parent,
        **environment,
    )  # fmt: skip
    terminal.until("steady_step running")
    return terminal


def stall(terminal: Terminal) -> None:
    """Fill what lies between the screen and a terminal that nobody reads, until the screen itself must wait."""
    for _ in range(12):
        for key in "25342561":
            terminal.send(key)
            time.sleep(0.02)


def test_a_terminal_that_stalls_loses_nothing(run: RunFolder) -> None:
    terminal = opened(run)
    begun = time.monotonic()
    stall(terminal)
    writer = Writer(run.events, "peak.rank0")
    for number in range(300):
        writer.emit(schema.NOTE, text=f"note {number} while nobody read", by="you")
    writer.emit(
        schema.PHASE_ENDED, phase="steady_step", attempt=1, verdict="pass", duration_s=6.5,
        memory=recorded.cuda(8, 31.6, 33.1, 34.7),
    )  # fmt: skip
    writer.emit(schema.PHASE_STARTED, phase="batch", attempt=1, stage="train")
    writer.close()
    time.sleep(max(0.0, STALL_S / 2 - (time.monotonic() - begun)))
    beat = run.control_file.stat().st_mtime
    time.sleep(max(0.0, STALL_S - (time.monotonic() - begun)))
    assert run.control_file.stat().st_mtime > beat, "the keys are held while the terminal stalls"
    terminal.send("k")  # typed into the stall
    terminal.wait(lambda text: bool(re.search(r"(?m)^>! first_step|^>. first_step", text)), "the key is answered")
    terminal.until("✓ steady_step pass")
    terminal.until("► batch       running")
    terminal.until("note 299 while nobody read")
    terminal.send("slash")
    terminal.until("enter saves")
    terminal.send("note 17 \r")
    terminal.until("note 17 while nobody read")
    assert len(load_state(run)[0].notes) == 300
    terminal.send("ctrl+q")
    assert terminal.end() == 0


def test_sigterm_ends_a_screen_whose_terminal_stalls(run: RunFolder) -> None:
    terminal = opened(run)
    stall(terminal)
    terminal.child.kill(signal.SIGTERM)
    until(lambda: not terminal.child.isalive(), "it ended without a byte read")
    assert not run.control_file.exists()


def test_a_terminal_that_goes_without_a_hang_up_ends_the_screen(run: RunFolder) -> None:
    master, slave = os.openpty()
    argv = [sys.executable, str(MAIN), str(run.path.parent), str(run.path)]
    # A session of its own that never took this terminal as its own: nobody sends it SIGHUP.
    screen = subprocess.Popen(
        argv, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )  # fmt: skip
    try:
        os.close(slave)
        until(lambda: b"steady_step" in os.read(master, 65536), "it paints")
        os.close(master)
        until(lambda: screen.poll() is not None, "it ended")
    finally:
        screen.kill()
    assert not run.control_file.exists()


def test_sixty_sizes_and_the_same_picture_after(run: RunFolder) -> None:
    terminal = opened(run)

    def picture(text: str) -> str:
        """Without what a clock or a live reading changes."""
        rows = [line[:60] for line in text.splitlines()[2:18]]
        return "\n".join(re.sub(r"running +\S+ *", "running ", row) for row in rows)

    terminal.until("GPU memory, live")
    terminal.settle()
    before = picture(terminal.text)
    sizes = [(20, 5), (1, 1), (300, 100), (80, 24), (2, 40), (200, 2), (39, 11), (160, 48), (81, 25), (100, 30)]
    for number in range(60):
        terminal.resize(*sizes[number % len(sizes)])
        terminal.read(0.02)
        if number % 7 == 0:
            terminal.send("L")  # in other rooms too
    for _ in range(3):
        terminal.send("L")
    terminal.resize(120, 36)
    terminal.until("[6 Sheet]") if "[6 Sheet]" in terminal.text else None
    terminal.send("1")
    terminal.until("[1 Pilot]")
    terminal.until("GPU memory, live")
    terminal.wait(lambda text: picture(text) == before, "the same picture")
    terminal.send("q")
    assert terminal.end() == 0 and b"Traceback" not in terminal.raw


GARBAGE = "qqrRsytpwfnve\r\n\x03\x11\x13\x04\x1a\x7f:q\r1\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b2J\u202e\x00/?=c \t" * 1500


def test_a_paste_starts_nothing_and_a_field_takes_it_harmlessly(tmp_path: Path) -> None:
    copy_all(tmp_path / "runs")
    name = json.loads((RECORDED / "desk" / "run.json").read_text("utf-8"))["run"]
    folder = RunFolder(tmp_path / "runs" / name)
    terminal = Terminal([str(MAIN), "runs", f"runs/{name}"], 100, 30, tmp_path)
    terminal.until("r run again")
    known = [each.id for each in all_runs(tmp_path / "runs")]
    feed = load_state(folder)[0].feed_count
    assert len(GARBAGE) > 80_000

    def nothing_was_done() -> None:
        assert [each.id for each in all_runs(tmp_path / "runs")] == known
        assert load_state(folder)[0].feed_count == feed
        assert not list(tmp_path.glob("sheet-*")) and not (folder.path / "copied.txt").exists()

    # A marked paste reaches no key at all.
    terminal.until(">✓ reload")
    terminal.settle()
    before = terminal.text.splitlines()[2:]
    terminal.paste(b"\x1b[200~\xff\xfe\x80" + GARBAGE.encode() + b"\x1b[201~")
    terminal.settle()
    terminal.send("question_mark")
    terminal.until("── help: Pilot")
    terminal.send("escape")
    terminal.wait(lambda text: text.splitlines()[2:] == before, "the picture as it was")
    nothing_was_done()

    # Nor does one that is not marked.
    terminal.paste(b"rsytq\xff\xfe\x80\x1b[<" + b"qrRtsyq" * 400)
    terminal.until("pasted text is taken only where text is typed")
    terminal.settle()
    terminal.read(0.5)
    terminal.send("escape")
    terminal.until("pasted text is taken only", gone=True)
    terminal.read(0.4)  # an escape and a key together would be alt and that key
    assert terminal.child.isalive()
    nothing_was_done()

    # A field takes one line of what was pasted, as text.
    terminal.send("n")
    terminal.until("note on")
    terminal.paste(f"\x1b[200~seen: {GARBAGE}\x1b[201~")
    terminal.until("seen: ")
    terminal.settle()
    terminal.send("enter")
    terminal.until("the note is kept")
    (note,) = (each["text"] for each in load_state(folder)[0].notes if each["text"].startswith("seen: "))
    assert 100 < len(note) <= 2000 and note.isprintable()
    terminal.send("ctrl+q")
    assert terminal.end() == 0
    for bad in (b"\x1b]0;owned", b"\x1b[31m\xc2\x9b", "\u202e".encode()):
        assert bad not in terminal.raw


def rooms(terminal: Terminal) -> dict[str, str]:
    """The screen of each room, of the help and of all actions, without its clock."""
    found = {}
    for key, word in (
        ("2", "[2 Examples]"), ("3", "[3 Memory]"), ("4", "[4 Batch]"), ("5", "No run is live".lower()),
        ("6", "what decides"), ("question_mark", "- help: "), ("escape", "[6 Sheet]"), ("colon", "all actions -"),
        ("escape", "[6 Sheet]"), ("1", "[1 Pilot]"),
    ):  # fmt: skip
        terminal.send(key)
        terminal.wait(lambda text, word=word: word in text.replace("─", "-"), word)
        terminal.settle()
        found[word] = terminal.text
    return found


def test_a_tmux_without_utf8_gets_ascii_in_every_room_and_the_cure(tmp_path: Path) -> None:
    copy_all(tmp_path / "runs")
    name = json.loads((RECORDED / "demo" / "run.json").read_text("utf-8"))["run"]
    fake = tmp_path / "tmux"
    fake.write_text("#!/bin/sh\necho 0\n")
    fake.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    terminal = Terminal(
        [str(MAIN), "runs", f"runs/{name}"], 120, 36, tmp_path, TMUX="/x,1,0", PATH=path, TERM="screen-256color"
    )
    terminal.until("ASCII: this tmux is not UTF-8. Cure: export LANG=C.UTF-8, then tmux -u attach")
    found = rooms(terminal)
    terminal.send("q")
    assert terminal.end() == 0 and terminal.raw.isascii()

    # Without colours nothing is missing: every room says the same, glyph for glyph.
    plain = Terminal([str(MAIN), "runs", f"runs/{name}"], 120, 36, tmp_path, NO_COLOR="1")
    plain.until("r run again")
    same = rooms(plain)
    plain.send("q")
    assert plain.end() == 0
    assert {word: len(text) > 500 for word, text in found.items()} == {word: True for word in same}
    hues = {int(each) for each in re.findall(rb"38;5;(\d+)", plain.raw)} - {*range(232, 256), 0, 7, 8, 15, 16, 231}
    assert hues == set()
