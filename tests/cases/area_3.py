"""A small language model on bytes that is right, and the ``overfit`` row of what is made of it."""

from __future__ import annotations

from typing import Any

from area_1 import WORDS, chat, jsonl
from lab import Lab

from tui_pilot.store.state import Row

TINY = '''
"""A model that sees the tokens so far as their sum: enough to learn a few short answers by heart."""

import torch
from torch import nn
from torch.nn import functional
from words import IGNORE, Words


class Net(nn.Module):
    def __init__(self, width=24, size=260):
        super().__init__()
        self.embed = nn.Embedding(size, width)
        self.place = nn.Embedding(64, width)
        self.base = nn.Linear(width, width)
        self.head = nn.Linear(width, size)

    def forward(self, input_ids):
        own = self.embed(input_ids) + self.place(torch.arange(input_ids.shape[1]))
        return self.head(torch.tanh(self.base(own + own.cumsum(dim=1))))


class Tiny(Words):
    def build_model(self):
        return Net()

    def loss(self, model, batch):
        logits = model(batch["input_ids"])[:, :-1].transpose(1, 2)
        return functional.cross_entropy(logits, batch["labels"][:, 1:], ignore_index=IGNORE, reduction="sum")

    def predict(self, model, batch):
        return model(batch["input_ids"]).argmax(dim=-1)


class Low(nn.Module):
    """A linear layer with an adapter beside it."""

    def __init__(self, layer, rank=2):
        super().__init__()
        self.base_layer = layer
        self.lora_A = nn.Parameter(torch.randn(rank, layer.in_features) / 4)
        self.lora_B = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, hidden):
        return self.base_layer(hidden) + hidden @ self.lora_A.T @ self.lora_B.T
'''

HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional\nfrom tiny import IGNORE, Low, Net, Tiny\n"
ROWS = [chat("a?", "bcd"), chat("e?", "fgh")]
ADAPTER = "model: {adapter: {kind: lora, r: 2, alpha: 2}}\n"


def small(
    lab: Lab,
    task: str,
    code: str = "",
    *,
    rows: list[dict[str, Any]] | None = None,
    held: list[dict[str, Any]] | None = None,
    more: str = "",
    gate: str = "steps: 80, lr: 0.02",
    batch: str = "micro: 2",
    skip: str = "",
) -> None:
    """Prepare a run of a class of ``code``, or of the right model, over a few rows."""
    files = {"words.py": WORDS, "tiny.py": TINY, "own.py": HEAD + code, "train.jsonl": jsonl(rows or ROWS)}
    data = "train: train.jsonl"
    if held is not None:
        files["held.jsonl"] = jsonl(held)
        data += ", validation: held.jsonl"
    where = f"own.py:{task}" if code else f"tiny.py:{task}"
    plan = f"name: case\ntask: {where}\ndata: {{{data}, unit: id}}\nbatch: {{{batch}}}\ndevice: cpu\n"
    plan += f"budget: {{updates: 20}}\ngates: {{skip: [{skip}], stop_on_fail: false, overfit: {{{gate}}}}}\n"
    lab.prepare(plan + more, files)


def phase_row(lab: Lab, name: str) -> Row:
    """A phase's row after what has been run so far."""
    row = next(each for each in lab.state().rows if each.phase == name)
    assert row.verdict is not None, lab.code.stdout.decode()
    return row


def overfit(lab: Lab, task: str, code: str = "", **how: Any) -> Row:
    """The ``overfit`` row of a real stage."""
    small(lab, task, code, **how)
    lab.stage("overfit")
    row = phase_row(lab, "overfit")
    assert not [each for each in row.reasons if each["code"] == "crash"], row.reasons
    return row
