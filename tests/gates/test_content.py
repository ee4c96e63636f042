"""Lost words, broken-off answers, hidden cuts, entities and rows beside their file, from the smallest inputs."""

from __future__ import annotations

import pytest

from tui_pilot.gates.content import Message, breaks_off, lost_messages, messages_of, pile_up
from tui_pilot.gates.entities import entities, word_labels
from tui_pilot.gates.source_rows import compare

NAMES = ["O", "B-org", "I-org", "B-per", "I-per"]


def test_words_that_stand_in_a_later_turn_do_not_count_for_an_earlier_one() -> None:
    messages = [Message("assistant", "yes"), Message("user", "and?"), Message("assistant", "yes")]
    turns = ["", "and?", "yes"]
    lost, normalised = lost_messages(messages, "".join(turns), lambda turn: turns[turn])
    assert [(each.turn, each.characters) for each in lost] == [(0, 3)] and not normalised


def test_a_piece_out_of_the_middle() -> None:
    messages = [Message("assistant", "So: <b>bold</b> it is")]
    lost, _ = lost_messages(messages, "|So: it is|", lambda turn: "|So: it is|")
    assert (lost[0].piece, lost[0].characters, lost[0].of) == (" <b>bold</b>", 12, 21)


def test_what_a_tokenizer_normalises_is_not_lost() -> None:
    lost, normalised = lost_messages([Message("user", "Cafe\u0301")], "caf\u00e9", lambda turn: "caf\u00e9")
    assert not lost and normalised


@pytest.mark.parametrize(
    ("source", "rendered", "missing"),
    [("abcdefghijklmnop", "q: abcdefghijkl", 4), ("abcdefghij", "q: abcdefghij", None), ("abcdefghij", "q: zzz", None),
     ("abcdefghijklmnop", "q: abcdefghijkl<end>", None)],
)  # fmt: skip
def test_where_an_answer_breaks_off(source: str, rendered: str, missing: int | None) -> None:
    assert breaks_off(source, rendered) == missing


def test_a_pile_of_rows_at_one_length() -> None:
    assert pile_up({3: 1, 9: 1, 14: 1, 25: 1, 32: 8}) == (32, 8)
    assert pile_up({32: 50, 31: 1}) is None
    assert pile_up({length: 5 for length in range(20, 33)}) is None


@pytest.mark.parametrize(
    ("labels", "count"),
    [([1, 1, 2, 2], 2), ([1, -100, 2, -100], 1), ([1, 2, 2, 2], 1), ([1, 2, 0, 2], 2), ([2, 4], 2), ([0, 0], 0)],
)
def test_entities_by_beginnings_and_insides(labels: list[int], count: int) -> None:
    assert entities(labels, NAMES) == count == entities([NAMES[each] if each >= 0 else each for each in labels], NAMES)


def test_the_labels_of_words_are_found_by_their_length_and_names() -> None:
    record = {"tokens": ["New", "York"], "ner_tags": [1, 2], "other": [9, 9]}
    assert word_labels(record, NAMES, [1, 1, 2]) == [1, 2]
    assert word_labels(record, ["a", "b", "c"], [1, 1, 2]) is None


def test_speakers_and_messages_are_one_conversation() -> None:
    shared = messages_of({"conversations": [{"from": "gpt", "value": "a"}, {"from": "narrator", "value": "b"}]})
    assert shared == [Message("assistant", "a"), Message("narrator", "b")]


def test_a_record_beside_its_row() -> None:
    source = {"a": {"x": 1, "y": "t"}, "b": "NA", "c": None, "n": "2"}
    found = compare({"a": {"x": 1.0, "z": None}, "b": None, "c": "nan", "d": None, "n": 2, "_line": 4}, source)
    assert (found.invented, found.nulls, found.emptied, found.lost) == (["a.z", "c"], ["d"], [("b", "NA")], ["a.y"])
