"""``pilot-tui predict`` in processes of its own: the demo, big shapes from a config alone, tasks that read values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab import pilot_tui

from tui_pilot.plan.load import load

if TYPE_CHECKING:
    from tui_pilot.predict.prediction import Prediction

pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")

PHASES = ["load", "forward", "backward", "first_step", "steady_step", "evaluate", "export"]
CATEGORIES = {"parameters", "gradients", "optimizer_state", "activations", "temporary"}
GIB = 1 << 30


def predicted(folder: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    done = pilot_tui(["predict", *arguments, "--json"], folder)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_the_demo(tmp_path: Path) -> None:
    code, found, _ = predicted(tmp_path, "--gpu", "RTX 4090")
    assert code == 0
    assert [row["phase"] for row in found["phases"]] == PHASES
    for row in found["phases"]:
        assert set(row["at_peak"]) == CATEGORIES
        assert 0 < sum(row["at_peak"].values()) <= row["allocated_peak"] <= row["reserved_peak"]
    assert set(found["phases"][4]["parts"]) == {"forward", "backward", "step"}
    assert found["other"]["activation_checkpointing"] is True
    assert found["other"]["phases"][1]["allocated_peak"] < found["phases"][1]["allocated_peak"]
    assert found["assumptions"]["attention"] == "efficient" and found["assumptions"]["optimizer"] == "AdamW, foreach"
    assert [(gpu["name"], gpu["fits"]) for gpu in found["gpus"]] == [("RTX 4090 24GB", True)]
    assert found["not_predicted"] == []


LLAMA_3_8B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 8192, "rope_theta": 500000.0, "tie_word_embeddings": False, "dtype": "bfloat16",
}  # fmt: skip
QWEN_7B = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584,
    "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "max_position_embeddings": 32768, "tie_word_embeddings": False, "dtype": "bfloat16",
}  # fmt: skip
BIG = """
name: big
task: sft
model: {{path: ./model{adapter}}}
data: {{train: rows.jsonl, max_length: 2048}}
precision: bf16
optimizer: {{implementation: fused}}
memory: {{activation_checkpointing: true}}
"""


def write_big(folder: Path, config: dict[str, Any], adapter: str = "") -> Path:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(config))
    (folder / "rows.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    (folder / "pilot.yaml").write_text(BIG.format(adapter=adapter))
    return folder / "pilot.yaml"


def in_this_process(plan: Path, both: bool = False) -> Prediction:
    """What the process of ``predict`` does, without the seconds that its start takes."""
    from tui_pilot.pilot.context import absolute_paths, build_task
    from tui_pilot.predict.passes import Target
    from tui_pilot.predict.prediction import predict_run

    loaded = load(plan, need_weights=False)
    whole = absolute_paths(loaded.plan, loaded.folder)
    return predict_run(lambda each: build_task(each, plan.parent), whole, plan.parent, Target((8, 0)), both)


def test_an_8b_shape_from_its_config_alone(tmp_path: Path) -> None:
    write_big(tmp_path, LLAMA_3_8B)
    code, found, words = predicted(tmp_path, "pilot.yaml", "--gpu", "A100 80GB")
    assert [each["phase"] for each in found["not_predicted"]] == [], words
    assert code == 0
    said = found["assumptions"]
    print({name: said[name] for name in ("seconds", "import_seconds", "host_peak")})
    assert said["host_peak"] < GIB
    assert said["length"] == 2048 and "data.max_length" in said["rows"]
    assert said["attention"] == "flash"
    assert said["parameter_bytes"] == 2 * 8_030_261_248
    rows = {row["phase"]: row for row in found["phases"]}
    assert rows["load"]["allocated_peak"] == pytest.approx(2 * 8_030_261_248, rel=1e-3)
    assert rows["first_step"]["allocated_peak"] == pytest.approx(8 * 8_030_261_248, rel=2e-3)
    without = {row["phase"]: row["allocated_peak"] for row in found["other"]["phases"]}
    assert without["forward"] > 1.5 * rows["forward"]["allocated_peak"]
    (gpu,) = found["gpus"]
    assert gpu["binding_phase"] in ("first_step", "steady_step") and gpu["need_bytes"] > 59 * GIB


@pytest.mark.filterwarnings("ignore")
def test_a_7b_shape_with_an_adapter(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="peft is not installed: pip install '.[hf]'")
    # Four of its layers: all of them say the same once more, and the 8B shape above is whole.
    shape = {**QWEN_7B, "num_hidden_layers": 4}
    plan = write_big(tmp_path, shape, ", adapter: {kind: lora, r: 16, targets: [q_proj, v_proj]}")
    found = in_this_process(plan)
    assert found.not_predicted == [] and found.assumptions["length"] == 2048
    print({name: found.assumptions[name] for name in ("seconds", "import_seconds")})
    rows = {row["phase"]: row for row in found.phases}
    held = found.assumptions["parameter_bytes"]
    assert 2 * 2.0e9 < held < 2 * 2.1e9
    assert rows["first_step"]["at_peak"]["optimizer_state"] < held / 100
    assert rows["first_step"]["allocated_peak"] < 1.3 * held


OWN = """
import torch
from tui_pilot.tasks import Task


class Mine(Task):
    def records(self, split):
        return [{"id": n} for n in range(6)]

    def encode(self, record):
        return {"input_ids": [1, 2, 3], "labels": [1, 2, 3]}

    def build_model(self):
        return torch.nn.Embedding(1000, 64)

    def loss(self, model, batch):
        hidden = model(batch["input_ids"])
        if bool((batch["labels"] > 0).all()):
            hidden = hidden[batch["labels"] > 1]
        total = hidden.pow(2).sum()
        READ
        return total
"""


@pytest.mark.parametrize(
    ("read", "word"),
    [
        ("self.last = total.item()", "value"),
        ("assert not torch.isnan(total)", "value"),
        ("total.detach().numpy()", "memory"),
        ("kept = hidden[hidden > 0]", "size of a result"),
    ],
)
def test_a_line_that_reads_values_is_named(tmp_path: Path, read: str, word: str) -> None:
    found = in_this_process(mine(tmp_path, read))
    assert [row["phase"] for row in found.phases] == ["load"]
    missed = {each["phase"]: each for each in found.not_predicted}
    assert list(missed) == PHASES[1:]
    line = next(n for n, text in enumerate((tmp_path / "mine.py").read_text().splitlines(), 1) if read in text)
    assert (missed["forward"]["line"], missed["forward"]["file"]) == (line, str(tmp_path / "mine.py"))
    assert word in missed["forward"]["text"]
    assert "needs forward" in missed["backward"]["text"]


def test_the_command_names_that_line_too(tmp_path: Path) -> None:
    mine(tmp_path, "self.last = total.item()")
    code, found, words = predicted(tmp_path, "pilot.yaml", "--gpu", "T4")
    assert code == 4
    assert "mine.py:21: it reads a value" in words and found["not_predicted"][0]["line"] == 21


def test_values_of_the_batch_alone_may_be_read(tmp_path: Path) -> None:
    found = in_this_process(mine(tmp_path, "assert float(batch['labels'].sum()) == 6"))
    assert [each for each in found.not_predicted if each["phase"] != "evaluate"] == []


def mine(folder: Path, read: str) -> Path:
    """A plan with a task whose loss has that line."""
    (folder / "mine.py").write_text(OWN.replace("READ", read))
    (folder / "pilot.yaml").write_text("name: mine\ntask: mine.py:Mine\n")
    return folder / "pilot.yaml"


def test_a_gpu_that_is_not_in_the_list(tmp_path: Path) -> None:
    done = pilot_tui(["predict", "--gpu", "H1000", "--json"], tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "unknown_gpu"
