"""``init``: a plan from a look at the data that loads as it is, and never over an existing file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tui_pilot.commands.init_plan import init
from tui_pilot.plan.load import load
from tui_pilot.plan.model import Held, Plan, Unit


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(init, list(arguments), standalone_mode=True)


def plan_of(*arguments: str) -> tuple[Plan, str]:
    """Run init, load what it wrote."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return load(Path("pilot.yaml"), need_weights=False).plan, Path("pilot.yaml").read_text("utf-8")


def jsonl(name: str, rows: list[dict[str, Any]]) -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return name


def model(name: str = "model") -> str:
    Path(name).mkdir()
    Path(name, "config.json").write_text('{"model_type": "llama"}', "utf-8")
    return name


def test_a_table_without_a_header_and_with_plain_quotes() -> None:
    lines = [f'{"spam" if n % 5 == 0 else "ham"}\tmessage "{n}" of a chat' + ('"' if n == 7 else "") for n in range(50)]
    Path("sms.tsv").write_text("\n".join([*lines, 'ham\t"open', "spam\tmiddle", 'ham\tclose"']) + "\n", "utf-8")
    plan, text = plan_of("--data", "sms.tsv")
    assert (plan.task, plan.data.header, plan.data.quoting) == ("classification", False, "none")
    assert plan.data.columns == {"text": "1", "label": "0"}
    assert plan.data.validation == Held(0.1, 0)
    assert (plan.evaluate.metric, plan.evaluate.direction) == ("macro_f1", "max")
    assert plan.data.unit is None
    assert "# unit:" in text and "unchecked" in text
    assert "53 rows" in text


def test_a_table_with_names_and_a_column_that_groups_rows() -> None:
    rows = [f"{n},reader-{n // 4},some longer words number {n},{'abc'[n % 3]}" for n in range(60)]
    Path("desk.csv").write_text("\n".join(["id,reader,body,kind", *rows]) + "\n", "utf-8")
    plan, text = plan_of("--data", "desk.csv")
    assert (plan.data.columns, plan.data.unit) == ({"text": "body", "label": "kind"}, "reader")
    assert plan.data.header
    assert plan.evaluate.metric == "accuracy"
    assert plan.data.max_length is not None and plan.data.max_length >= 25
    assert "15 different values" in text


def test_chats_with_conversation_ids_and_a_model_beside_them() -> None:
    turns = [{"role": "user", "content": "a question " * 20}, {"role": "assistant", "content": "an answer " * 30}]
    rows = [{"conversation_id": f"c{n // 3}", "messages": turns} for n in range(30)]
    jsonl("train.jsonl", rows)
    jsonl("valid.jsonl", rows[:3])
    jsonl("test.jsonl", rows[:3])
    name = model()
    plan, text = plan_of("--data", "train.jsonl")
    assert (plan.task, plan.model.path, plan.data.unit) == ("sft", f"./{name}", "conversation_id")
    assert (plan.data.validation, plan.data.test) == ("valid.jsonl", "test.jsonl")
    assert plan.model.adapter is not None
    assert plan.data.max_length is not None and 128 <= plan.data.max_length <= 512
    assert "4 characters a token" in text


def test_question_and_answer_columns_become_prompt_and_completion() -> None:
    jsonl("train.jsonl", [{"question": f"what is {n}?", "answer": f"it is {n}"} for n in range(20)])
    plan, _ = plan_of("--data", "train.jsonl", "--model", model())
    assert (plan.task, plan.data.columns) == ("sft", {"prompt": "question", "completion": "answer"})


@pytest.mark.parametrize(
    ("more", "unit"),
    [
        (lambda n: {"id": f"n{n}", "parent_id": f"n{n - 1}" if n % 3 else None}, "root_of"),
        (lambda n: {"id": f"g{n // 5}_{n % 5}"}, "prefix"),
    ],
)
def test_chains_and_numbered_ids_are_units(more: Any, unit: str) -> None:
    jsonl("train.jsonl", [{"prompt": f"question {n}", "completion": f"answer {n}", **more(n)} for n in range(30)])
    plan, _ = plan_of("--data", "train.jsonl", "--model", model())
    assert isinstance(plan.data.unit, Unit)
    assert getattr(plan.data.unit, unit)


def test_it_never_overwrites() -> None:
    Path("pilot.yaml").write_text("name: mine\n", "utf-8")
    Path("rows.csv").write_text("text,label\nab,x\ncd,y\n", "utf-8")
    result = run("--data", "rows.csv")
    assert result.exit_code == 2
    assert "never overwritten" in result.output and "pilot-2.yaml" in result.output
    assert Path("pilot.yaml").read_text("utf-8") == "name: mine\n"
    assert run("--data", "rows.csv", "-o", "pilot-2.yaml").exit_code == 0
    assert sorted(os.listdir()) == ["pilot-2.yaml", "pilot.yaml", "rows.csv"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "nothing.csv"], "no such file"),
        (["--data", "empty.csv"], "empty"),
        (["--task", "sft"], "--data"),
        (["--task", "sfd", "--data", "rows.jsonl"], "sfd is no task"),
        (["--data", "rows.jsonl"], "--model"),
        (["--data", "pairs.jsonl"], "preference pairs"),
        (["--data", "odd.jsonl"], "no format is recognised"),
        (["--data", "broken.jsonl"], "broken.jsonl:1"),
        (["--task", "classification", "--data", "rows.jsonl"], "no column looks like a label"),
        (["--task", "mine.py:Task"], "mine.py"),
        (["--task", "demo", "--data", "rows.jsonl"], "takes no data"),
    ],
)
def test_what_cannot_be_proposed_is_said_and_nothing_is_written(arguments: list[str], said: str) -> None:
    Path("empty.csv").write_text("", "utf-8")
    Path("broken.jsonl").write_text("{not json\n", "utf-8")
    jsonl("rows.jsonl", [{"prompt": f"a{n}", "completion": f"b{n}"} for n in range(8)])
    jsonl("pairs.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}])
    jsonl("odd.jsonl", [{"foo": f"a{n}", "bar": f"b{n}"} for n in range(8)])
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert not [name for name in os.listdir() if name.endswith(".yaml") or name.startswith(".")]


def test_without_flags_it_lists_what_is_here_and_the_line_to_type() -> None:
    Path("data").mkdir()
    jsonl("data/train.jsonl", [{"messages": []}])
    Path("odd [x] \x1b]0;name.csv").write_text("text,label\na,b\n", "utf-8")
    model()
    result = run()
    assert result.exit_code == 0
    assert "Type: pilot-tui init --data data/train.jsonl --model model" in result.output
    assert "csv" in result.output and "messages" in result.output
    assert "\x1b" not in result.output
    assert not Path("pilot.yaml").exists()


def test_an_empty_folder_is_told_about_the_demo() -> None:
    result = run()
    assert result.exit_code == 0
    assert "pilot-tui run" in result.output


def test_names_that_yaml_would_read_otherwise() -> None:
    rows = [f"some words {n},{'no' if n % 2 else 'yes'}" for n in range(20)]
    Path("on.csv").write_text("\n".join(['"a: #b",true', *rows]) + "\n", "utf-8")
    plan, _ = plan_of("--data", "on.csv")
    assert plan.data.columns == {"text": "a: #b", "label": "true"}
    assert plan.name == "on"


@pytest.mark.parametrize("task", ["demo", "command"])
def test_tasks_without_data(task: str) -> None:
    plan, _ = plan_of("--task", task)
    assert plan.task == task


def test_it_needs_no_torch() -> None:
    Path("rows.csv").write_text("text,label\nab,x\ncd,y\n", "utf-8")
    code = (
        "import sys\n"
        "from tui_pilot.commands.init_plan import write_plan\n"
        "from pathlib import Path\n"
        "write_plan(None, Path('rows.csv'), None, Path('pilot.yaml'))\n"
        "print([name for name in ('torch', 'textual', 'numpy') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
