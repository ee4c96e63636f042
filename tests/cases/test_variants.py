"""A variant's row says what it changes beside its baseline: the same rows, the same weights, measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import Lab, codes, reason_of

from tui_pilot.launch.start import prepare
from tui_pilot.plan import variants
from tui_pilot.plan.load import load
from tui_pilot.sheet import values
from tui_pilot.sheet.build import document
from tui_pilot.store.state import Row
from tui_pilot.store.view import snapshot

TASK = """
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from tui_pilot.tasks import Task


class Model(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.plan = plan
        self.table = nn.Embedding(16, 12)
        self.inner = nn.Linear(12, 12)
        self.head = nn.Linear(12, 16)

    def block(self, hidden):
        return hidden + torch.tanh(self.inner(hidden))

    def forward(self, ids):
        hidden = self.table(ids)
        if self.plan.memory.activation_checkpointing and self.training:
            hidden = checkpoint(self.block, hidden, use_reentrant=False)
        else:
            hidden = self.block(hidden)
        return self.head(hidden)


class Right(Task):
    def records(self, split):
        chance = torch.Generator().manual_seed({"train": 1, "validation": 2}.get(split, 3))
        def row(length):
            start = int(torch.randint(3, 15, (1,), generator=chance))
            return [3 + (start + step) % 12 for step in range(length)]
        return [{"id": f"{split}-{n}", "ids": row(4 + n % 5)} for n in range(24 if split == "train" else 6)]

    def unit(self, record):
        return record["id"]

    def encode(self, record, max_length=None):
        return {"input_ids": record["ids"][:max_length], "labels": [-100, *record["ids"][1:]][:max_length]}

    def build_model(self):
        return Model(self.plan)

    def loss(self, model, batch):
        logits = model(batch["input_ids"])[:, :-1]
        return functional.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten(), reduction="sum")

    def predict(self, model, batch):
        return model(batch["input_ids"]).argmax(-1)
"""

PLAN = """
name: variants
task: task.py:{task}
precision: {precision}
data: {{unit: id, train_on: all}}
batch: {{micro: 2, accumulation: 4}}
optimizer: {{lr: 1.0e-3, weight_decay: 0.1}}
gates: {{overfit: {{rows: 2, steps: 120}}}}
variants:
  - {{id: micro, set: {{batch.micro: 4, batch.accumulation: 2}}}}
  - {{id: halved, set: {{batch.micro: 1, batch.accumulation: 4}}}}
  - {{id: loop, set: {{optimizer.implementation: loop}}}}
  - {{id: fused, set: {{optimizer.implementation: fused}}}}
  - {{id: ckpt, set: {{memory.activation_checkpointing: true}}}}
  - {{id: half, set: {{precision: bf16-amp}}}}
  - {{id: seed, set: {{seed: 7}}}}
"""
KEYS = {
    "control_loss",
    "control_loss_delta",
    "grad_cosine",
    "control_ids_changed",
    "overfit_recovered",
    "basis",
}


def compared(lab: Lab, id: str, code: str = "", task: str = "Right", precision: str = "fp32") -> Row:
    plan = lab.write(PLAN.format(task=task, precision=precision), {"task.py": TASK + code})
    lab.run = prepare(variants.variant(load(plan), id), lab.folder / "runs", argv=["test"], kind="variant", variant=id)
    return lab.stage("overfit").row("overfit")


WAYS = [(id, "fp32") for id in ("micro", "loop", "fused", "ckpt", "seed")] + [("micro", "bf16-amp")]


@pytest.mark.parametrize(("id", "precision"), WAYS)
def test_another_way_to_the_same_result_passes_and_says_the_numbers(lab: Lab, id: str, precision: str) -> None:
    row = compared(lab, id, precision=precision)
    assert row.verdict == "pass" and codes(row) == ["variant_compared"]
    quality = row.extra["quality"]
    assert quality.keys() >= KEYS and quality["same_question"]
    assert quality["overfit_recovered"] == 1.0 and quality["grad_cosine"] > 0.999
    assert quality["control_ids_changed"] == 0 and quality["control_ids"] > 0
    assert "same 8 rows" in quality["basis"] if id == "micro" else "same 4 rows" in quality["basis"]
    text = reason_of(row, "variant_compared")["text"]
    assert text.startswith("The same result as its baseline") and f"of {quality['control_ids']} control" in text


def test_the_document_of_the_run_has_it(lab: Lab) -> None:
    compared(lab, "ckpt")
    assert lab.run is not None
    rows = {each["phase"]: each for each in snapshot(lab.run)["phases"]}
    assert rows["overfit"]["quality"]["control_loss_delta"] == 0.0
    assert not [name for name, each in rows.items() if "quality" in each and name != "overfit"]


def test_the_sheet_has_it_beside_the_baseline(lab: Lab) -> None:
    base = lab.prepare(PLAN.format(task="Right", precision="fp32"), {"task.py": TASK})
    lab.stage("peak", "train")
    for id in ("ckpt", "half"):
        loaded = variants.variant(load(lab.folder / "pilot.yaml"), id)
        lab.run = prepare(loaded, lab.folder / "runs", argv=["test"], kind="variant", variant=id)
        lab.stage("overfit", "peak", "train")
    (sheet,) = document([base])["configurations"]
    listed = {each["id"]: each for each in sheet["variants"]}
    assert listed["ckpt"]["measured"] and listed["ckpt"]["same_experiment"] and not listed["ckpt"]["changes_result"]
    assert listed["ckpt"]["memory"]["counter"] == "allocated_peak"
    assert listed["ckpt"]["memory"]["bytes"] > 0 < listed["ckpt"]["memory"]["baseline_bytes"]
    assert listed["ckpt"]["seconds_per_update"]["variant"] > 0 < listed["ckpt"]["seconds_per_update"]["baseline"]
    assert listed["half"]["same_experiment"] is False and listed["half"]["quality"]["grad_cosine"] > 0.9
    assert not listed["loop"]["measured"]
    words = dict(values.variants(sheet))
    assert "an update (" in words["variant ckpt"] and "same experiment, measured" in words["variant ckpt"]
    assert "not the same experiment" in words["variant half"] and words["variant loop"].endswith("not measured")


def test_a_run_that_is_no_variant_has_no_quality(lab: Lab) -> None:
    lab.prepare(PLAN.format(task="Right", precision="fp32"), {"task.py": TASK})
    row = lab.stage("overfit").row("overfit")
    assert row.verdict == "pass" and "quality" not in row.extra and codes(row) == []


@pytest.mark.parametrize(("id", "word"), [("half", "precision fp32 -> bf16-amp"), ("halved", "effective batch 8 -> 4")])
def test_another_question_is_never_called_equal(lab: Lab, id: str, word: str) -> None:
    row = compared(lab, id)
    said = reason_of(row, "variant_compared")
    assert said["severity"] == "note" and said["text"].startswith(f"Another experiment than its baseline: {word}")
    assert row.extra["quality"]["same_question"] is False
    if id == "half":
        assert 0 < abs(row.extra["quality"]["control_loss_delta"]) < 0.1
        assert 0.99 < row.extra["quality"]["grad_cosine"] < 1.0


MEAN = """
class Mean(Right):
    def loss(self, model, batch):
        total = super().loss(model, batch)
        return total / len(batch["input_ids"])
"""
DETACHED = """
class Cut(Model):
    def forward(self, ids):
        hidden = self.table(ids)
        if self.plan.memory.activation_checkpointing and self.training:
            with torch.no_grad():
                hidden = self.block(hidden)
        else:
            hidden = self.block(hidden)
        return self.head(hidden)

class Detached(Right):
    def build_model(self):
        return Cut(self.plan)
"""
NO_DECAY = """
class OwnLoop(Right):
    def build_optimizer(self, model):
        plan = self.plan.optimizer
        rate = 2 * plan.lr if plan.implementation == "loop" else plan.lr
        return torch.optim.AdamW(model.parameters(), lr=rate)
"""
OTHER = """
class OtherRule(Right):
    def build_optimizer(self, model):
        plan = self.plan.optimizer
        kind = torch.optim.Adagrad if plan.implementation == "loop" else torch.optim.AdamW
        return kind(model.parameters(), lr=plan.lr)
"""
LOUDER = """
class Loud(Model):
    def forward(self, ids):
        logits = super().forward(ids)
        return logits * 1.02 if self.plan.memory.activation_checkpointing else logits

class Louder(Right):
    def build_model(self):
        return Loud(self.plan)
"""


@pytest.mark.parametrize(
    ("task", "id", "code", "words"),
    [
        (
            "Mean",
            "micro",
            MEAN,
            "batch.micro 2 -> 4, batch.accumulation 4 -> 2 must not change the result. The gradient",
        ),
        ("Detached", "ckpt", DETACHED, "memory.activation_checkpointing false -> true must not change the result."),
        (
            "OwnLoop",
            "loop",
            NO_DECAY,
            "after the same updates the weights do not: they moved by 2 of the baseline's way",
        ),
        ("OtherRule", "loop", OTHER, "after the same updates the weights do not"),
        ("Louder", "ckpt", LOUDER, "memory.activation_checkpointing false -> true must not change the result."),
    ],
)
def test_a_way_that_changes_the_result_fails(lab: Lab, task: str, id: str, code: str, words: str) -> None:
    row = compared(lab, id, code, task)
    found = reason_of(row, "variant_changes_result")
    assert row.verdict == "fail" and found["severity"] == "fail"
    assert words in found["text"]


BROKEN = """
class Broken(Right):
    def loss(self, model, batch):
        if self.plan.optimizer.implementation != "loop":
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return super().loss(model, batch)
"""


def test_a_baseline_that_does_not_run_is_unchecked_and_said(lab: Lab) -> None:
    row = compared(lab, "loop", BROKEN, "Broken")
    assert row.verdict == "unchecked" and row.extra["quality"]["overfit_recovered"] == 1.0
    assert row.extra["quality"]["control_loss"] is None
    assert "not compared: the baseline does not run here: it runs out of memory" in row.extra["quality"]["basis"]
    assert "it runs out of memory" in reason_of(row, "variant_not_compared")["text"]


@pytest.mark.parametrize("rank", [4])
def test_an_adapter_of_another_size_is_reported_as_changed(lab: Lab, models: dict[str, Path], rank: int) -> None:
    rows = "".join(
        f'{{"id": "{n}", "messages": [{{"role": "user", "content": "Two and {n}?"}}, '
        f'{{"role": "assistant", "content": "The answer is {n}."}}]}}\n'
        for n in range(20)
    )
    plan = lab.write(
        f"""
name: adapters
task: sft
model: {{path: {models["chat"]}, adapter: {{kind: lora, r: 2, alpha: 4, targets: [q_proj, v_proj]}}}}
data: {{train: rows.jsonl, validation: {{fraction: 0.2, seed: 0}}, unit: id, max_length: 64}}
gates: {{overfit: {{rows: 2, steps: 3}}}}
variants: [{{id: wider, set: {{model.adapter.r: {rank}}}}}]
""",
        {"rows.jsonl": rows},
    )
    loaded = variants.variant(load(plan), "wider")
    lab.run = prepare(loaded, lab.folder / "runs", argv=["test"], kind="variant", variant="wider")
    row = lab.stage("overfit").row("overfit")
    quality = row.extra["quality"]
    assert quality["same_question"] is False and quality["changed"] == {"model.adapter.r": [2, rank]}
    assert quality["control_loss_delta"] == pytest.approx(0.0, abs=1e-6)  # B begins at zero: the base answers
    assert quality["grad_cosine"] is None  # no tensor of one shape
    assert "model.adapter.r 2 -> 4" in reason_of(row, "variant_compared")["text"]
