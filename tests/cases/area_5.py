"""Task files of areas 5 to 7: a tiny next-token task that is right, and what runs its stages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lab import Lab

from tui_pilot.store.state import Row, RunState

TINY = '''
"""Rows of ids by ``options.lengths``; a few hundred parameters; the loss is a sum over tokens. Everything right."""

import torch
from torch import nn
from torch.nn import functional

from tui_pilot.tasks import IGNORE, Task

IDS = 32


class Net(nn.Module):
    def __init__(self, width=8, drop=0.0):
        super().__init__()
        self.token, self.drop = nn.Embedding(IDS, width), nn.Dropout(drop)
        self.inner, self.head = nn.Linear(width, width), nn.Linear(width, IDS)

    def forward(self, ids):
        return self.head(self.drop(torch.tanh(self.inner(self.token(ids)))))


class Tiny(Task):
    def records(self, split):
        lengths = self.plan.options.get("lengths") or [3, 9, 2, 10, 4, 7, 5, 6]
        return [{"id": f"r{n}", "n": n, "length": each} for n, each in enumerate(lengths)] if split == "train" else []

    def encode(self, record, max_length=None):
        ids = [1, *(3 + (record["n"] * 5 + k) % (IDS - 3) for k in range(record["length"] - 2)), 2]
        labels = [IGNORE, *ids[1:]] if not record.get("masked") else [IGNORE] * len(ids)
        return {"input_ids": ids[:max_length], "labels": labels[:max_length]}

    def special_ids(self):
        return {"end": 2, "pad": 0}

    def build_model(self):
        return Net(drop=self.plan.options.get("drop", 0.0))

    def logits(self, model, batch):
        return model(batch["input_ids"])[:, :-1].float().transpose(1, 2)

    def loss(self, model, batch):
        return functional.cross_entropy(
            self.logits(model, batch), batch["labels"][:, 1:], ignore_index=IGNORE, reduction="sum",
            label_smoothing=self.plan.loss.label_smoothing,
        )

    def predict(self, model, batch):
        return model(batch["input_ids"]).argmax(dim=-1)
'''
HEAD = "import torch\nfrom torch.nn import functional\nfrom tiny import IGNORE, Net, Tiny\n"


def stages(
    lab: Lab,
    *names: str,
    code: str = "",
    batch: str = "micro: 1, accumulation: 4",
    budget: str = "epochs: 1",
    more: str = "",
    optimizer: str = "lr: 0.01, schedule: constant",
    pilot: str = "timed: 2, reference: 2, steady: 3",
    files: Mapping[str, str | bytes] | None = None,
    **options: Any,
) -> RunState:
    """Prepare a plan over ``Tiny`` or over the class ``Own`` of ``code``, run its stages, return what they wrote."""
    task = "own.py:Own" if code else "tiny.py:Tiny"
    text = (
        f"name: case\ntask: {task}\nbatch: {{{batch}}}\nbudget: {{{budget}}}\noptimizer: {{{optimizer}}}\n"
        f"pilot: {{{pilot}}}\ndevice: cpu\noptions: {json.dumps(options)}\n{more}"
    )
    lab.prepare(text, {"tiny.py": TINY, "own.py": HEAD + code, **(files or {})})
    return lab.stage(*names)


def row(state: RunState, phase: str, crash: bool = False) -> Row:
    """A phase's row, which must have been judged and, unless said otherwise, must not have crashed."""
    found = next(each for each in state.rows if each.phase == phase)
    assert found.verdict is not None, f"{phase} has no verdict"
    assert crash or not [each for each in found.reasons if each["code"] == "crash"], found.reasons
    return found
