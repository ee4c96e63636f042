"""Every role of every theme can be read: 4.5:1 for text, 3:1 for bars, also where the selection turns it round."""

from __future__ import annotations

import pytest
from rich.color import Color

from tui_pilot.ui.theme import ROLES, Look
from tui_pilot.ui.theme_names import THEMES

# xterm's own sixteen on black: the terminal's colours are its owner's, these are what it comes with.
SIXTEEN = {
    "default": (229, 229, 229), "bright_black": (127, 127, 127), "green": (0, 205, 0), "yellow": (205, 205, 0),
    "bright_red": (255, 0, 0), "cyan": (0, 205, 205),
}  # fmt: skip


def luminance(colour: Color | None, missing: tuple[int, int, int]) -> float:
    name = colour.name if colour is not None else "default"
    if colour is None or colour.is_default:
        channels = missing
    elif name in SIXTEEN:
        channels = SIXTEEN[name]
    else:
        channels = tuple(colour.get_truecolor())

    def linear(value: int) -> float:
        share = value / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = map(linear, channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(theme: str, role: str) -> float:
    style = Look(theme).style(role)
    front, back = luminance(style.color, SIXTEEN["default"]), luminance(style.bgcolor, (0, 0, 0))
    high, low = max(front, back), min(front, back)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_every_role_can_be_read(theme: str) -> None:
    for role in ROLES:
        for extra in ("", "+bold", "+underline", "+reverse"):
            assert contrast(theme, role + extra) >= (3.0 if role == "bar" else 4.5), f"{theme}: {role}{extra}"


@pytest.mark.parametrize("theme", THEMES)
def test_what_is_selected_and_trained_on_is_marked_by_more_than_a_colour(theme: str) -> None:
    look = Look(theme)
    assert look.style("text+reverse").reverse and look.style("trained+underline").underline
    assert look.style("fail").bold and look.style("running").bold
