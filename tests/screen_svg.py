"""A screen as SVG on an exact grid: every cell is 12 x 24, whatever font the reader has.

Words are placed one by one at their own cell, so that a font with another advance, or a viewer that knows no
``textLength``, shifts nothing. Block and line glyphs are drawn as shapes that fill their cells, as terminals do: a
column of full blocks has no seams.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from itertools import groupby

from rich.color import Color
from screen_grid import Cell, Grid, Look

WIDE, HIGH, SIZE, BASE, PAD = 12, 24, 20, 18, 12
FONT = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
DEFAULT = {"color": "#d0d0d0", "ground": "#1c1c1c"}
BLOCKS = {character: eighths for eighths, character in enumerate("▁▂▃▄▅▆▇█", 1)}
# Lines from the middle of a cell to its edges: up, down, left, right.
JOINTS = {
    "─": "lr", "│": "ud", "┌": "dr", "┐": "dl", "└": "ur", "┘": "ul", "├": "udr", "┤": "udl", "┬": "dlr", "┴": "ulr",
    "┼": "udlr", "┃": "ud", "━": "lr", "╌": "lr", "┊": "ud",
}  # fmt: skip
HEAVY, DASHED = "┃━", "╌┊"


def svg(grid: Grid, title: str = "pilot-tui") -> str:
    """The picture; the same grid gives the same bytes."""
    columns, rows = max(len(row) for row in grid), len(grid)
    width, height = columns * WIDE + 2 * PAD, rows * HIGH + 2 * PAD
    classes: dict[tuple[str, bool], str] = {}
    ground = _ground(grid[0][0].look)
    out: list[str] = []
    for y, row in enumerate(grid):
        out += _grounds(row, y, ground)
        out += _shapes(row, y)
        out += _texts(row, y, classes)
    styles = [
        f".{name}{{fill:{colour}{';font-weight:bold' if bold else ''}}}" for (colour, bold), name in classes.items()
    ]
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{html.escape(title)}</title>",
        f"<style>text{{font-family:{FONT};font-size:{SIZE}px;white-space:pre}}{''.join(styles)}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{ground}"/>',
        f'<g transform="translate({PAD} {PAD})" shape-rendering="crispEdges">',
    ]
    return "\n".join([*head, *out, "</g>", "</svg>"]) + "\n"


def words(picture: str) -> list[str]:
    """The texts of a picture in order; shapes are left out."""
    return [html.unescape(each) for each in re.findall(r"<text [^>]*>([^<]*)</text>", picture)]


def _hex(colour: str, which: str) -> str:
    if colour == "default":
        return DEFAULT[which]
    return colour if colour.startswith("#") else Color.from_ansi(int(colour)).get_truecolor().hex


def _front(look: Look) -> str:
    return _hex(look.ground, "ground") if look.reverse else _hex(look.color, "color")


def _ground(look: Look) -> str:
    return _hex(look.color, "color") if look.reverse else _hex(look.ground, "ground")


def _runs(row: list[Cell], key: object) -> Iterator[tuple[int, list[Cell]]]:
    x = 0
    for _, found in groupby(row, key=key):  # type: ignore[call-overload]
        cells = list(found)
        yield x, cells
        x += len(cells)


def _grounds(row: list[Cell], y: int, ground: str) -> list[str]:
    out = []
    for x, cells in _runs(row, lambda cell: (_ground(cell.look), cell.look.underline, _front(cell.look))):
        look = cells[0].look
        if _ground(look) != ground:
            out.append(_rect(x * WIDE, y * HIGH, len(cells) * WIDE, HIGH, _ground(look)))
        if look.underline:
            out.append(_rect(x * WIDE, y * HIGH + BASE + 3, len(cells) * WIDE, 1, _front(look)))
    return out


def _shapes(row: list[Cell], y: int) -> list[str]:
    out = []
    for x, cells in _runs(row, lambda cell: (cell.text, _front(cell.look))):
        glyph, colour = cells[0].text, _front(cells[0].look)
        if glyph in BLOCKS:
            tall = HIGH * BLOCKS[glyph] // 8
            out.append(_rect(x * WIDE, (y + 1) * HIGH - tall, len(cells) * WIDE, tall, colour))
        elif glyph in JOINTS:
            out += _lines(glyph, x, y, len(cells), colour)
    return out


def _lines(glyph: str, x: int, y: int, count: int, colour: str) -> list[str]:
    thick = 3 if glyph in HEAVY else 1
    ends = JOINTS[glyph]
    left, top, middle, centre = x * WIDE, y * HIGH, y * HIGH + HIGH // 2, WIDE // 2
    if glyph in DASHED:
        path = f"M{left} {middle}h{count * WIDE}" if ends == "lr" else f"M{left + centre} {top}v{HIGH}"
        return [f'<path d="{path}" stroke="{colour}" stroke-dasharray="4 2" fill="none"/>']
    out = []
    if ends == "lr":
        return [_rect(left, middle, count * WIDE, thick, colour)]
    for n in range(count):
        at = left + n * WIDE
        if "u" in ends or "d" in ends:
            start, stop = (top if "u" in ends else middle), (top + HIGH if "d" in ends else middle + 1)
            out.append(_rect(at + centre - thick // 2, start, thick, stop - start, colour))
        if "l" in ends or "r" in ends:
            start, stop = (at if "l" in ends else at + centre), (at + WIDE if "r" in ends else at + centre)
            out.append(_rect(start, middle, stop - start, thick, colour))
    return out


def _texts(row: list[Cell], y: int, classes: dict[tuple[str, bool], str]) -> list[str]:
    """One element a word; a glyph beyond ASCII may come from another font and stands alone."""
    out = []
    for x, found in _runs(row, lambda cell: (_front(cell.look), cell.look.bold)):
        look = found[0].look
        name = classes.setdefault((_front(look), look.bold), f"c{len(classes)}")
        for start, cells in _words(found):
            text = html.escape("".join(cell.text for cell in cells), quote=False)
            length = len(cells) * WIDE
            out.append(
                f'<text class="{name}" x="{(x + start) * WIDE}" y="{y * HIGH + BASE}" '
                f'textLength="{length}" lengthAdjust="spacingAndGlyphs">{text}</text>'
            )
    return out


def _words(cells: list[Cell]) -> Iterator[tuple[int, list[Cell]]]:
    place = 0
    while place < len(cells):
        cell = cells[place]
        if not cell.text.strip() or cell.text in BLOCKS or cell.text in JOINTS:
            place += 1
            continue
        end = place + (2 if cell.wide else 1)
        if cell.text.isascii():
            while end < len(cells) and cells[end].text.strip() and cells[end].text.isascii():
                end += 1
        yield place, cells[place:end]
        place = end


def _rect(x: int, y: int, wide: int, high: int, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" fill="{colour}"/>'
