"""The real chat model and data beside the checkout: facts that a tiny model cannot show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tui_pilot.plan.model import Adapter, Data, Model, Plan
from tui_pilot.tasks.base import IGNORE, encode

pytest.importorskip("transformers", reason="the hf extra is not installed")
pytest.importorskip("peft", reason="the hf extra is not installed")

from tui_pilot.tasks.sft import SftTask

SHARED = Path(__file__).resolve().parents[3] / "shared"
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model folder: the one that is named in the environment, else made by the tool beside the checkout."""
    named = os.environ.get("PILOT_TUI_TEST_MODEL")
    if named and Path(named, "config.json").exists():
        return Path(named)
    tool = SHARED / "tools" / "make_smollm2.py"
    if not tool.exists():
        pytest.skip("no ../shared/tools/make_smollm2.py beside the checkout and no PILOT_TUI_TEST_MODEL")
    folder = tmp_path_factory.mktemp("real") / "model"
    made = subprocess.run([sys.executable, str(tool), str(folder)], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"the real model could not be made: {made.stderr.strip()[-200:]}")
    return folder


@pytest.fixture(scope="module")
def task(model: Path) -> SftTask:
    folder = SHARED / "data" / "gsm8k"
    if not folder.exists():
        pytest.skip("no ../shared/data/gsm8k beside the checkout")
    data = Data(
        train=str(folder / "train.jsonl"),
        validation=str(folder / "test.jsonl"),
        columns={"prompt": "question", "completion": "answer"},
        max_length=576,
    )
    lora = Adapter(r=8, alpha=16, targets=("q_proj", "v_proj"))
    return SftTask(Plan(task="sft", model=Model(path=str(model), adapter=lora), data=data))


def learned(task: SftTask, record: Any) -> list[int]:
    return [one for one in encode(task, record)["labels"] if one != IGNORE]


def test_what_the_template_does_is_seen(task: SftTask) -> None:
    special = task.special_ids()
    assert special["pad"] in special["end"]
    assert special["bos_count"] == [0, 1]
    assert special["bos"] != special["pad"]
    assert task.tokens.before == []
    assert "helpful AI assistant" in task.chat.invented
    ids = encode(task, task.records("train")[0])["input_ids"]
    assert task.decode(ids[-2:]) == "<|im_end|>\n"
    assert ids.count(special["bos"]) == 3


def test_every_answer_is_learned_whole_with_its_end_token(task: SftTask) -> None:
    records = task.records("train")
    assert len(records) == 640
    end = task.special_ids()["end"]
    longest = 0
    for record in records:
        ids = learned(task, record)
        assert ids[-1] in end
        assert task.decode(ids[:-1]) == record["answer"]
        longest = max(longest, len(task.encode(record)["input_ids"]))
    assert longest <= 576
    assert not task.remarks


def test_unusual_text_comes_back_byte_for_byte(task: SftTask) -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    text = f"cafe\u0301 \x1b[31m {family} \u0645\u0631\u062d\u0628\u0627\u200f \u2028 [/x]"
    record = {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text}], "_line": 1}
    ids = learned(task, record)
    assert task.decode(ids[:-1]).encode() == text.encode()
    whole = task.encode(record)["input_ids"]
    assert "".join(task.pieces(whole)) == task.decode(whole)


def test_the_longest_window_trains_the_adapter(task: SftTask) -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    network = task.build_model().train()
    rows = [encode(task, record) for record in task.records("train")[:4]]
    long = {key: [one for row in rows for one in row[key]][:576] for key in ("input_ids", "labels")}
    batch = task.collate([long])
    total, count = task.loss(network, batch)
    assert batch["input_ids"].shape == (1, 576)
    assert int(count) == task.count(batch)
    total.backward()
    trained = {name: one.grad for name, one in network.named_parameters() if one.requires_grad}
    assert len(trained) == 120
    # A's first gradient is zero because B is zero: that is how LoRA begins
    moved = [name for name, grad in trained.items() if grad is not None and bool(grad.abs().sum() > 0)]
    assert len(moved) == 60
    assert all("lora_B" in name for name in moved)
