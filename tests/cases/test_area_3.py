"""Area 3, the tiny overfit: the right ids come back in evaluation mode, and every planned tensor took part."""

from __future__ import annotations

from pathlib import Path

import pytest
from area_1 import chat, jsonl
from area_3 import ADAPTER, overfit, phase_row, small
from lab import Lab, codes, reason_of

from tui_pilot.gates.judge import judge
from tui_pilot.plan.model import Adapter, Model, Plan


def test_the_right_model_recovers_its_rows(lab: Lab) -> None:
    row = overfit(lab, "Tiny")
    assert row.verdict == "pass" and codes(row) == [] and row.inputs["recovered"] == 1.0
    assert row.inputs["row_ids"] == ["r0", "r1"] and row.inputs["items"] == 8


@pytest.mark.parametrize("more", [ADAPTER, ""], ids=["adapter", "every weight"])
def test_the_built_in_task_recovers_its_rows(lab: Lab, models: dict[str, Path], more: str) -> None:
    if more:
        pytest.importorskip("peft", reason="peft is not installed: pip install '.[pilot]'")
    rows = [chat("Two and two?", "Four."), chat("And then?", "Five.", "Why is that so?", "One more.")]
    path = f"path: {models['chat']}"
    model = more.replace("{adapter", f"{{{path}, adapter") if more else f"model: {{{path}}}\n"
    plan = "name: case\ntask: sft\ndata: {train: train.jsonl, unit: id}\nbatch: {micro: 2}\ndevice: cpu\n" + model
    lab.prepare(plan + "gates: {overfit: {rows: 2, steps: 60, lr: 0.02}}\n", {"train.jsonl": jsonl(rows)})
    lab.stage("overfit")
    row = phase_row(lab, "overfit")
    assert set(codes(row)) <= {"not_recovered"}, row.reasons
    assert row.verdict == "pass" or more  # two ranks of an adapter on random weights may not hold them all


# -- 3.02 ------------------------------------------------------------------------------------------------------------
CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint

class Two(Net):
    def __init__(self):
        super().__init__()
        for part in (self.embed, self.place, self.base):
            part.requires_grad_(False)
        self.one, self.two = Low(self.base), Low(nn.Linear(24, 24).requires_grad_(False))

    def forward(self, input_ids):
        own = self.embed(input_ids) + self.place(torch.arange(input_ids.shape[1]))
        hidden = own + own.cumsum(dim=1)
        for part in (self.one, self.two):
            hidden = checkpoint(part, hidden, use_reentrant=%s)
        return self.head(torch.tanh(hidden))

class Own(Tiny):
    def build_model(self):
        return Two()
"""


def test_3_02_reentrant_checkpoints_over_frozen_inputs(lab: Lab) -> None:
    row = overfit(lab, "Own", CHECKPOINTED % True, more=ADAPTER)
    found = reason_of(row, "no_gradient")
    assert found["severity"] == "fail"
    assert found["where"]["tensors"] == ["one.lora_A", "one.lora_B", "two.lora_A", "two.lora_B"]
    assert "4 of 6 trainable tensors never got a gradient" in found["text"]
    assert "Adapters without gradient: 4 of 4 tensors" in found["text"]
    assert "trainable_set_differs" not in codes(row)
    lab.stage("peak")
    assert reason_of(phase_row(lab, "backward"), "no_gradient")["where"]["tensors_count"] == 4


def test_3_02_checkpoints_that_are_not_reentrant_pass(lab: Lab) -> None:
    row = overfit(lab, "Own", CHECKPOINTED % False, more=ADAPTER, gate="steps: 150, lr: 0.03")
    assert row.verdict == "pass" and codes(row) == []


def test_3_02_a_detached_branch(lab: Lab) -> None:
    code = """
class Cut(Net):
    def __init__(self):
        super().__init__()
        self.side = nn.Linear(24, 24)

    def forward(self, input_ids):
        own = self.embed(input_ids) + self.place(torch.arange(input_ids.shape[1]))
        return self.head(torch.tanh(self.base(own + own.cumsum(dim=1))) + 0.1 * self.side(own).detach())

class Own(Tiny):
    def build_model(self):
        return Cut()
"""
    found = reason_of(overfit(lab, "Own", code), "no_gradient")
    assert found["where"]["tensors"] == ["side.weight", "side.bias"] and "2 of 8 trainable tensors" in found["text"]


def test_3_02_an_optimizer_that_does_not_hold_every_tensor(lab: Lab) -> None:
    code = """
class Own(Tiny):
    def build_optimizer(self, model):
        return torch.optim.AdamW([p for n, p in model.named_parameters() if n != "base.weight"], lr=1e-3)
"""
    found = reason_of(overfit(lab, "Own", code), "untouched_tensor")
    assert found["where"]["tensors"] == ["base.weight"] and "1 of 6 trainable tensors did not move" in found["text"]


def test_3_02_experts_that_these_rows_do_not_need_are_a_warning() -> None:
    names = [f"experts.{number}.up.weight" for number in range(4)] + ["head.weight"]
    seen = {"steps": 20, "recovered": 1.0, "items": 4, "tensors": 5, "names": names, "no_gradient": names[2:4]}
    verdict = judge("overfit", seen, Plan())
    assert verdict.word == "warn" and "2 of 5 trainable tensors" in verdict.reasons[0].text
    assert judge("overfit", {**seen, "no_gradient": names[:4]}, Plan()).word == "fail"


# -- 3.03 ------------------------------------------------------------------------------------------------------------
SAVED = """
from pathlib import Path

class Adapted(Net):
    def __init__(self):
        super().__init__()
        self.requires_grad_(False)
        self.base = Low(self.base)
        self.norm = nn.LayerNorm(24).requires_grad_(%s)

    def forward(self, input_ids):
        own = self.embed(input_ids) + self.place(torch.arange(input_ids.shape[1]))
        return self.head(torch.tanh(self.norm(self.base(own + own.cumsum(dim=1)))))

class Own(Tiny):
    def build_model(self):
        torch.manual_seed(5)  # the base is the same one in every process
        return Adapted()

    def save_artifact(self, model, folder):
        state = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
        torch.save(%s, Path(folder) / "adapter.pt")

    def load_artifact(self, folder):
        model = self.build_model()
        model.load_state_dict(torch.load(Path(folder) / "adapter.pt", weights_only=True), strict=False)
        return model
"""
QUICK = "pilot: {steady: 2, timed: 2, reference: 2}\noptimizer: {lr: 0.01}\n"


def exported(lab: Lab, norm: bool, saved: str, more: str = ADAPTER) -> None:
    small(lab, "Own", SAVED % (norm, saved), more=more + QUICK, held=[chat("i?", "jkl")], skip="resume")
    lab.stage("train", "reload")


def test_3_03_an_adapter_file_without_tensors(lab: Lab) -> None:
    exported(lab, False, "{}")
    found = reason_of(phase_row(lab, "export"), "empty_artifact")
    assert found["severity"] == "fail" and "0 of 96 trained elements" in found["text"]
    assert phase_row(lab, "reload").verdict == "fail"


def test_3_03_an_adapter_that_equals_the_base(lab: Lab) -> None:
    exported(lab, False, '{n: t * (0 if "lora_B" in n else 1) for n, t in state.items()}')
    found = next(each for each in phase_row(lab, "export").reasons if each["code"] == "empty_artifact")
    assert found["where"]["tensor"] == "base.lora_B" and "equals the base" in found["text"]
    assert codes(phase_row(lab, "reload"), "fail")


def test_3_03_a_whole_adapter_passes_and_answers_as_before(lab: Lab) -> None:
    exported(lab, False, "state")
    assert phase_row(lab, "export").verdict == "pass" and phase_row(lab, "reload").verdict == "pass"


# -- 3.05 ------------------------------------------------------------------------------------------------------------
SETS = """
class Adapted(Net):
    def __init__(self):
        super().__init__()
        self.requires_grad_(False)
        self.base = Low(self.base)
        self.projector = nn.Linear(24, 24)
        %s

    def forward(self, input_ids):
        own = self.embed(input_ids) + self.place(torch.arange(input_ids.shape[1]))
        return self.head(torch.tanh(self.projector(self.base(own + own.cumsum(dim=1)))))

class Own(Tiny):
    def build_model(self):
        return Adapted()
"""
SHORT = "steps: 5, lr: 0.02"


@pytest.mark.parametrize("more", [ADAPTER, ""], ids=["planned", "of the task's own"])
def test_3_05_frozen_after_the_adapter_was_added(lab: Lab, more: str) -> None:
    code = SETS % "self.requires_grad_(False); self.projector.requires_grad_(True)"
    row = overfit(lab, "Own", code, more=more, gate=SHORT)
    found = reason_of(row, "trainable_set_differs")
    assert found["severity"] == "fail" and found["where"]["tensors"] == ["base.lora_A", "base.lora_B"]
    assert "projector.weight, projector.bias only" in found["text"] and "none of its 2 tensors" in found["text"]


def test_3_05_the_base_trains_too(lab: Lab) -> None:
    row = overfit(lab, "Own", SETS % "self.requires_grad_(True)", more=ADAPTER, gate=SHORT)
    found = reason_of(row, "trainable_set_differs")
    assert "4 tensors outside it are trainable too: embed.weight, place.weight" in found["text"]
    assert "(100% of the base)" in found["text"]


def test_3_05_a_layer_of_the_base_trains_too(lab: Lab) -> None:
    row = overfit(lab, "Own", SETS % "self.embed.requires_grad_(True)", more=ADAPTER, gate=SHORT)
    assert reason_of(row, "trainable_set_differs")["where"]["tensors"] == ["embed.weight"]


def test_3_05_adapter_and_projector_pass(lab: Lab) -> None:
    row = overfit(lab, "Own", SETS % "pass", more=ADAPTER, gate="steps: 150, lr: 0.03")
    assert "trainable_set_differs" not in codes(row), row.reasons


def test_3_05_nothing_trains_at_all(lab: Lab) -> None:
    row = overfit(lab, "Own", SETS % "self.requires_grad_(False)", more=ADAPTER)
    assert "Nothing is trainable: 0 of 10 tensors" in reason_of(row, "trainable_set_differs")["text"]
    lab.stage("peak")
    found = reason_of(phase_row(lab, "load"), "trainable_set_differs")
    assert "0 of 10 tensors take a gradient" in found["text"] and phase_row(lab, "forward").verdict == "not_run"


def test_3_05_a_full_tuning_that_freezes_is_said_and_left_to_the_task(lab: Lab) -> None:
    code = "class Own(Tiny):\n    def build_model(self):\n        model = Net()\n"
    code += "        model.place.requires_grad_(False)\n        return model\n"
    row = overfit(lab, "Own", code)
    assert row.verdict == "pass" and reason_of(row, "trainable_set_differs")["where"]["tensors"] == ["place.weight"]
    facts = {"plan": "full", "names_count": 3, "tensors": 4, "frozen": ["h.weight"], "taking": ["a"], "severity": None}
    assert judge("load", {"trainable": facts}, Plan()).word == "fail"
    lost = {**facts, "plan": "adapter", "adapter_count": 0, "adapters": []}
    plan = Plan(model=Model(adapter=Adapter()))
    assert "and no adapter tensor" in judge("load", {"trainable": lost}, plan).reasons[0].text


# -- 3.06 ------------------------------------------------------------------------------------------------------------
def test_3_06_trained_beside_the_adapter_and_not_saved(lab: Lab) -> None:
    exported(lab, True, '{n: t for n, t in state.items() if "lora" in n}', more="")
    found = reason_of(phase_row(lab, "export"), "trained_not_saved")
    assert found["severity"] == "fail" and found["where"]["tensors"] == ["norm.weight", "norm.bias"]


def test_3_06_saved_with_the_adapter_it_passes_and_a_planned_adapter_names_it_at_once(lab: Lab) -> None:
    exported(lab, True, "state", more="")
    assert phase_row(lab, "export").verdict == "pass"
    row = overfit(lab, "Own", SAVED % (True, "state"), more=ADAPTER, gate=SHORT)
    assert reason_of(row, "trainable_set_differs")["where"]["tensors"] == ["norm.weight", "norm.bias"]


# -- 3.08 ------------------------------------------------------------------------------------------------------------
NORMED = """
class Own(Tiny):
    def records(self, split):
        return [{"id": str(n)} for n in range(8)] if split == "train" else []

    def encode(self, record, max_length=None):
        generator = torch.Generator().manual_seed(int(record["id"]))
        return {"features": (3 + 2 * torch.randn(6, generator=generator)).tolist(), "labels": int(record["id"]) %% 2}

    def collate(self, examples):
        return {key: torch.tensor([each[key] for each in examples]) for key in examples[0]}

    def build_model(self):
        return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16, momentum=%s), nn.ReLU(), nn.Linear(16, 2))

    def loss(self, model, batch):
        return functional.cross_entropy(model(batch["features"]), batch["labels"], reduction="sum")
%s
"""
ANSWERS = '\n    def predict(self, model, batch):\n        return model(batch["features"]).argmax(dim=-1)\n'
SILENT = "\n    predict = __import__('tui_pilot.tasks', fromlist=['Task']).Task.predict\n"
EIGHT = {"gate": "rows: 8, steps: 60, lr: 0.02", "batch": "micro: 8"}


def test_3_08_statistics_that_lag(lab: Lab) -> None:
    row = overfit(lab, "Own", NORMED % (0.001, ANSWERS), **EIGHT)
    found = reason_of(row, "train_eval_gap")
    assert found["severity"] == "fail" and "100% of the ids come back in training mode" in found["text"]
    assert "not_recovered" not in codes(row)


def test_3_08_statistics_that_follow_pass(lab: Lab) -> None:
    assert overfit(lab, "Own", NORMED % (0.1, ANSWERS), **EIGHT).verdict == "pass"


def test_3_08_without_answers_the_losses_tell(lab: Lab) -> None:
    found = reason_of(overfit(lab, "Own", NORMED % (0.001, SILENT), **EIGHT), "train_eval_gap")
    assert "in training mode and" in found["text"]
    assert codes(overfit(lab, "Own", NORMED % (0.1, SILENT), **EIGHT)) == ["not_observed"]


def test_3_08_a_layer_that_is_left_out_in_evaluation(lab: Lab) -> None:
    code = """
class Switch(Net):
    def forward(self, input_ids):
        own = self.embed(input_ids) + self.place(torch.arange(input_ids.shape[1]))
        return self.head(torch.tanh(self.base(own + own.cumsum(dim=1)) * (1.0 if self.training else -1.0)))

class Own(Tiny):
    def build_model(self):
        return Switch()
"""
    assert "train_eval_gap" in codes(overfit(lab, "Own", code))


# -- 3.09 ------------------------------------------------------------------------------------------------------------
def test_3_09_evaluated_on_other_rows() -> None:
    seen = {"steps": 20, "recovered": 0.5, "items": 4, "tensors": 2}
    apart = judge("overfit", {**seen, "trained_rows": [0, 1], "evaluated_rows": [10, 11]}, Plan())
    assert [each.code for each in apart.reasons] == ["evaluated_other_rows"] and apart.word == "fail"
    assert apart.reasons[0].text == "Trained on rows 0, 1; evaluated 10, 11." and apart.reasons[0].where["rows"] == [
        10,
        11,
    ]
    half = judge("overfit", {**seen, "recovered": 1.0, "trained_rows": [0, 1], "evaluated_rows": [0]}, Plan())
    assert half.reasons[0].code == "evaluated_other_rows"
    order = judge("overfit", {**seen, "recovered": 1.0, "trained_rows": [0, 1], "evaluated_rows": [1, 0]}, Plan())
    assert order.word == "pass"


# -- 3.11 ------------------------------------------------------------------------------------------------------------
LEFT = """
class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(260, 24), nn.Embedding(64, 24)
        self.mix, self.head = nn.ModuleList(nn.Linear(24, 72) for _ in range(2)), nn.Linear(24, 260)

    def attend(self, query, key, value, may):
        %s

    def forward(self, input_ids, mask):
        length = input_ids.shape[1]
        may = torch.ones(length, length, dtype=torch.bool).tril() & mask[:, None, :].bool()
        hidden = self.embed(input_ids) + self.place((mask.cumsum(dim=1) - 1).clamp(min=0))
        for mix in self.mix:
            hidden = hidden + self.attend(*mix(hidden).chunk(3, dim=-1), may)
        return self.head(hidden)

class Own(Tiny):
    def build_model(self):
        return Masked()

    def collate(self, examples):
        longest = max(len(each["input_ids"]) for each in examples)
        def padded(key, fill):
            rows = [[fill] * (longest - len(each[key])) + list(each[key]) for each in examples]
            return torch.tensor(rows)
        mask = [[0] * (longest - len(each["input_ids"])) + [1] * len(each["input_ids"]) for each in examples]
        return {"input_ids": padded("input_ids", 0), "labels": padded("labels", IGNORE), "mask": torch.tensor(mask)}

    def loss(self, model, batch):
        logits = model(batch["input_ids"], batch["mask"])[:, :-1].transpose(1, 2)
        return functional.cross_entropy(logits, batch["labels"][:, 1:], ignore_index=IGNORE, reduction="sum")

    def predict(self, model, batch):
        return model(batch["input_ids"], batch["mask"]).argmax(dim=-1)
"""
BY_HAND = (
    "score = (query @ key.transpose(1, 2) / 5).masked_fill(~may, -torch.inf); return score.softmax(dim=-1) @ value"
)
BUILT_IN = "return functional.scaled_dot_product_attention(query, key, value, attn_mask=may)"
UNEVEN = [chat("a?", "bc"), chat("e????", "fgh")]


def test_3_11_a_padded_place_that_may_look_at_nothing(lab: Lab) -> None:
    row = overfit(lab, "Own", LEFT % BY_HAND, rows=UNEVEN, gate=SHORT)
    found = next(each for each in row.reasons if each["code"] == "not_finite")
    assert found["severity"] == "fail" and found["where"]["rows"] == ["r0"]
    assert "r0, 4 of 13 places padded on the left, first at place 4" in found["text"]
    lab.stage("peak")
    found = reason_of(phase_row(lab, "forward"), "not_finite")
    assert found["where"]["rows"] == ["r0"] and "padded on the left" in found["text"]


def test_3_11_the_attention_of_torch_passes(lab: Lab) -> None:
    row = overfit(lab, "Own", LEFT % BUILT_IN, rows=UNEVEN, gate="steps: 120, lr: 0.02")
    assert row.verdict == "pass", row.reasons


def test_3_11_padding_that_the_chosen_rows_do_not_meet_is_looked_at(lab: Lab) -> None:
    rows = [chat("a?", "bc"), chat("i?", "jk"), chat("e????", "fghi")]
    row = overfit(lab, "Own", LEFT % BY_HAND, rows=rows, gate="rows: 2, steps: 40, lr: 0.02")
    assert reason_of(row, "not_finite")["where"]["rows"] == ["r0"]


def test_3_11_rows_that_are_never_padded_pass(lab: Lab) -> None:
    row = overfit(lab, "Own", LEFT % BY_HAND, rows=UNEVEN, batch="micro: 1", gate="steps: 120, lr: 0.02")
    assert row.verdict == "pass", row.reasons


# -- shifts ----------------------------------------------------------------------------------------------------------
SHIFTS = """
class InLoss(Tiny):
    def loss(self, model, batch):
        logits = model(batch["input_ids"])[:, :-2].transpose(1, 2)
        return functional.cross_entropy(logits, batch["labels"][:, 2:], ignore_index=IGNORE, reduction="sum")

class InData(Tiny):
    def encode(self, record, max_length=None):
        example = super().encode(record, max_length)
        return {**example, "labels": [*example["labels"][1:], IGNORE]}

class Nowhere(Tiny):
    def loss(self, model, batch):
        logits = model(batch["input_ids"]).transpose(1, 2)
        return functional.cross_entropy(logits, batch["labels"], ignore_index=IGNORE, reduction="sum")

class InDataAlone(Nowhere, InData):
    pass

class Zero(Tiny):
    def loss(self, model, batch):
        return super().loss(model, batch) * 0
"""


@pytest.mark.parametrize(
    ("task", "words"),
    [("InLoss", "one place further on"), ("InData", "one place further on"), ("Nowhere", "nothing shifts the labels")],
)
def test_labels_shifted_twice_or_not_at_all(lab: Lab, task: str, words: str) -> None:
    row = overfit(lab, task, SHIFTS, gate="steps: 120, lr: 0.02")
    found = reason_of(row, "recovers_shifted_ids")
    assert words in found["text"] and found["where"]["rows"] == ["r0", "r1"] and "not_recovered" not in codes(row)
    assert row.inputs["last_loss"] < 0.2 * row.inputs["first_loss"]


def test_labels_that_the_data_shifts_once_and_the_loss_does_not_are_right(lab: Lab) -> None:
    row = overfit(lab, "InDataAlone", SHIFTS, gate="steps: 120, lr: 0.02")
    assert row.verdict == "pass", row.reasons


def test_a_loss_of_nothing(lab: Lab) -> None:
    row = overfit(lab, "Zero", SHIFTS, gate=SHORT)
    assert codes(row) == ["zero_loss_zero_gradient"] and "8 supervised items is 0" in row.reasons[0]["text"]


def test_a_class_for_each_token_is_not_shifted(lab: Lab) -> None:
    code = """
class Own(Tiny):
    def encode(self, record, max_length=None):
        example = super().encode(record, max_length)
        return {**example, "labels": [IGNORE if n == IGNORE else n % 3 for n in example["labels"]]}

    def build_model(self):
        return Net(size=260)

    def loss(self, model, batch):
        logits = model(batch["input_ids"]).transpose(1, 2)
        return functional.cross_entropy(logits, batch["labels"], ignore_index=IGNORE, reduction="sum")
"""
    assert overfit(lab, "Own", code).verdict == "pass"
