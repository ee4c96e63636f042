"""Tiny tasks whose steps are predicted and measured: an own transformer, and Hugging Face shapes made at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tui_pilot.tasks.base import IGNORE, Example, Record, Task

VOCABULARY = 1000


class Rows(Task):
    """Rows of made-up ids; ``lengths`` are those of the training rows."""

    lengths: Sequence[int] = (64, 64, 64, 64, 40)

    def records(self, split: str) -> Sequence[Record]:
        return [{"n": n} for n in (self.lengths if split == "train" else (64, 64))] if split != "test" else []

    def encode(self, record: Record, max_length: int | None = None) -> Example:
        count = record["n"]
        return {"input_ids": [1 + place % 9 for place in range(count)], "labels": [IGNORE] * 4 + [1] * (count - 4)}

    def logits(self, model: nn.Module, batch: dict[str, Any]) -> torch.Tensor:
        found: torch.Tensor = model(batch["input_ids"])
        return found

    def loss(self, model: nn.Module, batch: dict[str, Any]) -> Any:
        logits, targets = self.logits(model, batch)[:, :-1].float(), batch["labels"][:, 1:]
        wanted = targets != IGNORE
        total = functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=IGNORE, reduction="sum"
        )
        return total, int(wanted.sum())  # a value of the batch alone: known also where tensors are fake

    def predict(self, model: nn.Module, batch: dict[str, Any]) -> Any:
        return self.logits(model, batch).argmax(-1)

    def metrics(self, predictions: Sequence[Any]) -> dict[str, float]:
        return {}


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        rows, length, width = hidden.shape
        parts = self.qkv(self.norm(hidden)).chunk(3, -1)
        query, key, value = (each.view(rows, length, 4, width // 4).transpose(1, 2) for each in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + functional.dropout(self.out(mixed.transpose(1, 2).flatten(2)), 0.1, self.training)
        return hidden + self.down(functional.gelu(self.up(self.after(hidden))))  # type: ignore[no-any-return]


class Network(nn.Module):
    """Tied input and output; ``reentrant`` None: no activation checkpoints."""

    def __init__(self, width: int = 128, reentrant: bool | None = None) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(2))
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight
        self.reentrant = reentrant

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids)
        for layer in self.layers:
            if self.reentrant is None or not self.training:
                hidden = layer(hidden)
            else:
                hidden = checkpoint(layer, hidden, use_reentrant=self.reentrant)
        return self.head(hidden)  # type: ignore[no-any-return]


class Own(Rows):
    reentrant = False

    def build_model(self) -> nn.Module:
        model = Network(reentrant=self.reentrant if self.plan.memory.activation_checkpointing else None)
        return model.to(torch.bfloat16) if self.plan.precision == "bf16" else model


class OwnReentrant(Own):
    reentrant = True


class HuggingFace(Rows):
    make: Callable[[], Any]
    reentrant = False

    def build_model(self) -> nn.Module:
        import transformers

        from tui_pilot.tasks import hf

        half = self.plan.precision == "bf16"
        model: Any = transformers.AutoModelForCausalLM.from_config(
            type(self).make(), dtype=torch.bfloat16 if half else torch.float32
        )
        if self.plan.model.adapter is not None:
            model = hf.add_adapter(model, self.plan.model.adapter)
        return hf.prepare(model, self.plan)

    def logits(self, model: nn.Module, batch: dict[str, Any]) -> torch.Tensor:
        found: torch.Tensor = model(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False
        ).logits
        return found


class Llama(HuggingFace):
    @staticmethod
    def make() -> Any:
        from transformers import LlamaConfig

        return LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256,
        )  # fmt: skip


class Gpt2(HuggingFace):
    @staticmethod
    def make() -> Any:
        from transformers import GPT2Config

        return GPT2Config(
            vocab_size=VOCABULARY, n_embd=128, n_layer=2, n_head=4, n_positions=256, bos_token_id=1, eos_token_id=2
        )


class Uneven(Llama):
    """Rows of other lengths in one microbatch: padding, so a mask."""

    lengths = (64, 50, 40, 30)
