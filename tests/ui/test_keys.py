"""Every key of the screen, pressed in a real terminal: what must change on it, or on the disk."""

from __future__ import annotations

import base64
import json
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from lab import until
from pty_terminal import Terminal
from record_run import RECORDED, copy_all
from textual.binding import Binding

from tui_pilot.run_folder import RunFolder, all_runs, is_live
from tui_pilot.store.view import load_state
from tui_pilot.ui.app import PilotApp
from tui_pilot.ui.overlays import Picking, Reading
from tui_pilot.ui.room import Room
from tui_pilot.ui.rooms.batch import BatchRoom
from tui_pilot.ui.rooms.examples import ExamplesRoom
from tui_pilot.ui.rooms.memory import MemoryRoom
from tui_pilot.ui.rooms.pilot import PilotRoom
from tui_pilot.ui.rooms.runs import RunsRoom
from tui_pilot.ui.rooms.sheet import SheetRoom
from tui_pilot.ui.wire import QuietApp

MAIN = Path(__file__).with_name("screen_main.py")
OWNERS = (
    QuietApp, PilotApp, Room, PilotRoom, ExamplesRoom, MemoryRoom, BatchRoom, RunsRoom, SheetRoom, Reading, Picking,
)  # fmt: skip
CHANGED = "changed"  # the room's lines are others than before
STAYS = "stays"  # they are not


@dataclass(frozen=True)
class Press:
    """A key of an owner, and what must then stand on the screen that did not before: a regular expression."""

    owner: str
    key: str
    want: str = CHANGED
    gone: bool = False


def row(phase: str) -> str:
    return rf"(?m)^>. {phase}\b"


def room(number: int, title: str) -> str:
    return rf"\[{number} {title}\]"


PALETTE = "── all actions"
HELP = "── help: "

# In this order, on a finished run of the demo beside others. A key stands once for each owner that binds it.
LOOKING = (
    Press("Room", "g", row("stack")),
    Press("Room", "j", row("examples")),
    Press("Room", "down", row("splits")),
    Press("Room", "k", row("examples")),
    Press("Room", "up", row("stack")),
    Press("Room", "G", row("reload")),
    Press("Room", "home", row("stack")),
    Press("Room", "end", row("reload")),
    Press("Room", "pageup", row("batch")),
    Press("Room", "ctrl+u", row("load")),
    Press("Room", "pagedown", row("batch")),
    Press("Room", "ctrl+d", row("reload")),
    Press("Room", "enter", "── reload: all detail"),
    Press("PilotApp", "escape", "── reload: all detail", gone=True),
    Press("Room", "tab", "── reload: all detail"),
    Press("Room", "z", "── reload: all detail", gone=True),
    Press("PilotApp", "p", "reload pass, why"),
    Press("PilotApp", "escape", "reload pass, why", gone=True),
    Press("PilotApp", "w", "reload warn, why"),
    Press("PilotApp", "escape", "reload warn, why", gone=True),
    Press("PilotApp", "f", "reload fail, why"),
    Press("PilotApp", "escape", "reload fail, why", gone=True),
    Press("PilotApp", "n", "note on reload"),
    Press("PilotApp", "escape", "note on reload", gone=True),
    Press("PilotApp", "slash", r"filter \(enter saves"),
    Press("PilotApp", "escape", "filter .enter saves", gone=True),
    Press("PilotApp", "y", "bytes sent to your terminal"),
    Press("PilotApp", "ctrl+c", "q leaves and the pilot goes on"),
    Press("PilotApp", "s", "s: the run shown is not live"),
    Press("PilotApp", "r", "already finished"),
    Press("PilotApp", "escape", "already finished", gone=True),
    Press("PilotApp", "R", "already finished"),
    Press("PilotApp", "escape", "already finished", gone=True),
    Press("PilotApp", "v", "v: the plan lists no variants"),
    Press("PilotApp", "e", "fetch it: scp"),
    Press("PilotApp", "question_mark", HELP + "Pilot"),
    Press("Reading", "j", r" 2–\d+ of"),
    Press("Reading", "down", r" 3–\d+ of"),
    Press("Reading", "k", r" 2–\d+ of"),
    Press("Reading", "up", r" 1–\d+ of"),
    Press("Reading", "pagedown"),
    Press("Reading", "pageup"),
    Press("Reading", "ctrl+d"),
    Press("Reading", "ctrl+u"),
    Press("Reading", "space"),
    Press("Reading", "home", r" 1–\d+ of"),
    Press("Reading", "end"),
    Press("Reading", "g", r" 1–\d+ of"),
    Press("Reading", "G"),
    Press("Reading", "tab", STAYS),
    Press("Reading", "ctrl+c", STAYS),
    Press("Reading", "escape", HELP, gone=True),
    Press("PilotApp", "question_mark", HELP),
    Press("Reading", "q", HELP, gone=True),
    Press("PilotApp", "question_mark", HELP),
    Press("Reading", "question_mark", HELP, gone=True),
    Press("PilotApp", "question_mark", HELP),
    Press("Reading", "enter", HELP, gone=True),
    Press("PilotApp", "colon", PALETTE),
    Press("Picking", "down", r"(?m)^>\s+R "),
    Press("Picking", "up", r"(?m)^>\s+r "),
    Press("Picking", "ctrl+n", r"(?m)^>\s+R "),
    Press("Picking", "ctrl+p", r"(?m)^>\s+r "),
    Press("Picking", "pagedown"),
    Press("Picking", "pageup"),
    Press("Picking", "tab", STAYS),
    Press("Picking", "ctrl+c", STAYS),
    Press("Picking", "escape", PALETTE, gone=True),
    Press("PilotApp", "ctrl+p", PALETTE),
    Press("", "theme light", r"(?m)^>\s+theme\s+theme light"),
    Press("Picking", "enter", "theme light, kept"),
    Press("QuietApp", "ctrl+l", STAYS),
    Press("PilotApp", "2", room(2, "Examples")),
    Press("PilotApp", "3", room(3, "Memory")),
    Press("PilotApp", "4", room(4, "Batch")),
    Press("PilotApp", "5", room(5, "Runs")),
    Press("PilotApp", "6", room(6, "Sheet")),
    Press("PilotApp", "L", room(1, "Pilot")),
    Press("PilotApp", "H", room(6, "Sheet")),
    Press("PilotApp", "1", room(1, "Pilot")),
    Press("PilotApp", "2", room(2, "Examples")),
    Press("ExamplesRoom", "i"),
    Press("ExamplesRoom", "right_square_bracket"),
    Press("ExamplesRoom", "left_square_bracket"),
    Press("ExamplesRoom", "J"),
    Press("ExamplesRoom", "K"),
    Press("PilotApp", "3", room(3, "Memory")),
    Press("MemoryRoom", "c"),
    Press("PilotApp", "4", room(4, "Batch")),
    Press("", "down", "(?m)^> accumulation"),
    Press("Room", "right", "B try"),
    Press("Room", "left", "B as A"),
    Press("Room", "l", "B try"),
    Press("BatchRoom", "equals_sign", "B as A"),
    Press("Room", "h", "B try"),
    Press("BatchRoom", "space"),
    Press("PilotApp", "6", room(6, "Sheet")),
    Press("", "right", "preview, JSON"),
    Press("SheetRoom", "d", "decide on "),
    Press("Picking", "escape", "decide on ", gone=True),
    Press("PilotApp", "5", room(5, "Runs")),
    Press("RunsRoom", "space"),
    Press("", "j"),
    Press("", "space"),
    Press("RunsRoom", "c"),
)
# On runs of a stand-in for the pilot side; what they do is in the tests below.
ACTING = {("PilotApp", key) for key in ("r", "R", "s", "t", "v", "q", "ctrl+q")} | {
    ("RunsRoom", "t"),
    ("RunsRoom", "v"),
}


def bound(owner: type) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for each in vars(owner).get("BINDINGS", ()):
        assert isinstance(each, Binding)
        found |= {(owner.__name__, key) for key in each.key.split(",")}
    return found


def test_no_key_is_without_a_test() -> None:
    pressed = {(each.owner, each.key) for each in LOOKING if each.owner}
    every = set().union(*(bound(owner) for owner in OWNERS))
    assert every - pressed - ACTING == set()
    assert (pressed | ACTING) - every == set(), "a test of a key that is no longer bound"


def body(text: str) -> str:
    """What a key changes: not the line with the clock, nor what was said and the keys."""
    lines = text.splitlines()
    return "\n".join([*lines[:1], *lines[2:-2]])


def press(terminal: Terminal, each: Press) -> None:
    terminal.settle()
    before = body(terminal.text)
    what = f"{each.owner} {each.key}: {each.want}{' gone' if each.gone else ''}"
    seen: Callable[[str], bool]
    if each.want == CHANGED:
        seen = lambda text: body(text) != before  # noqa: E731
    elif each.want == STAYS:
        seen = lambda text: body(text) == before  # noqa: E731
    else:
        seen = lambda text: bool(re.search(each.want, text)) != each.gone  # noqa: E731
        assert not seen(terminal.text), f"{what}, before the key\n{terminal.text}"
    sent = len(terminal.raw)
    terminal.send(each.key)
    if each.want == STAYS:
        terminal.read(0.3)
    terminal.wait(seen, what, turns=100)
    if each.key == "ctrl+l":
        assert len(terminal.raw) - sent > 2000, "everything is sent again"


def test_every_key_that_looks(tmp_path: Path) -> None:
    copy_all(tmp_path / "runs")
    name = json.loads((RECORDED / "demo" / "run.json").read_text("utf-8"))["run"]
    folder = RunFolder(tmp_path / "runs" / name)
    terminal = Terminal([str(MAIN), "runs", f"runs/{name}"], 120, 30, tmp_path)
    terminal.until("r run again")
    known = {each.id for each in all_runs(tmp_path / "runs")}
    for each in LOOKING:
        press(terminal, each)

    # What y copied went to the terminal whole, and lies beside the run.
    (sent,) = re.findall(rb"\x1b\]52;c;([A-Za-z0-9+/=]*)(?:\x07|\x1b\\)", terminal.raw)
    copied = (folder.path / "copied.txt").read_bytes()
    assert base64.b64decode(sent) == copied and b"reload" in copied
    assert [path.name for path in tmp_path.glob("sheet-*.md")] == ["sheet-demo.md"]

    # No key that looks changed a run, and none that nobody bound did anything.
    terminal.send("4")
    terminal.until("[4 Batch]")
    terminal.settle()
    before = body(terminal.text)
    for key in ("x", "u", "D", "0", "\x1bOP", "\x1b[20~", "ctrl+n", "~"):
        terminal.send(key)
    terminal.read(0.5)
    assert body(terminal.text) == before
    assert {each.id for each in all_runs(tmp_path / "runs")} == known
    assert load_state(folder)[0].notes == load_state(RunFolder(RECORDED / "demo"))[0].notes
    terminal.send("ctrl+q")
    assert terminal.end() == 0


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a plan for the stand-in; what a failed test leaves alive is ended by its pid."""
    import os

    from tui_pilot.run_folder import read_lock

    (tmp_path / "pilot.yaml").write_text(
        "name: mine\ntask: demo\noptions: {fake: {splits: hang}}\n"
        "variants:\n- {id: small, set: {batch.micro: 2}, why: less memory}\n"
    )
    yield tmp_path
    for folder in all_runs(tmp_path / "runs"):
        holder = read_lock(folder.lock_file)
        if holder is not None and holder.alive():
            os.kill(holder.pid, signal.SIGKILL)


def shown(stand: Path, *words: str, width: int = 110, height: int = 30) -> Terminal:
    return Terminal([str(MAIN), "runs", *words, "--fake"], width, height, stand)


def go_on(folder: RunFolder) -> None:
    """Lets a hanging phase of the stand-in pass."""
    (folder.path / "control").mkdir(exist_ok=True)
    (folder.path / "control" / "save_now").touch()


def test_every_key_that_acts(stand: Path) -> None:
    runs = stand / "runs"
    first = shown(stand, "pilot.yaml")
    first.until("READY")

    # r runs the plan; t has nothing to resume yet.
    first.send("r")
    first.until("► RUNNING")
    first.until("► splits")
    (folder,) = all_runs(runs)
    first.send("t")
    first.until("t: no checkpoint yet, it comes in phase 12")

    # A second screen only reads, until the first has left; the run does not notice.
    second = shown(stand, str(folder.path))
    second.until("READ-ONLY")
    second.send("s")
    second.until(f"s: another screen has the keys (pid {first.child.pid})")
    first.send("q")
    assert first.end() == 0 and b"The pilot goes on: " in first.raw
    second.until("the other screen has left: the keys are yours")
    assert "READ-ONLY" not in second.text and "another screen" not in second.text
    assert is_live(folder)

    # s asks, y answers; the rows are kept.
    second.send("s")
    second.until("Its rows are kept.")
    second.wait(lambda text: text.splitlines()[-1].split() == ["y", "yes", "esc", "no", "q", "leave"], "its answers")
    second.read(0.3)
    second.send("y")
    second.until("STOPPED by you")
    assert load_state(folder)[0].row("examples").verdict == "pass"

    # R runs on past fails, as a run of its own.
    second.until("r run again")
    second.send("R")
    other = until(lambda: next((each for each in all_runs(runs) if each != folder), None), "the second run")
    second.until("► RUNNING")
    assert other.read_json(other.run_file)["keep_going"] is True
    go_on(other)
    second.until("FINISHED pass")

    # t tests the resume again, in a new process.
    second.send("t")
    until(lambda: load_state(other)[0].row("resume").attempt == 2, "attempt 2 of resume")
    second.until("FINISHED pass")
    until(lambda: not is_live(other), "its supervisor ended")

    # In Runs t is of the selected run, v of the open one. v lists, enter picks, r runs the picked one.
    second.send("5")
    second.until("2 runs")
    second.send("g")
    second.send("t")
    second.until("no checkpoint")
    second.send("v")
    second.until("v: variants are of the run that is shown")
    second.send("1")
    second.until("[1 Pilot]")
    second.send("v")
    second.until("variants of ")
    second.send("enter")
    second.until("variant small is picked")
    second.until("r run small")
    second.send("r")
    third = until(lambda: next((each for each in all_runs(runs) if each not in (folder, other)), None), "a third run")
    until(third.run_file.exists, "its facts")
    assert third.read_json(third.run_file)["variant"] == "small"
    second.until("► RUNNING")
    go_on(third)
    second.until("FINISHED pass")
    second.send("ctrl+q")
    assert second.end() == 0 and b"The pilot goes on: " not in second.raw


def test_leaving_while_a_run_is_made_says_that_it_goes_on(stand: Path) -> None:
    terminal = shown(stand, "pilot.yaml", "--slow")
    terminal.until("READY")
    terminal.send("r")
    terminal.until("starting: the run folder is made")
    terminal.send("q")
    assert terminal.end() == 0
    assert b"A run was starting and goes on by itself." in terminal.raw
    (folder,) = all_runs(stand / "runs")
    until(lambda: load_state(folder)[0].row("splits").running and is_live(folder), "it goes on")
    go_on(folder)
    until(lambda: load_state(folder)[0].state == "finished", "to its end")
