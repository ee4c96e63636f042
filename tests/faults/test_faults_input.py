"""Bad plans, data files and model folders: one clear error with file, line and key, and nothing half done."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fault_runs import TINY, plan, row
from lab import reason_of

from tui_pilot.errors import PlanError, PlanErrors
from tui_pilot.events.schema import PHASES_OF

if TYPE_CHECKING:
    from lab import Lab

PLAN = """\
name: bad
task: {task}
device: cpu
{rest}
data: {{train: train.jsonl, validation: val.jsonl, columns: {{text: text, label: label}}}}
batch: {{micro: 2, accumulation: 1}}
budget: {{updates: 12}}
pilot: {{steady: 2, timed: 2, reference: 2}}
"""
WORDS = ["red apple", "blue river", "green leaf", "grey stone", "white cloud", "black coal", "brown bear", "pink rose"]


def lines(words: Sequence[str], start: int = 0) -> list[str]:
    return [json.dumps({"text": f"{word} number {n}", "label": n % 2}) for n, word in enumerate(words, start)]


GOOD = {"train.jsonl": "\n".join(lines(WORDS)) + "\n", "val.jsonl": "\n".join(lines(WORDS[::-1], 40)) + "\n"}
SKIP_STACK = "gates: {skip: [stack]}"


def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "tui_pilot.cli", *arguments]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


def ran(lab: Lab, *stages: str) -> Any:
    state = lab.stage(*stages)
    assert lab.code.returncode == 0, lab.code.stderr.decode()
    assert not any(each.running for each in state.rows)
    return state


def test_broken_line_is_named_by_file_and_line(lab: Lab) -> None:
    broken = [*lines(WORDS[:4]), '{"text": "cut off', *lines(WORDS[4:], 4), '["no", "object"]']
    lab.prepare(PLAN.format(task="classification", rest=SKIP_STACK), {**GOOD, "train.jsonl": "\n".join(broken) + "\n"})
    state = ran(lab, "data")
    found = [each for each in row(state, "examples").reasons if each["code"] == "broken_line"]
    assert row(state, "examples").verdict == "fail"
    assert [each["where"]["line"] for each in found] == [5, 10]
    assert {each["where"]["file"] for each in found} == {str(lab.folder / "train.jsonl")}
    assert "train.jsonl" in found[0]["text"] and "5" in found[0]["text"]
    assert row(state, "splits").verdict == "not_run" and "data_wrong" in str(row(state, "splits").reasons)
    # A stage that trains on the same file says it once more, by file and line, and is no riddle.
    said = reason_of(row(ran(lab, "overfit"), "overfit"), "data_wrong")
    assert said["where"]["line"] == 5 and said["where"]["file"].endswith("train.jsonl")


def test_broken_line_of_validation_is_named(lab: Lab) -> None:
    lab.prepare(PLAN.format(task="classification", rest=SKIP_STACK), {**GOOD, "val.jsonl": GOOD["val.jsonl"] + "{]\n"})
    found = reason_of(row(ran(lab, "data"), "examples"), "broken_line")
    assert found["where"] == {"file": str(lab.folder / "val.jsonl"), "line": 9}


def refused(lab: Lab, rest: str, files: dict[str, str]) -> PlanError:
    """The one error of a plan that is refused before anything runs."""
    with pytest.raises(PlanErrors) as caught:
        lab.prepare(PLAN.format(task="classification", rest=rest), files)
    (error,) = caught.value.errors
    assert error.exit_code == 2 and error.file == str(lab.folder / "pilot.yaml") and error.line and error.advice
    assert not (lab.folder / "runs").exists()
    return error


def test_empty_data_file_is_refused_with_the_plan(lab: Lab) -> None:
    error = refused(lab, SKIP_STACK, {**GOOD, "train.jsonl": ""})
    assert error.key == "data.train" and "train.jsonl" in error.text and "empty" in error.text


def test_data_file_of_blank_lines_has_no_rows(lab: Lab) -> None:
    lab.prepare(PLAN.format(task="classification", rest=SKIP_STACK), {**GOOD, "train.jsonl": "\n\n \n"})
    state = ran(lab, "data")
    assert row(state, "examples").verdict == "fail"
    words = " ".join(each["text"] for each in row(state, "examples").reasons)
    assert "0 rows" in words or "empty" in words or "no rows" in words
    assert row(state, "splits").verdict in ("not_run", "fail", "unchecked")


def test_data_file_that_goes_away_after_the_plan_was_read(lab: Lab) -> None:
    lab.prepare(PLAN.format(task="classification", rest=SKIP_STACK), GOOD)
    (lab.folder / "train.jsonl").unlink()
    state = ran(lab, "data")
    found = row(state, "examples").reasons[0]
    assert row(state, "examples").verdict == "fail" and str(lab.folder / "train.jsonl") in str(found["where"])


@pytest.mark.parametrize("as_json", [True, False])
def test_missing_file_is_a_plan_error(work: Path, as_json: bool) -> None:
    (work / "pilot.yaml").write_text(PLAN.format(task="classification", rest=""))
    done = command("run", "pilot.yaml", "--headless", *(["--json"] if as_json else []), folder=work)
    assert done.returncode == 2 and not (work / "runs").exists()
    if as_json:
        errors = json.loads(done.stdout)["errors"]
        assert {error["key"] for error in errors} == {"data.train", "data.validation"}
        assert all(error["line"] == 5 and error["file"].endswith("pilot.yaml") for error in errors)
        assert "train.jsonl" in str(errors[0])
    else:
        assert "train.jsonl" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "key", "line", "word"),
    [
        ("name: x\ntask: demo\nbatch: {micro: 2, acumulation: 8}\n", "batch.acumulation", 3, "accumulation"),
        ("name: x\ntask: [demo\nbatch: 2\n", None, 3, ""),
        ("name: x\n\ttask: demo\n", None, 2, "spaces"),
        ("", None, None, ""),
        ("- a list\n", None, None, ""),
        ("name: x\ntask: demo\nbatch: {micro: 0}\noptimizer: {lr: fast}\n", "batch.micro", 3, ""),
    ],
)
def test_wrong_plan_is_refused_by_the_command(
    work: Path, text: str, key: str | None, line: int | None, word: str
) -> None:
    (work / "pilot.yaml").write_text(text)
    done = command("run", "pilot.yaml", "--headless", "--json", folder=work)
    assert done.returncode == 2, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["schema"] == 1 and answer["tool"] and "Traceback" not in done.stderr
    error = answer["error"]
    assert answer["errors"][0] == error and error["code"] and error["title"] and error["file"].endswith("pilot.yaml")
    assert error["key"] == key and (line is None or error["line"] == line)
    assert word in json.dumps(error)
    assert not (work / "runs").exists(), "nothing is run and nothing is written"


def test_all_faults_of_a_plan_come_at_once(work: Path) -> None:
    (work / "pilot.yaml").write_text("name: x\ntask: dem\nbatch: {micro: 0}\nprecison: fp32\noptimizer: {lr: fast}\n")
    done = command("check", "pilot.yaml", "--json", folder=work)
    errors = json.loads(done.stdout)["errors"]
    assert done.returncode == 2
    assert [(error["key"], error["line"]) for error in errors] == [
        ("task", 2),
        ("batch.micro", 3),
        ("precison", 4),
        ("optimizer.lr", 5),
    ]
    assert "precision" in str(errors[2])


def hugging_face_folder(folder: Path, weights: str | None) -> None:
    """A model folder as people have it, made here: config, a byte-level tokenizer, weights of a kind."""
    pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder.mkdir(parents=True)
    raw = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "red": 2, "blue": 3}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.save(str(folder / "tokenizer.json"))
    tokens = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    config = {
        "model_type": "bert", "architectures": ["BertModel"], "vocab_size": 4, "hidden_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 32,
        "pad_token_id": 1,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    if weights == "pickle":
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(folder / "went-off")))
    if weights == "empty":
        (folder / "model.safetensors").write_bytes(b"")


class Bomb:
    """A pickle that leaves a file behind when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_pickled_weights_are_refused_with_advice_and_never_loaded(lab: Lab) -> None:
    hugging_face_folder(lab.folder / "model", "pickle")
    lab.prepare(PLAN.format(task="classification", rest="model: {path: model}"), GOOD)
    state = ran(lab, "data", "peak")
    found = reason_of(row(state, "stack"), "unsafe_model_file")
    assert row(state, "stack").verdict == "fail" and found["where"]["file"] == "pytorch_model.bin"
    assert "safetensors" in found["advice"]
    said = row(state, "load").reasons[0]
    assert row(state, "load").verdict == "fail" and "pytorch_model.bin" in said["text"], said
    assert said["code"] == "unsafe_model_file" and "safetensors" in said["advice"]
    assert {row(state, phase).verdict for phase in PHASES_OF["peak"][1:]} == {"not_run"}
    assert not (lab.folder / "model" / "went-off").exists(), "the pickle was opened"


@pytest.mark.parametrize(("weights", "word"), [(None, "no weights"), ("empty", "empty")])
def test_model_folder_without_weights_is_refused_with_the_plan(lab: Lab, weights: str | None, word: str) -> None:
    hugging_face_folder(lab.folder / "model", weights)
    error = refused(lab, "model: {path: model}", GOOD)
    assert error.key == "model.path" and word in error.text


def test_weights_that_go_away_after_the_plan_was_read(lab: Lab) -> None:
    hugging_face_folder(lab.folder / "model", "pickle")
    lab.prepare(PLAN.format(task="classification", rest="model: {path: model}\n" + SKIP_STACK), GOOD)
    (lab.folder / "model" / "pytorch_model.bin").unlink()
    said = row(ran(lab, "overfit"), "overfit").reasons[0]
    assert said["code"] == "model_wrong" and "no weights" in said["text"]
    assert said["where"]["file"] == str(lab.folder / "model") and said["severity"] == "fail"


def test_tiny_plan_is_good(lab: Lab) -> None:
    lab.prepare(plan(more=SKIP_STACK + "\n"), {"tiny.py": TINY})
    assert {row(ran(lab, "data"), phase).verdict for phase in ("examples", "splits")} == {"pass"}
