"""The demo with faults planted in it, each of a kind that real campaigns ran into without noticing."""

import torch

from tui_pilot.tasks import IGNORE
from tui_pilot.tasks.demo import END, DemoTask

UNMASKED_MARKER = {"c003-0", "c010-0"}  # rows whose response marker is "not found"


class ForgetfulSchedule(torch.optim.lr_scheduler.LambdaLR):
    """Its state is saved empty, so a resumed run starts the warm-up again."""

    def state_dict(self):
        return {}

    def load_state_dict(self, state_dict):
        return None


class BrokenDemo(DemoTask):
    def records(self, split):
        rows = list(super().records(split))
        if split == "validation":  # rows of training conversations validate the model, too
            rows += [row for row in super().records("train") if row["conversation_id"] in ("c020", "c021")]
        return rows

    def encode(self, record, max_length=None):
        example = super().encode(record, max_length)
        labels = example["labels"]
        for start, end, role, _ in self.spans(record, example):
            if role == "system":  # the prompt is trained on
                labels[start:end] = example["input_ids"][start:end]
        # The collator of many scripts: the end token is masked because it equals the padding.
        example["labels"] = [IGNORE if label == END else label for label in labels]
        if record["id"] in UNMASKED_MARKER:
            example["labels"] = [IGNORE] * len(labels)
        return example

    def order(self, split, epoch, seed):
        return list(range(len(self.records(split))))  # every epoch in file order

    def loss(self, model, batch):
        total, count = super().loss(model, batch)
        self.history = [*getattr(self, "history", []), model.head(model.embed(batch["input_ids"])).detach()]
        return total / max(1, count)  # a mean, where a sum is asked for

    def build_optimizer(self, model):
        kept = [p for name, p in model.named_parameters() if not name.startswith("blocks.3.")]
        return torch.optim.AdamW(kept, lr=self.plan.optimizer.lr, weight_decay=0.0)

    def build_scheduler(self, optimizer, updates):
        return ForgetfulSchedule(optimizer, lambda step: min(1.0, (step + 1) / 20))

    def save_artifact(self, model, folder):
        state = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("head.")}
        torch.save(state, folder / "weights.pt")

    def load_artifact(self, folder):
        model = self.build_model()
        model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True), strict=False)
        return model
