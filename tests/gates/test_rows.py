"""Faults of a single row, from the smallest inputs that show each; and look-alikes that must stay quiet."""

from __future__ import annotations

from typing import Any

import pytest

from tui_pilot.gates.rows import Expected, RowFacts, inspect

END = 2
CHAT = Expected(ends=frozenset({END}), pad=0, roles=frozenset({"assistant"}), max_length=10)


def faults(facts: RowFacts, expected: Expected = CHAT) -> dict[str, dict[str, Any]]:
    return dict(inspect(facts, expected).faults)


def chat(labels: list[int], ids: list[int] | None = None, **more: Any) -> RowFacts:
    tokens = ids or [4, 50, END, 5, 60, 61, END]
    return RowFacts("r1", "train", tokens, labels, spans=[(0, 3, "user", 0), (3, 7, "assistant", 1)], **more)


def test_a_right_row_is_quiet() -> None:
    assert faults(chat([-100, -100, -100, -100, 60, 61, END])) == {}


def test_end_token_masked_because_it_equals_padding() -> None:
    assert faults(chat([-100, -100, -100, -100, 60, 61, -100])) == {"end_token_unsupervised": {"turn": 1}}


def test_template_text_after_the_end_token_is_fine() -> None:
    ids = [4, 50, END, 5, 60, 61, END, 9]
    facts = RowFacts(
        "r", "train", ids, [-100] * 4 + [60, 61, END, -100], spans=[(0, 3, "user", 0), (3, 8, "assistant", 1)]
    )
    assert faults(facts) == {}


def test_no_end_token_at_all() -> None:
    ids = [7, 8, 9]
    plain = Expected(ends=frozenset({END}))
    assert "missing_end_token" in faults(RowFacts("r", "train", ids, ids), plain)
    assert faults(RowFacts("r", "train", [*ids, END], [*ids, END]), plain) == {}


def test_all_masked_is_no_supervised_token() -> None:
    assert "no_supervised_token" in faults(chat([-100] * 7))


def test_the_only_label_at_place_0_cannot_be_predicted() -> None:
    assert "no_supervised_token" in faults(RowFacts("r", "train", [7, 8], [7, -100]), Expected())


@pytest.mark.parametrize(
    ("length", "supervised", "code"),
    [(10, 0, "no_supervised_token"), (12, 0, "no_supervised_token"), (13, 1, "response_truncated"), (15, 3, None)],
)
def test_twelve_prompt_and_three_response_ids(length: int, supervised: int, code: str | None) -> None:
    whole = [*list(range(10, 24)), END]
    labels = [-100] * 12 + whole[12:]
    facts = RowFacts("r", "train", whole[:length], labels[:length], full_ids=whole, full_labels=labels)
    report = inspect(facts, Expected(ends=frozenset({END}), max_length=length))
    assert report.supervised == supervised
    assert report.lost == 3 - supervised
    assert [name for name, _ in report.faults] == ([code] if code else [])


def test_a_cut_prompt_whose_response_survives_is_quiet() -> None:
    whole = [10, 11, 12, 13, END, 20, 21]
    labels = [-100, -100, 12, 13, END, -100, -100]
    facts = RowFacts("r", "train", whole[:5], labels[:5], full_ids=whole, full_labels=labels)
    assert faults(facts, Expected(ends=frozenset({END}), max_length=5)) == {}


def test_a_cap_below_the_planned_length() -> None:
    whole = list(range(3, 1503))
    facts = RowFacts("r", "train", whole[:1024], whole[:1024], full_ids=whole, full_labels=whole)
    found = faults(facts, Expected(max_length=2048))
    assert found["length_cap"] == {"effective": 1024, "planned": 2048, "lost": 476}


@pytest.mark.parametrize(
    ("labels", "shift"), [([50, 5, 60, 61, END, -100, -100], 1), ([-100, 4, 50, 2, 5, 60, 61], -1)]
)
def test_labels_of_the_next_or_the_last_token(labels: list[int], shift: int) -> None:
    ids = [4, 50, 5, 60, 61, END, 0] if shift == 1 else [4, 50, END, 5, 60, 61, END]
    assert faults(RowFacts("r", "train", ids, labels), Expected())["span_shifted"]["shift"] == shift


@pytest.mark.parametrize(
    ("ids", "counts", "seen"),
    [([1, 9], (1,), None), ([9], (1,), 0), ([1, 1, 9], (1,), 2), ([9], (0,), None), ([1, 9], (0, 1), None)],
)
def test_leading_bos(ids: list[int], counts: tuple[int, ...], seen: int | None) -> None:
    found = faults(RowFacts("r", "train", ids, ids), Expected(bos=1, bos_counts=counts))
    assert found.get("bos_count", {}).get("seen") == seen


def test_bos_that_doubles_as_turn_marker_counts_at_the_start_only() -> None:
    ids = [1, 9, END, 1, 8, END, 1, 7, END]
    assert "bos_count" not in faults(RowFacts("r", "train", ids, ids), Expected(bos=1, bos_counts=(0, 1)))


def test_a_user_turn_with_labels() -> None:
    found = faults(chat([-100, 50, END, -100, 60, 61, END]))
    assert found["wrong_role_supervised"] == {"counts": {"user": 2}, "turn": 0}


def test_two_assistant_turns_and_the_first_has_no_label() -> None:
    ids = [4, 50, END, 5, 60, END, 4, 51, END, 5, 61, END]
    spans = [(0, 3, "user", 0), (3, 6, "assistant", 1), (6, 9, "user", 2), (9, 12, "assistant", 3)]
    facts = RowFacts("r", "train", ids, [-100] * 10 + [61, END], spans=spans)
    assert (
        faults(facts, Expected(ends=frozenset({END}), roles=frozenset({"assistant"})))["turn_unsupervised"]["turn"] == 1
    )
    last = Expected(ends=frozenset({END}), roles=frozenset({"assistant"}), last_only=True)
    assert faults(facts, last) == {}


def test_messages_that_are_not_rendered() -> None:
    facts = chat([-100] * 4 + [60, 61, END], messages=["system", "user", "assistant", "user", "assistant"])
    assert faults(facts)["message_lost"]["roles"] == {"system": [1, 0], "user": [2, 1], "assistant": [2, 1]}


def test_a_template_may_add_a_turn() -> None:
    facts = chat([-100] * 4 + [60, 61, END], messages=["assistant"])
    assert faults(facts) == {}


def test_text_that_the_template_drops() -> None:
    facts = chat([-100] * 4 + [60, 61, END], source="<think>why</think> Because.", supervised_text="Because.")
    assert faults(facts)["content_lost"] == {"characters": 18, "of": 26}
    same = chat([-100] * 4 + [60, 61, END], source="Because.", supervised_text=" Because. ")
    assert faults(same) == {}


def test_blank_answer() -> None:
    assert "empty_target" in faults(chat([-100] * 6 + [END], source="  \n"))


@pytest.mark.parametrize(
    ("label", "code"),
    [(0, None), (2, None), (3, "label_out_of_range"), (-1, "label_out_of_range"), (float("nan"), "label_out_of_range"),
     (1.5, "loss_mismatch"), ("1", "loss_mismatch"), (-100, None)],
)  # fmt: skip
def test_class_ids(label: Any, code: str | None) -> None:
    report = inspect(RowFacts("r", "train", [5], label), Expected(classes=3))
    assert [name for name, _ in report.faults] == ([code] if code else [])
    assert report.supervised == (0 if label == -100 else 1)


def test_token_id_outside_the_embedding() -> None:
    found = faults(RowFacts("r", "train", [5, 402], [5, 402]), Expected(table=400))
    assert found["id_out_of_table"] == {"id": 402, "table": 400}
