"""Area 8, close: what is exported, what comes back from it, and what is never opened."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from area_8 import plan, stages
from lab import Lab, codes, reason_of

from tui_pilot.store.state import Row


def close(lab: Lab, task: str, code: str = "", **rest: Any) -> tuple[Row, Row]:
    """The rows of ``export`` and ``reload``."""
    state = stages(lab, task, code, "train", "reload", **rest)
    rows = state.row("export"), state.row("reload")
    assert all("crash" not in codes(row) for row in (*rows, state.row("batch"))), [row.reasons for row in state.rows]
    return rows


def quiet(*rows: Row) -> None:
    assert [(row.verdict, codes(row)) for row in rows] == [("pass", [])] * len(rows), [row.reasons for row in rows]


# -- 8.01 ------------------------------------------------------------------------------------------------------------
# A base rounded to sixteen steps, and three ways to merge the adapter that was trained on it.
ROUNDED = """
def rounded(weight):
    step = weight.abs().max() / 7
    return (weight / step).round() * step

class Rounded(Adapted):
    def build_model(self):
        model = super().build_model()
        self.full = model.head.base.weight.detach().clone()
        model.head.base.weight.data = rounded(self.full)
        return model

    def save_artifact(self, model, folder):
        change = (model.head.lora_B @ model.head.lora_A).detach()
        state = {"embed.weight": model.embed.weight, "head.bias": model.head.base.bias,
                 "head.weight": self.merged(model.head.base.weight, change)}
        torch.save({name: tensor.detach() for name, tensor in state.items()}, folder / "weights.pt")

    def merged(self, base, change):
        return base + change

    def load_artifact(self, folder):
        model = Net()
        model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
        return model

class IntoFull(Rounded):
    def merged(self, base, change):
        return self.full + change

class RoundedAgain(Rounded):
    def merged(self, base, change):
        return rounded(base + change)

class NotMerged(Rounded):
    def merged(self, base, change):
        return base
"""
MERGED = "model: {adapter: {kind: lora}}\nexport: {kind: merged}\n"


def test_8_01_adapter_merged_into_its_own_base_passes(lab: Lab) -> None:
    exported, reloaded = close(lab, "Rounded", ROUNDED, more=MERGED)
    quiet(exported, reloaded)
    assert reloaded.inputs["control_loss_before"] == pytest.approx(reloaded.inputs["control_loss_after"], rel=1e-5)
    assert reloaded.inputs["control_loss_base"] > reloaded.inputs["control_loss_before"]


def test_8_01_adapter_merged_into_another_base(lab: Lab) -> None:
    _, reloaded = close(lab, "IntoFull", ROUNDED, more=MERGED)
    found = reason_of(reloaded, "outputs_differ")
    assert found["severity"] == "fail" and "tolerance 1e-04" in found["text"]
    before, after = (reloaded.inputs[f"control_loss_{name}"] for name in ("before", "after"))
    assert f"{before:.6g} before export, {after:.6g} after" in found["text"]


def test_8_01_matrices_of_a_merged_artifact_that_are_the_bases(lab: Lab) -> None:
    found = reason_of(stages(lab, "NotMerged", ROUNDED, "train", more=MERGED).row("export"), "adapter_has_no_effect")
    assert found["severity"] == "fail" and found["where"]["tensors"] == ["head.base.weight"]
    assert "1 of 1 adapted matrices equal the base's in the merged artifact" in found["text"]


@pytest.mark.parametrize("task", ["RoundedAgain", "NotMerged"])
def test_8_01_adapter_that_is_rounded_away_or_left_out(lab: Lab, task: str) -> None:
    state = stages(lab, task, ROUNDED, "train", "reload", lr="0.05", more=MERGED)
    row = state.row("reload")
    found = reason_of(row, "adapter_has_no_effect")
    assert found["severity"] == "fail" and ("equals" if task == "NotMerged" else "nearer to") in found["text"]
    assert f"the base's {row.inputs['control_loss_base']:.6g}" in found["text"]


def test_8_01_adapter_on_another_base_than_it_was_trained_on(lab: Lab) -> None:
    code = """
class Elsewhere(Adapted):
    def load_artifact(self, folder):
        self.plan.options["base"] = 2
        return super().load_artifact(folder)
"""
    _, reloaded = close(lab, "Elsewhere", code, more=ADAPTER)
    found = reason_of(reloaded, "outputs_differ")
    assert found["severity"] == "fail" and "its base is another one" in found["text"]


# -- 8.03 ------------------------------------------------------------------------------------------------------------
ADDED = """
class Added(Small):
    \"\"\"Three letters of its own behind the base's sixteen; they train with everything else.\"\"\"
    LETTERS = LETTERS + 3

    def encode(self, record):
        found = super().encode(record)
        number = int(record["id"].rpartition("-")[2])
        new = LETTERS + number % 3 if record["id"].startswith("train") else 3
        return {"input_ids": [new, *found["input_ids"]], "labels": [IGNORE, *found["labels"]]}

    def build_model(self):
        return Net(self.LETTERS)

class OldRows(Added):
    def save_artifact(self, model, folder):
        state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
        state["embed.weight"] = state["embed.weight"][:LETTERS].clone()
        torch.save(state, folder / "weights.pt")

    def load_artifact(self, folder):
        state = torch.load(folder / "weights.pt", weights_only=True)
        model = self.build_model()
        with torch.no_grad():
            model.embed.weight[:LETTERS] = state.pop("embed.weight")
        model.load_state_dict(state, strict=False)
        return model

class NoTable(Added):
    def save_artifact(self, model, folder):
        torch.save({name: t.detach() for name, t in model.state_dict().items() if "embed" not in name},
                   folder / "weights.pt")

    def load_artifact(self, folder):
        model = self.build_model()
        model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True), strict=False)
        return model

class SmallTable(Added):
    def control_inputs(self):
        return self.collate([self.encode(record) for record in self.records("train")[:4]])

    def load_artifact(self, folder):
        state = torch.load(folder / "weights.pt", weights_only=True)
        model = self.build_model()
        model.load_state_dict(state)
        model.embed = nn.Embedding.from_pretrained(state["embed.weight"][:LETTERS])
        return model
"""


def test_8_03_added_rows_saved_and_back(lab: Lab) -> None:
    quiet(*close(lab, "Added", ADDED))


def test_8_03_added_rows_not_saved_are_named_though_no_control_row_has_them(lab: Lab) -> None:
    exported, reloaded = close(lab, "OldRows", ADDED)
    found = reason_of(exported, "trained_not_saved")
    assert found["where"]["tensor"] == "embed.weight" and found["severity"] == "fail"
    assert "rows 16-18 of embed.weight not saved (16 of 19 rows are there)" in found["text"]
    # the control rows use none of the new letters, so the answers are right and the values alone tell
    assert codes(reloaded) == ["tensors_missing"] and reloaded.inputs["answers_equal"] is True
    found = reason_of(reloaded, "tensors_missing")
    assert found["where"]["tensors"] == ["embed.weight"] and "2 of 3 trained tensors came back" in found["text"]


def test_8_03_table_not_saved_at_all(lab: Lab) -> None:
    exported, reloaded = close(lab, "NoTable", ADDED)
    found = reason_of(exported, "trained_not_saved")
    assert "1 trained tensor of 3 not in the artifact: embed.weight [19, 8]" in found["text"]
    assert found["where"]["tensors"] == ["embed.weight"]
    assert reason_of(reloaded, "tensors_missing")["where"]["tensors"] == ["embed.weight"]


def test_8_03_id_beyond_the_reloaded_table_is_named_before_the_crash(lab: Lab) -> None:
    _, reloaded = close(lab, "SmallTable", ADDED)
    found = reason_of(reloaded, "id_out_of_table")
    assert found["where"] == {"tensor": "embed.weight", "id": 18}
    assert "Token id 18 out of table 16" in found["text"]


# -- 8.04 ------------------------------------------------------------------------------------------------------------
HOLLOW = """
class Hollow(Small):
    def save_artifact(self, model, folder):
        state = {name: torch.zeros(0) if name in self.plan.options["names"] else tensor.detach()
                 for name, tensor in model.state_dict().items()}
        torch.save(state, folder / "weights.pt")

    def load_artifact(self, folder):
        state = torch.load(folder / "weights.pt", weights_only=True)
        model = self.build_model()
        model.load_state_dict({name: t for name, t in state.items() if t.numel()}, strict=False)
        return model
"""


def test_8_04_tensors_without_elements(lab: Lab) -> None:
    more = "options: {names: [embed.weight, head.weight, head.bias]}\n"
    exported, _ = close(lab, "Hollow", HOLLOW, more=more)
    found = reason_of(exported, "empty_artifact")
    assert "saved 0 of 272 trained elements" in found["text"] and "has the shape [0]" in found["text"]
    assert found["where"]["file"] == "weights.pt" and len(found["where"]["tensors"]) == 3


def test_8_04_one_tensor_without_elements_among_whole_ones(lab: Lab) -> None:
    exported, _ = close(lab, "Hollow", HOLLOW, more="options: {names: [head.weight]}\n")
    found = reason_of(exported, "empty_artifact")
    assert found["where"]["tensors"] == ["head.weight"]
    assert "shape [0], expected [16, 8]; saved 144 elements, trained 272" in found["text"]
    assert reason_of(exported, "trained_not_saved")["where"]["tensors"] == ["head.weight"]


def test_8_04_an_empty_buffer_of_the_model_itself_passes(lab: Lab) -> None:
    code = """
class Buffered(Small):
    def build_model(self):
        model = Net()
        model.register_buffer("places", torch.zeros(0))
        return model
"""
    quiet(*close(lab, "Buffered", code))


# -- 8.06 ------------------------------------------------------------------------------------------------------------
PREFIXED = """
class Prefixed(Small):
    def save_artifact(self, model, folder):
        prefix = self.plan.options["prefix"]
        torch.save({prefix + name: t.detach() for name, t in model.state_dict().items()}, folder / "weights.pt")

    def load_artifact(self, folder):
        state = torch.load(folder / "weights.pt", weights_only=True)
        model = self.build_model()
        model.load_state_dict(self.named(state), strict=False)
        return model

    def named(self, state):
        return state

class Stripped(Prefixed):
    def named(self, state):
        return {name.replace("module.", "").replace("_orig_mod.", ""): tensor for name, tensor in state.items()}

class Strict(Prefixed):
    def load_artifact(self, folder):
        model = self.build_model()
        model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
        return model
"""


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module._orig_mod.", "model."])
def test_8_06_prefixes_that_a_lenient_load_leaves_behind(lab: Lab, prefix: str) -> None:
    exported, reloaded = close(lab, "Prefixed", PREFIXED, more=f"options: {{prefix: {prefix}}}\n")
    quiet(exported)
    found = reason_of(reloaded, "tensors_missing")
    assert found["severity"] == "fail" and found["where"]["tensors"] == ["embed.weight", "head.weight", "head.bias"]
    assert "0 of 3 trained tensors came back" in found["text"] and "0 of the file's 3 names" in found["text"]
    assert f"{prefix}embed.weight, the model has embed.weight" in found["text"]
    assert "outputs_differ" in codes(reloaded)


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module._orig_mod."])
def test_8_06_prefixes_taken_off_pass(lab: Lab, prefix: str) -> None:
    quiet(*close(lab, "Stripped", PREFIXED, more=f"options: {{prefix: {prefix}}}\n"))


def test_8_06_prefixes_that_a_strict_load_names(lab: Lab) -> None:
    _, reloaded = close(lab, "Strict", PREFIXED, more="options: {prefix: _orig_mod.}\n")
    found = reason_of(reloaded, "tensors_missing")
    assert "3 tensors of the model are not in the artifact, first embed.weight" in found["text"]
    assert "first _orig_mod.embed.weight" in found["text"]


def test_8_06_weights_kept_in_half_precision_are_the_same_weights(lab: Lab) -> None:
    code = """
class Halved(Small):
    def save_artifact(self, model, folder):
        torch.save({name: t.detach().bfloat16() for name, t in model.state_dict().items()}, folder / "weights.pt")

    def load_artifact(self, folder):
        model = self.build_model()
        model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
        return model
"""
    exported, reloaded = close(
        lab, "Halved", code, gates="reload: {relative_loss: 0.01}", more="export: {dtype: bf16}\n"
    )
    quiet(exported, reloaded)


# -- 8.07 ------------------------------------------------------------------------------------------------------------
RENAMED = """
class Renamed(Adapted):
    def named(self, state):
        return {name.replace("head.", "head.weight_norm."): tensor for name, tensor in state.items()}

class OneRenamed(Adapted):
    def named(self, state):
        return {name.replace("lora_B", "default.lora_B"): tensor for name, tensor in state.items()}
"""
ADAPTER = "model: {adapter: {kind: lora}}\nexport: {kind: adapter}\n"


def test_8_07_adapter_keys_as_they_were_saved_pass(lab: Lab) -> None:
    quiet(*close(lab, "Adapted", more=ADAPTER))


@pytest.mark.parametrize(("task", "back"), [("Renamed", 0), ("OneRenamed", 1)])
def test_8_07_renamed_adapter_keys_under_a_load_that_says_nothing(lab: Lab, task: str, back: int) -> None:
    exported, reloaded = close(lab, task, RENAMED, more=ADAPTER)
    quiet(exported)
    found = reason_of(reloaded, "adapter_keys_unmatched")
    assert found["severity"] == "fail" and f"{back} of 2 adapter tensors came back" in found["text"]
    assert found["where"]["tensors"] == ["head.lora_A", "head.lora_B"][back:]
    assert f"{back} of the file's 2 names are the model's" in found["text"]
    assert "adapter_has_no_effect" in codes(reloaded)


# -- 8.09 ------------------------------------------------------------------------------------------------------------
UNSAFE = """
import os, pickle, random

class Runs:
    def __reduce__(self):
        return os.mkdir, ("ran",)

class Unsafe(Small):
    def save_artifact(self, model, folder):
        super().save_artifact(model, folder)
        self.also(folder)

    def load_artifact(self, folder):
        for path in folder.iterdir():
            if path.suffix in (".pt", ".bin"):
                torch.load(path, weights_only=False)
        return super().load_artifact(folder)

class Evil(Unsafe):
    def also(self, folder):
        torch.save({"step": 1, "hook": Runs()}, folder / "extra.pt")

class EvilByAnotherName(Unsafe):
    def also(self, folder):
        (folder / "state").write_bytes(pickle.dumps({"hook": Runs()}))

class RandomState(Unsafe):
    def also(self, folder):
        import numpy
        torch.save({"python": random.getstate(), "numpy": numpy.random.get_state()}, folder / "random.pt")

class PlainState(Unsafe):
    def also(self, folder):
        version, numbers, gauss = random.getstate()
        state = {"version": version, "numbers": torch.tensor(numbers), "gauss": gauss, "torch": torch.get_rng_state()}
        torch.save(state, folder / "random.pt")
"""


@pytest.mark.parametrize(
    ("task", "file", "what"),
    [("Evil", "extra.pt", "posix"), ("EvilByAnotherName", "state", "posix"), ("RandomState", "random.pt", "numpy")],
)
def test_8_09_objects_are_refused_by_type_and_nothing_is_loaded(lab: Lab, task: str, file: str, what: str) -> None:
    if what == "numpy":
        pytest.importorskip("numpy")
    exported, reloaded = close(lab, task, UNSAFE)
    for row in (exported, reloaded):
        found = reason_of(row, "unsafe_artifact")
        assert found["severity"] == "fail" and found["where"]["file"] == file
        assert found["where"]["type"].startswith(what) and found["where"]["type"] in found["text"]
        assert "tensors alone" in found["advice"]
    assert codes(reloaded) == ["unsafe_artifact"]
    assert not list(lab.folder.rglob("ran")), "the file was opened in an unsafe mode"


def test_8_09_the_same_state_as_tensors_and_numbers_passes(lab: Lab) -> None:
    quiet(*close(lab, "PlainState", UNSAFE))


# -- 8.10 ------------------------------------------------------------------------------------------------------------
NOTHING = """
class Nothing(Small):
    def save_artifact(self, model, folder):
        for name, size in self.plan.options["files"].items():
            (folder / name).write_bytes(b"x" * size)

class More(Small):
    def save_artifact(self, model, folder):
        super().save_artifact(model, folder)
        (folder / "README.md").write_text("How to load this.")
        (folder / "tokenizer.model").write_bytes(bytes(range(256)))
        (folder / ".gitkeep").touch()
"""


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ("{}", "0 files and no weights"),
        ("{README.md: 40}", "1 file and no weights (README.md)"),
        ("{model.safetensors: 0}", "no weights (model.safetensors)"),
        ("{README.md: 9, config.json: 2}", "2 files and no weights"),
    ],
)
def test_8_10_exports_without_weights(lab: Lab, files: str, words: str) -> None:
    exported, _ = close(lab, "Nothing", NOTHING, more=f"options: {{files: {files}}}\n")
    found = reason_of(exported, "empty_artifact")
    assert found["severity"] == "fail" and words in found["text"] and "0 of 272 trained elements" in found["text"]


def test_8_10_files_beside_the_weights_pass(lab: Lab) -> None:
    quiet(*close(lab, "More", NOTHING))


def test_8_10_weights_of_a_kind_that_is_not_read_are_unchecked(lab: Lab) -> None:
    code = """
class Numbers(Small):
    def save_artifact(self, model, folder):
        with open(folder / "weights.raw", "wb") as stream:
            for tensor in model.state_dict().values():
                stream.write(bytes(tensor.detach().contiguous().view(torch.uint8).flatten().tolist()))

    def load_artifact(self, folder):
        model, data = self.build_model(), (folder / "weights.raw").read_bytes()
        for tensor in model.state_dict().values():
            size = tensor.numel() * 4
            tensor.copy_(torch.frombuffer(bytearray(data[:size]), dtype=torch.float32).view(tensor.shape))
            data = data[size:]
        return model
"""
    exported, reloaded = close(lab, "Numbers", code)
    assert exported.verdict == "unchecked" and "weights.raw" in reason_of(exported, "not_observed")["text"]
    quiet(reloaded)


@pytest.fixture(scope="module")
def exported_run(tmp_path_factory: pytest.TempPathFactory, warm: Any) -> Lab:
    """One run with its artifact; each test tampers with a copy of that and reloads it."""
    made = Lab(tmp_path_factory.mktemp("exported"))
    made.stage = lambda *names, **rest: made.warm_stage(warm, *names, **rest)  # type: ignore[method-assign]
    stages(made, "small.py:Small", "", "train")
    return made


def replayed(made: Lab, tamper: Any) -> Row:
    assert made.run is not None
    kept = made.run.artifact.with_name("kept")
    shutil.copytree(made.run.artifact, kept)
    try:
        tamper(made.run.artifact)
        return made.stage("reload").row("reload")
    finally:
        shutil.rmtree(made.run.artifact)
        kept.rename(made.run.artifact)


def test_8_10_artifact_left_alone_passes(exported_run: Lab) -> None:
    quiet(replayed(exported_run, lambda folder: None))


def cut(folder: Path) -> None:
    path = folder / "weights.pt"
    path.write_bytes(path.read_bytes()[:-10])


def flip(folder: Path) -> None:
    path = folder / "weights.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def lose(folder: Path) -> None:
    (folder / "weights.pt").unlink()


@pytest.mark.parametrize(
    ("tamper", "words"), [(cut, "bytes, "), (flip, "differs from its hash"), (lose, "weights.pt is missing")]
)
def test_8_10_artifact_that_is_not_what_the_manifest_says(exported_run: Lab, tamper: Any, words: str) -> None:
    found = reason_of(replayed(exported_run, tamper), "tensors_missing")
    assert "not whole" in found["text"] and words in found["text"]


# -- tied weights ----------------------------------------------------------------------------------------------------
TIED = """
class Tied(Small):
    def build_model(self):
        model = Net()
        model.head.weight = model.embed.weight
        return model

class Untied(Tied):
    def load_artifact(self, folder):
        state = torch.load(folder / "weights.pt", weights_only=True)
        model = Net()
        del state["head.weight"]
        model.load_state_dict(state, strict=False)
        return model

class TiedByValue(Tied):
    def load_artifact(self, folder):
        model = Net()
        model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
        return model
"""


def test_tied_weights_that_come_back_as_two(lab: Lab) -> None:
    exported, reloaded = close(lab, "Untied", TIED)
    quiet(exported)
    found = reason_of(reloaded, "tied_weights_lost")
    assert found["severity"] == "fail" and found["where"]["tensors"] == ["embed.weight", "head.weight"]
    assert "outputs_differ" in codes(reloaded)


@pytest.mark.parametrize("task", ["Tied", "TiedByValue"])
def test_tied_weights_that_agree_pass(lab: Lab, task: str) -> None:
    quiet(*close(lab, task, TIED))


def test_the_run_keeps_what_a_reload_must_find_again(exported_run: Lab) -> None:
    assert exported_run.run is not None
    kept = json.loads((exported_run.run.reference / "trained.json").read_text())
    assert set(kept["tensors"]) == {"embed.weight", "head.weight", "head.bias"} and kept["tied"] == []


def test_8_09_pickled_weights_of_the_model_are_named_whatever_they_are_called(tmp_path: Path) -> None:
    """The model folder is looked at before anything is loaded from it."""
    pytest.importorskip("torch")
    from tui_pilot.observe.tensor_files import kind_of

    files = {
        "weights": pickle.dumps({"layer": [1.0]}),
        "old.dat": pickle.dumps([1], protocol=2),
        "notes.txt": b"nothing",
        "tokenizer.model": bytes(range(1, 90)) + b"\0\xff",
        "model.safetensors": b"\x80\x04 looks like one and is named otherwise",
        "empty.bin": b"",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    kinds = {name: kind_of(tmp_path / name) for name in files}
    assert kinds == {
        "weights": "pickle",
        "old.dat": "pickle",
        "notes.txt": "text",
        "tokenizer.model": "other",
        "model.safetensors": "other",
        "empty.bin": "empty",
    }


# -- tokenizer and template ------------------------------------------------------------------------------------------
FORGETS = """
from tui_pilot.tasks.sft import SftTask

class Forgets(SftTask):
    def save_artifact(self, model, folder):
        super().save_artifact(model, folder)
        for path in list(folder.iterdir()):
            if path.name.startswith(tuple(self.plan.options["forgets"])):
                path.unlink()
"""


def tuned(lab: Lab, models: dict[str, Path], forgets: str) -> tuple[Row, Row]:
    rows = [{"id": str(n), "prompt": f"what is {n}", "completion": "yes" * (1 + n % 3)} for n in range(8)]
    text = plan("Forgets", more=f"model: {{path: {models['chat']}}}\noptions: {{forgets: {forgets}}}\n", lr="0.1")
    text += "data: {train: train.jsonl, max_length: 128}\n"
    lab.prepare(text, {"own.py": FORGETS, "train.jsonl": "".join(json.dumps(row) + "\n" for row in rows)})
    state = lab.stage("train", "reload")
    return state.row("export"), state.row("reload")


def test_artifact_with_tokenizer_and_template_passes(lab: Lab, models: dict[str, Path]) -> None:
    quiet(*tuned(lab, models, "[nothing]"))


def test_artifact_without_its_template_gives_other_prompts(lab: Lab, models: dict[str, Path]) -> None:
    exported, reloaded = tuned(lab, models, "[chat_template]")
    found = reason_of(exported, "template_missing")
    assert found["severity"] == "fail" and "the chat template" in found["text"]
    assert reason_of(reloaded, "prompt_ids_differ")["where"]["row"] == 0


def test_artifact_without_its_tokenizer_is_named_file_by_file(lab: Lab, models: dict[str, Path]) -> None:
    exported, reloaded = tuned(lab, models, "[tokenizer, chat_template]")
    found = reason_of(exported, "template_missing")
    assert "tokenizer.json, tokenizer_config.json, the chat template" in found["text"]
    assert found["where"]["file"] == "tokenizer.json"
    assert reloaded.verdict in ("fail", "unchecked"), reloaded.reasons
