"""Right set-ups of many kinds: a base task over made-up words, and what each kind changes in it."""

from __future__ import annotations

BASE = '''
import random

import torch
from torch import nn
from torch.nn import functional

from tui_pilot.tasks import IGNORE, Task

PAD, BOS, ANSWER, END, FIRST = 0, 1, 2, 3, 4
SIZE = FIRST + 26
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def ids(text):
    return [FIRST + LETTERS.index(letter) for letter in text]


def token_loss(logits, labels, reduction="sum"):
    return functional.cross_entropy(
        logits[:, :-1].transpose(1, 2), labels[:, 1:], ignore_index=IGNORE, reduction=reduction
    )


class Reader(nn.Module):
    def __init__(self, out=SIZE):
        super().__init__()
        self.embed, self.core, self.head = nn.Embedding(SIZE, 32), nn.GRU(32, 32, batch_first=True), nn.Linear(32, out)

    def forward(self, tokens):
        return self.head(self.core(self.embed(tokens))[0])

    def last(self, tokens):
        at = (tokens != PAD).sum(1) - 1
        return self(tokens)[torch.arange(len(at)), at]


class Rows(Task):
    """``kind`` and ``word`` of a row; a source for each."""

    def __init__(self, plan):
        super().__init__(plan)
        draw = random.Random(1)
        words = ["".join(draw.sample(LETTERS, draw.randint(3, 7))) for _ in range(30)]
        rows = [{"id": n, "source": f"s{n}", "word": word, "kind": n % 2} for n, word in enumerate(words)]
        self.splits = {"train": rows[:24], "validation": rows[24:]}

    def records(self, split):
        return self.splits.get(split, [])

    def unit(self, record):
        return record["source"]

    def special_ids(self):
        return {"bos": BOS, "end": END, "pad": PAD}


class Words(Rows):
    """The first two letters, backwards."""

    def answer(self, record):
        return record["word"][1::-1]

    def encode(self, record):
        prompt, answer = [BOS, *ids(record["word"]), ANSWER], [*ids(self.answer(record)), END]
        return {"input_ids": prompt + answer, "labels": [IGNORE] * len(prompt) + answer}

    def spans(self, record, example):
        middle = 2 + len(record["word"])
        return [(1, middle, "user", 0), (middle, len(example["input_ids"]), "assistant", 1)]

    def build_model(self):
        return Reader()

    def loss(self, model, batch):
        return token_loss(model(batch["input_ids"]), batch["labels"])

    def predict(self, model, batch):
        return model(batch["input_ids"]).argmax(-1)


class Vectors(Rows):
    """Rows without ids and, but for ``kind``, without labels: ``x`` is a list of numbers."""

    def encode(self, record):
        return {"x": torch.tensor([float(each) for each in ids(record["word"])[:3]]), "labels": record["kind"]}

    def special_ids(self):
        return {}
'''

PICTURES = """
class Own(Vectors):
    # Pictures of two grey levels, found by the row's id: rows are alike in most of their pixels.
    def encode(self, record):
        draw = torch.Generator().manual_seed(record["id"])
        picture = (torch.rand(1, 6, 6, generator=draw) < 0.2).float()
        picture[:, 3 * record["kind"]:3 * record["kind"] + 2] = 1.0
        return {"pixels": picture, "labels": record["kind"]}

    def records(self, split):
        return [{**each, "picture": self.encode(each)["pixels"]} for each in super().records(split)]

    def class_names(self):
        return ["top", "bottom"]

    def build_model(self):
        return nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 2))

    def loss(self, model, batch):
        return functional.cross_entropy(model(batch["pixels"]), batch["labels"], reduction="sum")

    def predict(self, model, batch):
        return model(batch["pixels"]).argmax(-1)
"""

TARGET_OF_ITS_OWN = """
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.reader, self.decoder = Reader(), nn.GRU(32, 32, batch_first=True)

    def forward(self, source, mask, given):
        whole = self.reader.core(self.reader.embed(source))[0]
        state = whole[torch.arange(len(source)), mask.sum(1) - 1][None]
        return self.reader.head(self.decoder(self.reader.embed(given), state)[0])


class Own(Rows):
    # The decoder is given the target one place later.
    def encode(self, record):
        return {"input_ids": ids(record["word"]), "labels": [*ids(record["word"][1::-1]), END]}

    def build_model(self):
        return Two()

    def special_ids(self):
        return {"end": END, "pad": PAD}

    def count(self, batch):
        return int((batch["labels"] != IGNORE).sum())

    def logits(self, model, batch):
        labels = batch["labels"]
        given = torch.cat([torch.full_like(labels[:, :1], BOS), labels[:, :-1].clamp(min=0)], 1)
        return model(batch["input_ids"], batch["attention_mask"], given)

    def loss(self, model, batch):
        logits = self.logits(model, batch).transpose(1, 2)
        return functional.cross_entropy(logits, batch["labels"], ignore_index=IGNORE, reduction="sum")

    def predict(self, model, batch):
        return self.logits(model, batch).argmax(-1)
"""

NUMBERS_TO_COME_NEAR = """
class Own(Vectors):
    def encode(self, record):
        x = [each / 30 for each in ids(record["word"])[:3]]
        return {"input_ids": ids(record["word"]), "x": x, "labels": [x[0] + x[1], 2 * x[2]]}

    def build_model(self):
        return nn.Linear(3, 2)

    def count(self, batch):
        return batch["labels"].numel()

    def loss(self, model, batch):
        return functional.mse_loss(model(batch["x"]), batch["labels"], reduction="sum")

    def predict(self, model, batch):
        return model(batch["x"])
"""

IN_BATCH = """
class Own(Rows):
    # Each word finds its own first letters among those of the microbatch.
    def encode(self, record):
        return {"input_ids": ids(record["word"]), "other": ids(record["word"][:2])}

    def build_model(self):
        return nn.EmbeddingBag(SIZE, 32, padding_idx=PAD)

    def count(self, batch):
        return len(batch["input_ids"])

    def loss(self, model, batch):
        left, right = (functional.normalize(model(batch[name]), dim=1) for name in ("input_ids", "other"))
        return functional.cross_entropy(left @ right.T / 0.1, torch.arange(len(left)), reduction="sum")
"""

BALANCED = """
class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.reader, self.router = Reader(), nn.Linear(32, 4)
        self.parts = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

    def forward(self, tokens):
        hidden = self.reader.core(self.reader.embed(tokens))[0]
        share, real = self.router(hidden).softmax(-1), tokens != PAD
        load = functional.one_hot(share.argmax(-1)[real], 4).float().mean(0)
        out = sum(share[..., n:n + 1] * part(hidden) for n, part in enumerate(self.parts))
        return self.reader.head(hidden + out), 4 * (load * share[real].mean(0)).sum()


class Own(Words):
    # A balance of experts over the microbatch's tokens, weighed by its supervised ones.
    def build_model(self):
        return Mixed()

    def loss(self, model, batch):
        logits, balance = model(batch["input_ids"])
        return token_loss(logits, batch["labels"]) + 0.05 * balance * self.count(batch)

    def predict(self, model, batch):
        return model(batch["input_ids"])[0].argmax(-1)
"""
MEAN_AND_BALANCE = BALANCED.replace(
    'token_loss(logits, batch["labels"]) +', 'token_loss(logits, batch["labels"], "mean") * len(logits) +'
)

NOISE_IN_ROWS = """
class Own(Words):
    # A letter of the word is hidden now and then, drawn while the row is encoded.
    def encode(self, record):
        example = super().encode(record)
        at = random.randrange(1, 1 + len(record["word"]))
        example["input_ids"][at] = ANSWER if random.random() < 0.5 else example["input_ids"][at]
        return example
"""

NOISE_IN_MODEL = """
class Noisy(Reader):
    # Whole layers left out at random in training, as stochastic depth does.
    def forward(self, tokens):
        hidden = self.embed(tokens)
        keep = hidden.new_empty(len(tokens), 1, 1).bernoulli_(0.7) / 0.7 if self.training else 1.0
        return self.head(hidden + keep * self.core(hidden)[0])


class Own(Words):
    def build_model(self):
        return Noisy()
"""

NOISE_IN_LOSS = """
class Own(Vectors):
    # Learns to take away noise that the loss draws.
    def build_model(self):
        return nn.Linear(4, 3)

    def loss(self, model, batch):
        noise, level = torch.randn_like(batch["x"]), torch.rand(len(batch["x"]), 1)
        given = torch.cat([(1 - level) * batch["x"] / 30 + level * noise, level], 1)
        return functional.mse_loss(model(given), noise, reduction="none").mean(1).sum()
"""

MASKED = """
class Small(nn.Module):
    # torch's own encoder layer hands attention its arguments by place.
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(SIZE, 32), nn.Embedding(16, 32)
        self.core = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.2, batch_first=True, norm_first=True)
        self.head = nn.Linear(32, SIZE)

    def forward(self, tokens):
        hidden = self.embed(tokens) + self.place(torch.arange(tokens.shape[1]))
        return self.head(self.core(hidden, src_key_padding_mask=tokens == PAD))


class Own(Rows):
    # Letters hidden anew in each batch; the answer stands at its own place.
    def encode(self, record):
        row = [BOS, *ids(record["word"]), END]
        return {"input_ids": row, "labels": list(row)}

    def collate(self, examples):
        batch = super().collate(examples)
        tokens = batch["input_ids"]
        hide = (torch.rand(tokens.shape) < 0.2) & (tokens >= FIRST)
        hide[:, 1] = True
        return {**batch, "labels": tokens.where(hide, IGNORE), "input_ids": tokens.where(~hide, ANSWER)}

    def count(self, batch):
        return int((batch["labels"] != IGNORE).sum())

    def build_model(self):
        return Small()

    def loss(self, model, batch):
        logits = model(batch["input_ids"]).transpose(1, 2)
        return functional.cross_entropy(logits, batch["labels"], ignore_index=IGNORE, reduction="sum")

    def predict(self, model, batch):
        return model(batch["input_ids"]).argmax(-1)
"""

TWO_HEADS = """
class Own(Rows):
    # A head for each kind of row; the short rows are all of one kind.
    def records(self, split):
        return [{**each, "word": each["word"] * (1 + each["kind"])} for each in super().records(split)]

    def encode(self, record):
        return {"input_ids": ids(record["word"]), "kind": record["kind"], "labels": int(record["word"][0] > "m")}

    def build_model(self):
        model = Reader(2)
        model.second = nn.Linear(2, 2)
        return model

    def logits(self, model, batch):
        first = model.last(batch["input_ids"])
        if not bool(batch["kind"].any()):
            return first
        return torch.where(batch["kind"][:, None] == 1, model.second(first), first)

    def loss(self, model, batch):
        return functional.cross_entropy(self.logits(model, batch), batch["labels"], reduction="sum")

    def predict(self, model, batch):
        return self.logits(model, batch).argmax(-1)
"""

ALIKE = """
class Own(Words):
    # Two answers to one question, and texts that go on differently after the same letters.
    def records(self, split):
        rows = super().records(split)
        words = {0: "abc", 1: "abc", 2: "abd"} if split == "train" else {}
        return [{**each, "word": words.get(each["id"], each["word"])} for each in rows]

    def answer(self, record):
        return "yz" if record["id"] == 1 else super().answer(record)
"""
WHOLE_TEXTS = """
class Own(Words):
    def encode(self, record):
        row = [BOS, *ids(record["word"][:3]), END]
        return {"input_ids": row, "labels": [IGNORE, *row[1:]]}

    def spans(self, record, example):
        return [(1, len(example["input_ids"]), "assistant", 0)]
"""

NORMED = """
class Own(Words):
    # Each forward in training moves the buffers of a spectral norm.
    def build_model(self):
        model = Reader()
        middle = nn.utils.parametrizations.spectral_norm(nn.Linear(32, 32))
        model.head = nn.Sequential(middle, nn.Linear(32, SIZE))
        return model
"""

SAMPLED = """
class Own(Words):
    # Rows drawn with replacement, the second kind three times as often.
    def order(self, split, epoch, seed):
        rows, draw = self.records(split), random.Random(seed * 1000 + epoch)
        return [each["id"] for each in draw.choices(rows, [1 + 2 * each["kind"] for each in rows], k=len(rows))]
"""
