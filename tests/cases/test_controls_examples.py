"""Controls of the ``examples`` phase: inputs that look like faults and are none, and clean data of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from area_1 import chat, examine, given, jsonl
from lab import SHARED, Lab, codes, reason_of

Models = dict[str, Path]
ONE, TWO = chat("Two and two?", "Four."), chat("And then?", "Five.", "Why?", "One more.")


# -- chat templates --------------------------------------------------------------------------------------------------
def test_chatml_whose_bos_is_the_turn_mark(lab: Lab, models: Models) -> None:
    """BOS at each turn, a newline after the end token, pad = eos, a system turn that the template adds."""
    row = examine(lab, "sft", [ONE, TWO], more=f"model: {{path: {models['chat']}}}\nbatch: {{micro: 2}}\n")
    assert row.verdict == "pass" and codes(row) == ["file_note"]
    assert "the chat template adds a turn of its own" in reason_of(row, "file_note")["text"]


def test_generation_prompts_that_say_more_than_a_row(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A template that opens a thinking block in the prompt alone; the rows have none."""
    tiny: Any = pytest.importorskip("tiny_llm")
    pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[pilot]'")
    template = tiny.CHATML.replace("assistant\n' }}{% endif %}", "assistant\n<think>\n' }}{% endif %}")
    model = tiny.write_model(tmp_path_factory.mktemp("think"), tiny.tokenizer(template))
    row = examine(lab, "sft", [ONE, TWO], more=f"model: {{path: {model}}}\n")
    assert not codes(row, "fail") and not codes(row, "warn"), row.reasons


def test_a_template_that_trims_and_spaces(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    tiny: Any = pytest.importorskip("tiny_llm")
    pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[pilot]'")
    template = tiny.NO_BOS.replace("message['content']", "message['content'] | trim")
    model = tiny.write_model(tmp_path_factory.mktemp("trim"), tiny.tokenizer(template, None))
    row = examine(lab, "sft", [chat("  Two? \n", "\n Four.  ")], more=f"model: {{path: {model}}}\n")
    assert row.verdict == "pass", row.reasons


def test_tool_results_that_a_template_writes_as_json(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    tiny: Any = pytest.importorskip("tiny_llm")
    pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[pilot]'")
    template = tiny.NO_BOS.replace(
        "message['content'] }}", "(message['content'] | tojson if message['role'] == 'tool' else message['content']) }}"
    )
    model = tiny.write_model(tmp_path_factory.mktemp("json"), tiny.tokenizer(template, None))
    turns = [*ONE["messages"], {"role": "tool", "content": 'it said "4"'}, {"role": "assistant", "content": "So 4."}]
    row = examine(lab, "sft", [{"messages": turns}], more=f"model: {{path: {model}}}\n")
    assert "content_lost" not in codes(row) and not codes(row, "fail"), row.reasons


# -- cuts ------------------------------------------------------------------------------------------------------------
def rows(cut: int, whole: int) -> list[dict[str, Any]]:
    """Rows of ``prompt`` and an answer of ten ids; ``cut`` of them lose four to a length of 20."""
    spans = lambda prompt: [[0, prompt, "user", 0], [prompt, prompt + 10, "assistant", 1]]  # noqa: E731
    return [
        {"ids": [*range(10, 19 + prompt), 2], "labels": [-100] * prompt + [*range(10 + prompt, 19 + prompt), 2],
         "spans": spans(prompt)}
        for prompt in [14] * cut + [5] * whole
    ]  # fmt: skip


@pytest.mark.parametrize(("whole", "severity"), [(99, "warn"), (98, "fail")])
def test_a_cut_row_is_a_warning_until_the_share_passes_the_threshold(lab: Lab, whole: int, severity: str) -> None:
    found = reason_of(given(lab, rows(1, whole), data="max_length: 20", end=2), "response_truncated")
    assert found["severity"] == severity and "4 supervised tokens" in found["text"]


def test_cut_rows_whose_response_and_end_token_survive(lab: Lab) -> None:
    """A prompt cut on the left, and a text cut behind the answer."""
    code = """
from given import Given

class Left(Given):
    def encode(self, record, max_length=None):
        size = 0 if max_length is None else max_length
        return {key: value[-size:] for key, value in super().encode(record).items()}

    def spans(self, record, example):
        gone = len(record["ids"]) - len(example["input_ids"])
        return [(max(0, a - gone), b - gone, role, turn) for a, b, role, turn in record["spans"] if b > gone]
"""
    more = f"options: {json.dumps({'rows': rows(3, 0), 'end': 2})}\n"
    row = examine(lab, "Left", code=code, data="max_length: 20", more=more)
    assert row.verdict == "pass", row.reasons
    tail = [{"ids": [10, 11, 2, 20, 21, 22], "labels": [-100, 11, 2, -100, -100, -100]}]
    row = given(lab, tail, data="max_length: 4, train_on: all", end=2)
    assert row.verdict == "pass", row.reasons


def test_prompts_longer_than_usual(lab: Lab) -> None:
    usual = rows(0, 20)
    long = {"ids": [*range(10, 310), 3, 2], "labels": [-100] * 300 + [3, 2],
            "spans": [[0, 300, "user", 0], [300, 302, "assistant", 1]]}  # fmt: skip
    row = given(lab, [*usual, long], data="max_length: 400", end=2)
    assert row.verdict == "pass" and row.inputs["longest_row"] == "20"


def test_rows_of_one_fixed_length_are_no_hidden_cut(lab: Lab) -> None:
    fixed = [{"ids": [*range(10, 41), 2]}] * 12 + [{"ids": [*range(10, 10 + size), 2]} for size in (4, 9, 27)]
    assert given(lab, fixed, end=2).verdict == "pass"


# -- padding, ends, classes ------------------------------------------------------------------------------------------
PADDED = """
from given import Given
import torch

class Padded(Given):
    def collate(self, examples):
        longest = max(len(each["input_ids"]) for each in examples)
        short = [longest - len(each["input_ids"]) for each in examples]
        ids = [%s for each, n in zip(examples, short)]
        labels = [%s for each, n in zip(examples, short)]
        return {"input_ids": torch.tensor(ids), "labels": torch.tensor(labels)}
"""
RIGHT = ('each["input_ids"] + [2] * n', 'each["labels"] + [-100] * n')
LEFT = ('[2] * n + each["input_ids"]', '[-100] * n + each["labels"]')


@pytest.mark.parametrize("side", [RIGHT, LEFT], ids=["right", "left"])
def test_pad_equals_eos_and_the_mask_goes_by_length(lab: Lab, side: tuple[str, str]) -> None:
    options = {"rows": [{"ids": [50, 51, 52, 2]}, {"ids": [50, 2]}], "end": 2, "pad": 2}
    more = f"batch: {{micro: 2}}\noptions: {json.dumps(options)}\n"
    row = examine(lab, "Padded", code=PADDED % side, data="train_on: all", more=more)
    assert row.verdict == "pass" and codes(row) == []


def test_class_names_in_another_letter_case_are_a_note(lab: Lab) -> None:
    data = "classes: [Ham, SPAM]"
    row = examine(lab, "classification", "text,label\nx,ham\ny,spam\n", data=data, train="train.csv")
    assert not codes(row, "fail") and not codes(row, "warn"), row.reasons


def test_ignored_rows_of_a_classifier(lab: Lab) -> None:
    row = examine(
        lab, "classification", jsonl([{"text": str(n), "label": n % 3 - 100 * (n % 3 == 2)} for n in (0, 1, 3, 4)])
    )
    assert not codes(row, "fail")


# -- own loaders -----------------------------------------------------------------------------------------------------
HEAD = "from words import BOS, END, IGNORE, MARK, PAD, Words\n"
LOADERS = {
    "shuffles": "        import random\n        random.Random(1).shuffle(rows)\n",
    "adds keys": "        rows = [{**row, 'source': 'mine', 'extra': {'a': None}} for row in rows]\n",
    "renames": "        rows = [{'id': row['id'], 'messages': row['messages'], 'kind': row['meta']} for row in rows]\n",
    "expands": "        rows = [{**row, 'id': f\"{row['id']}-{n}\"} for row in rows for n in range(2)]\n",
    "names lines": "        rows = [{**row, '_line': n + 1} for n, row in enumerate(rows)]\n",
}


@pytest.mark.parametrize("what", LOADERS)
def test_loaders_that_do_as_they_should(lab: Lab, what: str) -> None:
    code = HEAD + "class Mine(Words):\n    def records(self, split):\n        rows = self.lines(split)\n"
    code += LOADERS[what] + "        return rows\n"
    turns = [chat(f"{n}?", f"Is {n}.") if n % 2 else chat(f"{n}?", f"Is {n}.", "And?", f"Is {n}.") for n in range(8)]
    content = [{**each, "meta": {"by": None, "at": number}} for number, each in enumerate(turns)]
    row = examine(lab, "Mine", content, code=code)
    assert row.verdict == "pass", row.reasons
    if what == "shuffles":  # nothing but the order tells rows without an id
        rows = "".join(json.dumps(each) + "\n" for each in content)
        row = examine(lab, "Mine", rows, code=code)
        assert row.verdict == "pass", row.reasons


def test_a_loader_that_holds_rows_out_by_itself(lab: Lab) -> None:
    code = HEAD + """
class Mine(Words):
    def records(self, split):
        rows = self.lines("train")
        return {"train": rows[2:], "validation": rows[:2]}.get(split, [])
"""  # fmt: skip
    row = examine(lab, "Mine", [ONE, TWO] * 4, code=code)
    assert row.verdict == "pass", row.reasons


def test_a_csv_loader_that_casts_numbers_and_keeps_blanks(lab: Lab) -> None:
    code = """
import csv
from tui_pilot.tasks import Task

class Mine(Task):
    def records(self, split):
        with open(self.plan.data.train, newline="") as stream:
            rows = list(csv.DictReader(stream)) if split == "train" else []
        return [{"text": row["text"], "score": float(row["score"]) if row["score"] else None,
                 "label": int(row["label"])} for row in rows]

    def class_names(self):
        return ["no", "yes"]

    def encode(self, record):
        return {"input_ids": [5], "labels": record["label"]}
"""
    row = examine(lab, "Mine", "text,score,label\na,1.0,0\nb,,1\nNA,3,1\n", code=code, train="train.csv")
    assert row.verdict == "pass", row.reasons


# -- clean data of others --------------------------------------------------------------------------------------------
@pytest.mark.real
def test_clean_gsm8k(lab: Lab, models: Models) -> None:
    folder = SHARED / "data" / "gsm8k"
    if not folder.is_dir():
        pytest.skip("no ../shared/data/gsm8k beside the checkout")
    data = f"train: {folder / 'train.jsonl'}, columns: {{prompt: question, completion: answer}}"
    row = examine(lab, "sft", data=data, more=f"model: {{path: {models['chat']}}}\n")
    assert row.verdict == "pass" and row.inputs["rows"] > 500, row.reasons


@pytest.mark.parametrize("task", ["demo", "own-task.yaml", "classification.yaml"])
def test_the_plans_that_come_with_the_package(lab: Lab, task: str) -> None:
    from tui_pilot.launch.start import prepare
    from tui_pilot.plan.load import default_demo, load

    plans = Path(__file__).resolve().parents[2] / "configs"
    lab.run = prepare(default_demo() if task == "demo" else load(plans / task), lab.folder / "runs", argv=["test"])
    row = next(each for each in lab.stage("data").rows if each.phase == "examples")
    assert row.verdict == "pass" and set(codes(row)) <= {"file_note"}
