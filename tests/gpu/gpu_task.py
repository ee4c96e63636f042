"""The demo's chats on a decoder of any size: what ``measure.py`` runs where the demo's own model is too small."""

from tui_pilot.tasks.demo import DemoTask, TinyDecoder


class Sized(DemoTask):
    """``options``: width, layers, heads, and how many rows of each split."""

    def records(self, split):
        rows = sorted(super().records(split), key=lambda row: sum(len(each["content"]) for each in row["messages"]))
        return rows[-int(self.plan.options.get("rows", 48)) :] if split != "test" else []

    def build_model(self):
        options = self.plan.options
        model = TinyDecoder(
            width=int(options.get("width", 32)),
            layers=int(options.get("layers", 2)),
            heads=int(options.get("heads", 2)),
            longest=512,
        )
        model.checkpointing = self.plan.memory.activation_checkpointing
        return model.bfloat16() if self.plan.precision == "bf16" else model
