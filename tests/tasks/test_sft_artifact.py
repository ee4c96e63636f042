"""Artifacts of the sft task: what is written is loaded back whole, and nothing that is not safe or not whole is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tui_pilot.errors import ModelError
from tui_pilot.plan.model import Adapter, Data, Export, Model, Plan

pytest.importorskip("transformers", reason="the hf extra is not installed")
pytest.importorskip("peft", reason="the hf extra is not installed")

from safetensors.torch import load_file, save_file
from tiny_llm import tokenizer, write_model

from tui_pilot.tasks.sft import SftTask

LORA = Adapter(r=2, alpha=4, targets=("q_proj", "v_proj"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture
def data(tmp_path: Path) -> Data:
    rows = [{"prompt": f"what is {n}", "completion": "yes"} for n in range(6)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Data(train=str(tmp_path / "train.jsonl"), max_length=64)


def trained(task: SftTask) -> Any:
    """A model after one step that moves it far, so that an untouched reload would be seen."""
    torch.manual_seed(0)
    model = task.build_model()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


@pytest.mark.parametrize(
    ("how", "tolerance"),
    [
        ((LORA, Export("adapter")), 0.0),
        ((LORA, Export()), 0.0),
        ((None, Export("full")), 0.0),
        ((LORA, Export("merged")), 1e-4),
        ((None, Export("full", "bf16")), 0.3),
    ],
    ids=["adapter", "default", "full", "merged", "full-bf16"],
)
def test_what_is_saved_answers_the_same_from_disk_alone(
    base: Path, data: Data, tmp_path: Path, how: tuple[Adapter | None, Export], tolerance: float
) -> None:
    plan = Plan(task="sft", model=Model(path=str(base), adapter=how[0]), data=data, export=how[1])
    task = SftTask(plan)
    model = trained(task)
    asked = task.control_inputs()
    with torch.no_grad():
        before = model(asked["input_ids"], asked["attention_mask"]).logits
        bare = SftTask(Plan(task="sft", model=Model(path=str(base)), data=data)).build_model()
        untouched: Any = bare(asked["input_ids"], asked["attention_mask"]).logits
    folder = tmp_path / "artifact"
    task.save_artifact(model, folder)
    assert not list(folder.rglob("*.bin"))
    weights = folder / "model.safetensors"
    assert not weights.exists() or "lm_head.weight" not in load_file(weights)  # tied: written once

    other = SftTask(plan)
    loaded: Any = other.load_artifact(folder).eval()
    again = other.control_inputs()
    assert torch.equal(asked["input_ids"], again["input_ids"])
    own = task.artifact_control_inputs(folder)
    assert own is not None
    assert torch.equal(asked["input_ids"], own["input_ids"])
    with torch.no_grad():
        after = loaded(again["input_ids"], again["attention_mask"]).logits.float()
    assert float((after - before).abs().max()) <= tolerance
    assert float((untouched - before).abs().max()) > 0.5


def test_a_merged_artifact_stands_alone(base: Path, data: Data, tmp_path: Path) -> None:
    copy = tmp_path / "base"
    shutil.copytree(base, copy)
    plan = Plan(task="sft", model=Model(path=str(copy), adapter=LORA), data=data, export=Export("merged", "bf16"))
    task = SftTask(plan)
    task.save_artifact(trained(task), tmp_path / "artifact")
    shutil.rmtree(copy)
    loaded = SftTask(plan).load_artifact(tmp_path / "artifact")
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.bfloat16}
    assert not [name for name, _ in loaded.named_parameters() if "lora" in name]


def saved_adapter(base: Path, data: Data, tmp_path: Path) -> tuple[Plan, Path, Path]:
    plan = Plan(task="sft", model=Model(path=str(base), adapter=LORA), data=data)
    task = SftTask(plan)
    task.save_artifact(trained(task), tmp_path / "artifact")
    return plan, tmp_path / "artifact", tmp_path / "artifact" / "adapter_model.safetensors"


def test_renamed_adapter_keys_are_counted_and_nothing_is_loaded(base: Path, data: Data, tmp_path: Path) -> None:
    plan, folder, file = saved_adapter(base, data, tmp_path)
    renamed = {
        name.replace("base_model.model.", "base_model.model.extra."): one for name, one in load_file(file).items()
    }
    save_file(renamed, file)
    with pytest.raises(ModelError, match="adapter keys matched 0/8; 8 missing, 8 unexpected") as caught:
        SftTask(plan).load_artifact(folder)
    assert caught.value.code == "adapter_keys_unmatched"


def test_partly_missing_or_emptied_adapter_tensors_are_named(base: Path, data: Data, tmp_path: Path) -> None:
    plan, folder, file = saved_adapter(base, data, tmp_path)
    tensors = load_file(file)
    first = sorted(tensors)[0]
    save_file({**tensors, first: torch.zeros(0)}, file)
    with pytest.raises(ModelError, match="1 of another shape"):
        SftTask(plan).load_artifact(folder)
    del tensors[first]
    save_file(tensors, file)
    with pytest.raises(ModelError, match="matched 7/8; 1 missing"):
        SftTask(plan).load_artifact(folder)


@pytest.mark.parametrize("how", ["no tensors", "zero bytes", "no file", "cut", "pickle"])
def test_empty_broken_and_pickled_adapters_are_refused(base: Path, data: Data, tmp_path: Path, how: str) -> None:
    plan, folder, file = saved_adapter(base, data, tmp_path)
    if how == "no tensors":
        save_file({}, file)
    elif how == "zero bytes":
        file.write_bytes(b"")
    elif how == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    else:
        file.unlink()
        if how == "pickle":
            torch.save({}, folder / "adapter_model.bin")
    with pytest.raises(ModelError) as caught:
        SftTask(plan).load_artifact(folder)
    wanted = {"cut": "tensors_missing", "pickle": "unsafe_artifact"}.get(how, "empty_artifact")
    assert caught.value.code == wanted


def test_another_base_model_is_noticed(data: Data, tmp_path: Path) -> None:
    base = write_model(tmp_path / "base")
    plan, folder, _ = saved_adapter(base, data, tmp_path)
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({**config, "rope_theta": 1.0}))
    with pytest.raises(ModelError, match="not the one that the adapter was trained on"):
        SftTask(plan).load_artifact(folder)


def test_a_template_missing_from_the_artifact_changes_the_prompts(base: Path, data: Data, tmp_path: Path) -> None:
    plan, folder, _ = saved_adapter(base, data, tmp_path)
    task = SftTask(plan)
    asked = task.control_inputs()["input_ids"]
    (folder / "chat_template.jinja").unlink()
    again = task.artifact_control_inputs(folder)
    assert again is not None
    assert again["input_ids"].tolist() != asked.tolist()
    (folder / "tokenizer_config.json").unlink()
    assert task.artifact_control_inputs(folder) is None


def test_a_full_artifact_that_is_emptied_or_pickled_is_refused(base: Path, data: Data, tmp_path: Path) -> None:
    plan = Plan(task="sft", model=Model(path=str(base)), data=data)
    task = SftTask(plan)
    task.save_artifact(trained(task), tmp_path / "artifact")
    (tmp_path / "artifact" / "model.safetensors").unlink()
    with pytest.raises(ModelError) as caught:
        SftTask(plan).load_artifact(tmp_path / "artifact")
    assert caught.value.code == "empty_artifact"
    torch.save({}, tmp_path / "artifact" / "pytorch_model.bin")
    with pytest.raises(ModelError) as caught:
        SftTask(plan).load_artifact(tmp_path / "artifact")
    assert caught.value.code == "unsafe_artifact"


class Exploit:
    """Unpickling this would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_pickle_weights_are_refused_and_never_opened(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    torch.save({"x": Exploit(tmp_path / "ran")}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError) as caught:
        SftTask(Plan(task="sft", model=Model(path=str(folder)))).build_model()
    assert caught.value.code == "unsafe_model_file"
    assert "safetensors" in caught.value.advice
    assert not (tmp_path / "ran").exists()


def test_folders_without_weights_or_config_or_at_all(tmp_path: Path, base: Path) -> None:
    def build(path: Path | None) -> None:
        SftTask(Plan(task="sft", model=Model(path=None if path is None else str(path)))).build_model()

    with pytest.raises(ModelError, match="names no model"):
        build(None)
    with pytest.raises(ModelError, match="no such folder"):
        build(tmp_path / "none")
    with pytest.raises(ModelError, match=r"config\.json"):
        build(tmp_path)
    folder = tmp_path / "copy"
    shutil.copytree(base, folder)
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="empty"):
        build(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="no weights"):
        build(folder)


def test_weights_of_another_model_are_not_filled_up(tmp_path: Path, base: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(base, folder)
    tensors = load_file(folder / "model.safetensors")
    lost = next(name for name in tensors if "mlp" in name)
    save_file(
        {name: one for name, one in tensors.items() if name != lost}, folder / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(ModelError, match="1 tensors of the model are not in the files") as caught:
        SftTask(Plan(task="sft", model=Model(path=str(folder)))).build_model()
    assert caught.value.code == "tensors_missing"


def test_a_tokenizer_larger_than_the_table_is_refused(tmp_path: Path) -> None:
    own = tokenizer()
    folder = write_model(tmp_path / "model", own)
    own.add_tokens(["<extra>"])
    own.save_pretrained(folder)
    with pytest.raises(ModelError, match=f"token id {len(own) - 1} is out of the embedding table"):
        SftTask(Plan(task="sft", model=Model(path=str(folder)))).build_model()
