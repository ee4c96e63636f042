"""The built-in demo: a small byte-level decoder on packaged, self-written conversations. torch alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tui_pilot.plan.model import Plan
from tui_pilot.tasks.base import IGNORE, Batch, Example, Record, Span, Task

PAD, BOS, END = 0, 1, 2
ROLES = {"system": 3, "user": 4, "assistant": 5}
FIRST_BYTE = 6
VOCABULARY = FIRST_BYTE + 256
NAMES = {PAD: "<pad>", BOS: "<bos>", END: "<end>"} | {number: f"<{role}>" for role, number in ROLES.items()}


class Block(nn.Module):
    """Pre-norm attention and feed-forward; causal, padding on the right needs no mask of its own."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        rows, length, width = hidden.shape
        query, key, value = (
            part.view(rows, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(hidden)).chunk(3, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return hidden + self.down(functional.gelu(self.up(self.norm2(hidden))))  # type: ignore[no-any-return]


class TinyDecoder(nn.Module):
    """About 1.9 million parameters; ``(rows, length)`` ids to ``(rows, length, vocabulary)`` logits."""

    def __init__(self, width: int = 192, layers: int = 4, heads: int = 4, longest: int = 512) -> None:
        super().__init__()
        self.longest = longest
        self.embed = nn.Embedding(VOCABULARY, width)
        self.place = nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
        self.checkpointing = False

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        hidden = self.embed(input_ids) + self.place(places)
        for block in self.blocks:
            if self.checkpointing and self.training:
                hidden = checkpoint(block, hidden, use_reentrant=False)
            else:
                hidden = block(hidden)
        return self.head(self.norm(hidden))  # type: ignore[no-any-return]


class DemoTask(Task):
    """Answers of short question-answer chats; the loss sees the assistant's turns and their end tokens."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._splits: dict[str, list[Record]] = {"train": [], "validation": [], "test": []}
        text = Path(__file__).with_name("demo_conversations.jsonl").read_text("utf-8")
        for line in text.split("\n"):
            if line:
                record = json.loads(line)
                self._splits[split_of(record["conversation_id"])].append(record)

    def records(self, split: str) -> Sequence[Record]:
        return self._splits.get(split, [])

    def unit(self, record: Record) -> Any:
        return record["conversation_id"]

    def source_text(self, record: Record) -> str:
        trained = self.plan.data.train_on
        if trained == "all":
            return "".join(message["content"] for message in record["messages"])
        answers = [message["content"] for message in record["messages"] if message["role"] == "assistant"]
        return "".join(answers if trained == "assistant" else answers[-1:])

    def encode(self, record: Record, max_length: int | None = None) -> Example:
        ids, labels, spans = [BOS], [IGNORE], []
        answers = [place for place, message in enumerate(record["messages"]) if message["role"] == "assistant"]
        trained = {"all": None, "assistant": set(answers), "last_assistant": set(answers[-1:])}
        wanted = trained[self.plan.data.train_on]
        for turn, message in enumerate(record["messages"]):
            start = len(ids)
            content = [FIRST_BYTE + byte for byte in message["content"].encode("utf-8")]
            ids += [ROLES[message["role"]], *content, END]
            supervised = wanted is None or turn in wanted
            labels += [IGNORE, *(content if supervised else [IGNORE] * len(content)), END if supervised else IGNORE]
            spans.append((start, len(ids), message["role"], turn))
        example: Example = {"input_ids": ids[:max_length], "labels": labels[:max_length]}
        return example

    def spans(self, record: Record, example: Example) -> Sequence[Span]:
        spans: list[Span] = []
        start = 1
        for turn, message in enumerate(record["messages"]):
            end = start + len(message["content"].encode("utf-8")) + 2
            limit = len(example["input_ids"])
            if start < limit:
                spans.append((start, min(end, limit), message["role"], turn))
            start = end
        return spans

    def special_ids(self) -> dict[str, Any]:
        return {"bos": BOS, "end": END, "pad": PAD}

    def collate(self, examples: Sequence[Example]) -> Batch:
        batch = super().collate(examples)
        del batch["attention_mask"]  # causal attention never sees padding on the right
        return batch

    def build_model(self) -> nn.Module:
        model = TinyDecoder(longest=max(512, self.plan.data.max_length or 0))
        model.checkpointing = self.plan.memory.activation_checkpointing
        if self.plan.precision == "bf16":
            model = model.to(torch.bfloat16)
        return model

    def loss(self, model: nn.Module, batch: Batch) -> Any:
        logits = model(batch["input_ids"])[:, :-1].float()
        targets = batch["labels"][:, 1:]
        total = functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]),
            targets.reshape(-1),
            ignore_index=IGNORE,
            reduction="sum",
            label_smoothing=self.plan.loss.label_smoothing,
        )
        return total, int((targets != IGNORE).sum())

    def predict(self, model: nn.Module, batch: Batch) -> Any:
        return model(batch["input_ids"]).argmax(dim=-1)

    def decode(self, ids: Sequence[int]) -> str:
        out: list[str] = []
        pending = bytearray()
        for number in ids:
            if number >= FIRST_BYTE:
                pending.append(number - FIRST_BYTE)
                continue
            out.append(pending.decode("utf-8", "replace"))
            pending.clear()
            out.append(NAMES.get(number, f"<{number}>"))
        out.append(pending.decode("utf-8", "replace"))
        return "".join(out)


def split_of(conversation: str) -> str:
    """Which side a conversation is on, from its id alone: 8 of 10 train, 1 validation, 1 test."""
    slot = hashlib.sha256(conversation.encode()).digest()[0] % 10
    return "validation" if slot == 0 else "test" if slot == 1 else "train"
