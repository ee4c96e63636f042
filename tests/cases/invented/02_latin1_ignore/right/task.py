"""Chats of two turns, tokenized by bytes of one fixed encoding."""

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


PAD, BOS, END = range(3)
ROLES = {"user": 3, "assistant": 4}
FIRST = 5
NAMES = ["<pad>", "<bos>", "<end>", "<user>", "<assistant>"]


def to_bytes(text):
    return text.encode("utf-8")


def to_text(data):
    return bytes(data).decode("utf-8", "replace")


class Chats(Task):
    def records(self, split):
        return read(split)

    def unit(self, record):
        return record["source"]

    def source_text(self, record):
        return "".join(each["content"] for each in record["messages"] if each["role"] == "assistant")

    def encode(self, record):
        ids, labels = [BOS], [IGNORE]
        for message in record["messages"]:
            content = [*(FIRST + byte for byte in to_bytes(message["content"])), END]
            ids += [ROLES[message["role"]], *content]
            labels += [IGNORE, *(content if message["role"] == "assistant" else [IGNORE] * len(content))]
        return {"input_ids": ids, "labels": labels}

    def spans(self, record, example):
        spans, start = [], 1
        for turn, message in enumerate(record["messages"]):
            end = start + len(to_bytes(message["content"])) + 2
            spans.append((start, end, message["role"], turn))
            start = end
        return spans

    def special_ids(self):
        return {"bos": BOS, "end": END, "pad": PAD}

    def decode(self, ids):
        out, pending = [], []
        for each in ids:
            if each >= FIRST:
                pending.append(each - FIRST)
                continue
            out += [to_text(pending), NAMES[each]]
            pending = []
        return "".join([*out, to_text(pending)])

    def build_model(self):
        return Reader(FIRST + 256)

    def loss(self, model, batch):
        return token_loss(model(batch["input_ids"]), batch["labels"])

    def predict(self, model, batch):
        return model(batch["input_ids"]).argmax(dim=-1)
