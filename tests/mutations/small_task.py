"""The demo task made small: fewer rows, a smaller model, nothing wrong. Faults are planted into subclasses of it."""

import random  # noqa: F401 - the names here are what planted code may use

import torch
from torch import nn  # noqa: F401
from torch.nn import functional  # noqa: F401

from tui_pilot.tasks import IGNORE  # noqa: F401
from tui_pilot.tasks.demo import BOS, END, PAD, VOCABULARY, DemoTask, TinyDecoder  # noqa: F401

ROWS = {"train": 40, "validation": 12, "test": 6}


class Small(DemoTask):
    """40 rows of the packaged conversations and 30 thousand parameters."""

    def records(self, split):
        whole = sorted(super().records(split), key=lambda row: sum(len(each["content"]) for each in row["messages"]))
        by_unit = {}
        for row in whole:
            by_unit.setdefault(row["conversation_id"], []).append(row)
        several = [row for rows in by_unit.values() if len(rows[0]["messages"]) > 2 for row in rows]
        rest = [row for row in whole if row not in several]
        return [*several[: ROWS.get(split, 0) // 2], *rest][: ROWS.get(split, 0)]

    def build_model(self):
        model = TinyDecoder(width=32, layers=2, heads=2, longest=512)
        model.checkpointing = self.plan.memory.activation_checkpointing
        return model.to(torch.bfloat16) if self.plan.precision == "bf16" else model
