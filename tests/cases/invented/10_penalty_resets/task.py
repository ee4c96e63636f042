"""A penalty on large logits whose weight fades with the schedule."""

import json
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from tui_pilot.tasks import IGNORE, Task
from tui_pilot.tasks.base import schedule_factor

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


class Fading(ByteTask):
    penalty = 0.1

    def fade(self, update):
        self.penalty = 0.1 * max(0.0, 1.0 - update / 8)

    def build_scheduler(self, optimizer, updates):
        task, plan = self, self.plan.optimizer

        def factor(step):
            return schedule_factor(step, updates, plan.warmup, plan.schedule)

        class Schedule(torch.optim.lr_scheduler.LambdaLR):
            def step(self, *args):
                super().step(*args)
                task.fade(self.last_epoch)

        return Schedule(optimizer, factor)

    def loss(self, model, batch):
        logits = model(batch["input_ids"])
        supervised = batch["labels"][:, 1:] != IGNORE
        size = logits[:, :-1].float().logsumexp(-1).square()[supervised].sum()
        return token_loss(logits, batch["labels"]) + self.penalty * size
