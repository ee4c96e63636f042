"""Area 2, leakage by unit: what two sides of a split may not have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from area_1 import WORDS, chat, jsonl
from area_2 import splits, text
from lab import Lab, codes, reason_of

HEAD = "from words import BOS, END, IGNORE, MARK, PAD, Words\n"


def chain(name: str, count: int) -> list[dict[str, Any]]:
    """A conversation of rows, each naming the one before."""
    ids = [f"{name}{number}" for number in range(1, count + 1)]
    parents = [None, *ids[:-1]]
    return [{"id": own, "parent_id": up, "text": f"Turn {own}."} for own, up in zip(ids, parents, strict=True)]


# -- 2.02 ------------------------------------------------------------------------------------------------------------
A, B = chain("A", 3), chain("B", 3)
CUT = [*A, *B[:2]], [B[2]]
WHOLE = A, B
BY_ROOT = "unit: {root_of: {parent: parent_id}}"


@pytest.mark.parametrize("unit", [BY_ROOT, "unit: parent_id"], ids=["root", "the parent's field alone"])
def test_2_02_a_chain_cut_in_two(lab: Lab, unit: str) -> None:
    row = splits(lab, *CUT, data=unit)
    found = reason_of(row, "unit_in_two_splits")
    assert found["severity"] == "fail" and found["where"]["unit"] == "B1" and found["where"]["rows"] == ["B3"]
    assert "1 unit of root of parent_id chains on both sides of train and validation: B1; expected 0" in found["text"]


@pytest.mark.parametrize("unit", [BY_ROOT, "unit: parent_id"], ids=["root", "the parent's field alone"])
def test_2_02_whole_chains_pass(lab: Lab, unit: str) -> None:
    row = splits(lab, *WHOLE, data=unit)
    assert row.verdict == "pass" and row.inputs["unit"] == "root of parent_id chains"


def test_2_02_a_chain_whose_middle_is_in_no_file(lab: Lab) -> None:
    row = splits(lab, [*A, B[0], B[1]], [{"id": "B9", "parent_id": "B2", "text": "A late turn."}], data=BY_ROOT)
    assert reason_of(row, "unit_in_two_splits")["where"]["rows"] == ["B9"]


def test_2_02_conversations_by_a_field_in_numbers_and_words(lab: Lab) -> None:
    train = [{"id": f"t{n}", "conversation": n // 2, "text": f"Words {n}."} for n in range(6)]
    held = [{"id": "v", "conversation": "2", "text": "Words of the third."}]
    found = reason_of(splits(lab, train, held, data="unit: conversation"), "unit_in_two_splits")
    assert found["where"]["unit"] == "2" and found["where"]["row"] == "t4" and found["where"]["rows"] == ["v"]


@pytest.mark.parametrize(("unit", "verdict"), [("", "unchecked"), (f"{BY_ROOT}, ", "pass")], ids=["rows", "chains"])
def test_2_02_a_part_held_out_by_the_plan_keeps_chains_whole(lab: Lab, unit: str, verdict: str) -> None:
    rows = [each for name in "ABCDEFGH" for each in chain(name, 3)]
    held = "validation: {fraction: 0.2, seed: 0}, format: text"
    row = splits(lab, rows, None, data=f"{unit}{held.replace(', format: text', '')}", task="Held", code=HELD)
    assert row.verdict == verdict and row.inputs["rows"]["validation"] >= 5
    if not unit:
        found = reason_of(row, "unit_unknown")
        assert "parent_id stand on both sides" in found["text"] or "rows were compared one by one" in found["text"]


HELD = (
    HEAD
    + """
from tui_pilot.tasks.splits import SplitFiles

class Held(Words):
    def records(self, split):
        self.files = getattr(self, "files", None) or SplitFiles(self.plan)
        return self.files.records(split)
"""
)


def test_2_02_rows_that_do_not_say_their_unit_are_unchecked(lab: Lab) -> None:
    train = text(("a", "One."), ("b", "Two."), chain="x")
    held = [{"id": "c", "text": "Three.", "chain": None}, {"id": "d", "text": "Four.", "chain": float("nan")}]
    found = reason_of(splits(lab, train, held, data="unit: chain"), "unit_unknown")
    assert found["severity"] == "unchecked" and found["where"]["rows"] == ["c", "d"]
    assert "2 of 2 rows of validation do not say their unit (chain)" in found["text"]


# -- 2.03 ------------------------------------------------------------------------------------------------------------
EXPANDED = [
    {"id": f"g{gene}_{place}", "text": f"gene {gene} place {place}"} for gene in range(1, 5) for place in (-1, 0, 1, 2)
]
BY_ROW = [row for n, row in enumerate(EXPANDED) if n % 4], EXPANDED[::4]
BY_GENE = EXPANDED[:12], EXPANDED[12:]


@pytest.mark.parametrize(
    "rule", ['{prefix: "_"}', "{regex: '^(g\\d+)_'}"], ids=["before the last mark", "regular expression"]
)
def test_2_03_items_expanded_to_rows_and_split_by_row(lab: Lab, rule: str) -> None:
    row = splits(lab, *BY_ROW, data=f"unit: {rule}")
    found = reason_of(row, "unit_in_two_splits")
    assert found["where"]["unit"] == "g1" and found["where"]["rows"] == ["g1_-1", "g2_-1", "g3_-1", "g4_-1"]
    assert "4 units of id" in found["text"] and "g1, g2, g3, g4; expected 0" in found["text"]
    assert splits(lab, *BY_GENE, data=f"unit: {rule}").verdict == "pass"


def test_2_03_without_a_rule_it_is_unchecked_and_the_rule_is_proposed(lab: Lab) -> None:
    row = splits(lab, *BY_ROW)
    assert row.verdict == "unchecked" and row.inputs["unit"] == "none given"
    found = reason_of(row, "unit_unknown")
    assert '4 values of {prefix: "_"} stand on both sides, first g1' in found["text"]
    assert 'data.unit: {prefix: "_"}' in found["advice"]
    quiet = reason_of(splits(lab, *BY_GENE), "unit_unknown")
    assert quiet["severity"] == "unchecked" and "stand on both sides" not in quiet["text"]


def test_2_03_a_rule_that_no_row_has_is_unchecked(lab: Lab) -> None:
    found = reason_of(splits(lab, *BY_GENE, data="unit: gene_id"), "unit_unknown")
    assert found["severity"] == "unchecked" and "12 of 12 rows of train do not say their unit" in found["text"]


def test_2_03_a_unit_of_two_parts_by_the_task(lab: Lab) -> None:
    code = (
        HEAD + "class Own(Words):\n    def unit(self, record):\n        return record['id'].split('_')[:1] + ['gene']\n"
    )
    row = splits(lab, *BY_ROW, task="Own", code=code, data="unit: id")
    assert row.inputs["unit"] == "Own.unit"
    assert reason_of(row, "unit_in_two_splits")["where"]["unit"] == "g1 / gene"


# -- 2.05 ------------------------------------------------------------------------------------------------------------
SHAPES = (
    HEAD
    + """
class Shapes(Words):
    def encode(self, record, max_length=None):
        return super().encode({"text": f"{record['shape']} at {record['angle']}"}, max_length)
"""
)
TURNED = [{"id": "T-44", "shape": "T", "angle": 44}, {"id": "L-10", "shape": "L", "angle": 10}]
TURNED_ON = [{"id": "T-45", "shape": "T", "angle": 45}, {"id": "U-10", "shape": "U", "angle": 10}]


def test_2_05_variants_of_one_source_on_both_sides(lab: Lab) -> None:
    row = splits(lab, TURNED, TURNED_ON, task="Shapes", code=SHAPES, data="unit: shape")
    found = reason_of(row, "unit_in_two_splits")
    assert found["where"]["unit"] == "T" and found["where"]["rows"] == ["T-45"] and "1 unit of shape" in found["text"]


def test_2_05_by_row_id_they_pass_and_the_unit_used_is_said(lab: Lab) -> None:
    row = splits(lab, TURNED, TURNED_ON, task="Shapes", code=SHAPES, data="unit: id")
    assert row.verdict == "pass" and row.inputs["unit"] == "id" and row.inputs["compared_by"] == ["shape", "angle"]
    assert lab.state().facts["splits"]["unit"] == "id"


LONG = "A letter to the library about the book on the two towers that was lent in May and is still with {} today."


def test_2_05_a_text_with_one_word_changed_is_a_near_duplicate(lab: Lab) -> None:
    train = text(
        ("a", "Something else entirely, and nothing that is alike in any of its words."), ("b", LONG.format("Ann"))
    )
    held = text(("c", LONG.format("Bert")), ("d", "Nothing of the kind stands in this one, not a run of it at all."))
    found = reason_of(splits(lab, train, held, data="unit: id"), "near_duplicate")
    assert found["severity"] == "warn" and found["where"]["rows"] == ["c"] and found["where"]["row"] == "b"
    assert "Ann" not in found["text"] and found["text"].count("A letter to the library") == 2


def test_2_05_marks_and_quotes_alone_make_no_other_text_and_arithmetic_does(lab: Lab) -> None:
    train = text(("a", "\u201cWhat is it?\u201d she said"), ("b", "What is 3*4 now?"))
    held = text(("c", '"What is it," she said!'), ("d", "What is 3+4 now?"))
    found = reason_of(splits(lab, train, held, data="unit: id"), "near_duplicate")
    assert found["where"]["rows"] == ["c"] and "1 differ in marks and blanks alone" in found["text"]


def test_2_05_a_frame_around_every_row_is_no_likeness(lab: Lab) -> None:
    frame = "Below is an instruction that describes a task. Write a response that completes the request. {}"
    train = text(*((f"t{n}", frame.format(f"Count to {n} in {n * 7} steps.")) for n in range(12)))
    held = text(*((f"v{n}", frame.format(f"Name {n} towns on {n * 3} rivers.")) for n in range(12)))
    row = splits(lab, train, held, data="unit: id")
    assert row.verdict == "pass" and codes(row) == []


def test_2_05_windows_of_one_series(lab: Lab) -> None:
    code = HEAD + "class Windows(Words):\n    def unit(self, record):\n        return record['from'], record['to']\n"
    train = [{"id": f"t{n}", "text": f"window {n}", "from": n * 10, "to": n * 10 + 10} for n in range(5)]
    held = [
        {"id": "v0", "text": "window a", "from": 45, "to": 55},
        {"id": "v1", "text": "window b", "from": 50, "to": 60},
    ]
    found = reason_of(splits(lab, train, held, task="Windows", code=code), "windows_overlap")
    assert found["where"]["rows"] == ["v0"] and "first 40 to 50 and 45 to 55" in found["text"]
    assert splits(lab, train, held[1:], task="Windows", code=code).verdict == "pass"


@pytest.mark.parametrize(("gap", "rows"), [(0, ["v0"]), (3, ["v0"]), (4, ["v0", "v1"])])
def test_2_05_moments_closer_than_the_gap(lab: Lab, gap: int, rows: list[str]) -> None:
    train = [{"id": f"t{n}", "text": f"day {n}", "day": n} for n in range(10)]
    held = [{"id": "v0", "text": "noon", "day": 9}, {"id": "v1", "text": "later", "day": 12}]
    row = splits(lab, train, held, data=f"unit: {{time: {{field: day, gap: {gap}}}}}")
    assert reason_of(row, "windows_overlap")["where"]["rows"] == rows


# -- 2.06 ------------------------------------------------------------------------------------------------------------
SLICED = (
    HEAD
    + """
ORDER = [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]

class Sliced(Words):
    TRAIN = staticmethod(%s)

    def records(self, split):
        rows = self.lines("train")
        return {"train": self.TRAIN(rows), "validation": rows[:2]}.get(split, [])
"""
)
TEN = text(*((str(number), f"row number {number}") for number in range(10)))


def test_2_06_train_is_shuffled_before_its_slice_and_validation_is_not(lab: Lab) -> None:
    code = SLICED % "lambda rows: [rows[n] for n in ORDER][2:]"
    found = reason_of(splits(lab, TEN, None, task="Sliced", code=code, data="unit: id"), "same_rows")
    assert (
        found["severity"] == "fail" and found["where"]["rows"] == ["0"] and "1 message of validation" in found["text"]
    )


def test_2_06_a_slice_before_the_shuffle_passes(lab: Lab) -> None:
    code = SLICED % "lambda rows: [row for n in ORDER for row in rows[2:] if row['id'] == str(n)]"
    row = splits(lab, TEN, None, task="Sliced", code=code, data="unit: id")
    assert row.verdict == "pass" and row.inputs["rows"] == {"train": 8, "validation": 2}


ORDERED = (
    HEAD
    + """
class Ordered(Words):
    def records(self, split):
        rows = self.lines("train")
        return {"train": rows, "validation": rows[:2]}.get(split, [])

    def order(self, split, epoch, seed):
        order = ["4", "1", "7", "5", "3", "9", "0", "8", "6", "2"]
        return %s
"""
)


def test_2_06_what_counts_is_what_the_order_yields(lab: Lab) -> None:
    row = splits(lab, TEN, None, task="Ordered", code=ORDERED % "order[2:]", data="unit: id")
    assert reason_of(row, "same_rows")["where"]["rows"] == ["0"] and row.inputs["rows"]["train"] == 8
    apart = splits(
        lab, TEN, None, task="Ordered", code=ORDERED % "[one for one in order if int(one) > 1]", data="unit: id"
    )
    assert apart.verdict == "pass" and apart.inputs["rows"]["train"] == 8


def test_2_06_an_order_that_names_rows_of_the_other_side(lab: Lab) -> None:
    code = HEAD + "class Across(Words):\n    def order(self, split, epoch, seed):\n        return ['a', 'c', 'b']\n"
    row = splits(lab, text(("a", "One."), ("b", "Two.")), text(("c", "Three.")), task="Across", code=code)
    found = next(each for each in row.reasons if each["code"] == "same_rows")
    assert found["where"]["rows"] == ["c"] and "yields 1 row that it lacks, validation has them: c" in found["text"]


BY_NAME = (
    HEAD
    + """
class ByName(Words):
    def encode(self, record, max_length=None):
        return super().encode({"text": "picture " + str(record["id"])}, max_length)
"""
)


def test_2_06_rows_that_are_nothing_but_their_name(lab: Lab) -> None:
    train, held = [{"id": f"p{n}.png"} for n in (1, 2, 3, 4)], [{"id": "p3.png"}, {"id": "p9.png"}]
    row = splits(lab, train, held, task="ByName", code=BY_NAME, data="unit: id")
    assert reason_of(row, "same_rows")["where"]["rows"] == ["p3.png"]
    assert splits(lab, train, held[1:], task="ByName", code=BY_NAME, data="unit: id").verdict == "pass"


def test_2_06_two_files_that_count_their_rows_anew_pass_and_one_id_of_two_contents_is_looked_at(lab: Lab) -> None:
    train = text(("0", "One."), ("1", "Two."), ("2", "Three."), source="a")
    held = text(("0", "Four."), ("1", "Five."), source="b")
    assert splits(lab, train, held, data="unit: text").verdict == "pass"
    named = splits(lab, text(("x7", "One."), ("x2", "Two.")), text(("x2", "Other words.")), data="unit: text")
    found = reason_of(named, "same_rows")
    assert found["severity"] == "warn" and found["where"]["rows"] == ["x2"] and "1 row id yielded by" in found["text"]


# -- 2.08 ------------------------------------------------------------------------------------------------------------
LINES = text(*((f"r{number}", f"The line with the number {number}.") for number in range(6)))


def test_2_08_validation_is_the_training_file_under_another_name(lab: Lab) -> None:
    row = splits(lab, LINES, LINES, data="unit: id")
    found = reason_of(row, "same_file")
    assert found["severity"] == "fail" and "have the same content hash" in found["text"]
    assert Path(found["where"]["file"]).name == "validation.jsonl"


def test_2_08_validation_is_a_link_to_the_training_file(lab: Lab) -> None:
    (lab.folder / "held.jsonl").symlink_to("train.jsonl")
    row = splits(lab, LINES, None, data="validation: held.jsonl, unit: id")
    assert "train and validation are one file" in reason_of(row, "same_file")["text"]


def test_2_08_the_same_rows_in_another_order(lab: Lab) -> None:
    row = splits(lab, LINES, [{**each, "id": f"v{n}"} for n, each in enumerate(reversed(LINES))], data="unit: id")
    found = reason_of(row, "same_rows")
    assert (
        "same_file" not in codes(row)
        and "6 messages of validation occur in train too (100% of its rows)" in found["text"]
    )
    assert len(found["where"]["rows"]) == 6


def test_2_08_a_remark_beside_it_makes_no_other_row_and_another_file_passes(lab: Lab) -> None:
    held = [{"id": f"v{n}", "note": "second export", "page": n, "text": each["text"]} for n, each in enumerate(LINES)]
    train = [{**each, "note": "first export", "page": 90 + n} for n, each in enumerate(LINES)]
    assert len(reason_of(splits(lab, train, held, data="unit: id"), "same_rows")["where"]["rows"]) == 6
    other = text(*((f"v{number}", f"A verse, and its place is {number}.") for number in range(6)))
    assert splits(lab, LINES, other, data="unit: id").verdict == "pass"


def test_2_08_one_question_beside_two_pictures_is_two_rows(lab: Lab) -> None:
    code = HEAD + """
class Seen(Words):
    def encode(self, record, max_length=None):
        return {**super().encode(record, max_length), "pixels": [ord(each) for each in record["picture"]]}
"""  # fmt: skip
    train = [{"id": f"t{n}", "text": "What is to be seen here?", "picture": f"{n}.png"} for n in range(4)]
    held = [{"id": "v", "text": "What is to be seen here?", "picture": "7.png"}]
    assert splits(lab, train, held, task="Seen", code=code, data="unit: id").verdict == "pass"
    again = [{**held[0], "picture": "2.png"}]
    assert reason_of(splits(lab, train, again, task="Seen", code=code, data="unit: id"), "same_rows")


# -- 2.09 ------------------------------------------------------------------------------------------------------------
ASKED = "Ren\u00e9 buys 3 caf\u00e9 cr\u00e8mes at 2 euros each. How much does he pay?"
SPELT = "REN\u0045\u0301  buys 3 cafe\u0301 cre\u0300mes  at 2 euros each. How much does HE pay?"
HONEST = [chat("What is the tallest tree in the park, and who planted it?", "Nobody knows.")]
BENCH = json.dumps({"question": ASKED, "answer": "He pays six euros for all of them."}) + "\n"


def bench(lab: Lab, train: list[dict[str, Any]], name: str = "bench.jsonl", content: str = BENCH) -> Any:
    data = f"benchmark: {name}, unit: id"
    return splits(lab, train, [chat("Where is the library?", "Here.", id="v")], data=data, files={name: content})


def test_2_09_a_question_in_other_spelling(lab: Lab) -> None:
    row = bench(lab, [*HONEST, chat(SPELT, "6")])
    found = reason_of(row, "benchmark_in_train")
    assert found["severity"] == "fail" and found["where"]["rows"] == ["r1"] and found["where"]["lines"] == [1]
    assert "1 of 1 benchmark row occur in train: line 1" in found["text"] and "near_duplicate" not in codes(row)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bench.json", json.dumps([{"question": ASKED, "choices": ["six", "five"]}], indent=2)),
        ("bench.csv", f'question,answer\n"{ASKED}",6\n'),
        ("bench.txt", ASKED + "\n"),
        ("bench.jsonl", json.dumps(chat(ASKED, "Six.")) + "\n"),
    ],
)
def test_2_09_benchmarks_of_other_formats_inside_a_longer_text(lab: Lab, name: str, content: str) -> None:
    row = bench(lab, [*HONEST, chat(f"Solve this.\nQuestion: {ASKED}", "6")], name, content)
    assert reason_of(row, "benchmark_in_train")["where"]["rows"] == ["r1"]
    assert bench(lab, HONEST, name, content).verdict == "pass"


def test_2_09_a_part_of_a_question_is_looked_at_with_both_texts(lab: Lab) -> None:
    row = bench(
        lab, [*HONEST, chat("Ren\u00e9 buys 3 caf\u00e9 cr\u00e8mes at 2 euros each, and a newspaper.", "Well?")]
    )
    found = reason_of(row, "near_duplicate")
    assert row.verdict == "warn" and found["where"]["rows"] == ["r1"]
    assert (
        found["text"].count("buys 3 caf\u00e9") == 2
        and "1 of 1 benchmark row share 8-word runs with train" in found["text"]
    )


def test_2_09_answers_and_frames_that_honest_rows_have_too_pass(lab: Lab) -> None:
    frame = "Answer the following question with one letter."
    rows = "".join(
        json.dumps({"instruction": frame, "input": f"Which town is number {n} by size?"}) + "\n" for n in range(8)
    )
    assert (
        bench(lab, [*HONEST, chat(frame, "He pays six euros for all of them.")], content=BENCH + rows).verdict == "pass"
    )


def test_2_09_a_short_question_in_a_row_of_its_own(lab: Lab) -> None:
    row = bench(lab, [*HONEST, chat("who wrote Faust", "Goethe.")], content='{"question": "Who wrote Faust?"}\n')
    assert reason_of(row, "benchmark_in_train")["where"]["rows"] == ["r1"]


def test_2_09_a_benchmark_that_cannot_be_read_is_unchecked(lab: Lab) -> None:
    row = bench(lab, HONEST, content=BENCH + '{"question": "Who\n')
    assert (
        row.verdict == "unchecked"
        and "1 benchmark row of 2 could not be read" in reason_of(row, "not_observed")["text"]
    )


# -- what must pass --------------------------------------------------------------------------------------------------
def test_clean_sides_are_quiet_and_say_what_was_compared(lab: Lab) -> None:
    train = [chat(f"Where does the road number {n} lead?", f"To town {n}.") for n in range(20)]
    held = [chat(f"Who lives in house number {n}?", f"Family {n}.", id=f"v{n}") for n in range(5)]
    row = splits(lab, train, held, data="unit: id")
    assert row.verdict == "pass" and codes(row) == [] and row.inputs["compared_by"] == ["messages"]


def test_the_built_in_task_too(lab: Lab, models: dict[str, Path]) -> None:
    train, held = (
        jsonl([chat(f"Road {n}?", f"Town {n}.", topic="a") for n in range(6)]),
        jsonl([chat("Road 2?", "Town 2.", topic="b", id="v")]),
    )
    row = splits(lab, train, held, task="sft", more=f"model: {{path: {models['chat']}}}\n", data="unit: id")
    assert reason_of(row, "same_rows")["where"]["rows"] == ["v"] and row.inputs["compared_by"] == ["messages"]
    assert WORDS  # the right task of area 1 stands beside it, unused
