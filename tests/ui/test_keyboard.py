"""Pastes are cut out of what a terminal sends wherever its reads were cut, and nothing of one is a key."""

from __future__ import annotations

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st
from textual._xterm_parser import XTermParser

from tui_pilot.ui import keyboard
from tui_pilot.ui.entry import MOST, one_line
from tui_pilot.ui.keyboard import END, START, Pastes

INSIDE = st.text(st.sampled_from("qr\x1b[2~01;\n\x00é")).filter(lambda text: END not in text + END[:-1])
OUTSIDE = st.text("abc[~")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(OUTSIDE, INSIDE), max_size=4), OUTSIDE, st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_wherever_the_reads_are_cut(pairs: list[tuple[str, str]], last: str, sizes: list[int]) -> None:
    whole = "".join(f"{keys}{START}{paste}{END}" for keys, paste in pairs) + last
    pastes, found, at, turn = Pastes(), [], 0, 0
    while at < len(whole):
        size = sizes[turn % len(sizes)]
        found += pastes.feed(whole[at : at + size], more=True)
        at, turn = at + size, turn + 1
    found += pastes.idle()
    assert [text for pasted, text in found if pasted] == [paste for _, paste in pairs]
    assert "".join(text for pasted, text in found if not pasted) == "".join(keys for keys, _ in pairs) + last


def test_an_escape_alone_is_a_key_at_once_and_a_lost_end_swallows_no_key_for_ever() -> None:
    pastes = Pastes()
    assert list(pastes.feed("\x1b")) == [(False, "\x1b")]
    assert list(pastes.feed(f"{START}half")) == []
    assert list(pastes.idle()) == []
    pastes._last -= keyboard.UNENDED_S + 1
    assert list(pastes.idle()) == [(True, "half")]
    assert list(pastes.feed("q")) == [(False, "q")]


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_the_field_takes_any_text_as_one_harmless_line(text: str) -> None:
    assert not {unicodedata.category(each) for each in one_line(text)} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_a_megabyte_is_kept_in_bounds() -> None:
    pastes = Pastes()
    found = list(pastes.feed(f"{START}{'x' * (keyboard.MOST + 5000)}{END}"))
    assert len(found) == 1 and len(found[0][1]) == keyboard.MOST > MOST


def test_textual_leaks_keys_out_of_a_paste_which_is_why_it_never_sees_one() -> None:
    """When Textual mends this, ``Pastes`` is no longer needed."""
    leaked = [type(event).__name__ for event in XTermParser().feed(f"{START}a\x1b{'r' * 40}b{END}")]
    assert "Key" in leaked
