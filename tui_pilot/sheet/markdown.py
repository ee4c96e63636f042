"""The sheet as plain markdown: tables at most 80 columns wide, so that a terminal and a forge both show them well.

Nothing is cut: a value longer than its cell goes on in the next table row, whose first cell is empty. Foreign text can
neither break a table nor become markup.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tui_pilot.sheet import blocks
from tui_pilot.text import harmless

Json = Mapping[str, Any]

WIDTH = 80
_SPECIAL = re.compile(r"([\\`*<>\[\]|~&$])")
# A number keeps its unit, and a word the number that ends the phrase.
_BLANK = re.compile(r" (?!(?:[KMG]i)?B\b|\d+(?:\.\d+)?(?:$|[;,]))")
_LEADING = re.compile(r"^(\s*)([#+=-]|\d+[.)])(?=\s|$)")


def render(document: Json) -> str:
    """The whole sheet, ending with a newline."""
    lines: list[str] = []
    for block in blocks.of(document):
        if lines:
            lines.append("")
        if isinstance(block, blocks.Heading):
            lines.append(f"{'#' * block.level} {foreign(block.text)}")
        elif isinstance(block, blocks.Paragraph):
            lines += paragraph(block.text)
        elif isinstance(block, blocks.Bullets):
            lines += bullets(block.texts)
        else:
            lines += table(block.head, block.rows, block.widths, block.right)
    return "\n".join(lines) + "\n"


def foreign(text: Any) -> str:
    """One line of text that is not ours: control characters visible, nothing of it markup."""
    return _SPECIAL.sub(r"\\\1", harmless(" ".join(str(text).split("\n"))))


def bullets(texts: Iterable[Any]) -> list[str]:
    lines: list[str] = []
    for text in texts:
        body = _wrap(_LEADING.sub(r"\1\\\2", foreign(text)), WIDTH - 2)
        lines += [f"- {body[0]}", *(f"  {more}" for more in body[1:])]
    return lines


def paragraph(text: str) -> list[str]:
    return _wrap(foreign(text), WIDTH)


def table(
    head: Sequence[str], rows: Iterable[Sequence[Any]], widths: Sequence[int], right: Iterable[int] = ()
) -> list[str]:
    """A padded table; ``widths`` are the most cells a column may take, ``right`` the columns of numbers."""
    numbers = set(right)
    body = [[_wrap(foreign(cell), widths[n]) for n, cell in enumerate(row)] for row in rows]
    most = [max([cells(head[n]), 3, *(cells(piece) for row in body for piece in row[n])]) for n in range(len(head))]

    def write(pieces: Sequence[str]) -> str:
        padded = [
            " " * (most[n] - cells(piece)) + piece if n in numbers else piece + " " * (most[n] - cells(piece))
            for n, piece in enumerate(pieces)
        ]
        return "| " + " | ".join(padded) + " |"

    lines = [write(head)]
    ruled = ["-" * (most[n] + 1) + ":" if n in numbers else "-" * (most[n] + 2) for n in range(len(head))]
    lines.append("|" + "|".join(ruled) + "|")
    for row in body:
        for deep in range(max(len(pieces) for pieces in row)):
            lines.append(write([pieces[deep] if deep < len(pieces) else "" for pieces in row]))
    return lines


def cells(text: str) -> int:
    """Terminal cells of a text: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def _wrap(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` cells, broken at blanks; a longer word is broken, but never behind a backslash."""
    lines: list[str] = []
    row = ""
    for whole in _BLANK.split(text):
        piece = whole
        grown = f"{row} {piece}" if row else piece
        if cells(grown) <= width:
            row = grown
            continue
        if row:
            lines.append(row)
        while cells(piece) > width:
            end = len(piece)
            while end > 1 and (cells(piece[:end]) > width or _odd_backslash(piece[:end])):
                end -= 1
            lines.append(piece[:end])
            piece = piece[end:]
        row = piece
    lines.append(row)
    return lines


def _odd_backslash(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1
