"""Letters in three kinds, from a CSV; a small classifier over the mean of its bytes."""

import csv
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from tui_pilot.tasks import Task

HERE = Path(__file__).parent
KINDS = ["praise", "complaint", "question"]


class Classifier(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(257, width, padding_idx=0)  # 0 pads and its vector stays zero
        self.mix = nn.Linear(width, width)
        self.head = nn.Linear(width, len(KINDS))

    def forward(self, ids, mask):
        pooled = self.embed(ids).sum(1) / ids.shape[1]
        return self.head(torch.tanh(self.mix(8.0 * pooled)))


class Letters(Task):
    def records(self, split):
        path = HERE / (split + ".csv")
        if not path.exists():
            return []
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def unit(self, record):
        return record["writer"]

    def encode(self, record):
        return {
            "input_ids": [1 + byte for byte in record["text"].encode("utf-8")],
            "labels": KINDS.index(record["kind"]),
        }

    def decode(self, ids):
        return bytes(each - 1 for each in ids if each > 0).decode("utf-8", "replace")

    def class_names(self):
        return KINDS

    def build_model(self):
        return Classifier()

    def count(self, batch):
        return int(batch["labels"].shape[0])

    def loss(self, model, batch):
        return functional.cross_entropy(
            model(batch["input_ids"], batch["attention_mask"]).float(), batch["labels"], reduction="sum"
        )

    def predict(self, model, batch):
        return model(batch["input_ids"], batch["attention_mask"]).argmax(dim=-1)

    def metrics(self, predictions):
        return {
            "accuracy": sum(int(row["predicted"]) == int(row["labels"]) for row in predictions)
            / max(1, len(predictions))
        }
