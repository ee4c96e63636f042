"""Area 1, the example that really reaches the loss: ends, beginnings, masks, cuts and lost words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from area_1 import chat, examine, given
from lab import Lab, codes, reason_of

HEAD = "from words import BOS, END, IGNORE, MARK, PAD, Words\n"
QUESTION = chat("Two and two?", "Four.")


def test_the_right_task_is_quiet(lab: Lab) -> None:
    rows = [
        QUESTION,
        chat("And then?", "Five.", "Why?", "One more."),
        chat("Nobody answers this one", "Yes.", "Thanks"),
    ]
    row = examine(lab, "words.py:Words", rows, data="max_length: 200")
    assert row.verdict == "pass" and codes(row) == ["file_note"]
    assert "1 conversation go on after the last answer" in reason_of(row, "file_note")["text"]


# -- 1.01 ------------------------------------------------------------------------------------------------------------
BY_ID = """
from given import Given

class ById(Given):
    def collate(self, examples):
        batch = super().collate(examples)
        batch["labels"][batch["input_ids"] == self.special_ids()["pad"]] = -100
        return batch
"""
TWO_ROWS = '{"rows": [{"ids": [50, 51, 52, 2]}, {"ids": [50, 2]}], "end": 2, "pad": %d}'


def test_1_01_end_token_masked_with_the_padding_in_the_collator(lab: Lab) -> None:
    more = f"batch: {{micro: 2}}\noptions: {TWO_ROWS % 2}\n"
    row = examine(lab, "ById", code=BY_ID, data="train_on: all", more=more)
    found = reason_of(row, "end_token_unsupervised")
    assert found["severity"] == "fail" and found["where"]["rows"] == ["0", "1"]
    assert "never supervised (0 of 2 rows)" in found["text"]


def test_1_01_a_pad_id_of_its_own_passes(lab: Lab) -> None:
    more = f"batch: {{micro: 2}}\noptions: {TWO_ROWS % 0}\n"
    row = examine(lab, "ById", code=BY_ID, data="train_on: all", more=more)
    assert row.verdict == "pass" and codes(row) == []


def test_1_01_labels_on_padding_are_named(lab: Lab) -> None:
    code = BY_ID.replace('batch["labels"][batch["input_ids"] == self.special_ids()["pad"]] = -100', "").replace(
        "return batch", 'batch["labels"] = batch["input_ids"].clone()\n        return batch'
    )
    row = examine(lab, "ById", code=code, data="train_on: all", more=f"batch: {{micro: 2}}\noptions: {TWO_ROWS % 0}\n")
    found = reason_of(row, "padding_supervised")
    assert found["where"]["rows"] == ["1"] and "2 labels stand on padding, expected 0" in found["text"]


# -- 1.02 ------------------------------------------------------------------------------------------------------------
OPEN = (
    HEAD
    + """
class Open(Words):
    def encode(self, record, max_length=None):
        ids = [BOS, *self.ids(record["text"])]
        return {"input_ids": ids[:max_length], "labels": [IGNORE, *ids[1:]][:max_length]}
"""
)
THREE = [{"text": "Q: a A: b"}] * 3


def test_1_02_text_without_any_end_token(lab: Lab) -> None:
    found = reason_of(examine(lab, "Open", THREE, code=OPEN, data="train_on: all"), "missing_end_token")
    assert found["severity"] == "fail" and found["where"]["rows"] == ["r0", "r1", "r2"]
    assert "3 rows of 3" in found["text"]


def test_1_02_with_an_end_token_it_passes_and_a_cut_row_is_a_cut_row(lab: Lab) -> None:
    rows = [*THREE, {"text": "Q: a A: " + "b" * 40}]
    row = examine(lab, "words.py:Words", rows, data="train_on: all, max_length: 20")
    assert "missing_end_token" not in codes(row)
    assert reason_of(row, "response_truncated")["where"]["rows"] == ["r3"]


def test_1_02_a_cut_by_a_task_that_cannot_be_asked_for_the_whole_is_a_cut(lab: Lab) -> None:
    code = HEAD + "class Cut(Words):\n    def encode(self, record):\n        return super().encode(record, 20)\n"
    rows = [*THREE, {"text": "Q: a A: " + "b" * 40}]
    row = examine(lab, "Cut", rows, code=code, data="train_on: all, max_length: 20")
    assert reason_of(row, "response_truncated")["where"]["rows"] == ["r3"] and "missing_end_token" not in codes(row)


# -- 1.04, 1.05 with a real tokenizer -------------------------------------------------------------------------------
RENDERED = """
from tui_pilot.tasks.sft import SftTask

class Rendered(SftTask):
    SPECIAL = %s

    def encode(self, record, max_length=None):
        text = self.tokens.tokenizer.apply_chat_template(record["messages"], tokenize=False)
        ids = self.tokens.tokenizer(text, add_special_tokens=self.SPECIAL)["input_ids"]
        return {"input_ids": ids[:max_length], "labels": ids[:max_length]}

    def spans(self, record, example):
        return [(0, len(example["input_ids"]), "assistant", 1)]
"""


@pytest.mark.parametrize(
    ("model", "special", "seen"), [("bos", False, 0), ("bos", True, None), ("twice", True, 2), ("none", False, None)]
)
def test_1_04_leading_bos_as_the_base_tokenizer_has_it(
    lab: Lab, models: dict[str, Path], model: str, special: bool, seen: int | None
) -> None:
    row = examine(
        lab,
        "Rendered",
        [QUESTION],
        code=RENDERED % special,
        data="train_on: all",
        more=f"model: {{path: {models[model]}}}",
    )
    if seen is None:
        assert "bos_count" not in codes(row)
        return
    text = reason_of(row, "bos_count")["text"]
    assert f"{seen} leading BOS, expected 1" in text and ("BOS lost" in text) == (seen == 0)


@pytest.mark.parametrize("model", ["bos", "none", "twice"])
def test_1_04_the_built_in_task_writes_one_where_one_is_due(lab: Lab, models: dict[str, Path], model: str) -> None:
    row = examine(lab, "sft", [QUESTION], more=f"model: {{path: {models[model]}}}")
    assert row.verdict == "pass", row.reasons


MARKED = """
from tui_pilot.tasks import IGNORE
from tui_pilot.tasks.sft import SftTask

class Marked(SftTask):
    response_marker = %r

    def encode(self, record, max_length=None):
        tokens = self.tokens
        ids = [*tokens.ids(record["text"]), tokens.eos]
        mark = tokens.ids(self.response_marker)
        at = next((n for n in range(len(ids)) if ids[n : n + len(mark)] == mark), None)
        start = len(ids) if at is None else at + len(mark)
        return {"input_ids": ids, "labels": [IGNORE] * start + ids[start:]}

    def spans(self, record, example):
        start = next((n for n, label in enumerate(example["labels"]) if label != IGNORE), len(example["labels"]))
        return [(start, len(example["labels"]), "assistant", 0)] if start < len(example["labels"]) else []
"""


@pytest.mark.parametrize("marker", ["Answer: ", "Answer:"])
def test_1_05_a_marker_that_is_never_found_is_named(lab: Lab, models: dict[str, Path], marker: str) -> None:
    rows = [{"text": "Sum? Answer: hello"}, {"text": "More? Answer: no thanks"}]
    code = MARKED % marker
    row = examine(lab, "Marked", rows, code=code, data="max_length: 90", more=f"model: {{path: {models['none']}}}")
    if marker == "Answer:":
        assert "no_supervised_token" not in codes(row)
        return
    found = reason_of(row, "no_supervised_token")
    assert found["where"]["rows"] == ["r0", "r1"] and "0 of" in found["text"]
    assert "the response marker is 'Answer: '; as text it is there 1 time" in found["text"]


# -- 1.07, 1.08 ------------------------------------------------------------------------------------------------------
TWELVE = {
    "ids": [*range(10, 24), 2],
    "labels": [-100] * 12 + [22, 23, 2],
    "spans": [[0, 12, "user", 0], [12, 15, "assistant", 1]],
}


@pytest.mark.parametrize(
    ("length", "share", "code", "severity"),
    [
        (10, 1.0, "no_supervised_token", "fail"),
        (12, 1.0, "no_supervised_token", "fail"),
        (13, 1.0, "response_truncated", "warn"),
        (13, 0.01, "response_truncated", "fail"),
        (15, 0.01, None, None),
    ],
)
def test_1_07_twelve_prompt_and_three_response_ids(
    lab: Lab, length: int, share: float, code: str | None, severity: str | None
) -> None:
    gates = f"examples: {{max_truncated: {share}}}"
    more = f"options: {{rows: [{json.dumps(TWELVE)}], end: 2}}\n"
    row = examine(lab, "given.py:Given", data=f"max_length: {length}", gates=gates, more=more)
    if code is None:
        assert row.verdict == "pass" and codes(row) == []
        return
    found = reason_of(row, code)
    assert found["severity"] == severity and found["where"]["rows"] == ["0"]
    if code == "response_truncated":
        assert "2 supervised tokens; row 0 keeps 1 of 3" in found["text"]


LONG = {"text": "abcdefghij" * 150 + "k"}
CAPS = {
    "the loader slices": "    def encode(self, record, max_length=None):\n"
    "        return super().encode(record, max_length and min(max_length, 1024))\n",
    "both encodes are cut": "    def encode(self, record, max_length=None):\n"
    "        return super().encode(record, 1024)\n",
    "no length can be asked for": "    def encode(self, record):\n        return super().encode(record, 1024)\n",
    "the collator slices": "    def collate(self, examples):\n"
    "        return {key: value[:, :1024] for key, value in super().collate(examples).items()}\n",
}


@pytest.mark.parametrize("how", CAPS)
def test_1_08_a_second_cap_below_the_planned_length(lab: Lab, how: str) -> None:
    code = HEAD + "class Capped(Words):\n" + CAPS[how]
    rows = [LONG, {"text": "short"}]
    found = reason_of(examine(lab, "Capped", rows, code=code, data="train_on: all, max_length: 2048"), "length_cap")
    assert found["severity"] == "fail" and found["where"]["rows"] == ["r0"]
    assert "1 row of 2" in found["text"] and "effective 1,024 != configured 2,048" in found["text"]
    # 1,501 characters are 1,503 ids; where no encode gives the whole row, the missing characters are counted
    assert ("479 tokens lost" if how in ("the loader slices", "the collator slices") else "478 characters") in found[
        "text"
    ]


def test_1_08_the_planned_length_that_is_not_in_force(lab: Lab) -> None:
    code = HEAD + "class Free(Words):\n    def encode(self, record):\n        return super().encode(record)\n"
    found = reason_of(examine(lab, "Free", [LONG], code=code, data="train_on: all, max_length: 1024"), "length_cap")
    assert "effective 1,503 != configured 1,024" in found["text"]


def test_1_08_many_rows_that_end_at_one_odd_length(lab: Lab) -> None:
    code = """
from given import Given

class Capped(Given):
    def encode(self, record, max_length=None):
        return {key: value[:32] for key, value in super().encode(record).items()}
"""
    rows = [{"ids": [*range(10, 10 + size), 2]} for size in (3, 8, 13, 18, 23, 28, *range(40, 48))]
    row = examine(lab, "Capped", code=code, data="train_on: all", more=f"options: {{rows: {rows}, end: 2}}\n")
    texts = [each["text"] for each in row.reasons if each["code"] == "length_cap"]
    assert texts and "8 of 14 rows" in texts[0] and "exactly 32 tokens" in texts[0]


def test_1_08_the_planned_length_in_force_passes(lab: Lab) -> None:
    row = examine(lab, "words.py:Words", [LONG, {"text": "short"}], data="train_on: all, max_length: 2048")
    assert row.verdict == "pass", row.reasons


# -- 1.10, 1.11, 1.13 ------------------------------------------------------------------------------------------------
LAST = HEAD + """
class Last(Words):
    def answers(self, record):
        return super().answers(record)[-1:]

    def source_text(self, record):
        return record["messages"][-1]["content"]
"""  # fmt: skip
FOUR = chat("One?", "First.", "Two?", "Second.")


def test_1_10_only_the_last_answer_is_labelled(lab: Lab) -> None:
    found = reason_of(examine(lab, "Last", [FOUR], code=LAST), "turn_unsupervised")
    assert found["severity"] == "fail" and found["where"]["turn"] == 1 and found["where"]["rows"] == ["r0"]
    assert "turn 1 of 2 trained turns carries no label" in found["text"]
    assert examine(lab, "Last", [FOUR], code=LAST, data="train_on: last_assistant").verdict == "pass"


EVERYTHING = HEAD + """
class Everything(Words):
    def encode(self, record, max_length=None):
        example = super().encode(record, max_length)
        return {**example, "labels": [IGNORE, *example["input_ids"][1:]]}
"""  # fmt: skip


def test_1_11_markers_and_other_roles_are_trained(lab: Lab) -> None:
    rows = [{"messages": [{"role": "system", "content": "be kind"}, *chat("how are you?", "Fine.")["messages"]]}]
    found = reason_of(examine(lab, "Everything", rows, code=EVERYTHING), "wrong_role_supervised")
    # each turn is its bytes, a mark and an end token: 7 + 2 and 12 + 2
    assert "system 9, user 14 tokens, expected 0" in found["text"] and found["where"]["turn"] == 0
    row = examine(lab, "words.py:Words", rows)
    assert row.verdict == "pass"


RUN_ON = [[0, 1, "assistant", 0], [1, 4, "user", 1], [4, 6, "assistant", 2]]


@pytest.mark.parametrize(
    ("labels", "user"),
    [([50, -100, -100, -100, 61, 62], 0), ([50, 51, 52, -100, 61, 62], 2), ([50, 51, 52, 53, 61, 62], 3)],
)
def test_1_13_the_mask_of_a_span_at_place_0_runs_on(lab: Lab, labels: list[int], user: int) -> None:
    # Alone, the row of the case ([1,0,0]) has nothing to learn: a shifted loss never predicts place 0. So a second
    # answer follows here.
    ids = [50, 51, 52, 53, 61, 62]
    row = given(lab, [{"ids": ids, "labels": labels, "spans": RUN_ON}], data="max_length: 10", end=62)
    if not user:
        assert codes(row) == []
        return
    found = reason_of(row, "wrong_role_supervised")
    assert f"user {user} tokens, expected 0" in found["text"] and found["where"]["turn"] == 1


# -- 1.14 ------------------------------------------------------------------------------------------------------------
STRIPS = HEAD + """
class Strips(Words):
    def render(self, messages, turn):
        text = messages[turn]["content"]
        last = max(n for n, each in enumerate(messages) if each["role"] == "assistant")
        return text if turn == last else text.rpartition("</think>")[2]

    def source_text(self, record):
        return record["messages"][-1]["content"]
"""  # fmt: skip
THOUGHTS = chat("Sum?", "<think>2 and 2</think>It is 4.", "More?", "<think>3 and 3</think>It is 6.")


def test_1_14_thinking_of_earlier_turns_is_gone(lab: Lab) -> None:
    row = examine(lab, "Strips", [THOUGHTS, QUESTION], code=STRIPS)
    found = reason_of(row, "content_lost")
    assert row.verdict == "warn" and found["where"]["rows"] == ["r0"] and found["where"]["turn"] == 1
    assert "turn 1 (assistant) lost 22 of 30 characters, from '<think>2 and 2</think>' on" in found["text"]


def test_1_14_accepted_it_is_a_note(lab: Lab) -> None:
    gates = "severity: {content_lost: note}"
    row = examine(lab, "Strips", [THOUGHTS, QUESTION], code=STRIPS, gates=gates)
    assert row.verdict == "pass" and codes(row, "note") == ["content_lost"]


def test_1_14_by_the_built_in_task_and_a_template_that_strips(
    lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tiny: Any = pytest.importorskip("tiny_llm")
    strip = (
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
        "{{ message['content'] if loop.last else message['content'].split('</think>')[-1] }}"
        "{{ '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    model = tiny.write_model(tmp_path_factory.mktemp("strip"), tiny.tokenizer(strip))
    row = examine(lab, "sft", [THOUGHTS, QUESTION], more=f"model: {{path: {model}}}")
    found = reason_of(row, "content_lost")
    assert found["where"]["turn"] == 1 and found["where"]["rows"] == ["r0"] and "lost 22 of 30" in found["text"]


def test_1_14_text_that_is_only_spaced_otherwise_passes(lab: Lab) -> None:
    code = HEAD + "class Spaced(Words):\n    def render(self, messages, turn):\n"
    code += "        return ' '.join(messages[turn]['content'].split())\n"
    row = examine(lab, "Spaced", [chat("One\n\n two?", "  Three   four. ")], code=code)
    assert row.verdict == "pass", row.reasons
