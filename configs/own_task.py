"""A task of one's own: a small recurrent network learns to write words backwards. torch alone, no data file.

Needed are records, encode, build_model and loss; each of the others lets one more check look.
"""

import random

from torch import nn
from torch.nn import functional

from tui_pilot.tasks import IGNORE, Task
from tui_pilot.tasks.base import shifted_targets

PAD, BEGIN, ANSWER, END = range(4)
VOCABULARY = ["<pad>", "<begin>", "<answer>", "<end>", *"abcdefghijklmnopqrstuvwxyz"]


class Recurrent(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = nn.Embedding(len(VOCABULARY), width)
        self.core = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, len(VOCABULARY))

    def forward(self, ids):
        return self.head(self.core(self.embed(ids))[0])


class Backwards(Task):
    def __init__(self, plan):
        super().__init__(plan)
        draw = random.Random(0)
        self.splits = {"train": [], "validation": [], "test": []}
        for word in {"".join(draw.sample(VOCABULARY[4:], draw.randint(3, 8))): 0 for _ in range(plan.options["words"])}:
            family = "".join(sorted(word))  # words of the same letters stay on one side
            side = random.Random(family).choices(list(self.splits), [8, 1, 1])[0]
            self.splits[side].append({"id": word, "word": word, "answer": word[::-1], "family": family})

    def records(self, split):
        return self.splits[split]

    def unit(self, record):
        return record["family"]

    def source_text(self, record):
        return record["answer"]

    def encode(self, record):
        word, answer = ([VOCABULARY.index(letter) for letter in record[key]] for key in ("word", "answer"))
        prompt = [BEGIN, *word, ANSWER]
        return {"input_ids": [*prompt, *answer, END], "labels": [IGNORE] * len(prompt) + [*answer, END]}

    def spans(self, record, example):
        middle = len(record["word"]) + 2
        return [(1, middle, "user", 0), (middle, len(example["input_ids"]), "assistant", 1)]

    def special_ids(self):
        return {"bos": BEGIN, "end": END, "pad": PAD}

    def build_model(self):
        return Recurrent(self.plan.options["width"])

    def loss(self, model, batch):
        logits, targets = model(batch["input_ids"])[:, :-1], batch["labels"][:, 1:]
        return functional.cross_entropy(logits.transpose(1, 2).float(), targets, ignore_index=IGNORE, reduction="sum")

    def predict(self, model, batch):
        return model(batch["input_ids"]).argmax(dim=-1)

    def decode(self, ids):
        return "".join(VOCABULARY[each] for each in ids)

    def metrics(self, predictions):
        whole = [all(row["predicted"][at] == to for at, to in shifted_targets(row["labels"])) for row in predictions]
        return {"words_right": sum(whole) / max(1, len(whole))}
