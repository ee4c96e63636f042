"""Japanese questions; the answer's place in the text comes from a browser tool, in UTF-16 units."""

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


PAD, BOS, END, FIRST = range(4)
LETTERS = sorted({letter for split in ("train", "validation") for row in read(split) for letter in row["text"]})
NUMBER = {letter: FIRST + place for place, letter in enumerate(LETTERS)}


def places(record):
    """Where the answer begins and ends in record["text"]."""
    units = record["text"].encode("utf-16-le")
    return tuple(len(units[: 2 * record[key]].decode("utf-16-le")) for key in ("start", "end"))


class Japanese(Task):
    def records(self, split):
        return read(split)

    def unit(self, record):
        return record["source"]

    def source_text(self, record):
        return record["answer"]

    def encode(self, record):
        ids = [BOS, *(NUMBER[letter] for letter in record["text"]), END]
        start, end = places(record)
        labels = [IGNORE] * len(ids)
        labels[1 + start : 1 + end] = ids[1 + start : 1 + end]
        labels = labels[: len(ids)]
        labels[-1] = END
        return {"input_ids": ids, "labels": labels}

    def spans(self, record, example):
        middle = 1 + len(record["text"]) - len(record["answer"])
        return [(1, middle, "user", 0), (middle, len(example["input_ids"]), "assistant", 1)]

    def special_ids(self):
        return {"bos": BOS, "end": END, "pad": PAD}

    def decode(self, ids):
        return "".join(["<pad>", "<bos>", "<end>"][each] if each < FIRST else LETTERS[each - FIRST] for each in ids)

    def build_model(self):
        return Reader(FIRST + len(LETTERS))

    def loss(self, model, batch):
        return token_loss(model(batch["input_ids"]), batch["labels"])

    def predict(self, model, batch):
        return model(batch["input_ids"]).argmax(dim=-1)
