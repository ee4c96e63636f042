"""Every fault of a plan: its file, line, key, value and advice, all at once, and never a bare traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui_pilot.errors import EXIT_PLAN_WRONG, PlanError, PlanErrors
from tui_pilot.plan.load import default_demo, load


def faults(folder: Path, text: str | bytes, overrides: dict[str, Any] | None = None) -> list[PlanError]:
    """What is wrong with a plan, written into a folder that has a model and data."""
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "config.json").write_text("{}")
    (folder / "model" / "model.safetensors").write_bytes(b"weights")
    (folder / "train.jsonl").write_text("{}\n")
    (folder / "empty.jsonl").write_text("")
    (folder / "mine.py").write_text("class Mine:\n    pass\n")
    path = folder / "pilot.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(PlanErrors) as caught:
        load(path, overrides)
    error = caught.value
    assert error.exit_code == EXIT_PLAN_WRONG and str(error).endswith("Nothing was run.")
    json.dumps([each.as_json() for each in error.errors], allow_nan=False)
    for each in error.errors:
        assert each.file in (str(path), "--set") and each.text[-1] in ".…"
        assert "invalid" not in str(each).lower()
    return error.errors


CASES: list[tuple[str, str, int | None, str]] = [
    # text, key, line, words of the message
    ("a: 1", "a", 1, "unknown key."),
    ("batch:\n  micro: 2\n  acumulation: 8", "batch.acumulation", 3, "unknown key. Nearest: accumulation."),
    ("optimiser: {lr: 1}", "optimiser", 1, "Nearest: optimizer."),
    ("\nlr: 1e-4", "lr", 2, "Nearest: optimizer.lr."),
    ("model: {adapter: {kind: lora, rank: 3}}", "model.adapter.rank", 1, "unknown key. Nearest: model.adapter.r."),
    ("model: {adapter: {zzz: 3}}", "model.adapter.zzz", 1, "unknown key. Known here: kind, r, alpha"),
    ("learning_rate: 1e-4", "learning_rate", 1, "Nearest: optimizer.lr."),
    ("data: {unit: {prefx: a}}", "data.unit.prefx", 1, "Nearest: prefix."),
    ("data: {validation: {fracton: 0.1}}", "data.validation.fracton", 1, "Nearest: fraction."),
    ("variants:\n- id: a\n  st: {}", "variants.0.st", 3, "Nearest: set."),
    ("batch: {micro: 1}\nbatch: {micro: 2}", "batch", 2, "given twice, first in line 1."),
    ("batch:\n  micro: 1\n  tail: drop\n  micro: 2", "batch.micro", 4, "given twice, first in line 2."),
    ("batch: {<<: {micro: 1}}", "batch", 1, "merge keys"),
    ("batch: {[a]: 1}", "batch", 1, "a key must be one word."),
    ("name: !!python/object:os.system x", "name", 1, "the tag"),
    ('name: "\\ud800"', "name", 1, "surrogate"),
    ("options: &x\n  a: *x", "options.a", 1, "an alias that holds itself."),
    ("name: 123", "name", 1, '123 is not allowed. Allowed: text. Write it in quotes: "123".'),
    ("name: true", "name", 1, "Allowed: text."),
    ("name: ' '", "name", 1, "not empty"),
    ("batch: 3", "batch", 1, "a section with micro, accumulation"),
    ("batch: [1]", "batch", 1, "a section with micro"),
    ("batch: {micro: '3'}", "batch.micro", 1, "Allowed: a whole number. Write it without quotes."),
    ("batch: {micro: two}", "batch.micro", 1, '"two" is not allowed. Allowed: a whole number.'),
    ("batch: {micro: 2.0}", "batch.micro", 1, "a whole number"),
    ("batch: {micro: 1.5e0}", "batch.micro", 1, "a whole number"),
    ("batch: {micro: true}", "batch.micro", 1, "true is not allowed"),
    ("batch: {micro: null}", "batch.micro", 1, "null is not allowed"),
    ("batch: {drop_last: 'yes'}", "batch.drop_last", 1, "Allowed: true or false, without quotes."),
    ("batch: {drop_last: 1}", "batch.drop_last", 1, "Allowed: true or false."),
    ("batch: {tail: stp}", "batch.tail", 1, "one of step, drop. Nearest: step."),
    ("optimizer:\n  lr: true", "optimizer.lr", 2, "a number"),
    ("optimizer: {lr: fast}", "optimizer.lr", 1, '"fast" is not allowed. Allowed: a number.'),
    ("optimizer: {lr: [1]}", "optimizer.lr", 1, "a number"),
    ("precision: fp3", "precision", 1, "one of fp32, bf16, bf16-amp, fp16-amp. Nearest: fp32."),
    ("data: {unit: [a]}", "data.unit", 1, "text, or a section with field"),
    ("data: {columns: {text: [a]}}", "data.columns.text", 1, "text"),
    ("compare: {seeds: 3}", "compare.seeds", 1, "a list, each a whole number"),
    ("compare: {seeds: [0, x]}", "compare.seeds.1", 1, "a whole number"),
    ("gates: {overfit: {lr: fast}}", "gates.overfit.lr", 1, "a number, or auto"),
    ("gates: {severity: {oom: bad}}", "gates.severity.oom", 1, "one of fail, warn, note, unchecked"),
    ("variants:\n- {why: x}", "variants.0.id", 2, "missing. Needed: text."),
    ("variants: [{id: a, set: [x]}]", "variants.0.set", 1, "names with values"),
    ("data: {unit: {time: {gap: 2}}}", "data.unit.time.field", 1, "missing."),
    # ranges
    ("batch: {micro: 0}", "batch.micro", 1, "0 is not allowed. Allowed: a whole number from 1."),
    ("batch: {accumulation: -2}", "batch.accumulation", 1, "a whole number from 1"),
    ("budget: {updates: 0}", "budget.updates", 1, "a whole number from 1"),
    ("budget: {epochs: 0}", "budget.epochs", 1, "a finite number above 0"),
    ("optimizer: {lr: 0}", "optimizer.lr", 1, "a finite number above 0"),
    ("optimizer: {lr: -1e-4}", "optimizer.lr", 1, "-0.0001 is not allowed"),
    ("optimizer: {lr: .nan}", "optimizer.lr", 1, "a finite number above 0"),
    ("optimizer: {lr: .inf}", "optimizer.lr", 1, "a finite number above 0"),
    ("optimizer: {lr: 1e999}", "optimizer.lr", 1, "a finite number above 0"),
    ("optimizer: {warmup: -1}", "optimizer.warmup", 1, "a whole number from 0"),
    ("data: {validation: {fraction: 1}}", "data.validation.fraction", 1, "between 0 and 1"),
    ("data: {validation: {fraction: 0}}", "data.validation.fraction", 1, "between 0 and 1"),
    ("model: {adapter: {dropout: 1}}", "model.adapter.dropout", 1, "from 0 to below 1"),
    ("gates: {examples: {max_truncated: 1.1}}", "gates.examples.max_truncated", 1, "from 0 to 1"),
    ("seed: -1", "seed", 1, "a whole number from 0"),
    ("compare: {seeds: [1, -1]}", "compare.seeds.1", 1, "a whole number from 0"),
    ("rental: {packages: [0]}", "rental.packages.0", 1, "a whole number from 1"),
    ("rental: {prices: {H100: -1}}", "rental.prices.H100", 1, "a finite number from 0"),
    ("variants: [{id: a, priority: 0}]", "variants.0.priority", 1, "a whole number from 1"),
    ("options: {a: [1, .inf]}", "options", 1, "JSON has no such number"),
    # what belongs together
    ("budget:\n  updates: 3\n  epochs: 1", "budget.epochs", 3, "updates and epochs are both given"),
    ("budget:\n  epochs: 1\n  updates: 3", "budget.updates", 3, "only one quantity"),
    ("data: {unit: ''}", "data.unit", 1, "the name of a field"),
    ("data: {unit: {}}", "data.unit", 1, "no rule is given"),
    ("data: {unit: {prefix: _, time: t}}", "data.unit", 1, "prefix and time are given"),
    ("data: {unit: {field: a, time: t}}", "data.unit.field", 1, "field does not go with time"),
    ("data: {unit: {prefix: ''}}", "data.unit.prefix", 1, "is not allowed"),
    ("data: {unit: {regex: 'a(b'}}", "data.unit.regex", 1, "no regular expression"),
    ("data: {unit: {regex: 'ab'}}", "data.unit.regex", 1, "0 groups"),
    ("export: {kind: adapter}", "export.kind", 1, "adapter needs model.adapter"),
    ("export: {kind: merged}", "export.kind", 1, "merged needs model.adapter"),
    ("model: {adapter: {}}\nexport: {kind: full}", "export.kind", 2, "full does not go with model.adapter"),
    ("export: {dtype: bf61}", "export.dtype", 1, "fp32, bf16, fp16. Nearest: bf16."),
    ("launch:\n  processes: 2", "launch.strategy", 1, "ddp (a whole model on each GPU) or fsdp"),
    ("launch: {nodes: 2}", "launch.strategy", 1, "with 2 processes"),
    ("launch: {processes: 6, strategy: ddp, tensor_parallel: 4}", "launch.tensor_parallel", 1, "4 does not divide 6"),
    ("gates: {skip: [stack, overfitt]}", "gates.skip.1", 1, "no phase. Allowed: stack"),
    ("command: python x.py", "command", 1, "goes with task: command only; the task is demo"),
    ("artifact: out", "artifact", 1, "goes with task: command only"),
    ("task: command", "command", 1, "missing: task command runs it."),
    ("task: command\ncommand: []", "command", 2, "is empty"),
    ("task: command\ncommand: python 'x", "command", 2, "no closing quotation"),
    ("variants: [{id: a}, {id: a}]", "variants.1.id", 1, '"a" is taken by variants.0'),
    ("variants: [{id: a/b}]", "variants.0.id", 1, "letters, digits"),
    ("compare: {trials: [{id: a}, {id: a}]}", "compare.trials.1.id", 1, "taken by compare.trials.0"),
    ("compare: {hold: [date]}", "compare.hold.0", 1, "Nearest: data."),
    ("compare: {seeds: []}", "compare.seeds", 1, "at least one seed"),
    ("compare: {seeds: [1, 1]}", "compare.seeds.1", 1, "1 is given twice"),
    # tasks, files, models
    ("task: sfft", "task", 1, "Nearest: sft."),
    ("task: mine.py", "task", 1, "Nearest: mine.py:Mine."),
    ("task: ours.py:Mine", "task", 1, '"ours.py" does not exist'),
    ("task: mine.py:Mini", "task", 1, 'mine.py has no class "Mini". Nearest: Mine.'),
    ("task: classification", "data.train", 1, "missing: task classification needs rows"),
    ("\ntask: sft\ndata: {train: train.jsonl}", "model.path", 2, "missing: task sft trains a model."),
    ("\ntask: sft\nmodel: {path: model}", "data.train", 2, "missing: task sft needs rows"),
    ("data:\n  train: trian.jsonl", "data.train", 2, '"trian.jsonl" does not exist. Nearest there: train.jsonl.'),
    ("data: {validation: model}", "data.validation", 1, '"model" is no file.'),
    ("data: {test: empty.jsonl}", "data.test", 1, "is empty: 0 bytes"),
    ("data: {benchmark: nowhere/x}", "data.benchmark", 1, "does not exist"),
    ('data: {train: "a\\0b"}', "data.train", 1, ""),
    ("model: {path: train.jsonl}", "model.path", 1, "is a file. Name the folder"),
    ("model: {path: ./nowhere}", "model.path", 1, "does not exist"),
    # variants and trials, tried as plans
    ("variants: [{id: a, set: {optimizer.lrr: 1}}]", "variants.0.set.optimizer.lrr", 1, "Nearest: optimizer.lr."),
    ("variants:\n- id: a\n  set:\n    lr: 1", "variants.0.set.lr", 4, "Nearest: optimizer.lr."),
    ("variants: [{id: a, set: {batch.micro: 0}}]", "variants.0.set.batch.micro", 1, "a whole number from 1"),
    ("variants: [{id: a, set: {batch: {micro: x}}}]", "variants.0.set.batch.micro", 1, "a whole number"),
    ("variants: [{id: a, set: {batch: {micr: 1}}}]", "variants.0.set.batch.micr", 1, "unknown key."),
    ("variants: [{id: a, set: {launch.processes: 2}}]", "variants.0", 1, "with this change launch.strategy: none"),
    ("variants: [{id: a, set: {compare.seeds: [1]}}]", "variants.0.set.compare.seeds", 1, "cannot be changed here"),
    (
        "compare:\n  trials:\n  - {id: a}\n  - {id: b, set: {optimizer.lr: x}}",
        "compare.trials.1.set.optimizer.lr",
        4,
        "",
    ),
    ("variants: [{id: a, set: {data.train: no.jsonl}}]", "variants.0.set.data.train", 1, "does not exist"),
]


@pytest.mark.parametrize(("text", "key", "line", "words"), CASES, ids=[case[0][:60] for case in CASES])
def test_each_fault_is_placed_and_said(tmp_path: Path, text: str, key: str, line: int | None, words: str) -> None:
    found = faults(tmp_path, text)
    assert [error.key for error in found] == [key]
    assert found[0].line == line
    assert words in f"{found[0].text} {found[0].advice}"
    assert f"pilot.yaml:{line}  {key}: " in str(found[0])


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "is empty."),
        ("# only a comment\n", None, "is empty."),
        ("- a\n", 1, "holds no sections"),
        ("just words", 1, "holds no sections"),
        ("a: [1\nb: 2", 2, "not readable as YAML"),
        ("batch:\n\tmicro: 1\n", 2, "Indent with spaces."),
        ("a: 1\n---\nb: 2\n", 2, "not readable as YAML"),
        ("a: 1\nb: \x07\n", 2, "control character"),
        ("a: *nowhere", 1, "not readable as YAML"),
        ("options: " + "[" * 3000 + "]" * 3000, None, "nested too deeply"),
        (b"\xef\xbb\xbftask: demo\n", 1, "byte order mark"),
        (b"task: demo\nname: \xff\n", 2, "is not UTF-8: byte 0xff."),
        ("task: demo\n".encode("utf-16"), 1, "is not UTF-8"),
        (b"#" * (1 << 21), None, "that is no plan"),
    ],
)
def test_files_that_are_no_plan(tmp_path: Path, text: str | bytes, line: int | None, words: str) -> None:
    found = faults(tmp_path, text)
    assert len(found) == 1 and found[0].line == line
    assert words in f"{found[0].text} {found[0].advice}"


def test_places_that_hold_no_file(tmp_path: Path) -> None:
    with pytest.raises(PlanErrors, match=r"none\.yaml: does not exist\. .* Nothing was run\."):
        load(tmp_path / "none.yaml")
    with pytest.raises(PlanErrors, match="is a folder"):
        load(tmp_path)
    with pytest.raises(PlanErrors, match="is no file"):
        load(Path("/dev/null"))


def test_aliases_that_multiply_are_stopped(tmp_path: Path) -> None:
    rows = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    found = faults(tmp_path, "options:\n  " + "\n  ".join(rows))
    assert "more than 50,000 values" in found[0].text


def test_all_faults_come_at_once_in_file_order(tmp_path: Path) -> None:
    text = "name: 1\nbatch:\n  micro: x\n  acumulation: 8\ndata: {train: none.jsonl}\noptimizer: {lr: 0}\n"
    found = faults(tmp_path, text, {"seed": "abc", "batch.mico": "3"})
    assert [(error.line, error.key) for error in found] == [
        (1, "name"),
        (3, "batch.micro"),
        (4, "batch.acumulation"),
        (5, "data.train"),
        (6, "optimizer.lr"),
        (None, "batch.mico"),
        (None, "seed"),
    ]
    assert [error.file for error in found[-2:]] == ["--set", "--set"]
    assert found[4].value == 0 and found[1].value == "x"


def test_a_fault_of_the_plan_is_not_repeated_by_its_variants(tmp_path: Path) -> None:
    text = "budget: {updates: 3, epochs: 1}\nbudget: {updates: 3}\nvariants: [{id: a, set: {seed: 1}}, {id: b}]\n"
    assert [error.key for error in faults(tmp_path, text)] == ["budget"]


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("batch.micro", "[1", "not readable as YAML"),
        ("batch.micro", "x", '"x" is not allowed'),
        ("batch.micro", "0", "a whole number from 1"),
        ("lr", "1", "Nearest: optimizer.lr."),
        ("compare.trials.0.id", "x", "unknown key."),
        ("", "x", "unknown key."),
        ("model.path", "gpt2", "hf download gpt2 --local-dir ./gpt2"),
    ],
)
def test_faults_of_overrides(key: str, text: str, words: str) -> None:
    with pytest.raises(PlanErrors) as caught:
        default_demo({key: text})
    (error,) = caught.value.errors
    assert error.file == "--set" and error.line is None and error.key == (key or None)
    assert words in f"{error.text} {error.advice}"


def test_a_hub_id_gets_the_line_to_type(tmp_path: Path) -> None:
    (found,) = faults(tmp_path, "model: {path: meta-llama/Llama-3.1-8B}")
    wanted = (
        'model.path: "meta-llama/Llama-3.1-8B" is no folder here, and pilot-tui downloads nothing. '
        "hf download meta-llama/Llama-3.1-8B --local-dir ./llama-3.1-8b, then model.path: ./llama-3.1-8b"
    )
    assert wanted in str(found)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "has no config.json"),
        ({"adapter_config.json": b"{}"}, "It holds an adapter"),
        ({"config.json": b"{"}, "no JSON object"),
        ({"config.json": b"{}"}, "has no weights"),
        ({"config.json": b"{}", "training_args.bin": b"x", "optimizer.pt": b"x"}, "has no weights"),
        ({"config.json": b"{}", "model.safetensors": b""}, "is empty: 0 bytes"),
        ({"config.json": b"{}", "model.safetensors": b"version https://git-lfs.github.com/spec/v1"}, "git lfs pull"),
        (
            {
                "config.json": b"{}",
                "model-1.safetensors": b"x",
                "model.safetensors.index.json": b'{"weight_map": {"a": "model-1.safetensors", "b": "model-2.bin"}}',
            },
            "lacks model-2.bin",
        ),
    ],
)
def test_model_folders_that_hold_no_model(tmp_path: Path, files: dict[str, bytes], words: str) -> None:
    (tmp_path / "broken").mkdir()
    for name, data in files.items():
        (tmp_path / "broken" / name).write_bytes(data)
    (found,) = faults(tmp_path, "model: {path: broken}")
    assert found.key == "model.path" and found.value == "broken" and words in f"{found.text} {found.advice}"


def test_foreign_text_is_made_harmless(tmp_path: Path) -> None:
    (found,) = faults(tmp_path, 'precision: "\\e[31mred\\nline"')
    assert "\x1b" not in found.text and "\n" not in found.text


values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    [
        "batch",
        "data",
        "data.unit",
        "data.validation",
        "model",
        "model.adapter",
        "budget",
        "gates",
        "gates.skip",
        "options",
        "variants",
        "compare",
        "compare.trials",
        "rental.prices",
        "command",
        "task",
        "name",
        "optimizer.lr",
        "export.kind",
    ]
)


@settings(max_examples=150, deadline=None)
@given(changes=st.dictionaries(names, values, max_size=3))
def test_any_value_anywhere_is_a_plan_or_a_list_of_faults(changes: dict[str, Any]) -> None:
    changes = {key: value if not isinstance(value, str) else [value] for key, value in changes.items()}
    try:
        default_demo(changes)
    except PlanErrors as error:
        assert error.errors and all(each.text for each in error.errors)


@settings(max_examples=150, deadline=None)
@given(text=st.text(alphabet="ab:[]{}-&*!|>'\"#%@,? \n\t01.e~<", max_size=60))
def test_any_text_is_a_value_or_a_list_of_faults(text: str) -> None:
    try:
        default_demo({"options.x": text})
    except PlanErrors as error:
        assert error.errors
