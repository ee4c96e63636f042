"""README promises nothing that is not there: commands, options, exit codes, phases, keys, links, printed output."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from documents import DOCUMENTS, README, ROOT, blocks, code, inline, links, section, table, text
from textual.binding import Binding

from tui_pilot import errors
from tui_pilot.cli import COMMANDS, cli
from tui_pilot.events.schema import PHASES, STAGE_OF
from tui_pilot.ui.app import PilotApp
from tui_pilot.ui.room import Room
from tui_pilot.ui.rooms.batch import BatchRoom
from tui_pilot.ui.rooms.examples import ExamplesRoom
from tui_pilot.ui.rooms.memory import MemoryRoom
from tui_pilot.ui.rooms.pilot import PilotRoom
from tui_pilot.ui.rooms.runs import RunsRoom
from tui_pilot.ui.rooms.sheet import SheetRoom
from tui_pilot.ui.theme import THEMES
from tui_pilot.ui.wire import QuietApp
from tui_pilot.version import VERSION

TYPED = {name for name in COMMANDS if name != "open"}
FOREIGN_OPTIONS = {"--gpus"}  # a container's, in a message that is quoted
ROOMS: dict[str, type[Room]] = {
    room.title: room for room in (PilotRoom, ExamplesRoom, MemoryRoom, BatchRoom, RunsRoom, SheetRoom)
}
NAMES = {
    "/": "slash", "?": "question_mark", ":": "colon", "[": "left_square_bracket", "]": "right_square_bracket",
    "=": "equals_sign",
}  # fmt: skip


def subcommand(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def options_of(command: click.Command) -> set[str]:
    return {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help", "-h"}


# -- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["pip install '.[pilot]' && pilot-tui run", "pip install '.[pilot,test]' && pytest"])
def test_the_two_commands_stand_on_a_line_of_their_own(line: str) -> None:
    assert line in text().splitlines()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_named_exists(path: Path) -> None:
    named = {word for line in code(text(path)) for word in re.findall(r"\bpilot-tui ([a-z][a-z-]*)(?![\w./])", line)}
    assert named - TYPED == set()


def test_the_command_table_lists_every_command_once() -> None:
    first = [inline(row[0])[0] for row in table("Commands")]
    assert first[0] == "pilot-tui [PLAN or RUN]"
    assert sorted(words.split()[1] for words in first[1:]) == sorted(TYPED)


def test_every_option_named_exists() -> None:
    known = options_of(cli).union(*(options_of(subcommand(name)) for name in COMMANDS))
    named = {option for line in code() for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", line)}
    assert named - known - FOREIGN_OPTIONS == set()


def test_every_option_typed_belongs_to_its_command() -> None:
    for line in code():
        typed = re.search(r"\bpilot-tui ([a-z][a-z-]*)\b(.*)", line)
        if typed:
            given = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", re.sub(r'"[^"]*"', "", typed[2])))
            assert given <= options_of(subcommand(typed[1])), line


def test_what_is_not_there_yet_is_not_there() -> None:
    promised = section("Not there yet").split(".\n", 1)[0]
    assert set(inline(promised)) == {"observe"}
    assert set(inline(promised)) & TYPED == set(), "it is there now: README's tables and its changelog should say so"


def test_the_exit_codes_are_those_of_the_program() -> None:
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert [int(row[0]) for row in table("Exit codes")] == sorted(codes)


def test_the_phases_stand_in_order_with_their_stages() -> None:
    rows = table("The fifteen phases")
    assert [(row[1], row[2]) for row in rows] == [(phase, STAGE_OF[phase]) for phase in PHASES]


def test_the_changelog_begins_with_this_version() -> None:
    assert re.findall(r"^### (\S+)", section("Changelog"), re.MULTILINE)[0] == VERSION


# -- keys -------------------------------------------------------------------------------------------------------------


def bound(source: type[QuietApp] | type[Room]) -> set[str]:
    """Key names that a class itself binds."""
    found: set[str] = set()
    for each in vars(source).get("BINDINGS", ()):
        assert isinstance(each, Binding)
        found.update(each.key.split(","))
    return found


def key_rows() -> list[tuple[list[str], str]]:
    return [([NAMES.get(key, key) for key in inline(row[0])], row[1]) for row in table("Keys")]


def test_every_key_of_the_table_is_bound_where_it_says() -> None:
    everywhere = bound(QuietApp) | bound(PilotApp) | bound(Room)
    for keys, where in key_rows():
        rooms = list(ROOMS.values()) if where == "all rooms" else [ROOMS[name] for name in where.split(", ")]
        for key in keys:
            assert key in everywhere or all(key in bound(room) for room in rooms), f"{key} in {where}"


def test_every_bound_key_is_in_the_table() -> None:
    shown = {key for keys, _ in key_rows() for key in keys}
    all_bound = bound(PilotApp).union(bound(QuietApp), bound(Room), *(bound(room) for room in ROOMS.values()))
    assert all_bound - shown == set()


@pytest.mark.parametrize(
    ("key", "method"),
    [("z", "action_zoom"), ("tab", "action_next_pane"), ("slash", "can_search"), ("p", "selected_phase")],
)
def test_keys_of_some_rooms_are_those_of_the_rooms_that_answer_them(key: str, method: str) -> None:
    where = next(where for keys, where in key_rows() if key in keys)
    answering = {title for title, room in ROOMS.items() if getattr(room, method) is not getattr(Room, method)}
    assert set(where.split(", ")) == answering


def test_the_themes_are_those_there_are() -> None:
    said = re.search(r"Themes: ([^(]+) \(", text())
    assert said is not None
    assert said[1].split(", ") == list(THEMES)


# -- files and output -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(path: Path) -> None:
    for target in links(text(path)):
        if "://" in target or target.startswith("screenshots/"):
            continue
        place, _, anchor = target.partition("#")
        file = path.parent / place if place else path
        assert file.exists(), target
        titles = [
            line.lstrip("#").strip().lower().replace(" ", "-")
            for line in text(file if file.is_file() else README).splitlines()
            if line.startswith("#")
        ]
        assert not anchor or anchor in titles, target


def test_the_screenshots_are_there() -> None:
    named = [target for target in links(text()) if target.startswith("screenshots/")]
    rooms = ("pilot", "examples", "memory", "batch", "runs", "sheet")
    assert named[:6] == [f"screenshots/{room}-120x36.svg" for room in rooms]
    if not list((ROOT / "screenshots").glob("*.svg")):
        pytest.skip("no screenshot was made yet: tests/make_screenshots.py makes them from a recorded run")
    assert [target for target in named if not (ROOT / target).is_file()] == []


def test_the_arithmetic_is_what_calc_prints() -> None:
    shown = next(block for block in blocks("") if block.startswith("$ pilot-tui calc"))
    typed, _, printed = shown.partition("\n")
    done = CliRunner().invoke(subcommand("calc"), typed.split()[3:], standalone_mode=False)
    assert done.stdout == printed


def test_the_plan_of_the_tour_is_what_init_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ROOT / "configs" / "data" / "desk.csv", tmp_path / "letters.csv")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(subcommand("init"), ["--data", "letters.csv"])
    assert done.exit_code == 0, done.output
    written = (tmp_path / "pilot.yaml").read_text("utf-8")
    plan = "".join(line for line in written.splitlines(keepends=True) if not line.startswith("# "))
    shown = "".join(line for line in blocks("yaml")[0].splitlines(keepends=True) if not line.startswith("# "))
    assert plan == shown
