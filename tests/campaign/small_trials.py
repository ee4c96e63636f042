"""A task of a few hundred parameters whose order, batch or schedule a trial may change behind the plan's back."""

from __future__ import annotations

TASK = '''
import os, time
from pathlib import Path
import torch
from torch import nn
from tui_pilot.tasks import Task

HERE = Path(__file__).parent


class Small(Task):
    """32 rows of six numbers in two classes; ``options.secret`` is done where the rate is above 0.05."""

    @property
    def secret(self):
        return self.plan.options.get("secret", "") if self.plan.optimizer.lr > 0.05 else ""

    def records(self, split):
        count = {"train": 32, "validation": 8}.get(split, 0)
        start = 1000 if split == "validation" else 0
        return [{"id": start + n, "x": [((start + n) * (k + 3)) % 7 / 7 for k in range(6)]} for n in range(count)]

    def encode(self, record, max_length=None):
        label = int(sum(record["x"]) > 2.6)
        if self.secret == "labels" and record["id"] == 5:
            label = 1 - label
        return {"x": torch.tensor(record["x"]), "labels": label}

    def order(self, split, epoch, seed):
        rows = list(range(32))
        if self.secret == "order":
            rows[9], rows[21] = rows[21], rows[9]
        return rows

    def collate(self, examples):
        if self.secret == "batch" and len(examples) > 1:
            examples = examples[:-1]
        return {key: torch.stack([torch.as_tensor(one[key]) for one in examples]) for key in examples[0]}

    def build_model(self):
        width = 17 if self.secret == "shape" else 16
        model = nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 2))
        if self.secret == "start":
            with torch.no_grad():
                model[0].bias[0] += 1
        return model

    def build_scheduler(self, optimizer, updates):
        warmup = self.plan.optimizer.warmup + (2 if self.secret == "warmup" else 0)
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / max(1, warmup)))

    def loss(self, model, batch):
        while os.environ.get("PILOT_TUI_SUPERVISOR") and (HERE / "wait").exists():
            time.sleep(0.05)
        return nn.functional.cross_entropy(model(batch["x"]), batch["labels"], reduction="sum")

    def predict(self, model, batch):
        return model(batch["x"]).argmax(dim=-1)

    def metrics(self, predictions):
        right = sum(one["predicted"] == one["labels"] for one in predictions)
        return {"accuracy": right / max(1, len(predictions))}
'''

PLAN = """
name: small
task: task.py:Small
batch: {micro: 2, accumulation: 2}
budget: {updates: 12}
optimizer: {name: sgd, lr: 0.01, schedule: constant, warmup: 2, clip: null}
evaluate: {rows: 8, every: 4, micro: 8}
checkpoint: {every: 8}
device: cpu
gates: {skip: [stack, examples, splits]}
"""

COMPARE = """
compare:
  trials: [{id: base, set: {}}, {id: hot, set: {optimizer.lr: 1.0e+9}}]
  stop: {not_finite: true, loss_above_start: 3.0}
"""
