"""Colour roles, five themes and the ASCII twin of every glyph. Nothing is said by colour alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rich.color import Color
from rich.style import Style
from textual.theme import Theme

from tui_pilot.ui.theme_names import THEMES

ROLES = ("text", "dim", "pass", "warn", "fail", "running", "bar", "head", "rule", "trained", "lost")

# 256-colour numbers: text at least 4.5:1 on the ground, bars 3:1. A pair is (colour, ground of its own).
PALETTES: dict[str, dict[str, int | tuple[int, int]]] = {
    "dark": {
        "ground": 234, "text": 252, "dim": 246, "pass": 114, "warn": 221, "fail": 203, "running": 117, "bar": 244,
        "trained": (252, 238),
    },
    "light": {
        "ground": 231, "text": 235, "dim": 240, "pass": 22, "warn": 94, "fail": 124, "running": 25, "bar": 244,
        "trained": (235, 253),
    },
    "high-contrast": {
        "ground": 16, "text": 231, "dim": 250, "pass": 231, "warn": 226, "fail": (16, 231), "running": 117, "bar": 250,
        "trained": (231, 18),
    },
    "colour-blind": {
        "ground": 234, "text": 252, "dim": 246, "pass": 75, "warn": 221, "fail": 208, "running": 117, "bar": 244,
        "trained": (252, 238),
    },
}  # fmt: skip
BOLD = ("fail", "running", "head")

ASCII = str.maketrans(
    {
        "✓": "+", "✗": "x", "–": "-", "—": "-", "►": "*", "·": ".", "▆": "#", "▄": "=", "▂": "-", "┊": ":", "┃": "|",
        "×": "x", "␣": "_", "↵": "\\n", "→": "->", "…": ":", "╌": "-", "─": "-", "│": "|", "┬": "+", "├": "+",
        "└": "+", "┤": "+", "┐": "+", "┘": "+", "┌": "+", "┼": "+", "┴": "+", "▁": ".", "▃": "-", "▅": "=", "▇": "#",
        "█": "#", "▏": "|", "≥": ">", "≤": "<", "°": " ", "↑": "^", "↓": "v", "←": "<", "’": "'", "“": '"', "”": '"',
    }
)  # fmt: skip
"""One cell each, save the newline and tab signs, which stand where nothing follows that must align."""


@dataclass(frozen=True)
class Look:
    """A theme and a character set, made into what a strip needs."""

    theme: str = "dark"
    ascii: bool = False
    styles: dict[str, Style] = field(default_factory=dict, compare=False, hash=False)

    def glyphs(self, text: str) -> str:
        """The text as this terminal can show it."""
        return text.translate(ASCII) if self.ascii and not text.isascii() else text

    def style(self, role: str) -> Style:
        """The Rich style of ``role``, ``role+reverse``, ``role+bold`` or ``role+underline``."""
        found = self.styles.get(role)
        if found is None:
            found = self.styles[role] = _style(self.theme, role)
        return found


def _style(theme: str, role: str) -> Style:
    name, *extras = role.split("+")
    bold = True if name in BOLD or "bold" in extras else None
    reverse = True if "reverse" in extras else None
    underline = True if "underline" in extras else None
    if theme == "ansi":
        named = {"dim": "bright_black", "rule": "bright_black", "pass": "green", "warn": "yellow", "fail": "bright_red"}
        named |= {"running": "cyan", "lost": "bright_red", "bar": "default"}
        return Style(color=named.get(name, "default"), bold=bold, reverse=reverse, underline=underline)
    palette = PALETTES[theme]
    source = {"head": "text", "rule": "dim", "lost": "fail"}.get(name, name)
    colour = palette.get(source, palette["text"])
    ground = palette["ground"]
    if isinstance(colour, tuple):
        colour, ground = colour
    assert isinstance(ground, int)
    return Style(
        color=Color.from_ansi(colour),
        bgcolor=Color.from_ansi(ground),
        bold=bold,
        reverse=reverse,
        underline=underline,
    )


def look_of(app: Any) -> Look:
    """The look of an app; an app that has none (a test's) is dark."""
    look = getattr(app, "look", None)
    return look if isinstance(look, Look) else _PLAIN


_PLAIN = Look()


def hex_of(number: int) -> str:
    """A 256-colour number as ``#rrggbb``."""
    return Color.from_ansi(number).get_truecolor().hex


def textual_themes() -> list[Theme]:
    """The same roles for Textual's own widgets (the palette, text fields)."""
    return [_textual(name) for name in THEMES]


def _textual(name: str) -> Theme:
    palette = PALETTES.get(name)
    if palette is None:  # the terminal's own ground and sixteen colours
        return Theme(name=name, primary="ansi_cyan", foreground="ansi_default", background="ansi_default", ansi=True)
    ground, text, running = palette["ground"], palette["text"], palette["running"]
    assert isinstance(ground, int) and isinstance(text, int) and isinstance(running, int)
    back, word = hex_of(ground), hex_of(text)
    return Theme(
        name=name,
        primary=hex_of(running),
        foreground=word,
        background=back,
        surface=back,
        panel=back,
        dark=name != "light",
    )
