"""A model that remembers how sure it was, for a histogram at the end of the run."""

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


PAD, BOS, ANSWER, END, FIRST = 0, 1, 2, 3, 4
VOCABULARY = FIRST + 256


class ByteTask(Task):
    """A question, a marker, an answer and the end token, in bytes; the answer and the end token are trained."""

    def records(self, split):
        return read(split)

    def unit(self, record):
        return record["source"]

    def source_text(self, record):
        return record["answer"]

    def ids(self, text):
        return [FIRST + byte for byte in text.encode("utf-8")]

    def encode(self, record):
        prompt, answer = [BOS, *self.ids(record["question"]), ANSWER], [*self.ids(record["answer"]), END]
        return {"input_ids": prompt + answer, "labels": [IGNORE] * len(prompt) + answer}

    def spans(self, record, example):
        middle = 2 + len(self.ids(record["question"]))
        return [(1, middle, "user", 0), (middle, len(example["input_ids"]), "assistant", 1)]

    def special_ids(self):
        return {"bos": BOS, "end": END, "pad": PAD}

    def decode(self, ids):
        names = {PAD: "<pad>", BOS: "<bos>", ANSWER: "<answer>", END: "<end>"}
        out, pending = [], bytearray()
        for each in ids:
            if each >= FIRST:
                pending.append(each - FIRST)
                continue
            out.append(pending.decode("utf-8", "replace"))
            pending.clear()
            out.append(names[each])
        return "".join(out) + pending.decode("utf-8", "replace")

    def build_model(self):
        return Reader(VOCABULARY)

    def loss(self, model, batch):
        return token_loss(model(batch["input_ids"]), batch["labels"])

    def predict(self, model, batch):
        return model(batch["input_ids"]).argmax(dim=-1)


class Watched(Reader):
    def __init__(self, vocabulary):
        super().__init__(vocabulary)
        self.sure = []

    def forward(self, ids):
        logits = super().forward(ids)
        if self.training:
            self.sure = [logits.detach().softmax(-1)]
        return logits


class Histogram(ByteTask):
    def build_model(self):
        return Watched(VOCABULARY)
