"""Hugging Face folders, safely: tokenizer and weights in, adapter or model out, and back from the artifact alone.

Only safetensors are read; a pickle is refused and never tried in another way, because reading one runs code. Nothing
is downloaded. ``python -m tui_pilot.tasks.hf merge ADAPTER BASE OUT --dtype DTYPE`` merges in a process of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tui_pilot.errors import ModelError, PilotError
from tui_pilot.plan.model import Adapter, Plan

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
BASE_FILE = "base_model.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
DTYPES = {"fp32": torch.float32, "float32": torch.float32, "bf16": torch.bfloat16, "bfloat16": torch.bfloat16}
DTYPES |= {"fp16": torch.float16, "float16": torch.float16, "bf16-amp": torch.float32, "fp16-amp": torch.float32}
ATTENTION = {"flash": "flash_attention_2"}
"""Short names of attention kernels; any other name goes to the library as it is."""


def model_folder(path: str | None) -> Path:
    """The plan's model folder, which must hold a config."""
    if path is None:
        raise ModelError("the plan names no model", "Set model.path to a folder.", key="model.path")
    folder = Path(path)
    if not folder.is_dir():
        raise ModelError("there is no such folder", "Download the model into a folder first.", file=str(folder))
    if (folder / ADAPTER_CONFIG).exists() and not (folder / "config.json").exists():
        raise ModelError(
            "this folder holds an adapter, not a model", "model.path names the base model.", file=str(folder)
        )
    if not (folder / "config.json").exists():
        raise ModelError("the folder has no config.json, so it is no model folder", file=str(folder))
    return folder


def safe_weights(folder: Path) -> list[Path]:
    """The folder's weight files, all safetensors and none empty; a pickle alone is refused with advice."""
    found = sorted(folder.glob("*.safetensors"))
    pickles = sorted(file for file in folder.iterdir() if file.suffix in PICKLES and "training_args" not in file.name)
    if not found and pickles:
        raise ModelError(
            f"the weights are a pickle ({pickles[0].name}); reading one can run any code, so it is refused",
            "Convert it to safetensors on a machine you can lose: load_file/save_file of the safetensors package, or "
            "download the model's safetensors revision.",
            code="unsafe_model_file",
            title="The model file is not safe",
            file=str(pickles[0]),
        )
    if not found:
        raise ModelError("the folder has no weights (*.safetensors)", code="no_weights", file=str(folder))
    index = folder / "model.safetensors.index.json"
    named = set(json.loads(index.read_text("utf-8"))["weight_map"].values()) if index.exists() else set()
    lacking = sorted(named - {file.name for file in found})
    if lacking:
        raise ModelError(
            f"{len(lacking)} of {len(named)} weight files are missing: {', '.join(lacking[:3])}",
            "Finish the download.",
            code="no_weights",
            file=str(folder),
        )
    for file in found:
        if file.stat().st_size == 0:
            raise ModelError("the weight file is empty", "Finish the download.", code="no_weights", file=str(file))
    return found


def vocabulary_rows(folder: Path) -> int | None:
    """Rows of the embedding table by the folder's config; None where it does not say."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    rows = config.get("vocab_size", (config.get("text_config") or {}).get("vocab_size"))
    return rows if isinstance(rows, int) else None


def longest_position(folder: Path) -> int | None:
    """How many places the model was made for, by the folder's config; None where it does not say."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    places = config.get("max_position_embeddings", (config.get("text_config") or {}).get("max_position_embeddings"))
    return places if isinstance(places, int) and places > 0 else None


def load_tokenizer(folder: Path, trust_remote_code: bool = False) -> Any:
    """The folder's tokenizer; never from a hub."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=trust_remote_code, use_fast=True
        )
    except Exception as error:
        raise ModelError(
            f"the tokenizer does not load: {_first_line(error)}", _trust_advice(error), file=str(folder)
        ) from error


def load_weights(folder: Path, plan: Plan, dtype: torch.dtype, auto_class: str = "AutoModelForCausalLM") -> nn.Module:
    """The model on the CPU; every tensor must come from the files, none newly made."""
    import transformers

    safe_weights(folder)
    how: dict[str, Any] = {"use_safetensors": True, "local_files_only": True, "output_loading_info": True}
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    how["dtype" if version >= (4, 56) else "torch_dtype"] = dtype
    if plan.model.attention != "auto":
        how["attn_implementation"] = ATTENTION.get(plan.model.attention, plan.model.attention)
    try:
        model, info = getattr(transformers, auto_class).from_pretrained(
            str(folder), trust_remote_code=plan.model.trust_remote_code, **how
        )
    except Exception as error:
        if isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error):
            raise
        raise ModelError(
            f"the model does not load: {_first_line(error)}", _trust_advice(error), file=str(folder)
        ) from error
    missing, unexpected = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    mismatched = sorted(str(one[0] if isinstance(one, tuple) else one) for one in info["mismatched_keys"])
    if missing or mismatched:
        named = ", ".join([*missing, *mismatched][:3])
        raise ModelError(
            f"{len(missing)} tensors of the model are not in the files and {len(mismatched)} have another shape "
            f"({len(unexpected)} in the files have no place): {named}",
            "The folder's config and weights do not belong together.",
            code="tensors_missing",
            file=str(folder),
        )
    built: nn.Module = model
    return built


def add_adapter(model: nn.Module, plan: Adapter, task_type: str = "CAUSAL_LM") -> nn.Module:
    """A fresh LoRA adapter; its tensors are fp32 whatever the base is (the library casts half types up)."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        task_type=task_type,
        r=plan.r,
        lora_alpha=plan.alpha,  # type: ignore[arg-type,unused-ignore]
        lora_dropout=plan.dropout,
        target_modules=list(plan.targets) or None,
    )
    try:
        adapted: nn.Module = get_peft_model(model, config)  # type: ignore[arg-type,unused-ignore]
    except ValueError as error:
        kinds = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, nn.Linear)}
        raise ModelError(
            f"the adapter finds no place: {_first_line(error)}",
            f"Linear modules of this model: {', '.join(sorted(kinds))}.",
            key="model.adapter.targets",
            value=list(plan.targets),
        ) from error
    return adapted


def prepare(model: nn.Module, plan: Plan) -> nn.Module:
    """Activation checkpointing as planned, and no cache of keys and values while training."""
    config: Any = getattr(model, "config", None)
    if config is not None:
        config.use_cache = False
    if plan.memory.activation_checkpointing:
        library: Any = model
        # the re-entrant kind gives no gradient to an adapter whose inputs need none
        library.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if plan.model.adapter is not None:
            library.enable_input_require_grads()
    return model


def bare(model: nn.Module) -> Any:
    """The model without the wrappers of data parallelism and compilation, whose prefixes would rename every tensor."""
    inner: Any = model
    while True:
        inside = getattr(inner, "_orig_mod", None)
        if inside is None and type(inner).__name__ in ("DistributedDataParallel", "DataParallel"):
            inside = inner.module
        if inside is None:
            return inner
        inner = inside


# -- the artifact ------------------------------------------------------------------------------------------------------
def save_adapter(model: nn.Module, folder: Path, base: Path) -> None:
    """Adapter tensors and config, and which base they belong to."""
    bare(model).save_pretrained(str(folder))
    document = {"path": str(base.resolve()), "config_sha256": _hash(base / "config.json")}
    document["files"] = {file.name: file.stat().st_size for file in safe_weights(base)}  # type: ignore[assignment]
    (folder / BASE_FILE).write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def save_model(model: nn.Module, folder: Path, dtype: torch.dtype | None) -> None:
    """Every weight as safetensors, in ``dtype`` where one is planned; tied weights are written once."""
    inner = bare(model)
    state: dict[str, torch.Tensor] | None = None
    if dtype is not None:
        state = {}
        cast: dict[tuple[int, torch.Size], torch.Tensor] = {}
        for name, value in inner.state_dict().items():
            # tied weights share their memory; two casts of one weight would be written as two
            key = (value.data_ptr(), value.shape)
            if key not in cast or value.numel() == 0:
                cast[key] = value.detach().to(dtype) if value.is_floating_point() else value.detach()
            state[name] = cast[key]
    inner.save_pretrained(str(folder), state_dict=state)
    if dtype is not None:
        config = folder / "config.json"
        document = json.loads(config.read_text("utf-8"))
        written = {name: str(dtype).removeprefix("torch.") for name in ("dtype", "torch_dtype") if name in document}
        document.update(written)
        config.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


def base_of(folder: Path) -> Path:
    """The base model that an adapter artifact was trained on, checked against its record."""
    record = folder / BASE_FILE
    if not record.exists():
        raise ModelError(f"the artifact does not say which base model it needs ({BASE_FILE})", file=str(folder))
    document = json.loads(record.read_text("utf-8"))
    base = model_folder(document["path"])
    sizes = {file.name: file.stat().st_size for file in safe_weights(base)}
    if _hash(base / "config.json") != document["config_sha256"] or sizes != document["files"]:
        raise ModelError(
            "the base model is not the one that the adapter was trained on: its config or weight files differ",
            "Put the base model back, or train again.",
            code="base_differs",
            file=str(base),
        )
    return base


def load_adapter(model: nn.Module, folder: Path) -> nn.Module:
    """The adapter of a folder on its base; every tensor must match by name and shape, or nothing is taken."""
    from peft import PeftConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file

    weights = folder / ADAPTER_WEIGHTS
    if not weights.exists() or weights.stat().st_size == 0:
        pickles = [file.name for file in folder.iterdir() if file.suffix in PICKLES]
        if pickles:
            raise ModelError(
                f"the adapter is a pickle ({pickles[0]}) and is refused", code="unsafe_artifact", file=str(folder)
            )
        raise ModelError(f"the artifact has no {ADAPTER_WEIGHTS}", code="empty_artifact", file=str(folder))
    try:
        found = load_file(str(weights))
    except Exception as error:
        raise ModelError(
            f"the adapter's file cannot be read: {_first_line(error)}", code="tensors_missing", file=str(weights)
        ) from error
    config = PeftConfig.from_pretrained(str(folder))
    adapted: Any = get_peft_model(model, config)  # type: ignore[arg-type,unused-ignore]
    _match(found, get_peft_model_state_dict(adapted), weights)
    set_peft_model_state_dict(adapted, found)
    loaded: nn.Module = adapted
    return loaded


def _match(found: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor], file: Path) -> None:
    if not found:
        raise ModelError("the adapter's file holds 0 tensors", code="empty_artifact", file=str(file))
    missing, unexpected = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    shapes = [name for name in wanted.keys() & found.keys() if wanted[name].shape != found[name].shape]
    if missing or unexpected or shapes:
        matched = len(wanted.keys() & found.keys()) - len(shapes)
        named = ", ".join((missing or unexpected or sorted(shapes))[:3])
        raise ModelError(
            f"adapter keys matched {matched}/{len(wanted)}; {len(missing)} missing, {len(unexpected)} unexpected, "
            f"{len(shapes)} of another shape: {named}",
            "The file's names must be those of this adapter on this base; nothing was loaded.",
            code="adapter_keys_unmatched",
            file=str(file),
        )


def merge(adapter_folder: Path, base_path: Path, out: Path, dtype: torch.dtype | None) -> None:
    """The written adapter merged into its base in fp32, then cast; called in a fresh process."""
    base = load_weights(base_path, Plan(), torch.float32)
    adapted: Any = load_adapter(base, adapter_folder)
    save_model(adapted.merge_and_unload(safe_merge=True), out, dtype)


def merge_in_fresh_process(adapter_folder: Path, base_path: Path, out: Path, dtype: str | None) -> None:
    """``merge`` as a subprocess: merging in place would change the weights that training still uses."""
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    command = [sys.executable, "-m", "tui_pilot.tasks.hf", "merge", str(adapter_folder), str(base_path), str(out)]
    done = subprocess.run(
        [*command, *(["--dtype", dtype] if dtype else [])],
        env={**os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise ModelError(f"merging the adapter failed: {said[0]}", "The adapter itself is kept.", file=str(out))


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _trust_advice(error: Exception) -> str:
    if "trust_remote_code" in str(error):
        return "The model needs its own code; read it, then set model.trust_remote_code: true."
    return ""


def main(arguments: list[str]) -> int:
    """The command line of the merging process."""
    parser = argparse.ArgumentParser(prog="python -m tui_pilot.tasks.hf")
    parser.add_argument("what", choices=["merge"])
    parser.add_argument("adapter", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", default=None, choices=sorted(DTYPES))
    given = parser.parse_args(arguments)
    try:
        merge(given.adapter, given.base, given.out, DTYPES[given.dtype] if given.dtype else None)
    except PilotError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
