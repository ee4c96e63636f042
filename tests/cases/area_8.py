"""Task files of areas 8 and 9: a table and a head on letters, with an adapter where it is wanted, all right."""

from __future__ import annotations

from collections.abc import Mapping

from lab import Lab

from tui_pilot.store.state import RunState

SMALL = '''
"""Letter to next letter: an embedding table and a head, a few hundred parameters. Everything right."""

import torch
from torch import nn
from torch.nn import functional

from tui_pilot.tasks import IGNORE, Task

WIDTH, LETTERS = 8, 16


class Net(nn.Module):
    def __init__(self, letters=LETTERS, width=WIDTH):
        super().__init__()
        self.embed, self.head = nn.Embedding(letters, width), nn.Linear(width, letters)

    def forward(self, ids):
        return self.head(self.embed(ids))


class Low(nn.Module):
    """A frozen matrix and a low-rank change beside it."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features) / rank)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.lora_A.T @ self.lora_B.T


class Small(Task):
    def records(self, split):
        starts = {"train": range(12), "validation": range(4)}.get(split, ())
        return [{"id": f"{split}-{n}", "start": n} for n in starts]

    def encode(self, record):
        ids = [1 + (record["start"] + step) % (LETTERS - 1) for step in range(5)]
        return {"input_ids": ids, "labels": [IGNORE, *ids[1:]]}

    def build_model(self):
        return Net()

    def loss(self, model, batch):
        logits, targets = model(batch["input_ids"])[:, :-1], batch["labels"][:, 1:]
        return functional.cross_entropy(logits.transpose(1, 2).float(), targets, ignore_index=IGNORE, reduction="sum")

    def predict(self, model, batch):
        return model(batch["input_ids"]).argmax(dim=-1)


class Adapted(Small):
    """Only a low-rank change of the head trains, and only that is saved."""

    def build_model(self):
        with torch.random.fork_rng():
            torch.manual_seed(self.plan.options.get("base", 1))
            model = Net().requires_grad_(False)
        model.head = Low(model.head)
        return model

    def save_artifact(self, model, folder):
        state = {name: tensor.detach() for name, tensor in model.state_dict().items() if "lora_" in name}
        torch.save(self.named(state), folder / "adapter.pt")

    def named(self, state):
        return state

    def load_artifact(self, folder):
        model = self.build_model()
        model.load_state_dict(torch.load(folder / "adapter.pt", weights_only=True), strict=False)
        return model
'''

PLAN = """\
name: case
task: {task}
device: cpu
batch: {{micro: 2, accumulation: 2}}
budget: {{updates: {updates}}}
optimizer: {{name: sgd, lr: {lr}, schedule: constant, warmup: {warmup}}}
evaluate: {evaluate}
pilot: {{steady: 2, timed: 3, reference: 2}}
gates: {{skip: [{skip}]{gates}}}
"""


DEFAULTS = {"lr": "1.0", "updates": "30", "warmup": "0", "evaluate": "{rows: 4}"}


def plan(task: str, *, skip: str = "stack, checkpoint", gates: str = "", more: str = "", **values: str) -> str:
    """The plan of a class of ``own.py``, or of ``small.py`` where it names that file itself."""
    where = task if ":" in task else f"own.py:{task}"
    text = PLAN.format(task=where, skip=skip, gates=f", {gates}" if gates else "", **{**DEFAULTS, **values})
    return text + more


def stages(
    lab: Lab, task: str, code: str = "", *names: str, files: Mapping[str, str | bytes] | None = None, **rest: str
) -> RunState:
    """The state after these stages of a run of a class of ``code``."""
    lab.prepare(plan(task, **rest), {"small.py": SMALL, "own.py": f"from small import *\n{code}", **(files or {})})
    return lab.stage(*names)
