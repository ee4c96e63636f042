"""Shapes of data files, D1 to D16: what the built-in tasks make of each, and what they say of the wrong ones."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from area_1 import chat, examine, jsonl
from lab import SHARED, Lab, codes, reason_of

from tui_pilot.store.state import Row

Models = dict[str, Path]


@pytest.fixture(autouse=True)
def _tokenizers() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[pilot]'")


def sft(lab: Lab, models: Models, rows: Any, model: str = "chat", data: str = "", **more: Any) -> Row:
    """The ``examples`` row of the built-in chat task over some rows."""
    return examine(lab, "sft", rows, data=data, more=f"model: {{path: {models[model]}}}\n", **more)


def classes(lab: Lab, rows: Any, train: str = "train.csv", data: str = "", **more: Any) -> Row:
    """The ``examples`` row of the built-in classifier."""
    return examine(lab, "classification", rows, train=train, data=data, **more)


def view(lab: Lab, number: int = 0, split: str = "train") -> dict[str, Any]:
    """What the Examples screen shows of one row."""
    assert lab.run is not None
    found: dict[str, Any] = json.loads((lab.run.examples / "rows" / f"{split}-{number}.json").read_text("utf-8"))
    return found


def rendered(lab: Lab, number: int = 0) -> str:
    return "".join(view(lab, number)["pieces"])


def learned(lab: Lab, number: int = 0) -> str:
    shown = view(lab, number)
    pairs = zip(shown["pieces"], shown["labels"], strict=True)
    return "".join(piece for piece, label in pairs if label != -100)


def notes(row: Row) -> str:
    return " | ".join(each["text"] for each in row.reasons if each["severity"] == "note")


def table(lab: Lab) -> list[tuple[int, str, int]]:
    """Class id, name and count as the run's facts show them."""
    listed = lab.state().facts["examples"]["classes"]
    return [(each["id"], each["name"], each["count"]) for each in listed]


# -- D1 --------------------------------------------------------------------------------------------------------------
ALPACA = [
    {"instruction": "Add 2 and 2.", "input": "", "output": "4"},
    {"instruction": "Upper case.", "input": "ab", "output": "AB"},
]


def test_d01_an_alpaca_array(lab: Lab, models: Models) -> None:
    row = sft(lab, models, json.dumps(ALPACA), train="train.json")
    assert row.verdict == "pass", row.reasons
    assert "user\nAdd 2 and 2.<|im_end|>" in rendered(lab) and "user\nUpper case.\n\nab<|im_end|>" in rendered(lab, 1)
    assert [learned(lab), learned(lab, 1)] == ["4<|im_end|>", "AB<|im_end|>"]


def test_d01_an_empty_output_is_named(lab: Lab, models: Models) -> None:
    found = reason_of(
        sft(lab, models, json.dumps([*ALPACA, {"instruction": "?", "output": ""}]), train="train.json"), "empty_target"
    )
    assert found["severity"] == "fail" and found["where"]["rows"] == [2] and "no target" in found["text"]


# -- D2 --------------------------------------------------------------------------------------------------------------
def sharegpt(*turns: tuple[str, str]) -> dict[str, Any]:
    return {"conversations": [{"from": who, "value": text} for who, text in turns]}


def test_d02_sharegpt_messages_in_are_messages_out(lab: Lab, models: Models) -> None:
    rows = [sharegpt(("system", "Be kind."), ("human", "One?"), ("gpt", "First."), ("tool", "12"), ("gpt", "Second."))]
    row = sft(lab, models, rows)
    assert row.verdict == "pass", row.reasons
    assert [span[2] for span in view(lab)["spans"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert learned(lab) == "First.<|im_end|>Second.<|im_end|>"


def test_d02_an_unknown_role_is_named_and_never_skipped(lab: Lab, models: Models) -> None:
    row = sft(
        lab, models, [sharegpt(("human", "One?"), ("gpt", "First.")), sharegpt(("narrator", "Then"), ("gpt", "So."))]
    )
    found = reason_of(row, "broken_line")
    assert found["severity"] == "fail" and found["where"]["line"] == 2 and "unknown role 'narrator'" in found["text"]
    row = sft(lab, models, [sharegpt(("human", "One?"), ("gpt", "First."))])
    assert row.verdict == "pass"


# -- D3 --------------------------------------------------------------------------------------------------------------
def calls(arguments: Any) -> dict[str, Any]:
    call = {"type": "function", "function": {"name": "weather", "arguments": arguments}}
    return {
        "messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "12 degrees"},
            {"role": "assistant", "content": "Cold."},
        ],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": {}}}],
    }


@pytest.mark.parametrize("arguments", [{"city": "Oslo"}, '{"city": "Oslo"}'], ids=["object", "text"])
def test_d03_calls_of_tools(lab: Lab, models: Models, arguments: Any) -> None:
    row = sft(lab, models, [calls(arguments)])
    assert row.verdict == "pass", row.reasons
    assert "None" not in rendered(lab) and "null" not in rendered(lab)
    assert learned(lab) == "<call>weather</call><|im_end|>Cold.<|im_end|>"  # the tool's own words carry no label


def test_d03_neither_content_nor_calls_is_an_error(lab: Lab, models: Models) -> None:
    rows = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": None}]}]
    found = reason_of(sft(lab, models, rows), "broken_line")
    assert "neither content nor tool_calls" in found["text"] and found["where"]["line"] == 1


# -- D4 --------------------------------------------------------------------------------------------------------------
def test_d04_prompt_and_completion_are_cut_together(lab: Lab, models: Models) -> None:
    row = sft(lab, models, [{"prompt": "Two plus", "completion": " two"}], model="bare")
    assert row.verdict == "pass" and "tokenized differently" not in notes(row)
    assert learned(lab) == " two<|im_end|>"


def test_d04_a_prompt_that_is_no_prefix_is_said(lab: Lab, models: Models) -> None:
    # "ans" and "answer": the token of the whole word crosses the edge
    row = sft(lab, models, [{"prompt": "Say answ", "completion": "er now"}], model="bare")
    assert "the prompt alone is tokenized differently; the mask goes by characters" in notes(row)
    assert learned(lab).endswith("er now<|im_end|>") and not codes(row, "fail")


# -- D5 --------------------------------------------------------------------------------------------------------------
def pair(chosen: Any, rejected: Any) -> dict[str, Any]:
    return {"prompt": "Sky?", "chosen": chosen, "rejected": rejected}


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


@pytest.mark.parametrize("shape", [str, said], ids=["texts", "messages"])
def test_d05_preference_pairs(lab: Lab, models: Models, shape: Any) -> None:
    row = sft(lab, models, [pair(shape("It is blue."), shape("It is green."))])
    assert row.verdict == "pass", row.reasons
    row = sft(lab, models, [pair(shape("It is blue."), shape("It is green.")), pair(shape("Yes."), shape("Yes."))])
    assert reason_of(row, "pair_identical")["where"]["rows"] == ["r1"]


def test_d05_equal_only_after_the_cut_or_empty(lab: Lab, models: Models) -> None:
    rows = [pair("blue " * 20 + "a", "blue " * 20 + "b"), pair("Yes.", ""), pair(said("Yes."), said(" "))]
    row = sft(lab, models, rows, data="max_length: 40")
    found = reason_of(row, "pair_identical")
    assert found["where"]["rows"] == ["r0"] and "equal after the cut" in found["text"]
    found = reason_of(row, "empty_target")
    assert found["where"]["rows"] == ["r1", "r2"] and found["where"]["side"] == "rejected"
    rows = [{"prompt": said("One?"), "chosen": said("a"), "rejected": said("b")}]
    assert not codes(sft(lab, models, rows), "fail")


def test_d05_two_prompts_are_no_pair(lab: Lab, models: Models) -> None:
    turns = [[{"role": "user", "content": asked}, *said("Yes.")] for asked in ("One?", "Two?")]
    row = sft(lab, models, [{"chosen": turns[0], "rejected": [turns[1][0], *said("No.")]}])
    assert reason_of(row, "pair_prompts_differ")["severity"] == "warn"


# -- D6 --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "rule", "count"),
    [
        ("One line.\nAnother.\n", "one document per line: 2 documents", 2),
        ("One\nstory.\n\n\nAnother\none.\n", "documents are separated by blank lines: 2 documents", 2),
    ],
)
def test_d06_plain_text_says_its_rule_and_ends_each_document(
    lab: Lab, models: Models, text: str, rule: str, count: int
) -> None:
    row = sft(lab, models, text, model="bare", data="train_on: all", train="train.txt")
    assert row.verdict == "pass" and rule in notes(row) and row.inputs["rows"] == count
    assert all(rendered(lab, number).endswith("<|im_end|>") for number in range(count))


def test_d06_a_whole_file_as_one_document(lab: Lab, models: Models) -> None:
    more = f"model: {{path: {models['bare']}}}\noptions: {{documents: whole}}\n"
    row = examine(lab, "sft", "One\n\nTwo\n", data="train_on: all", train="train.txt", more=more)
    assert "one document: 1 document" in notes(row) and row.inputs["rows"] == 1


# -- D7 --------------------------------------------------------------------------------------------------------------
CSV = 'text,label\n"Yes, please",good\n"two\nlines ""here""",bad\nplain,None\nmore,NA\nless,null\n'


def test_d07_a_csv_with_commas_quotes_newlines_and_words_of_nothing(lab: Lab) -> None:
    row = classes(lab, CSV)
    assert not codes(row, "fail"), row.reasons
    assert table(lab) == [(0, "NA", 1), (1, "None", 1), (2, "bad", 1), (3, "good", 1), (4, "null", 1)]
    assert view(lab)["source"] == "Yes, please" and view(lab, 1)["source"] == 'two\nlines "here"'
    assert "kept as text" in notes(row)


def test_d07_columns_by_plan_without_a_header(lab: Lab) -> None:
    row = classes(lab, "good\tYes\nbad\tNo\n", train="train.tsv", data="header: false, columns: {label: 0, text: 1}")
    assert not codes(row, "fail") and table(lab) == [(0, "bad", 1), (1, "good", 1)]


def test_d07_a_tab_file_whose_quotes_are_text(lab: Lab) -> None:
    rows = 'ham\tfine\nspam\t"win now\nham\tok\nham\tsee "you\n'
    row = classes(lab, rows, train="train.tsv", data="header: false, columns: {label: 0, text: 1}")
    assert row.inputs["rows"] == 4 and "with quoting rules 2 rows would be read of 4" in notes(row)


@pytest.mark.real
def test_d07_the_sms_file_has_as_many_rows_as_lines(lab: Lab) -> None:
    file = SHARED / "data" / "sms_spam" / "sms.tsv"
    if not file.is_file():
        pytest.skip("no ../shared/data/sms_spam beside the checkout")
    row = classes(lab, None, data=f"train: {file}, header: false, columns: {{label: 0, text: 1}}")
    assert row.inputs["rows"] == 5574 and not codes(row, "fail")
    assert "with quoting rules 5,572 rows would be read of 5,574" in notes(row)


# -- D8 --------------------------------------------------------------------------------------------------------------
def test_d08_parquet_by_its_schema(lab: Lab, tmp_path: Path) -> None:
    arrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install pyarrow")
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    label = arrow.DictionaryArray.from_arrays(arrow.array([1, 0, 1]), arrow.array(["spam", "ham"]))
    extra = arrow.array([{"a": 1}, {"b": 2}, None])
    made = arrow.table({"text": ["x", "y", "z"], "label": label, "meta": extra})
    parquet.write_table(made, tmp_path / "t.parquet", row_group_size=2)
    row = classes(lab, None, data="train: t.parquet")
    assert table(lab) == [(0, "ham", 2), (1, "spam", 1)]  # the dictionary's order is not the classes' order
    assert "its order is not the order of classes" in notes(row) and "reads as null" in notes(row)


def test_d08_without_pyarrow_the_advice_says_what_to_install(lab: Lab) -> None:
    if importlib.util.find_spec("pyarrow") is not None:
        pytest.skip("pyarrow is installed")
    lab.prepare(
        "task: classification\ndata: {train: t.parquet}\ngates: {skip: [stack]}\n", {"t.parquet": b"PAR1" + b"\0" * 32}
    )
    row = next(row for row in lab.stage("data").rows if row.phase == "examples")
    assert row.verdict == "fail" and "pip install pyarrow" in " ".join(each["advice"] for each in row.reasons)


# -- D9 --------------------------------------------------------------------------------------------------------------
def test_d09_nobody_answers_or_the_user_has_the_last_word(lab: Lab, models: Models) -> None:
    rows = [chat("One?", "First."), chat("Anybody?"), chat("Two?", "Second.", "Thanks!")]
    row = sft(lab, models, rows)
    found = reason_of(row, "no_supervised_token")
    assert found["severity"] == "fail" and found["where"]["rows"] == ["r1"]
    assert learned(lab, 2) == "Second.<|im_end|>" and "Thanks!" in rendered(lab, 2)
    assert "2 conversations go on after the last answer" in notes(row)
    row = sft(lab, models, [rows[0], rows[2]])
    assert row.verdict == "pass"


# -- D10, D11 --------------------------------------------------------------------------------------------------------
MARK = "\ufeff"


def test_d10_a_byte_order_mark_before_json(lab: Lab, models: Models) -> None:
    row = sft(lab, models, MARK + jsonl([chat("One?", "First.")]))
    assert row.verdict == "pass" and "byte order mark" in notes(row)


def test_d10_a_byte_order_mark_before_a_header(lab: Lab) -> None:
    row = classes(lab, MARK + "text,label\nx,a\ny,b\n")
    assert row.verdict == "pass" and "byte order mark" in notes(row) and view(lab)["source"] == "x"


def test_d11_crlf_no_last_newline_and_line_separators_inside(lab: Lab, models: Models) -> None:
    rows = (
        jsonl([chat("One?", "First\u2028line."), chat("Two?", "Second\u2029.")])
        .replace("\n", "\r\n")
        .removesuffix("\r\n")
    )
    row = sft(lab, models, rows)
    assert row.verdict == "pass" and row.inputs["rows"] == 2 and "end in CRLF" in notes(row)
    assert learned(lab) == "First\u2028line.<|im_end|>" and learned(lab, 1) == "Second\u2029.<|im_end|>"


# -- D12 -------------------------------------------------------------------------------------------------------------
def test_d12_one_id_in_two_types_and_rows_without(lab: Lab, models: Models) -> None:
    first, second = chat("One?", "First."), chat("Two?", "Second.")
    rows = [{**first, "id": "7"}, {**second, "id": 7}, {**first, "id": "8"}, {**first, "id": "8 "}]
    found = reason_of(sft(lab, models, rows), "duplicate_ids")
    assert found["severity"] == "warn" and found["where"]["rows"] == ["7", "8"]
    assert "2 row ids of train on more than one row, 1 with other content" in found["text"]


def test_d12_without_ids_rows_have_numbers_and_the_unit_is_unchecked(lab: Lab, models: Models) -> None:
    rows = "".join(json.dumps(chat(f"{n}?", f"Is {n}.")) + "\n" for n in range(3))
    row = sft(lab, models, rows, files={"held.jsonl": json.dumps(chat("9?", "Nine."))}, data="validation: held.jsonl")
    assert row.verdict == "pass" and "duplicate_ids" not in codes(row)
    assert view(lab, 1)["row"] == 1
    splits = next(each for each in lab.state().rows if each.phase == "splits")
    assert reason_of(splits, "unit_unknown")["severity"] == "unchecked"


# -- D13 -------------------------------------------------------------------------------------------------------------
LEARNS = """
from torch import nn
from torch.nn import functional
from words import IGNORE, Words

class Learns(Words):
    def build_model(self):
        return nn.Sequential(nn.Embedding(260, 4), nn.Linear(4, 260))

    def loss(self, model, batch):
        logits = model(batch["input_ids"])[:, :-1].transpose(1, 2)
        return functional.cross_entropy(logits, batch["labels"][:, 1:], ignore_index=IGNORE, reduction="sum")
"""
STORY = [{"text": "w" * (190 + n)} for n in range(20)] + [{"text": "word " * 2000}]


def test_d13_one_very_long_row_is_named_and_meets_the_longest_batch_phase(lab: Lab) -> None:
    row = examine(lab, "Learns", STORY, code=LEARNS, data="train_on: all")
    assert row.inputs["longest_row"] == "r20" and row.inputs["longest"] == 10_002 and row.inputs["median_length"] == 202
    forward = next(each for each in lab.stage("peak").rows if each.phase == "forward")
    assert forward.inputs["row_ids"] == ["r20"] and forward.inputs["lengths"] == [10_002]


def test_d13_what_the_cut_takes_is_said(lab: Lab) -> None:
    row = examine(lab, "Learns", STORY, code=LEARNS, data="train_on: all, max_length: 256")
    found = reason_of(row, "response_truncated")
    assert found["where"]["rows"] == ["r20"] and "9,746 supervised tokens" in found["text"]
    assert lab.state().facts["examples"]["response_tokens_lost"] == 9_746


# -- D14 -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("blank", ["", "  ", "\n\t"])
def test_d14_a_blank_answer_is_not_trained_on_in_silence(lab: Lab, models: Models, blank: str) -> None:
    rows = [{"instruction": "Add.", "output": "4"}, {"instruction": "Add.", "output": blank}]
    found = reason_of(sft(lab, models, rows), "empty_target")
    assert found["severity"] == "fail" and found["where"]["rows"] == ["r1"] and "1 row of 2" in found["text"]


def test_d14_one_blank_answer_among_others_of_a_conversation(lab: Lab, models: Models) -> None:
    found = reason_of(sft(lab, models, [chat("One?", "First.", "Two?", " ", "Three?", "Third.")]), "empty_target")
    assert found["where"]["turn"] == 3 and found["where"]["rows"] == ["r0"]


# -- D15 -------------------------------------------------------------------------------------------------------------
FOREIGN = [
    "cafe\u0301",
    "family \U0001f468\u200d\U0001f469\u200d\U0001f467 here",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0643",
    "zero\u200bwidth\u200djoiner",
    "a\u0000b",
]


@pytest.mark.parametrize("text", FOREIGN, ids=["accents", "emoji", "arabic", "joiners", "nul"])
def test_d15_texts_come_back_as_they_were(lab: Lab, models: Models, text: str) -> None:
    row = sft(lab, models, [chat(text, text)])
    assert row.verdict == "pass" and "text_normalised" not in codes(row)
    assert learned(lab) == text + "<|im_end|>" and view(lab)["source"] == text
    shown = view(lab)
    assert [len(shown["pieces"]), len(shown["labels"])] == [len(shown["ids"])] * 2


def test_d15_a_tokenizer_that_composes_characters_is_noted(
    lab: Lab, models: Models, tmp_path_factory: pytest.TempPathFactory
) -> None:
    normalizers: Any = pytest.importorskip("tokenizers.normalizers")
    import tiny_llm

    own = tiny_llm.tokenizer()
    own.backend_tokenizer.normalizer = normalizers.NFC()
    folder = tiny_llm.write_model(tmp_path_factory.mktemp("nfc"), own)
    row = examine(lab, "sft", [chat("cafe\u0301", "cafe\u0301")], more=f"model: {{path: {folder}}}\n")
    assert row.verdict == "pass" and "text_normalised" in codes(row, "note")


def test_d15_two_spellings_are_one_text_for_leaks_alone(lab: Lab, models: Models) -> None:
    files = {"held.jsonl": jsonl([chat("caf\u00e9?", "Yes, caf\u00e9.", id="v0")])}
    sft(lab, models, [chat("cafe\u0301?", "Yes, cafe\u0301.")], data="validation: held.jsonl, unit: id", files=files)
    assert learned(lab) == "Yes, cafe\u0301.<|im_end|>"
    splits = next(each for each in lab.state().rows if each.phase == "splits")
    assert {"same_rows", "near_duplicate"} & set(codes(splits))


# -- D16 -------------------------------------------------------------------------------------------------------------
def labelled(*labels: Any) -> str:
    return jsonl([{"text": f"words {number}", "label": label} for number, label in enumerate(labels)])


def test_d16_one_number_in_three_types_is_one_class(lab: Lab) -> None:
    row = classes(lab, labelled("0", "1", 1, 1.0, 2), train="train.jsonl")
    assert not codes(row, "fail") and table(lab) == [(0, "0", 1), (1, "1", 3), (2, "2", 1)]


@pytest.mark.parametrize(
    ("label", "code"),
    [("", "label_out_of_range"), (-1, "label_out_of_range"), (7, "label_out_of_range"), (0.5, "loss_mismatch")],
)
def test_d16_labels_that_name_no_class(lab: Lab, label: Any, code: str) -> None:
    found = reason_of(classes(lab, labelled(0, 1, 2, 0, 1, 2, label), train="train.jsonl"), code)
    assert found["severity"] == "fail" and found["where"]["rows"] == ["r6"]


def test_d16_a_blank_that_made_decimals_names_its_row(lab: Lab) -> None:
    rows = labelled(0.0, 1.0, float("nan"))
    found = reason_of(classes(lab, rows, train="train.jsonl"), "values_invented_missing")
    assert found["where"]["rows"] == ["r2"] and "decimals" in found["text"]


def test_d16_ignored_labels_are_counted(lab: Lab) -> None:
    row = classes(lab, labelled(0, 1, -100, -100), train="train.jsonl")
    assert not codes(row, "fail") and "2 labels are -100: left out of the loss" in notes(row)
