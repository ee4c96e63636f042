"""The sft task on every shape of row: masks, cuts, splits, loss."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tui_pilot.errors import DataError, ModelError
from tui_pilot.plan.model import Adapter, Data, Held, Loss, Memory, Model, Plan
from tui_pilot.tasks.base import IGNORE, NotDefined, encode

pytest.importorskip("transformers", reason="the hf extra is not installed")
pytest.importorskip("peft", reason="the hf extra is not installed")

from tiny_llm import tokenizer, write_model

from tui_pilot.tasks.sft import SftTask

END = "<|im_end|>"


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "chat")


@pytest.fixture(scope="module")
def bare_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "bare", tokenizer(None, "<s>", writes_bos=True))


def task_on(model: Path, folder: Path, rows: list[Any], **data: Any) -> SftTask:
    train = folder / "train.jsonl"
    train.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return SftTask(Plan(task="sft", model=Model(path=str(model)), data=Data(train=str(train), **data)))


def learned(task: SftTask, record: Any, **how: Any) -> str:
    return task.decode([one for one in task.encode(record, **how)["labels"] if one != IGNORE])


SAID = [{"role": "assistant", "content": "x"}]
CHAT_ROWS: list[tuple[str, dict[str, Any], str]] = [
    ("alpaca", {"instruction": "Add", "input": "", "output": "4"}, "4"),
    ("sharegpt", {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b c"}]}, "b c"),
    ("messages", {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "no"}]}, "no"),
    ("prompt_completion", {"prompt": "Q", "completion": " A"}, " A"),
    ("conversational", {"prompt": [{"role": "user", "content": "Q"}], "completion": SAID}, "x"),
]


@pytest.mark.parametrize(("name", "row", "answer"), CHAT_ROWS, ids=[name for name, _, _ in CHAT_ROWS])
def test_each_chat_shape_learns_its_answer(chat_model: Path, tmp_path: Path, name: str, row: Any, answer: str) -> None:
    task = task_on(chat_model, tmp_path, [row])
    record = task.records("train")[0]
    assert learned(task, record) == answer + END
    assert task.source_text(record) == answer
    example = task.encode(record)
    assert [role for _, _, role, _ in task.spans(record, dict(example))] == ["user", "assistant"]


def test_prompt_and_completion_without_a_template(bare_model: Path, tmp_path: Path) -> None:
    task = task_on(bare_model, tmp_path, [{"prompt": "Q:", "completion": " yes please"}])
    record = task.records("train")[0]
    example = task.encode(record)
    special = task.special_ids()
    assert learned(task, record) == " yes please" + END
    assert example["input_ids"][0] == special["bos"] != example["input_ids"][1]
    assert special["bos_count"] == [1]
    assert task.decode(example["input_ids"]) == "<s>Q: yes please" + END
    assert not task.remarks


def test_a_token_across_prompt_and_completion_is_masked_by_characters_and_said(
    bare_model: Path, tmp_path: Path
) -> None:
    task = task_on(bare_model, tmp_path, [{"prompt": "what is ", "completion": "the answer"}])
    record = task.records("train")[0]
    # the tokenizer joins the prompt's last space with the completion's first word
    assert learned(task, record) == " the answer" + END
    assert task.remarks == {"prompt_not_prefix": [1]}
    assert any("tokenized differently" in note["text"] for note in task.file_notes())


def test_documents_end_with_the_end_token(bare_model: Path, tmp_path: Path) -> None:
    task = task_on(bare_model, tmp_path, [{"text": "yes please"}, {"text": "no" + END}])
    first, second = task.records("train")
    assert learned(task, first) == "yes please" + END
    assert learned(task, second) == "no" + END
    path = tmp_path / "corpus.txt"
    path.write_text("one\n\ntwo\n")
    plan = Plan(task="sft", model=Model(path=str(bare_model)), data=Data(train=str(path)))
    assert [learned(SftTask(plan), row) for row in SftTask(plan).records("train")] == ["one" + END, "two" + END]


def test_preference_pairs_show_both_sides_and_are_not_trained(chat_model: Path, tmp_path: Path) -> None:
    row = {"prompt": "Q", "chosen": "yes please", "rejected": "yes no"}
    task = task_on(chat_model, tmp_path, [row])
    record = task.records("train")[0]
    pair = task.encode(record)
    sides = {side: [one for one in pair[side]["labels"] if one != IGNORE] for side in ("chosen", "rejected")}
    assert {side: task.decode(ids) for side, ids in sides.items()} == {
        "chosen": "yes please" + END, "rejected": "yes no" + END,
    }  # fmt: skip
    shared = len(pair["chosen"]["input_ids"]) - len(sides["chosen"]) - 1
    cut = task.encode(record, max_length=shared)
    assert cut["chosen"]["input_ids"] == cut["rejected"]["input_ids"]
    with pytest.raises(DataError, match="no loss over two sides"):
        task.collate([pair])
    preferred = task_on(chat_model, tmp_path, [row], columns={"prompt": "prompt", "completion": "chosen"})
    assert learned(preferred, preferred.records("train")[0]) == "yes please" + END


def test_blank_answers_teach_the_end_token_alone_and_show_a_blank_source(chat_model: Path, tmp_path: Path) -> None:
    task = task_on(chat_model, tmp_path, [{"instruction": "a", "output": "  "}])
    record = task.records("train")[0]
    assert learned(task, record).strip() == END
    assert not task.source_text(record).strip()


def test_rows_are_cut_on_the_right_and_spans_with_them(chat_model: Path, tmp_path: Path) -> None:
    task = task_on(chat_model, tmp_path, [{"prompt": "Q", "completion": "yes no yes no"}], max_length=20)
    record = task.records("train")[0]
    whole, cut = task.encode(record), encode(task, record)
    begin = task.spans(record, dict(whole))[-1][0]
    assert cut["input_ids"] == whole["input_ids"][:20]
    assert learned(task, record, max_length=begin) == ""
    assert learned(task, record, max_length=begin + 1) == "yes"
    assert len(learned(task, record, max_length=len(whole["input_ids"]) - 1)) == len(learned(task, record))
    assert all(end <= 20 for _, end, _, _ in task.spans(record, dict(cut)))


def test_end_tokens_stay_learned_when_pad_is_the_same_id(chat_model: Path, tmp_path: Path) -> None:
    rows = [{"prompt": "Q", "completion": "yes no yes"}, {"prompt": "Q", "completion": "no"}]
    task = task_on(chat_model, tmp_path, rows)
    special = task.special_ids()
    assert special["pad"] in special["end"]
    examples = [task.encode(record) for record in task.records("train")]
    batch = task.collate(examples)
    lengths = [len(example["input_ids"]) for example in examples]
    assert batch["attention_mask"].sum(dim=1).tolist() == lengths
    assert [(row == special["pad"]).sum().item() for row in batch["labels"]] == [1, 1]
    assert set(batch["labels"][1, lengths[1] :].tolist()) == {IGNORE}
    assert task.count(batch) == sum(label != IGNORE for example in examples for label in example["labels"][1:])


def test_rows_that_are_nothing_are_refused_with_their_line(chat_model: Path, tmp_path: Path) -> None:
    task = task_on(chat_model, tmp_path, [{"a": 1}])
    with pytest.raises(DataError) as caught:
        task.encode(task.records("train")[0])
    assert (caught.value.line, caught.value.file) == (1, task.plan.data.train)


def test_faults_lists_every_broken_line(chat_model: Path, tmp_path: Path) -> None:
    task = task_on(chat_model, tmp_path, [{"prompt": "a", "completion": "b"}])
    path = Path(str(task.plan.data.train))
    path.write_text(path.read_text() + '{"prompt": "a"\n{"prompt": "a"}\n')
    assert [fault.line for fault in task.faults("train")] == [2, 3]
    assert task.faults("test") == []


def test_splits_that_are_not_planned_are_empty_and_units_without_rule_undefined(
    chat_model: Path, tmp_path: Path
) -> None:
    task = task_on(chat_model, tmp_path, [{"prompt": "a", "completion": "b", "id": "7"}])
    assert list(task.records("validation")) == list(task.records("test")) == []
    record = task.records("train")[0]
    assert task.row_id(record) == "7"
    with pytest.raises(NotDefined):
        task.unit(record)


def test_held_out_rows_are_whole_units_under_names_of_their_own(chat_model: Path, tmp_path: Path) -> None:
    rows = [{"prompt": f"q{n}", "completion": "b", "talk": f"t{n // 3}"} for n in range(30)]
    task = task_on(chat_model, tmp_path, rows, validation=Held(0.2, 1), unit="talk")
    train, held = task.records("train"), task.records("validation")
    assert len(train) + len(held) == 30
    assert len(held) == 6
    assert not {task.unit(row) for row in train} & {task.unit(row) for row in held}
    assert not {task.row_id(row) for row in train} & {task.row_id(row) for row in held}
    assert any("held out along talk" in note["text"] for note in task.file_notes())


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16-amp", torch.float32), ("bf16", torch.bfloat16)]
)
def test_weights_have_the_planned_type_and_adapters_are_fp32(
    chat_model: Path, tmp_path: Path, precision: Any, dtype: torch.dtype
) -> None:
    model = Model(path=str(chat_model), adapter=Adapter(r=2, targets=("q_proj", "v_proj")))
    built: Any = SftTask(Plan(task="sft", model=model, precision=precision)).build_model()
    kinds = {(parameter.requires_grad, parameter.dtype) for parameter in built.parameters()}
    assert kinds == {(True, torch.float32), (False, dtype)}
    assert built.config.use_cache is False


def test_equal_seeds_build_equal_adapters(chat_model: Path) -> None:
    task = SftTask(Plan(task="sft", model=Model(path=str(chat_model), adapter=Adapter(r=2, targets=("q_proj",)))))

    def fresh(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        return [parameter for parameter in task.build_model().parameters() if parameter.requires_grad]

    first, again, other = fresh(7), fresh(7), fresh(8)
    assert all(map(torch.equal, first, again))
    assert not all(map(torch.equal, first, other))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_the_sum_over_supervised_tokens(chat_model: Path, tmp_path: Path, smoothing: float) -> None:
    task = task_on(chat_model, tmp_path, [{"prompt": "Q", "completion": "yes"}, {"prompt": "Q", "completion": "no no"}])
    task.plan = Plan(task="sft", model=task.plan.model, data=task.plan.data, loss=Loss(smoothing))
    model = task.build_model().eval()
    examples = [task.encode(record) for record in task.records("train")]
    with torch.no_grad():
        together, count = task.loss(model, task.collate(examples))
        alone = [task.loss(model, task.collate([example])) for example in examples]
    assert int(count) == sum(int(each) for _, each in alone) == task.count(task.collate(examples))
    assert math.isclose(float(together), sum(float(total) for total, _ in alone), rel_tol=1e-5)
    reference = 0.0
    for example in examples:
        logits = model(input_ids=torch.tensor([example["input_ids"]])).logits[0].log_softmax(-1).detach()
        for place, label in enumerate(example["labels"]):
            if label != IGNORE:
                picked = logits[place - 1]
                reference -= float((1 - smoothing) * picked[label] + smoothing * picked.mean())
    assert math.isclose(float(together), reference, rel_tol=1e-4)


def test_checkpointing_leaves_every_adapter_tensor_with_a_gradient(chat_model: Path, tmp_path: Path) -> None:
    task = task_on(chat_model, tmp_path, [{"prompt": "Q", "completion": "yes"}])
    adapter = Adapter(r=2, targets=("q_proj", "v_proj"))
    task.plan = Plan(
        task="sft", model=Model(path=str(chat_model), adapter=adapter), data=task.plan.data, memory=Memory(True)
    )
    model = task.build_model().train()
    total, _ = task.loss(model, task.collate([task.encode(task.records("train")[0])]))
    total.backward()
    trained = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert len(trained) == 8
    assert all(grad is not None for grad in trained.values())
    assert all(bool(grad.abs().sum() > 0) for name, grad in trained.items() if grad is not None and "lora_B" in name)


def test_predictions_are_for_the_next_token_and_counted_so(chat_model: Path, tmp_path: Path) -> None:
    task = task_on(chat_model, tmp_path, [{"prompt": "Q", "completion": "yes"}])
    example = task.encode(task.records("train")[0])
    predicted = task.predict(task.build_model(), task.collate([example]))
    assert predicted.shape == (1, len(example["input_ids"]))
    perfect = [*example["input_ids"][1:], 0]
    assert task.metrics([{"predicted": perfect, "labels": example["labels"]}]) == {"token_accuracy": 1.0}
    assert task.metrics([{"predicted": example["input_ids"], "labels": example["labels"]}])["token_accuracy"] < 0.5
    assert task.metrics([]) == {}


def test_an_adapter_that_finds_no_place_lists_the_places(chat_model: Path) -> None:
    plan = Plan(task="sft", model=Model(path=str(chat_model), adapter=Adapter(targets=("query",))))
    with pytest.raises(ModelError, match=r"q_proj"):
        SftTask(plan).build_model()


def test_control_inputs_are_the_shortest_rows_with_their_labels(chat_model: Path, tmp_path: Path) -> None:
    rows = [{"prompt": "Q" * (9 - n), "completion": "yes"} for n in range(8)]
    task = task_on(chat_model, tmp_path, rows)
    batch = task.control_inputs()
    pairs = zip(batch["input_ids"], batch["attention_mask"], strict=True)
    texts = [task.decode(ids[mask.bool()].tolist()) for ids, mask in pairs]
    assert [text.count("Q") for text in texts] == [5, 4, 3, 2]
    assert [task.decode(row[row != IGNORE].tolist()) for row in batch["labels"]] == ["yes" + END] * 4


def test_a_row_far_longer_than_the_others_is_encoded_whole_and_cut(chat_model: Path, tmp_path: Path) -> None:
    task = task_on(chat_model, tmp_path, [{"prompt": "Q", "completion": "yes " * 20_000}], max_length=128)
    record = task.records("train")[0]
    whole, cut = task.encode(record), encode(task, record)
    assert len(whole["input_ids"]) > 20_000
    assert len(cut["input_ids"]) == 128
    assert whole["labels"][-2] in task.special_ids()["end"]


def test_the_example_plan_reads_its_rows_and_holds_out_whole_stories(chat_model: Path) -> None:
    load = pytest.importorskip("tui_pilot.plan.load", reason="the screen side is not installed").load
    configs = Path(__file__).parents[2] / "configs"
    plan = load(
        configs / "sft-lora.yaml", {"model.path": str(chat_model), "data.train": str(configs / "data/sums.jsonl")}
    ).plan
    task = SftTask(plan)
    train, held = task.records("train"), task.records("validation")
    assert len(train) + len(held) == 96
    assert not {task.unit(row) for row in train} & {task.unit(row) for row in held}
    for record in [*train, *held]:
        assert learned(task, record) == record["answer"] + END
