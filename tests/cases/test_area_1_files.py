"""Area 1, the example that really reaches the loss: what loaders do to rows, pairs, class names, entities, packing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from area_1 import chat, examine, jsonl
from lab import Lab, codes, reason_of

from tui_pilot.store.state import Row

HEAD = "from words import BOS, END, IGNORE, MARK, PAD, Words\n"

# -- 1.16 ------------------------------------------------------------------------------------------------------------
COLUMNS = HEAD + """
def unify(values):
    \"\"\"One set of keys for all, as columnar loaders make it.\"\"\"
    if not all(isinstance(value, dict) for value in values if value is not None):
        return values
    keys = list(dict.fromkeys(key for value in values if value for key in value))
    parts = {key: unify([(value or {}).get(key) for value in values]) for key in keys}
    return [value and {key: parts[key][n] for key in keys} for n, value in enumerate(values)]

class Columns(Words):
    WAY = staticmethod(unify)

    def records(self, split):
        rows = self.WAY(self.lines(split))
        return [{**row, "text": str(row["arguments"])} for row in rows]
"""  # fmt: skip
CALLS = [{"tool": "move", "arguments": {"x": 0, "y": 1}}, {"tool": "turn", "arguments": {"theta": 90}}]


def test_1_16_keys_of_other_rows_become_nulls(lab: Lab) -> None:
    found = reason_of(examine(lab, "Columns", CALLS, code=COLUMNS, data="train_on: all"), "invented_field")
    assert found["severity"] == "fail" and found["where"]["rows"] == ["r0", "r1"]
    assert found["where"]["key"] == "arguments.theta" and "2 rows of 2: invented key theta" in found["text"]
    assert found["where"]["file"].endswith("train.jsonl")


def test_1_16_dicts_kept_as_they_were_pass(lab: Lab) -> None:
    code = COLUMNS.replace("staticmethod(unify)", "staticmethod(list)")
    row = examine(lab, "Columns", CALLS, code=code, data="train_on: all")
    assert row.verdict == "pass", row.reasons


def test_1_16_inside_the_calls_of_a_conversation(lab: Lab) -> None:
    turns = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "On my way."}]
    rows = [{"messages": [turns[0], {**turns[1], "call": {"name": name, "arguments": given}}]}
            for name, given in (("move", {"x": 0}), ("turn", {"theta": 90}))]  # fmt: skip
    code = HEAD + """
class Padded(Words):
    def records(self, split):
        rows = self.lines(split)
        for row in rows:
            given = row["messages"][1]["call"]["arguments"]
            row["messages"][1]["call"]["arguments"] = {key: given.get(key) for key in ("x", "theta")}
        return rows
"""  # fmt: skip
    found = reason_of(examine(lab, "Padded", rows, code=code), "invented_field")
    assert found["where"]["key"] == "messages[1].call.arguments.theta"


def test_1_16_a_column_that_some_rows_lack_is_a_note(lab: Lab) -> None:
    rows = [{"text": "one", "source": "a"}, {"text": "two"}]
    code = HEAD + """
class Filled(Words):
    def records(self, split):
        return [{"source": None, **row} for row in self.lines(split)]
"""  # fmt: skip
    row = examine(lab, "Filled", rows, code=code, data="train_on: all")
    assert row.verdict == "pass" and codes(row, "note") == ["invented_field"]


def test_1_16_nulls_that_became_words(lab: Lab) -> None:
    rows = [{"text": "one", "meta": {"by": None}}, {"text": "two", "meta": {"by": "Ada"}}]
    code = HEAD + """
class Worded(Words):
    def records(self, split):
        return [{**row, "meta": {"by": str(row["meta"]["by"])}} for row in self.lines(split)]
"""  # fmt: skip
    found = reason_of(examine(lab, "Worded", rows, code=code, data="train_on: all"), "invented_field")
    assert found["where"]["rows"] == ["r0"] and found["where"]["key"] == "meta.by"


def test_1_16_a_lost_call_of_a_tool(lab: Lab) -> None:
    rows = [{"messages": [{"role": "user", "content": "Go."},
                          {"role": "assistant", "content": "Yes.", "tool_calls": [{"name": "go"}]}]}]  # fmt: skip
    code = HEAD + """
class Bare(Words):
    def records(self, split):
        rows = self.lines(split)
        for row in rows:
            row["messages"] = [{key: each[key] for key in ("role", "content")} for each in row["messages"]]
        return rows
"""  # fmt: skip
    found = reason_of(examine(lab, "Bare", rows, code=code), "field_lost")
    assert found["severity"] == "warn" and found["where"]["key"] == "messages[1].tool_calls"


# -- stale caches ----------------------------------------------------------------------------------------------------
CACHED = HEAD + """
class Cached(Words):
    def records(self, split):
        rows = self.lines(split)
        if rows:
            rows[%d] = %r
        return rows
"""  # fmt: skip
TEXTS = [{"text": f"line {number}"} for number in range(5)]


def test_rows_of_an_older_state_of_the_file(lab: Lab) -> None:
    code = CACHED % (2, {"id": "r2", "text": "line two, before it was corrected"})
    found = reason_of(examine(lab, "Cached", TEXTS, code=code, data="train_on: all"), "stale_cache")
    assert found["severity"] == "fail" and found["where"]["rows"] == ["r2"] and "1 row of 5 differ" in found["text"]


def test_ids_that_the_file_no_longer_has(lab: Lab) -> None:
    code = HEAD + """
class Cached(Words):
    def records(self, split):
        return [{"id": f"{%r}{n}", "text": %r + str(n)} for n in range(2, 6)] if split == "train" else []
"""  # fmt: skip
    row = examine(lab, "Cached", TEXTS, code=code % ("r", "line "), data="train_on: all")
    found = reason_of(row, "stale_cache")
    assert "1 row of 4 carry an id that the file does not have, first r5" in found["text"]
    row = examine(lab, "Cached", TEXTS, code=code % ("old", "before "), data="train_on: all")
    assert "4 rows of 4 carry an id" in reason_of(row, "stale_cache")["text"]
    row = examine(lab, "Cached", TEXTS, code=code % ("mine", "line "), data="train_on: all")
    assert "stale_cache" not in codes(row)


def test_texts_that_a_task_rewrites_on_purpose_pass(lab: Lab) -> None:
    code = HEAD + """
class Asked(Words):
    def records(self, split):
        return [{**row, "text": "Q: " + row["text"]} for row in self.lines(split)]
"""  # fmt: skip
    row = examine(lab, "Asked", TEXTS, code=code, data="train_on: all")
    assert row.verdict == "pass", row.reasons


def test_rows_that_a_loader_passes_over_are_counted(lab: Lab) -> None:
    code = HEAD + """
class Picky(Words):
    def records(self, split):
        return [row for row in self.lines(split) if row["text"] != "line 3"]
"""  # fmt: skip
    found = reason_of(examine(lab, "Picky", TEXTS, code=code, data="train_on: all"), "rows_left_out")
    assert found["severity"] == "warn" and found["where"]["line"] == 4
    assert "5 rows and the task yields 4" in found["text"]


# -- 1.17 ------------------------------------------------------------------------------------------------------------
PACKED = """
import torch
from torch import nn
from torch.nn import functional
from tui_pilot.tasks import IGNORE, Task

A, B = [5, 6, 7, 8, 9, 10, 2], [11, 12, 13, 14, 15, 2]


class Attention(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = blocks
        self.embed, self.mix, self.head = nn.Embedding(20, 16), nn.Linear(16, 48), nn.Linear(16, 20)

    def forward(self, ids, documents):
        query, key, value = self.mix(self.embed(ids)).chunk(3, dim=-1)
        seen = torch.tril(torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool)).expand(len(ids), -1, -1)
        if self.blocks:
            seen = seen & (documents[:, :, None] == documents[:, None, :])
        mixed = functional.scaled_dot_product_attention(query[:, None], key[:, None], value[:, None], seen[:, None])
        return self.head(mixed[:, 0])


class Packed(Task):
    def records(self, split):
        return [{"id": f"pack-{n}"} for n in range(4)] if split == "train" else []

    def encode(self, record):
        numbers = [0] * len(A) + [1] * len(B)
        return {"input_ids": A + B, "labels": A + B, **self.places(numbers)}

    def places(self, numbers):
        return {"documents": numbers}

    def special_ids(self):
        return {"end": 2, "pad": 0}

    def build_model(self):
        return Attention(%s)

    def numbers(self, batch):
        return batch["documents"]

    def loss(self, model, batch):
        logits = model(batch["input_ids"], self.numbers(batch))[:, :-1]
        return functional.cross_entropy(
            logits.transpose(1, 2), batch["labels"][:, 1:], ignore_index=IGNORE, reduction="sum")
"""  # fmt: skip
BY_PLACES = PACKED.replace('{"documents": numbers}', '{"position_ids": [*range(len(A)), *range(len(B))]}').replace(
    'batch["documents"]', '(batch["position_ids"] == 0).cumsum(1)'
)
BY_TURNS = PACKED.replace('{"documents": numbers}', "{}").replace(
    'return batch["documents"]', 'return torch.tensor([[0] * len(A) + [1] * len(B)] * len(batch["input_ids"]))'
) + """
    def spans(self, record, example):
        return [(0, 3, "user", 0), (3, 7, "assistant", 1), (7, 9, "user", 0), (9, 13, "assistant", 1)]
"""  # fmt: skip
SKIP = "gates: {skip: [evaluate, steady_step], overfit: {steps: 1}}\n"


def forward(lab: Lab, code: str, packing: str = "documents", skip: str = SKIP) -> Row:
    """The ``forward`` row of a packing task."""
    plan = f"name: packed\ntask: own.py:Packed\ndata: {{train_on: all, packing: {packing}}}\ndevice: cpu\n{skip}"
    lab.prepare(plan, {"own.py": code})
    return next(row for row in lab.stage("peak").rows if row.phase == "forward")


@pytest.mark.parametrize("code", [PACKED, BY_PLACES, BY_TURNS], ids=["documents", "positions", "turns"])
def test_1_17_a_packed_document_reads_the_one_before_it(lab: Lab, code: str) -> None:
    found = reason_of(forward(lab, code % False), "packed_documents_leak")
    assert found["severity"] == "fail" and found["where"]["row"] == "pack-0"
    assert found["where"]["position"] == 5  # the last id of A that is no end token
    assert "holds 2 documents" in found["text"] and "expected at most 1e-05" in found["text"]


@pytest.mark.parametrize("code", [PACKED, BY_PLACES, BY_TURNS], ids=["documents", "positions", "turns"])
def test_1_17_with_a_block_mask_it_passes(lab: Lab, code: str) -> None:
    row = forward(lab, code % True)
    assert row.verdict == "pass" and row.inputs["packed_documents"] == 2


def test_1_17_a_task_that_packs_and_does_not_say_where_is_unchecked(lab: Lab) -> None:
    code = BY_TURNS.partition("    def spans")[0] % True
    assert codes(forward(lab, code), "unchecked") == ["not_observed"]
    assert forward(lab, code, packing="none").verdict == "pass"


def test_1_17_packing_inside_the_collator(lab: Lab) -> None:
    code = PACKED.replace("return {\"input_ids\": A + B, \"labels\": A + B, **self.places(numbers)}",
                          "return {\"input_ids\": list(A), \"labels\": list(A)}") + """
    def collate(self, examples):
        ids = torch.tensor([[each for one in examples for each in one["input_ids"]]])
        edges = torch.tensor([0, *(len(one["input_ids"]) for one in examples)]).cumsum(0)
        return {"input_ids": ids, "labels": ids.clone(), "cu_seqlens": edges,
                "documents_of": torch.bucketize(torch.arange(ids.shape[1]), edges[1:], right=True)[None]}
"""  # fmt: skip
    code = code.replace('batch["documents"]', 'batch["documents_of"]')
    skip = SKIP + "batch: {micro: 2}\n"
    assert "packed_documents_leak" in codes(forward(lab, code % False, skip=skip))
    assert forward(lab, code % True, skip=skip).verdict == "pass"


# -- 1.19 ------------------------------------------------------------------------------------------------------------
TURNS = (("system", "Be kind."), ("human", "One?"), ("gpt", "First."), ("human", "Two?"), ("gpt", "Second."))
SHARED = [{"conversations": [{"from": who, "value": text} for who, text in TURNS]}]
CONVERTER = HEAD + """
ROLES = {"human": "user", "gpt": "assistant"%s}

class Converted(Words):
    def records(self, split):
        return [{"id": row["id"], "messages": [
            {"role": ROLES[each["from"]], "content": each["value"]}
            for each in row["conversations"] if each["from"] in ROLES][:%d]} for row in self.lines(split)]
"""  # fmt: skip


def test_1_19_a_converter_drops_system_turns_and_all_after_the_second(lab: Lab) -> None:
    found = reason_of(examine(lab, "Converted", SHARED, code=CONVERTER % ("", 2)), "message_lost")
    assert found["severity"] == "fail" and found["where"]["rows"] == ["r0"]
    assert "system 1 -> 0, user 2 -> 1, assistant 2 -> 1" in found["text"]


def test_1_19_all_turns_converted_pass(lab: Lab) -> None:
    row = examine(lab, "Converted", SHARED, code=CONVERTER % (', "system": "system"', 9))
    assert row.verdict == "pass", row.reasons


def test_1_19_a_renderer_that_leaves_turns_out(lab: Lab) -> None:
    code = HEAD + """
class Short(Words):
    def encode(self, record, max_length=None):
        return super().encode({"messages": record["messages"][:2]}, max_length)

    def spans(self, record, example):
        return super().spans({"messages": record["messages"][:2]}, example)
"""  # fmt: skip
    found = reason_of(examine(lab, "Short", [chat("1?", "One.", "2?", "Two.")], code=code), "message_lost")
    assert "user 2 -> 1, assistant 2 -> 1" in found["text"]


# -- 1.20 ------------------------------------------------------------------------------------------------------------
NAMES = ("entailment", "neutral", "contradiction")
NAMED = """
from tui_pilot.tasks import Task

class Named(Task):
    def records(self, split):
        return [{"text": "a", "label": n %% 3} for n in range(6)] if split == "train" else []

    def class_names(self):
        return %r

    def encode(self, record):
        return {"input_ids": [5, 6], "labels": record["label"]}
"""  # fmt: skip
DESK = "text,label\n" + "".join(f"words {number},{NAMES[number % 3]}\n" for number in range(6))


def head(names: tuple[str, ...]) -> str:
    return json.dumps({"id2label": {str(number): name for number, name in enumerate(names)}})


@pytest.mark.parametrize("place", ["model", "plan", "labels.json", "classes.txt"])
def test_1_20_two_class_ids_are_swapped(lab: Lab, place: str) -> None:
    other = (NAMES[2], NAMES[1], NAMES[0])
    files = {"model/config.json": head(other)} if place == "model" else {}
    files |= {"labels.json": json.dumps(list(other))} if place == "labels.json" else {}
    files |= {"classes.txt": "\n".join(other)} if place == "classes.txt" else {}
    more = "model: {path: model}\n" if place == "model" else ""
    data = f"classes: [{', '.join(other)}]" if place == "plan" else ""
    row = examine(lab, "Named", [{"text": "a"}] * 6, code=NAMED % (NAMES,), data=data, more=more, files=files)
    found = reason_of(row, "class_names_disagree")
    assert found["severity"] == "fail" and "swapped" in found["text"]
    assert "0" in found["text"].partition("swapped")[0] and "2" in found["text"].partition("swapped")[0]
    assert "entailment" in found["text"] and "contradiction" in found["text"]


def test_1_20_another_letter_case_is_a_note(lab: Lab) -> None:
    files = {"model/config.json": head(tuple(name.upper() for name in NAMES))}
    rows = [{"text": "a"}] * 6
    row = examine(lab, "Named", rows, code=NAMED % (NAMES,), more="model: {path: model}\n", files=files)
    assert row.verdict == "pass" and "letter case alone" in reason_of(row, "file_note")["text"]


def test_1_20_the_built_in_classifier_compares_plan_and_data(lab: Lab) -> None:
    rows = "text,label,label_text\n" + "".join(f"words {n},{n % 3},{NAMES[n % 3]}\n" for n in range(6))
    data = "classes: [contradiction, neutral, entailment]"
    row = examine(lab, "classification", rows, data=data, train="train.csv")
    assert "ids 0 and 2 are swapped" in reason_of(row, "class_names_disagree")["text"]
    row = examine(lab, "classification", rows, data=f"classes: [{', '.join(NAMES)}]", train="train.csv")
    assert row.verdict == "pass", row.reasons


# -- 1.22, 1.23 ------------------------------------------------------------------------------------------------------
PAIRS = """
from tui_pilot.tasks import IGNORE, Task

def side(prompt, answer, length):
    ids = [*prompt, *answer][:length]
    return {"input_ids": ids, "labels": ([IGNORE] * len(prompt) + ids[len(prompt):])[:length]}

class Pairs(Task):
    def records(self, split):
        return self.plan.options["rows"] if split == "train" else []

    def encode(self, record, max_length=None):
        cut = {name: side(record["prompt"], record[name], max_length) for name in ("chosen", "rejected")}
        return self.shape(cut)

    def shape(self, cut):
        return cut
"""
FLAT = PAIRS.replace("return cut\n", 'return {f"{name}_{key}": value for name, one in cut.items() '
                     'for key, value in one.items()}\n', 1)  # fmt: skip
SAME = {"prompt": [4, 5], "chosen": [10, 11, 12, 13, 14, 15, 16, 2], "rejected": [10, 11, 12, 13, 14, 15, 17, 2]}


def pairs(lab: Lab, rows: list[dict[str, Any]], length: int | None, code: str = PAIRS) -> Row:
    data = "" if length is None else f"max_length: {length}"
    gates = "examples: {max_truncated: 1.0}"
    return examine(lab, "Pairs", code=code, data=data, gates=gates, more=f"options: {json.dumps({'rows': rows})}\n")


@pytest.mark.parametrize("code", [PAIRS, FLAT], ids=["nested", "flat"])
def test_1_22_a_pair_whose_difference_lies_past_the_cut(lab: Lab, code: str) -> None:
    found = reason_of(pairs(lab, [SAME], 8, code), "pair_identical")
    assert found["severity"] == "fail" and found["where"]["rows"] == [0]
    assert "equal after the cut: the pair carries no preference" in found["text"]
    assert "pair_identical" not in codes(pairs(lab, [SAME], 9, code))


def test_1_22_a_pair_that_is_equal_in_the_file(lab: Lab) -> None:
    rows = [{**SAME, "rejected": SAME["chosen"]}, SAME]
    found = reason_of(pairs(lab, rows, None), "pair_identical")
    assert found["where"]["rows"] == [0] and "equal in the file" in found["text"]
    assert pairs(lab, [SAME], None).verdict == "pass"


LONGER = PAIRS.replace(
    "        cut = {",
    """        both = [record["chosen"], record["rejected"]]
        # room is left for the longer answer: an end below 0 takes from the other's tail
        keep = None if max_length is None else max_length - max(map(len, both))
        cut = {""",
).replace("record[name], max_length)", "record[name][:keep], None)")


def test_1_23_the_shorter_answer_is_cut_to_nothing(lab: Lab) -> None:
    row = {"prompt": [4], "chosen": [10, 11, 2], "rejected": [*range(10, 23), 2]}
    found = reason_of(pairs(lab, [row], 10, LONGER), "pair_side_empty")
    assert found["severity"] == "fail" and found["where"]["side"] == "chosen" and found["where"]["rows"] == [0]
    assert "chosen is empty after the cut (0 of 3 response tokens), expected at least 1" in found["text"]
    assert "pair_side_empty" not in codes(pairs(lab, [row], 20, LONGER))


def test_1_23_sides_that_answer_two_prompts(lab: Lab) -> None:
    code = PAIRS.replace(
        'record["prompt"], record[name]', 'record["prompt"] if name == "chosen" else [9], record[name]'
    )
    assert reason_of(pairs(lab, [SAME], None, code), "pair_prompts_differ")["severity"] == "warn"


# -- 1.25 ------------------------------------------------------------------------------------------------------------
MISSING = """
import csv
from tui_pilot.tasks import Task

EMPTY = {"", "None", "NA", "null", "n/a", "nan"}

class Read(Task):
    def records(self, split):
        if split != "train":
            return []
        with open(self.plan.data.train, newline="", encoding="utf-8") as stream:
            return [self.row(row) for row in csv.DictReader(stream)]

    def row(self, row):
        return {key: None if value in EMPTY else value for key, value in row.items()}

    def class_names(self):
        return ["positive", "None", "NA", "null", "n/a", "nan"]

    def encode(self, record):
        names = self.class_names()
        return {"input_ids": [5], "labels": names.index(record["label"]) if record["label"] in names else -100}
"""
LABELS = "text,label\n" + "".join(f"words {n},{name}\n" for n, name in enumerate(
    ("positive", "None", "NA", "null", "n/a", "nan")))  # fmt: skip


def test_1_25_a_reader_takes_words_for_missing_values(lab: Lab) -> None:
    found = reason_of(examine(lab, "Read", LABELS, code=MISSING, train="train.csv"), "values_invented_missing")
    assert found["severity"] == "fail" and found["where"]["rows"] == [1, 2, 3, 4, 5]
    assert "reader invented 5 missing values" in found["text"] and "the file has 'None'" in found["text"]
    assert "the column has 0 empty fields" in found["text"]


def test_1_25_words_kept_as_words_pass(lab: Lab) -> None:
    code = MISSING.replace("None if value in EMPTY else value", "value")
    assert examine(lab, "Read", LABELS, code=code, train="train.csv").verdict == "pass"
    row = examine(lab, "classification", LABELS, train="train.csv", gates="severity: {file_note: note}")
    assert not codes(row, "fail") and "kept as text" in " ".join(each["text"] for each in row.reasons)


def test_1_25_a_field_that_is_empty_in_the_file_is_no_invention(lab: Lab) -> None:
    rows = LABELS + "words 6,\n"
    code = MISSING.replace("None if value in EMPTY else value", "value or None")
    assert "values_invented_missing" not in codes(examine(lab, "Read", rows, code=code, train="train.csv"))


def test_1_25_counted_by_column_where_rows_cannot_be_matched(lab: Lab) -> None:
    code = MISSING.replace("for row in csv.DictReader(stream)]", "for row in csv.DictReader(stream)][1:]")
    found = reason_of(examine(lab, "Read", LABELS, code=code, train="train.csv"), "values_invented_missing")
    assert "5 missing values in label" in found["text"] and "the file has 0 empty fields" in found["text"]


def test_1_25_a_blank_makes_whole_numbers_decimals(lab: Lab) -> None:
    rows = jsonl([{"text": "one", "label": 0.0}, {"text": "two", "label": 1.0}, {"text": "three", "label": None}])
    row = examine(lab, "classification", rows)
    found = reason_of(row, "values_invented_missing")
    assert found["severity"] == "fail" and found["where"]["rows"] == ["r2"]


# -- 1.26 ------------------------------------------------------------------------------------------------------------
TAGGED = """
from tui_pilot.tasks import Task

class Tagged(Task):
    def records(self, split):
        row = {"id": "s1", "words": ["New", "York"], "tags": %s}
        return [row] if split == "train" else []

    def class_names(self):
        return ["O", "B-org", "I-org"]

    def encode(self, record):
        return {"input_ids": [5, 6, 7, 8], "labels": %s}
"""


@pytest.mark.parametrize(
    ("labels", "code"),
    [
        ([1, 1, 2, 2], "entities_inflated"),
        ([1, -100, 2, -100], None),
        ([1, 2, 2, 2], None),
        ([0, 0, 0, 0], "entities_lost"),
        ([-100] * 4, "no_supervised_token"),
    ],
)
@pytest.mark.parametrize("tags", [["B-org", "I-org"], [1, 2]], ids=["names", "ids"])
def test_1_26_later_sub_words_become_new_beginnings(
    lab: Lab, tags: list[Any], labels: list[int], code: str | None
) -> None:
    row = examine(lab, "Tagged", code=TAGGED % (tags, labels))
    if code is None:
        assert row.verdict == "pass", row.reasons
        return
    found = reason_of(row, code)
    assert found["severity"] == "fail" and found["where"]["rows"] == ["s1"]
    if code == "entities_inflated":
        assert "2 entities in the labels, 1 in the words" in found["text"]
