"""Lines of text with a role for each stretch: what every room is made of. No markup exists here, so none can leak.

A ``Line`` is a tuple of ``(text, role)``. Roles are names from ``theme.py`` (``text``, ``dim``, ``pass``, ``warn``,
``fail``, ``running``, ``bar``, ``head``); ``role+reverse`` and ``role+bold`` add an attribute. Widths are terminal
cells, not characters.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

from tui_pilot.text import harmless

Span = tuple[str, str]
Line = tuple[Span, ...]

EMPTY: Line = ()

GLYPH_OF = {
    "pass": "✓",
    "warn": "!",
    "fail": "✗",
    "unchecked": "?",
    "lost": "?",
    "skipped": "–",
    "running": "►",
    "not_run": "·",
    None: "·",
}
ROLE_OF = {
    "pass": "pass",
    "warn": "warn",
    "fail": "fail",
    "unchecked": "warn",
    "lost": "fail",
    "skipped": "dim",
    "running": "running",
    "not_run": "dim",
    None: "dim",
}


def glyph(verdict: str | None) -> Span:
    """The one-cell sign of a verdict, in its colour role; the word always stands beside it."""
    return GLYPH_OF.get(verdict, "?"), ROLE_OF.get(verdict, "text")


def line(*parts: str | Span) -> Line:
    """Spans from plain strings (role ``text``) and ``(text, role)`` pairs."""
    return tuple((part, "text") if isinstance(part, str) else part for part in parts)


@lru_cache(4096)
def clean(text: str) -> str:
    """Foreign text made harmless; a tab and a newline are shown, never obeyed."""
    return text if text.isascii() and text.isprintable() else harmless(text)


def width_of(content: Line) -> int:
    """Cells the line takes."""
    return sum(cell_len(clean(text)) for text, _ in content)


def plain(content: Line) -> str:
    """The line's text alone."""
    return "".join(clean(text) for text, _ in content)


def fit(content: Line, width: int, fill: str = "text") -> Line:
    """Exactly ``width`` cells: cut with ``…`` or filled with blanks."""
    out: list[Span] = []
    left = width
    for raw, role in content:
        text = clean(raw)
        cells = cell_len(text)
        if cells <= left:
            out.append((text, role))
            left -= cells
            continue
        if left > 0:
            out.append((set_cell_size(text, left - 1) + "…", role))
        elif out:
            last, last_role = out[-1]
            out[-1] = (set_cell_size(last, max(0, cell_len(last) - 1)) + "…", last_role)
        left = 0
        break
    if left > 0:
        out.append((" " * left, fill))
    return tuple(out)


def first_fitting(width: int, *candidates: Line) -> Line:
    """The first line that needs no cutting; the last one if none fits."""
    return next((each for each in candidates if width_of(each) <= width), candidates[-1])


def chosen(content: Line) -> Line:
    """The selected line: one reverse style all along, so that it is one block and cheap to send."""
    return ((plain(content), "text+reverse"),)


def left(text: str, width: int) -> str:
    """Text at the left of ``width`` cells, cut with ``…`` where it is longer."""
    text = clean(text)
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def right(text: str, width: int) -> str:
    """Numbers at the right of ``width`` cells; never cut in silence: a longer one ends with ``…``."""
    text = clean(text)
    return " " * (width - cell_len(text)) + text if cell_len(text) <= width else left(text, width)


def rule(title: str, legend: str, width: int, title_role: str = "head", legend_role: str = "dim") -> Line:
    """A section's head: ``── title ───── legend ──``."""
    title, legend = clean(title), clean(legend)
    head: list[Span] = [("── ", "rule"), (title, title_role), (" ", "rule")] if title else []
    used = (4 + cell_len(title)) if title else 0
    tail: list[Span] = []
    if legend and used + cell_len(legend) + 6 <= width:
        tail = [(" ", "rule"), (legend, legend_role), (" ──", "rule")]
        used += cell_len(legend) + 4
    return (*head, ("─" * max(0, width - used), "rule"), *tail)


def wrap(text: str, width: int) -> list[str]:
    """Foreign text in lines of at most ``width`` cells, broken at blanks where there are any."""
    out: list[str] = []
    for paragraph in text.split("\n"):
        row = ""
        for whole in clean(paragraph).split(" "):
            word = whole
            grown = f"{row} {word}" if row else word
            if cell_len(grown) <= width:
                row = grown
                continue
            if row:
                out.append(row)
            while cell_len(word) > width > 0:
                piece = set_cell_size(word, width).rstrip() or word[:1]
                out.append(piece)
                word = word[len(piece) :]
            row = word
        out.append(row)
    return out


def bar(share: float, width: int) -> str:
    """A plain bar of ``share`` (0 to 1) of ``width`` cells, to the nearest cell; anything above nothing shows."""
    cells = round(max(0.0, min(1.0, share)) * width)
    return "▆" * (max(1, cells) if share > 0 else 0)


def beside(lefts: Iterable[Line], rights: Iterable[Line], left_width: int, gap: str = "│ ") -> list[Line]:
    """Two stacks of lines side by side, with a dim joint between."""
    a, b = list(lefts), list(rights)
    return [
        (*fit(a[n] if n < len(a) else EMPTY, left_width), (gap, "rule"), *(b[n] if n < len(b) else EMPTY))
        for n in range(max(len(a), len(b)))
    ]
