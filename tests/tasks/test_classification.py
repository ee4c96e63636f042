"""Classification: one label table, whole units held out, a small classifier that learns, and a Hugging Face one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tui_pilot.errors import DataError, ModelError, PlanError
from tui_pilot.plan.model import Adapter, Data, Export, Held, Loss, Memory, Model, Optimizer, Plan, Unit
from tui_pilot.tasks.base import IGNORE, NotDefined, encode
from tui_pilot.tasks.classification import ClassificationTask
from tui_pilot.tasks.labels import Labelled, LabelTable, build_labels
from tui_pilot.tasks.text_classifier import PAD, START, TextClassifier, byte_ids, byte_pieces, byte_text

CONFIGS = Path(__file__).parents[2] / "configs"


def labels(values: list[Any], **known: Any) -> LabelTable:
    return build_labels([Labelled(number, "train", value) for number, value in enumerate(values)], **known)


def problems(table: LabelTable) -> list[tuple[Any, str]]:
    return [(each["row"], each["code"]) for each in table.problems]


def task_of(folder: Path, lines: list[str], **plan: Any) -> ClassificationTask:
    (folder / "train.csv").write_text("\n".join(lines) + "\n", "utf-8")
    data = {"train": str(folder / "train.csv"), **plan.pop("data", {})}
    return ClassificationTask(Plan(task="classification", data=Data(**data), optimizer=Optimizer(lr=5e-3), **plan))


LINES = [
    "id,text,label,who",
    *(f"r{n},{'good' if n % 2 else 'bad'} text number {n},{'ab'[n % 2]},w{n // 4}" for n in range(40)),
]


# -- the label table ---------------------------------------------------------------------------------------------------
def test_one_value_is_one_id_however_it_is_written() -> None:
    table = labels(["1", 1, 1.0, " 1", "0"])
    assert table.names == ("0", "1")
    assert [table.id_of(value) for value in ("1", 1, 1.0, "0", 0)] == [1, 1, 1, 0, 0]
    assert table.counts == {0: 1, 1: 4}
    assert not table.problems


def test_words_get_ids_by_name_and_not_by_the_order_of_rows() -> None:
    assert labels(["b", "a", "c"]).names == labels(["c", "b", "a"]).names == ("a", "b", "c")
    words = ["positive", "None", "NA", "null", "n/a", "nan"]
    assert set(labels(words).names) == set(words)
    assert not labels(words).problems


@pytest.mark.parametrize("values", [[0.0, 1.0, float("nan")], ["0.0", "1.0", "nan"], ["0.0", "1.0", ""]])
def test_decimals_made_by_one_blank_name_the_row_and_are_not_cast(values: list[Any]) -> None:
    table = labels(values)
    assert problems(table) == [(2, "values_invented_missing")]
    assert table.id_of(values[2]) == IGNORE


def test_missing_labels_are_named() -> None:
    assert problems(labels(["0", "1", ""])) == [(2, "label_out_of_range")]
    assert problems(labels(["a", None, "b"])) == [(1, "label_out_of_range")]
    assert problems(labels([0, 1, "None"])) == [(2, "values_invented_missing")]


def test_minus_one_and_ids_beyond_the_classes_are_named_and_minus_100_is_counted() -> None:
    table = labels([0, 1, 2, 7, -1, -100])
    assert problems(table) == [(3, "label_out_of_range"), (4, "label_out_of_range")]
    assert "7 is none of the 3 classes" in table.problems[0]["text"]
    assert table.ignored == 1
    assert problems(labels([0, 3, 1], declared=["a", "b", "c"])) == [(1, "label_out_of_range")]


def test_numbers_with_gaps_are_numbered_in_their_order() -> None:
    table = labels([0, 4, 4, 0])
    assert (table.names, table.id_of(4), table.problems) == (("0", "4"), 1, [])
    stars = labels([1, 2, 3, 4, 5])
    assert (stars.id_of(1), stars.id_of(5), stars.id_of(0)) == (0, 4, IGNORE)
    assert labels([-1, 1], declared=["-1", "1"]).counts == {0: 1, 1: 1}


def test_swapped_names_between_model_and_data_are_found_and_letter_case_is_a_note() -> None:
    data = {0: "entailment", 1: "neutral", 2: "contradiction"}
    swapped = labels([0, 1, 2], named=data, model={0: "contradiction", 1: "neutral", 2: "entailment"})
    assert problems(swapped) == [(None, "class_names_disagree")]
    assert "ids 0 and 2 are swapped" in swapped.problems[0]["text"]
    assert swapped.names == ("contradiction", "neutral", "entailment")
    case = labels([0, 1, 2], named=data, model={0: "Entailment", 1: "NEUTRAL", 2: "Contradiction"})
    assert not case.problems
    assert [note["code"] for note in case.notes] == ["class_case"]
    plan = labels([0, 1], declared=["a", "b"], model={0: "b", 1: "a"})
    assert problems(plan) == [(None, "class_names_disagree")]


def test_names_of_a_head_for_another_purpose_are_replaced_and_generic_ones_say_nothing() -> None:
    other = labels(["ham", "spam"], model={0: "NEGATIVE", 1: "POSITIVE"})
    assert (other.names, other.problems, [note["code"] for note in other.notes]) == (
        ("ham", "spam"),
        [],
        ["head_replaced"],
    )
    generic = labels(["ham", "spam"], model={0: "LABEL_0", 1: "LABEL_1"})
    assert (generic.names, generic.notes) == (("ham", "spam"), [])
    known = labels(["ham", "spam"], model={0: "SPAM", 1: "HAM"})
    assert [known.id_of("ham"), known.id_of("spam")] == [1, 0]


def test_labels_that_cross_entropy_cannot_take() -> None:
    assert problems(labels([0.5, 1.25])) == [(0, "loss_mismatch"), (1, "loss_mismatch")]
    assert problems(labels([[0, 1], [1, 0]])) == [(0, "loss_mismatch"), (1, "loss_mismatch")]
    assert problems(labels(["x", "x"])) == [(None, "loss_mismatch")]


def test_two_spellings_of_one_class_and_a_slip_of_the_pen() -> None:
    assert problems(labels(["Spam", "spam", "ham"])) == [(None, "class_names_disagree")]
    slip = labels(["ham", "spam", "spm"], declared=["ham", "spam"])
    assert problems(slip) == [(2, "label_out_of_range")]
    assert "'spam'" in slip.problems[0]["text"]


def test_a_validation_label_that_no_training_row_has() -> None:
    rows = [Labelled(0, "train", "a"), Labelled(1, "train", "b"), Labelled("v7", "validation", "c")]
    assert [(each["row"], each["split"], each["code"]) for each in build_labels(rows).problems] == [
        ("v7", "validation", "label_out_of_range")
    ]


# -- records and examples ----------------------------------------------------------------------------------------------
def test_whole_units_are_held_out_and_the_choice_is_repeatable(tmp_path: Path) -> None:
    def sides(seed: int) -> list[list[str]]:
        task = task_of(tmp_path, LINES, data={"validation": Held(0.2, seed), "unit": "who"})
        return [[str(record["id"]) for record in task.records(side)] for side in ("train", "validation")]

    task = task_of(tmp_path, LINES, data={"validation": Held(0.2, 0), "unit": "who"})
    units = [{task.unit(record) for record in task.records(side)} for side in ("train", "validation")]
    assert not units[0] & units[1]
    assert len(task.records("train")) + len(task.records("validation")) == 40
    assert 4 <= len(task.records("validation")) <= 12
    assert sides(0) == sides(0) != sides(1)
    assert task.records("test") == []


def test_unit_rules_and_rows_without_ids(tmp_path: Path) -> None:
    lines = ["text,label", *(f"text {n},{'ab'[n % 2]}" for n in range(10))]
    task = task_of(tmp_path, lines, data={"validation": Held(0.2, 0)})
    with pytest.raises(NotDefined):
        task.unit(task.records("train")[0])
    names = [task.row_id(record) for side in ("train", "validation") for record in task.records(side)]
    assert set(names) == {f"line-{number}" for number in range(2, 12)}
    assert len(names) == 10
    whole = task_of(tmp_path, lines)
    assert whole.row_id(whole.records("train")[3]) is None
    rule = task_of(tmp_path, LINES, data={"unit": Unit(field="who", regex="w([0-9])")})
    assert rule.unit(rule.records("train")[39]) == "9"


def test_an_example_is_bytes_and_one_class(tmp_path: Path) -> None:
    task = task_of(tmp_path, ["text,label", '"cafe\u0301, \U0001f600",a', ",b"])
    first, empty = task.records("train")
    example = task.encode(first)
    assert example["labels"] == 0
    assert example["input_ids"][0] == START
    assert task.spans(first, example) == [(1, len(example["input_ids"]), "text", 0)]
    start, end, _, _ = task.spans(first, example)[0]
    assert task.decode(example["input_ids"][start:end]) == task.source_text(first) == "cafe\u0301, \U0001f600"
    assert task.encode(first, max_length=4)["input_ids"] == example["input_ids"][:4]
    assert task.encode(empty) == {"input_ids": [START], "labels": 1}
    assert task.spans(empty, task.encode(empty)) == []
    batch = task.collate([example, task.encode(empty)])
    assert batch["input_ids"][1].tolist() == [START] + [PAD] * (len(example["input_ids"]) - 1)
    assert batch["labels"].tolist() == [0, 1]
    assert task.special_ids() == {"bos": START, "end": None, "pad": PAD, "bos_count": [1]}


def test_bad_labels_are_seen_in_examples_and_left_out_of_batches(tmp_path: Path) -> None:
    task = task_of(tmp_path, ["text,label", "a,0", "b,1", "c,-1", "d,-100"], data={"classes": ("no", "yes")})
    assert [(each["row"], each["code"]) for each in task.label_problems()] == [(2, "label_out_of_range")]
    examples = [task.encode(record) for record in task.records("train")]
    assert [each["labels"] for each in examples] == [0, 1, -1, -100]
    batch = task.collate(examples)
    assert batch["labels"].tolist() == [0, 1, -100, -100]
    total, counted = task.loss(task.build_model(), batch)
    assert counted == task.count(batch) == 2
    assert torch.isfinite(total)
    assert task.class_counts() == [{"id": 0, "name": "no", "count": 1}, {"id": 1, "name": "yes", "count": 1}]


def test_jsonl_rows_and_names_beside_numbers(tmp_path: Path) -> None:
    rows = [{"body": f"text {n}", "label": n % 2, "label_text": ["ham", "spam"][n % 2]} for n in range(6)]
    rows.append({"body": "odd", "label": 1, "label_text": "ham"})
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    task = ClassificationTask(Plan(data=Data(train=str(file), columns={"text": "body"})))
    assert list(task.class_names()) == ["ham", "spam"]
    assert [(each["row"], each["code"]) for each in task.label_problems()] == [(6, "class_names_disagree")]


def test_columns_that_are_not_there_and_options_nobody_knows(tmp_path: Path) -> None:
    task = task_of(tmp_path, ["body,kind", "a,x", "b,y"])
    with pytest.raises(DataError, match=r"no column '(text|label)'; there are: body, kind") as caught:
        task.class_names()
    assert "header: false" in caught.value.advice
    with pytest.raises(PlanError) as wrong:
        task_of(tmp_path, LINES, options={"witdh": 3})
    assert wrong.value.key == "options.witdh"


# -- the small classifier ----------------------------------------------------------------------------------------------
def test_padding_changes_no_answer() -> None:
    torch.manual_seed(0)
    model = TextClassifier(3).eval()
    ids = byte_ids("a short text")
    alone = model(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.long))
    padded = torch.tensor([ids + [PAD] * 30, byte_ids("x" * (len(ids) + 29))])
    mask = (torch.arange(padded.shape[1])[None, :] < torch.tensor([[len(ids)], [padded.shape[1]]])).long()
    assert torch.allclose(alone[0], model(padded, mask)[0], atol=1e-6)
    assert torch.isfinite(model(torch.tensor([[START]]), torch.ones(1, 1, dtype=torch.long))).all()


def test_bytes_and_back() -> None:
    text = "caf\u00e9 \u0627\u0644 \U0001f469\u200d\U0001f52c\0"
    assert byte_text(byte_ids(text)[1:]) == text
    assert byte_text([START, byte_ids("\u00e9")[1], PAD]) == "<start>\\xc3<pad>"
    assert byte_pieces(byte_ids("a\u00e9\U0001f469z")) == ["<start>", "a", "", "\u00e9", "", "", "", "\U0001f469", "z"]
    assert byte_pieces(byte_ids("\u00e9")[:2]) == ["<start>", "\\xc3"]


def test_it_learns_four_rows_by_heart_and_tells_classes_apart(tmp_path: Path) -> None:
    options = {"buckets": 4096, "width": 32}
    task = task_of(tmp_path, LINES, data={"validation": Held(0.2, 0), "unit": "who"}, options=options)
    torch.manual_seed(0)
    model = task.build_model()
    optimizer = task.build_optimizer(model)
    for rows, updates in ((task.records("train")[:4], 20), (task.records("train"), 20)):
        batch = task.collate([encode(task, record) for record in rows])
        for _ in range(updates):
            total, counted = task.loss(model, batch)
            (total / counted).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert task.predict(model.eval(), batch).tolist() == batch["labels"].tolist()
        model.train()
    other = task.collate([encode(task, record) for record in task.records("validation")])
    predicted = task.predict(model, other).tolist()
    found = task.metrics(
        [{"predicted": a, "labels": b} for a, b in zip(predicted, other["labels"].tolist(), strict=True)]
    )
    assert found["accuracy"] > 0.9


def test_checkpointing_and_smoothing_are_in_force(tmp_path: Path) -> None:
    plain, saving = (task_of(tmp_path, LINES, memory=Memory(activation_checkpointing=on)) for on in (False, True))
    smooth = task_of(tmp_path, LINES, loss=Loss(label_smoothing=0.2))
    batch = plain.collate([plain.encode(record) for record in plain.records("train")[:4]])
    results = []
    for task in (plain, saving, smooth):
        torch.manual_seed(0)
        model = task.build_model()
        total, _ = task.loss(model, batch)
        total.backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        results.append((float(total.detach()), gradients))
    assert results[0][0] == results[1][0] != results[2][0]
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))


def test_metrics() -> None:
    task = ClassificationTask(Plan())
    pairs = [(0, 0), (0, 0), (1, 0), (1, 1), (0, IGNORE)]
    found = task.metrics([{"predicted": predicted, "labels": label} for predicted, label in pairs])
    assert found["accuracy"] == pytest.approx(0.75)
    assert found["macro_f1"] == pytest.approx((0.8 + 2 / 3) / 2)
    assert task.metrics([]) == {}


def test_the_artifact_alone_gives_the_same_answers(tmp_path: Path) -> None:
    task = task_of(tmp_path, LINES, options={"width": 16, "buckets": 512})
    model = task.build_model().eval()
    (tmp_path / "out").mkdir()
    task.save_artifact(model, tmp_path / "out")
    inputs = task.control_inputs()
    before = task.logits(model, inputs)
    # another plan and no data: what is loaded comes from the folder
    other = ClassificationTask(Plan(task="classification"))
    assert torch.equal(before, other.logits(other.load_artifact(tmp_path / "out").eval(), inputs))
    assert json.loads((tmp_path / "out" / "labels.json").read_text("utf-8"))["classes"] == ["a", "b"]


# -- Hugging Face ------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny classifier, its head for three other classes, and a tokenizer."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("bert")
    marks = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    letters = [chr(code) for code in range(33, 127)]
    vocabulary = {piece: number for number, piece in enumerate([*marks, *letters, *("##" + each for each in letters)])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    names = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
        id2label={0: "NEG", 1: "POS", 2: "MIX"},
    )
    torch.manual_seed(0)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["full", "adapter", "merged"])
def test_a_hugging_face_classifier_trains_and_reloads(tmp_path: Path, bert: Path, kind: Any) -> None:
    pytest.importorskip("peft")
    adapter = None if kind == "full" else Adapter(r=4, targets=("query", "value"))
    plan = {"model": Model(path=str(bert), adapter=adapter), "export": Export(kind=kind)}
    task = task_of(tmp_path, LINES, data={"max_length": 12}, **plan)
    assert list(task.class_names()) == ["a", "b"]
    assert [note["code"] for note in task.file_notes()][-1] == "head_replaced"
    torch.manual_seed(0)
    model = task.build_model()
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert any("classifier" in name for name in trained)
    assert (kind == "full") == any(name.endswith("embeddings.weight") for name in trained)
    record = task.records("train")[0]
    example = encode(task, record)
    assert (len(example["input_ids"]), example["input_ids"][0], example["input_ids"][-1]) == (12, 1, 2)
    assert task.spans(record, example) == [(1, 11, "text", 0)]
    batch = task.collate([encode(task, each) for each in task.records("train")[:4]])
    optimizer = task.build_optimizer(model)
    losses = []
    for _ in range(5):
        total, counted = task.loss(model, batch)
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(total.detach()) / counted)
    assert losses[-1] < losses[0]
    (tmp_path / "out").mkdir()
    task.save_artifact(model.eval(), tmp_path / "out")
    names = {each.name for each in (tmp_path / "out").iterdir()}
    assert {"tokenizer.json", "labels.json"} < names
    assert ("adapter_model.safetensors" if kind == "adapter" else "model.safetensors") in names
    inputs = task.control_inputs()
    again = task.load_artifact(tmp_path / "out").eval()
    with torch.no_grad():
        assert torch.allclose(task.logits(model, inputs), task.logits(again, inputs), atol=1e-6)


def test_pickled_weights_are_refused_with_advice(tmp_path: Path, bert: Path) -> None:
    folder = tmp_path / "pickled"
    folder.mkdir()
    for file in bert.iterdir():
        if file.suffix != ".safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    torch.save({}, folder / "pytorch_model.bin")
    task = task_of(tmp_path, LINES, model=Model(path=str(folder)))
    with pytest.raises(ModelError, match="pickle") as caught:
        task.build_model()
    assert caught.value.code == "unsafe_model_file"
    assert "safetensors" in caught.value.advice


# -- real data ---------------------------------------------------------------------------------------------------------
def test_the_sms_file_is_learned_in_a_few_updates() -> None:
    file = CONFIGS.parents[1] / "shared" / "data" / "sms_spam" / "sms.tsv"
    if not file.is_file():
        pytest.skip("no shared/data/sms_spam beside the checkout")
    data = Data(train=str(file), header=False, quoting="none", columns={"label": "0", "text": "1"})
    task = ClassificationTask(Plan(data=data, optimizer=Optimizer(lr=2e-3)))
    assert task.class_counts() == [{"id": 0, "name": "ham", "count": 4_827}, {"id": 1, "name": "spam", "count": 747}]
    assert not task.label_problems()
    torch.manual_seed(0)
    model, rows = task.build_model(), task.records("train")
    optimizer = task.build_optimizer(model)
    losses = []
    for update in range(40):
        batch = task.collate([encode(task, rows[(update * 16 + place) * 7 % len(rows)]) for place in range(16)])
        total, counted = task.loss(model, batch)
        (total / counted).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(total.detach()) / counted)
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])
