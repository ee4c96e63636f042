"""Writes ``tests/ui/snapshots`` anew from the recorded runs: ``python tests/make_snapshots.py [GROUP...]``.

A snapshot is what a terminal shows, as text that a person can read in a diff: a line that says what it is, the
characters, then below a legend one letter for the look of every cell (a blank: plain text, or an empty cell). A lost
colour, a lost reverse and a shifted column all show. ``test_snapshots.py`` compares; look at the diff before it is
committed.
"""

from __future__ import annotations

import asyncio
import string
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from make_screenshots import DEMO, ROOMS, SIZES, Shot, fifth_update, grid, press, resize, session
from screen_grid import Cell, Grid, look_of, text_of

from tui_pilot.run_folder import RunFolder
from tui_pilot.ui.theme import ROLES, Look

SNAPSHOTS = Path(__file__).with_name("ui") / "snapshots"
COMPACT, USUAL, LARGE = SIZES
LETTERS = {
    "text": " ", "dim": "d", "pass": "p", "warn": "w", "fail": "F", "running": "R", "bar": "b", "head": "H",
    "trained": "t", "text+reverse": "#",
}  # fmt: skip
EXTRAS = ("", "+bold", "+underline", "+reverse", "+bold+reverse", "+underline+reverse", "+bold+underline")


def _hostile(folder: RunFolder) -> None:
    sys.path.insert(0, str(Path(__file__).with_name("ui")))
    from hostile import make_hostile

    make_hostile(folder)


def _second_steady_update(event: dict[str, object]) -> bool:
    return event.get("kind") == "progress" and event.get("phase") == "steady_step" and event.get("done") == 2


@dataclass(frozen=True)
class Group:
    """Snapshots of one run, taken from one start of the screen: which rooms at which sizes."""

    name: str
    run: str
    views: tuple[tuple[tuple[int, int], tuple[str, ...]], ...]
    change: Callable[[RunFolder], None] | None = None
    upto: Callable[[dict[str, object]], bool] | None = None

    def names(self) -> list[str]:
        """The files of this group, in the order in which they are taken."""
        return [f"{self.name}-{room}-{w}x{h}" for (w, h), rooms in self.views for room in rooms]


def _views(*rooms: str, usual: Sequence[str] = ()) -> tuple[tuple[tuple[int, int], tuple[str, ...]], ...]:
    """These rooms at all three sizes, and ``usual`` at 120x36 alone."""
    return tuple((size, (*rooms, *(usual if size == USUAL else ()))) for size in SIZES)


GROUPS = (
    Group("finished", DEMO, _views(*ROOMS)),
    Group("live", DEMO, ((USUAL, ("pilot",)),), upto=fifth_update),
    Group("failing", "demo-broken", _views("pilot", usual=("sheet",))),
    Group("two-ranks", "two-ranks", _views("pilot", usual=("memory",))),
    Group("out-of-memory", "out-of-memory", _views("pilot", usual=("memory",))),
    Group("eight-stub-gpus", "eight-stub-gpus", _views("pilot", "memory")),
    Group("eight-live", "eight-stub-gpus", ((COMPACT, ("pilot",)), (USUAL, ("pilot",))), upto=_second_steady_update),
    Group("hostile", "demo-broken", _views("pilot", usual=("examples", "runs")), change=_hostile),
    Group("family", "desk", ((COMPACT, ("runs",)), (USUAL, ("runs",)))),
    Group("comparison", "rates-base", ((COMPACT, ("runs",)), (USUAL, ("runs",)))),
)


def _known_looks() -> dict[object, str]:
    """Names of the looks that roles have in the dark theme; where two roles look alike the first counts."""
    theme = Look("dark")
    found: dict[object, str] = {}
    for extra in EXTRAS:
        for role in ROLES:
            found.setdefault(look_of(theme.style(role + extra)), role + extra)
    return found


def snapshot(title: str, shown: Grid) -> str:
    """The file's text."""
    known, letters = _known_looks(), dict(LETTERS)
    spare = iter(letter for letter in string.ascii_uppercase if letter not in letters.values())
    rows = []
    for row in shown:
        marks = ""
        for cell in row:
            name = known.get(cell.look, cell.look.words())
            if _empty(cell, name):
                marks += " "
                continue
            if name not in letters:
                letters[name] = next(spare)
            marks += letters[name]
        rows.append(marks.rstrip())
    used = set("".join(rows))
    legend = "   ".join(f"{letter} {name}" for name, letter in letters.items() if letter in used and letter != " ")
    return "\n".join([title, "", text_of(shown), "", f"looks: {legend}", "", *rows]) + "\n"


def _empty(cell: Cell, name: str) -> bool:
    """A blank whose colour nobody sees."""
    plain = not (cell.look.reverse or cell.look.underline) and cell.look.ground == _GROUND
    return not cell.text.strip() and bool(cell.text) and plain


_GROUND = look_of(Look("dark").style("text")).ground


async def take(group: Group) -> dict[str, str]:
    """The snapshots of a group by name."""
    found = {}
    (width, height), _ = group.views[0]
    async with session(Shot("", group.run, width, height, upto=group.upto), change=group.change) as (app, pilot):
        for (wide, high), rooms in group.views:
            await resize(app, pilot, wide, high)
            for room in rooms:
                await press(app, pilot, str(ROOMS.index(room) + 1))
                title = f"{group.run}{', ' + group.name if group.name != group.run else ''}: {room}, {wide}x{high}"
                found[f"{group.name}-{room}-{wide}x{high}"] = snapshot(title, await grid(app, pilot))
    return found


def main(arguments: list[str]) -> int:
    wanted = [group for group in GROUPS if not arguments or group.name in arguments]
    SNAPSHOTS.mkdir(exist_ok=True)
    names = {name for group in GROUPS for name in group.names()}
    for old in SNAPSHOTS.glob("*.txt"):
        if old.stem not in names:
            old.unlink()
            print(f"{old.stem}: removed")
    for group in wanted:
        for name, text in asyncio.run(take(group)).items():
            path = SNAPSHOTS / f"{name}.txt"
            if not path.exists() or path.read_text("utf-8") != text:
                path.write_text(text, "utf-8")
                print(f"{name}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
