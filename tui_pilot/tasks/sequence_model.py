"""A Hugging Face sequence classifier: tokenizer, model with its head, adapter, and the artifact's folder.

transformers and peft are imported where they are used: a plan without ``model.path`` needs neither.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tui_pilot.errors import ModelError
from tui_pilot.plan.model import Plan

ADAPTER = "adapter_config.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


class SequenceModel:
    """What ``ClassificationTask`` needs of the model folder that the plan names."""

    def __init__(self, plan: Plan) -> None:
        assert plan.model.path is not None
        self.plan = plan
        self.path = Path(plan.model.path)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The folder's ``config.json``."""
        try:
            value: dict[str, Any] = json.loads((self.path / "config.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            advice = "Name the folder that holds config.json and the weights."
            raise ModelError(f"config.json cannot be read: {error}", advice, file=str(self.path)) from None
        return value

    def class_names(self) -> dict[int, str]:
        """Names by id that the folder's head has; ``{}`` where it says none."""
        names = self.config.get("id2label") or {}
        return {int(number): str(name) for number, name in names.items()} if isinstance(names, dict) else {}

    @cached_property
    def tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(
                self.path, local_files_only=True, trust_remote_code=self.plan.model.trust_remote_code
            )
        except Exception as error:
            advice = "The folder needs tokenizer.json (or the tokenizer's own files) beside the weights."
            raise ModelError(f"its tokenizer cannot be loaded: {error}", advice, file=str(self.path)) from error

    @property
    def pad_id(self) -> int:
        """The id that fills rows: the tokenizer's, else its end token's; the mask says what is real."""
        tokenizer = self.tokenizer
        known = [tokenizer.pad_token_id, tokenizer.eos_token_id, self.config.get("pad_token_id"), 0]
        return int(next(each for each in known if isinstance(each, int)))

    def special_ids(self) -> dict[str, Any]:
        """``end`` is None: a classifier has no token to stop at."""
        first = self.tokenizer.bos_token_id
        return {"bos": self.tokenizer.cls_token_id if first is None else first, "end": None, "pad": self.pad_id}

    def encode(self, text: str, max_length: int | None) -> dict[str, list[int]]:
        """Ids with the tokenizer's own marks, cut so that its closing mark stays."""
        cut = {"truncation": True, "max_length": max_length} if max_length else {"truncation": False}
        encoded = self.tokenizer(text, return_attention_mask=False, verbose=False, **cut)
        return {key: list(value) for key, value in encoded.items() if key in ("input_ids", "token_type_ids")}

    def text_span(self, ids: Sequence[int]) -> tuple[int, int]:
        """The ids without the special marks at either end, half open."""
        special = set(self.tokenizer.all_special_ids)
        inside = [place for place, number in enumerate(ids) if number not in special]
        return (inside[0], inside[-1] + 1) if inside else (0, 0)

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def build(self, names: Sequence[str]) -> nn.Module:
        """The model with a head for ``names``, and its adapter; the head is always trained and saved."""
        model = self._load(self.path, names)
        adapter = self.plan.model.adapter
        if self.plan.memory.activation_checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            if adapter is not None:
                model.enable_input_require_grads()
        if adapter is None:
            found: nn.Module = model
            return found
        from peft import LoraConfig, get_peft_model

        settings: dict[str, Any] = {
            "task_type": "SEQ_CLS",
            "r": adapter.r,
            "lora_alpha": adapter.alpha,
            "lora_dropout": adapter.dropout,
            "target_modules": list(adapter.targets) or None,
        }
        config = LoraConfig(**settings)
        try:
            wrapped: nn.Module = get_peft_model(model, config)
        except ValueError as error:
            kinds = sorted(
                {name.rpartition(".")[2] for name, each in model.named_modules() if isinstance(each, nn.Linear)}
            )
            advice = f"Set model.adapter.targets; linear layers here: {', '.join(kinds)[:200]}."
            raise ModelError(f"the adapter fits no layer: {error}", advice, file=str(self.path)) from error
        return wrapped

    def save(self, model: Any, folder: Path) -> None:
        """Weights as safetensors and the tokenizer. ``merged`` is built from the written adapter on a fresh base."""
        merged = self.plan.export.kind == "merged" and hasattr(model, "merge_and_unload")
        self.tokenizer.save_pretrained(folder)
        if not merged:
            model.save_pretrained(folder)
            return
        names = list(model.config.id2label.values())
        with tempfile.TemporaryDirectory(dir=folder) as place:
            model.save_pretrained(place)
            fresh: Any = self.load(Path(place), names)
            fresh.merge_and_unload().save_pretrained(folder)

    def load(self, folder: Path, names: Sequence[str]) -> nn.Module:
        """The model of an artifact's folder; an adapter stands on the plan's base."""
        if not (folder / ADAPTER).is_file():
            found: nn.Module = self._load(folder, names)
            return found
        from peft import PeftModel

        self._refuse_pickles(folder)
        adapted: nn.Module = PeftModel.from_pretrained(self._load(self.path, names), folder, is_trainable=False)
        return adapted

    def _load(self, folder: Path, names: Sequence[str]) -> Any:
        from transformers import AutoModelForSequenceClassification

        self._refuse_pickles(folder)
        attention = self.plan.model.attention
        options = {} if attention == "auto" else {"attn_implementation": attention}
        try:
            return AutoModelForSequenceClassification.from_pretrained(
                folder,
                id2label=dict(enumerate(names)),
                label2id={name: number for number, name in enumerate(names)},
                pad_token_id=self.pad_id,
                problem_type="single_label_classification",
                dtype=torch.bfloat16 if self.plan.precision == "bf16" else torch.float32,
                use_safetensors=True,
                local_files_only=True,
                ignore_mismatched_sizes=True,
                trust_remote_code=self.plan.model.trust_remote_code,
                **options,
            )
        except (OSError, ValueError, KeyError, ImportError) as error:
            advice = "The folder needs config.json and *.safetensors of a model that transformers can classify with."
            raise ModelError(f"it cannot be loaded as a classifier: {error}", advice, file=str(folder)) from error

    def _refuse_pickles(self, folder: Path) -> None:
        """A pickle runs code when it is opened; it is never opened, not even to look."""
        if any(folder.glob("*.safetensors")):
            return
        found = sorted(file.name for pattern in PICKLES for file in folder.glob(pattern))
        if found:
            raise ModelError(
                f"the weights are a pickle ({found[0]}), which can run code when it is loaded",
                "Convert them to safetensors where you trust the file, and name that folder.",
                code="unsafe_model_file",
                file=str(folder / found[0]),
            )
