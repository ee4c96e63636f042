"""Questions and answers over words; the vocabulary is made from the files."""

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


PAD, BOS, ANSWER, END, FIRST = range(5)
SEEN = {
    word
    for split in ("train", "validation")
    for row in read(split)
    for key in ("question", "answer")
    for word in row[key].split()
}
WORDS = list(SEEN)
NUMBER = {word: FIRST + place for place, word in enumerate(WORDS)}


class Words(Task):
    def records(self, split):
        return read(split)

    def unit(self, record):
        return record["source"]

    def source_text(self, record):
        return record["answer"]

    def encode(self, record):
        question, answer = ([NUMBER[word] for word in record[key].split()] for key in ("question", "answer"))
        prompt = [BOS, *question, ANSWER]
        return {"input_ids": [*prompt, *answer, END], "labels": [IGNORE] * len(prompt) + [*answer, END]}

    def spans(self, record, example):
        middle = 2 + len(record["question"].split())
        return [(1, middle, "user", 0), (middle, len(example["input_ids"]), "assistant", 1)]

    def special_ids(self):
        return {"bos": BOS, "end": END, "pad": PAD}

    def decode(self, ids):
        out = ""
        for each in ids:
            if each < FIRST:
                out += ["<pad>", "<bos>", "<answer>", "<end>"][each]
            else:
                out += (" " if out and not out.endswith(">") else "") + WORDS[each - FIRST]
        return out

    def build_model(self):
        return Reader(FIRST + len(WORDS))

    def loss(self, model, batch):
        return token_loss(model(batch["input_ids"]), batch["labels"])

    def predict(self, model, batch):
        return model(batch["input_ids"]).argmax(dim=-1)
