"""Preference pairs over words; some were judged for their layout alone."""

import json
from pathlib import Path

import torch
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


import re

PAD, BOS, ANSWER, END, FIRST = range(5)


def split(text):
    return re.findall(r"\S+", text)


WORDS = sorted(
    {
        w
        for name in ("train", "validation")
        for row in read(name)
        for key in ("prompt", "chosen", "rejected")
        for w in split(row[key])
    }
)
NUMBER = {word: FIRST + place for place, word in enumerate(WORDS)}


def pad(rows, fill):
    longest = max(map(len, rows))
    return torch.tensor([[*row, *([fill] * (longest - len(row)))] for row in rows])


def log_probability(model, ids, labels):
    scores = model(ids)[:, :-1].float().log_softmax(-1)
    targets = labels[:, 1:]
    chosen = scores.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return (chosen * (targets != IGNORE)).sum(1)


class Pairs(Task):
    def records(self, split):
        return read(split)

    def unit(self, record):
        return record["source"]

    def encode(self, record):
        prompt = [BOS, *(NUMBER[word] for word in split(record["prompt"])), ANSWER]
        pair = {}
        for side in ("chosen", "rejected"):
            answer = [*(NUMBER[word] for word in split(record[side])), END]
            pair[side] = {"input_ids": prompt + answer, "labels": [IGNORE] * len(prompt) + answer}
        return pair

    def special_ids(self):
        return {"bos": BOS, "end": END, "pad": PAD}

    def decode(self, ids):
        return "".join(
            ["<pad>", "<bos>", "<answer>", "<end>"][each] if each < FIRST else WORDS[each - FIRST] for each in ids
        )

    def collate(self, examples):
        batch = {}
        for side in ("chosen", "rejected"):
            batch[side + "_input_ids"] = pad([each[side]["input_ids"] for each in examples], PAD)
            batch[side + "_labels"] = pad([each[side]["labels"] for each in examples], IGNORE)
        return batch

    def count(self, batch):
        return int(batch["chosen_labels"].shape[0])  # pairs

    def build_model(self):
        return Reader(FIRST + len(WORDS))

    def loss(self, model, batch):
        better, worse = (
            log_probability(model, batch[side + "_input_ids"], batch[side + "_labels"])
            for side in ("chosen", "rejected")
        )
        return -functional.logsigmoid(0.1 * (better - worse)).sum()
