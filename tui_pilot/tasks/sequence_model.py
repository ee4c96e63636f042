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
from tui_pilot.tasks import hf
from tui_pilot.tasks.tokens import Tokens

HEADS = ("score", "classifier", "classification_head", "pre_classifier", "pooler", "sequence_summary", "logits_proj")
"""Parts of a classifier that a folder of a plain model rightly lacks: they are new, trained and saved."""


class SequenceModel:
    """What ``ClassificationTask`` needs of the model folder that the plan names."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.path = hf.model_folder(plan.model.path)

    def class_names(self) -> dict[int, str]:
        """Names by id that the folder's head has; ``{}`` where it says none."""
        try:
            names = json.loads((self.path / "config.json").read_text("utf-8")).get("id2label")
        except (OSError, ValueError, AttributeError) as error:
            raise ModelError(f"config.json cannot be read: {error}", file=str(self.path)) from None
        return {int(number): str(name) for number, name in names.items()} if isinstance(names, dict) else {}

    @cached_property
    def tokens(self) -> Tokens:
        """The folder's tokenizer."""
        return Tokens(hf.load_tokenizer(self.path, self.plan.model.trust_remote_code))

    def special_ids(self) -> dict[str, Any]:
        """``end`` is None: a classifier has no token to stop at."""
        bos = self.tokens.bos
        bos = self.tokens.tokenizer.cls_token_id if bos is None else bos
        found = {"bos": bos, "end": None, "pad": self.tokens.pad, "bos_count": [self.tokens.before.count(bos)]}
        table = hf.vocabulary_rows(self.path)
        return found if table is None else {**found, "table": table}

    def encode(self, text: str, max_length: int | None) -> dict[str, list[int]]:
        """Ids with the tokenizer's own marks, cut so that its closing mark stays."""
        cut = {"truncation": True, "max_length": max_length} if max_length else {"truncation": False}
        encoded = self.tokens.tokenizer(text, return_attention_mask=False, verbose=False, **cut)
        found = {key: list(value) for key, value in encoded.items() if key in ("input_ids", "token_type_ids")}
        # a text of nothing, where the tokenizer adds no mark of its own, is one pad token: no model takes none
        return found if found["input_ids"] else {"input_ids": [self.tokens.pad]}

    def text_span(self, ids: Sequence[int]) -> tuple[int, int]:
        """The ids without the special marks at either end, half open."""
        inside = [place for place, number in enumerate(ids) if number not in self.tokens.special]
        return (inside[0], inside[-1] + 1) if inside else (0, 0)

    def build(self, names: Sequence[str]) -> nn.Module:
        """The model with a head for ``names``, and its adapter; the head is always trained and saved."""
        model: nn.Module = self._load(self.path, names)
        if self.plan.model.adapter is not None:
            model = hf.add_adapter(model, self.plan.model.adapter, "SEQ_CLS")
        return hf.prepare(model, self.plan)

    def save(self, model: nn.Module, folder: Path) -> None:
        """Weights as safetensors and the tokenizer. ``merged`` is built from the written adapter on a fresh base."""
        planned = hf.DTYPES.get(self.plan.export.dtype or "")
        if self.plan.model.adapter is None:
            hf.save_model(model, folder, planned)
        elif self.plan.export.kind == "merged":
            names = list(hf.bare(model).config.id2label.values())
            with tempfile.TemporaryDirectory(dir=folder) as place:
                hf.save_adapter(model, Path(place), self.path)
                fresh: Any = self.load(Path(place), names)
                hf.save_model(fresh.merge_and_unload(safe_merge=True), folder, planned)
        else:
            hf.save_adapter(model, folder, self.path)
        self.tokens.tokenizer.save_pretrained(str(folder))

    def load(self, folder: Path, names: Sequence[str]) -> nn.Module:
        """The model of an artifact's folder; an adapter stands on the base that the folder names."""
        if (folder / hf.ADAPTER_CONFIG).exists():
            return hf.load_adapter(self._load(hf.base_of(folder), names), folder)
        model: nn.Module = self._load(folder, names, new_head=False)
        return model

    def _load(self, folder: Path, names: Sequence[str], new_head: bool = True) -> Any:
        import transformers

        hf.safe_weights(folder)
        dtype = torch.bfloat16 if self.plan.precision == "bf16" else torch.float32
        how: dict[str, Any] = {"use_safetensors": True, "local_files_only": True, "output_loading_info": True}
        version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
        how["dtype" if version >= (4, 56) else "torch_dtype"] = dtype
        if self.plan.model.attention != "auto":
            how["attn_implementation"] = hf.ATTENTION.get(self.plan.model.attention, self.plan.model.attention)
        try:
            model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
                str(folder),
                id2label=dict(enumerate(names)),
                label2id={name: number for number, name in enumerate(names)},
                pad_token_id=self.tokens.pad,
                ignore_mismatched_sizes=new_head,
                trust_remote_code=self.plan.model.trust_remote_code,
                **how,
            )
        except Exception as error:
            if isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error):
                raise
            first = (str(error).strip().splitlines() or [""])[0]
            advice = "The folder needs config.json and *.safetensors of a model that transformers can classify with."
            raise ModelError(f"it cannot be loaded as a classifier: {first}", advice, file=str(folder)) from error
        mismatched = [str(each[0] if isinstance(each, tuple) else each) for each in info["mismatched_keys"]]
        lacking = [name for name in (*info["missing_keys"], *mismatched) if not (new_head and _in_head(name))]
        if lacking:
            raise ModelError(
                f"{len(lacking)} tensors of the model are not in the files or have another shape: {lacking[0]}",
                "The folder's config and weights do not belong together.",
                code="tensors_missing",
                file=str(folder),
            )
        return model


def _in_head(name: str) -> bool:
    return any(part in HEADS for part in name.split("."))
