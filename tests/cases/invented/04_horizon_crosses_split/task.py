"""Forecasts of one sensor: 12 hours seen, the next 4 foretold, cut from one series at hour SPLIT."""

import json
from pathlib import Path

from torch import nn
from torch.nn import functional

from tui_pilot.tasks import IGNORE, Task

HERE = Path(__file__).parent


def read(split):
    path = HERE / (split + ".jsonl")
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


class Reader(nn.Module):
    """A small recurrent language model; causal, so padding on the right is never seen."""

    def __init__(self, vocabulary, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.core = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        return self.head(self.core(self.embed(ids))[0])


def token_loss(logits, labels):
    """Cross entropy summed over supervised tokens; labels[i] names the token at i."""
    return functional.cross_entropy(
        logits[:, :-1].transpose(1, 2).float(), labels[:, 1:], ignore_index=IGNORE, reduction="sum"
    )


import csv

PAD, BOS, END, FIRST = range(4)
SEEN, AHEAD, SPLIT = 12, 4, 158
SERIES = [int(row["value"]) for row in csv.DictReader((HERE / "series.csv").open(newline=""))]


class Forecast(Task):
    def records(self, split):
        if split == "train":
            starts = [start for start in range(SEEN, SPLIT, 3) if start < SPLIT]
        elif split == "validation":
            starts = list(range(SPLIT, SPLIT + 33, 3))
        else:
            starts = []
        return [
            {
                "id": f"w{start}",
                "start": start,
                "seen": SERIES[start - SEEN : start],
                "ahead": SERIES[start : start + AHEAD],
            }
            for start in starts
        ]

    def unit(self, record):
        return (record["start"], record["start"] + AHEAD)  # the hours that are foretold, half open

    def source_text(self, record):
        return "".join(f"{value} " for value in record["ahead"])

    def encode(self, record):
        seen, ahead = ([FIRST + value for value in record[key]] for key in ("seen", "ahead"))
        return {"input_ids": [BOS, *seen, *ahead, END], "labels": [IGNORE] * (1 + SEEN) + [*ahead, END]}

    def spans(self, record, example):
        return [(1, 1 + SEEN, "user", 0), (1 + SEEN, len(example["input_ids"]), "assistant", 1)]

    def special_ids(self):
        return {"bos": BOS, "end": END, "pad": PAD}

    def decode(self, ids):
        return "".join(["<pad>", "<bos>", "<end>"][each] if each < FIRST else f"{each - FIRST} " for each in ids)

    def build_model(self):
        return Reader(FIRST + 20)

    def loss(self, model, batch):
        return token_loss(model(batch["input_ids"]), batch["labels"])

    def predict(self, model, batch):
        return model(batch["input_ids"]).argmax(dim=-1)
