"""What an app shows, cell by cell: the text and its look. From it pictures are drawn and snapshots are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.style import Style
from textual.app import App


@dataclass(frozen=True)
class Look:
    """How a cell is painted: colours as 256-colour numbers or ``#rrggbb``, with reverse not yet applied."""

    color: str
    ground: str
    bold: bool = False
    underline: bool = False
    reverse: bool = False

    def words(self) -> str:
        """For people: ``117 on 234, bold``."""
        extras = [name for name in ("bold", "underline", "reverse") if getattr(self, name)]
        return ", ".join([f"{self.color} on {self.ground}", *extras])


@dataclass(frozen=True)
class Cell:
    """A character with what combines with it; ``wide``: the next cell is its second half and holds ``""``."""

    text: str
    look: Look
    wide: bool = False


Grid = list[list[Cell]]


def grid_of(app: App[Any]) -> Grid:
    """The screen that is on top, every row as long as the screen is wide."""
    rows: Grid = []
    for strip in app.screen._compositor.render_strips():
        row: list[Cell] = []
        for segment in strip:
            if segment.control:
                continue
            look = look_of(segment.style or Style.null())
            for character in segment.text:
                size = cell_len(character)
                if size == 0 and row:
                    before = row[-1] if row[-1].text or len(row) < 2 else row[-2]
                    place = len(row) - (1 if row[-1] is before else 2)
                    row[place] = Cell(before.text + character, before.look, before.wide)
                    continue
                row.append(Cell(character, look, size == 2))
                if size == 2:
                    row.append(Cell("", look))
        rows.append(row)
    return rows


def text_of(grid: Grid) -> str:
    """The screen as plain text, blanks at the ends of lines cut."""
    return "\n".join("".join(cell.text for cell in row).rstrip() for row in grid)


def look_of(style: Style) -> Look:
    """The look of a Rich style."""
    return Look(
        _colour(style.color),
        _colour(style.bgcolor),
        bool(style.bold),
        bool(style.underline),
        bool(style.reverse),
    )


def _colour(colour: Any) -> str:
    if colour is None or colour.is_default:
        return "default"
    return str(colour.number) if colour.number is not None else str(colour.get_truecolor().hex)
