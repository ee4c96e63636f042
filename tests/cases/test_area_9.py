"""Area 9, numbers of the plan, seeds, schedules, and evaluations that leave no trace. `compare` itself comes later."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from area_8 import stages
from lab import Lab, codes, pilot_tui, reason_of

from tui_pilot.errors import PlanErrors
from tui_pilot.gates.judge import judge
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.document import plan_yaml, to_document
from tui_pilot.plan.load import load
from tui_pilot.plan.model import Plan
from tui_pilot.store.state import Row

PEAK = "stack, steady_step"
TRAIN = "stack, checkpoint, export"


def peak(lab: Lab, task: str, code: str = "", phase: str = "evaluate", **rest: Any) -> Row:
    """One row of the peak stage."""
    return stages(lab, task, code, "peak", skip=PEAK, **rest).row(phase)


def quiet(row: Row) -> bool:
    """Passed, with nothing but notes."""
    return row.verdict == "pass" and codes(row) == codes(row, "note")


def found(phase: str, seen: dict[str, Any]) -> dict[str, Reason]:
    return {reason.code: reason for reason in judge(phase, seen, Plan()).reasons}


# -- 9.02 ------------------------------------------------------------------------------------------------------------
MEASURED = """
class Measured(Small):
    def metrics(self, predictions):
        return {"runtime": 0.5, **self.scores(predictions)}

    def scores(self, predictions):
        right = [p[at - 1] == label for each in predictions for p, labels in [(each["predicted"], each["labels"])]
                 for at, label in enumerate(labels) if label != IGNORE]
        return {"accuracy": sum(right) / len(right)}

class Runtimes(Measured):
    def scores(self, predictions):
        return {}

class NotANumber(Measured):
    def scores(self, predictions):
        return {"accuracy": float(self.plan.options["value"])}

class Silent(Measured):
    def metrics(self, predictions):
        return None

class TensorMetric(Measured):
    def scores(self, predictions):
        return {"accuracy": torch.tensor(super().scores(predictions)["accuracy"], dtype=torch.float64)}

class Several(Measured):
    \"\"\"A score of several rows, as one that needs both classes.\"\"\"
    def scores(self, predictions):
        if len(predictions) < 4:
            raise ValueError("too few rows")
        return super().scores(predictions)

class NoLoss(Small):
    def loss(self, model, batch):
        return super().loss(model, batch) if model.training else None
"""


def measured(lab: Lab, task: str, more: str = "") -> Row:
    return peak(lab, task, MEASURED, more=more, evaluate="{rows: 4, metric: accuracy, direction: max}")


@pytest.mark.parametrize("task", ["Runtimes", "Silent"])
def test_9_02_evaluation_without_the_metric_of_the_plan(lab: Lab, task: str) -> None:
    reason = reason_of(measured(lab, task), "metric_missing")
    assert reason["severity"] == "fail" and reason["where"]["key"] == "evaluate.metric"
    assert "The first evaluation has no accuracy; it has loss" in reason["text"]
    assert ("runtime" in reason["text"]) == (task == "Runtimes")


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_9_02_metric_that_is_no_number(lab: Lab, value: str) -> None:
    row = measured(lab, "NotANumber", f"options: {{value: {value!r}}}\n")
    assert f"accuracy is {value}, expected a finite number" in reason_of(row, "metric_missing")["text"]


@pytest.mark.parametrize("task", ["Measured", "TensorMetric", "Several"])
def test_9_02_the_metric_is_there(lab: Lab, task: str) -> None:
    row = measured(lab, task)
    assert quiet(row), row.reasons
    assert 0 <= row.inputs["metrics"]["accuracy"] <= 1 and math.isfinite(row.inputs["metrics"]["loss"])


def test_9_02_evaluation_that_returns_no_loss(lab: Lab) -> None:
    row = peak(lab, "NoLoss", MEASURED)
    reason = row.reasons[0]
    assert row.verdict == "fail" and "loss returned nothing in evaluation mode" in reason["text"], row.reasons
    assert reason["code"] == "metric_missing"


# -- 9.03 ------------------------------------------------------------------------------------------------------------
SEEDED = """
import os

class AfterBuild(Adapted):
    \"\"\"The adapter is made with the task; the seed is set when the model is.\"\"\"
    def __init__(self, plan):
        super().__init__(plan)
        self.made = Low(nn.Linear(WIDTH, LETTERS))

    def build_model(self):
        torch.manual_seed(7)
        model = Net().requires_grad_(False)
        model.head = self.made
        return model

class Unseeded(Adapted):
    def build_model(self):
        model = super().build_model()
        with torch.no_grad():
            model.head.lora_A.copy_(torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(
                int.from_bytes(os.urandom(4), "little"))))
        return model

class BeforeBuild(Adapted):
    def build_model(self):
        torch.manual_seed(7)
        return super().build_model()

class FromAnywhere(Adapted):
    \"\"\"Draws while it is made, but nothing of the model.\"\"\"
    def __init__(self, plan):
        super().__init__(plan)
        self.noise = torch.randn(3)
"""


@pytest.mark.parametrize("task", ["AfterBuild", "Unseeded"])
def test_9_03_tensors_made_before_the_seed_is_set(lab: Lab, task: str) -> None:
    reason = reason_of(peak(lab, task, SEEDED, "load"), "seed_after_build")
    assert reason["severity"] == "fail" and "head.lora_A" in reason["where"]["tensors"]
    assert "Two builds with seed 0 differ in" in reason["text"] and reason["where"]["tensor"] in reason["text"]


@pytest.mark.parametrize("task", ["BeforeBuild", "FromAnywhere"])
def test_9_03_seed_before_the_build_passes(lab: Lab, task: str) -> None:
    row = peak(lab, task, SEEDED, "load")
    assert "seed_after_build" not in codes(row) and row.verdict == "pass", row.reasons


# -- 9.05 ------------------------------------------------------------------------------------------------------------
TOUCHING = """
class Touching(Measured):
    \"\"\"What an evaluation does besides: ``options.does``.\"\"\"
    def build_model(self):
        model = super().build_model()
        model.norm = nn.BatchNorm1d(WIDTH)
        model.steps = 0
        return model

    def build_optimizer(self, model):
        self.model, self.optimizer = model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return self.optimizer

    def scores(self, predictions):
        getattr(self, self.plan.options["does"])()
        return super().scores(predictions)

    def step(self):
        before = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        for parameter in self.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return before

    def step_back(self):
        self.model.load_state_dict(self.step())

    def decay_frozen(self):
        with torch.no_grad():
            self.model.embed.weight[3].mul_(0.999)

    def train_mode(self):
        self.model.norm.train()(torch.randn(4, WIDTH))

    def gradient(self):
        with torch.enable_grad():
            super(Measured, self).loss(self.model, self.control_inputs()).backward()

    def rate(self):
        self.optimizer.param_groups[0]["lr"] *= 0.5

    def on_a_copy(self):
        import copy
        other = copy.deepcopy(self.model)
        optimizer = torch.optim.SGD(other.parameters(), lr=1.0)
        other(torch.arange(4)[None]).sum().backward()
        optimizer.step()

    def nothing(self):
        self.model.steps += 1

class Cached(Measured):
    \"\"\"A cache that grows with the longest row it was asked for.\"\"\"
    def build_model(self):
        model = Net()
        model.register_buffer("cache", torch.zeros(1))
        return model

    def predict(self, model, batch):
        model.cache = torch.arange(float(model.cache.numel() + 1))
        return super().predict(model, batch)

class Shortened(Measured):
    \"\"\"A table that shortens the rows it is asked for, evaluated or not.\"\"\"
    def build_model(self):
        model = Net()
        model.embed = nn.Embedding(LETTERS, WIDTH, max_norm=0.5)
        return model
"""


@pytest.mark.parametrize(
    ("does", "what"),
    [
        ("step", "embed.weight"),
        ("step_back", "momentum_buffer of parameter 0"),
        ("decay_frozen", "embed.weight"),
        ("train_mode", "norm.running_mean"),
        ("rate", "lr of group 0"),
        ("gradient", "a gradient on 3 tensors: embed.weight"),
    ],
)
def test_9_05_evaluation_that_changes_weights_or_the_optimizer(lab: Lab, does: str, what: str) -> None:
    row = peak(lab, "Touching", MEASURED + TOUCHING, more=f"options: {{does: {does}}}\n")
    reasons = [reason for reason in row.reasons if reason["code"] == "state_changed"]
    assert row.verdict == "fail" and any(what in reason["text"] for reason in reasons), row.reasons
    assert all(reason["text"].startswith("Evaluation ") for reason in reasons)
    named = [name for reason in reasons for name in reason["where"].get("tensors", [])]
    assert (what.rpartition(" ")[2] in named) == (does not in ("step_back", "rate"))


@pytest.mark.parametrize("does", ["on_a_copy", "nothing"])
def test_9_05_evaluation_on_a_copy_passes(lab: Lab, does: str) -> None:
    row = peak(lab, "Touching", MEASURED + TOUCHING, more=f"options: {{does: {does}}}\n")
    assert "state_changed" not in codes(row) and row.verdict == "pass", row.reasons


@pytest.mark.parametrize("task", ["Shortened", "Cached"])
def test_9_05_a_table_with_a_longest_row_and_a_growing_cache_pass(lab: Lab, task: str) -> None:
    row = peak(lab, task, MEASURED + TOUCHING)
    assert "state_changed" not in codes(row), row.reasons


def test_9_05_learning_rate_probe_by_hand() -> None:
    """Five steps at rising rates without restoring, with the weights alone restored, and each rate in a fresh copy."""
    torch = pytest.importorskip("torch")
    import copy

    from tui_pilot.gates.evaluated import state
    from tui_pilot.observe.sums import changed, model_sums, optimizer_sums

    def probe(model: Any, optimizer: Any) -> None:
        for step in range(5):
            optimizer.param_groups[0]["lr"] = 10.0 ** (step - 5)
            model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        optimizer.param_groups[0]["lr"] = 0.1

    for how, named in (("as it is", ["weight", "momentum"]), ("weights back", ["momentum"]), ("copy", [])):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        weights, moments, kept = model_sums(model), optimizer_sums(optimizer), copy.deepcopy(model.state_dict())
        if how == "copy":
            other = copy.deepcopy(model)
            probe(other, torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9))
        else:
            probe(model, optimizer)
        if how == "weights back":
            model.load_state_dict(kept)
        seen = {
            "weights": changed(weights, model_sums(model)),
            "optimizer": changed(moments, optimizer_sums(optimizer)),
        }
        reasons = state(seen, "The learning-rate probe")
        assert [any(name in reason.text for reason in reasons) for name in named] == [True] * len(named), how
        assert len(reasons) == len(named) and all(reason.code == "state_changed" for reason in reasons)


def test_9_05_a_loss_that_steps_is_seen_by_the_comparison_of_gradients(lab: Lab) -> None:
    code = """
class Stepping(Small):
    def loss(self, model, batch):
        with torch.no_grad():
            model.head.bias.mul_(0.99)
        return super().loss(model, batch)
"""
    reason = reason_of(stages(lab, "Stepping", code, "train", skip=TRAIN).row("batch"), "state_changed")
    assert (
        reason["where"]["tensors"] == ["head.bias"] and "The comparison of gradients changed 1 tensor" in reason["text"]
    )


# -- 9.06 ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("2e-5", 2e-5),
        ("1E-4", 1e-4),
        ("1e5", 1e5),
        ("2.0e-5", 2e-5),
        ("5.e-5", 5e-5),
        ("0.00002", 2e-5),
        (".5e-4", 5e-5),
    ],
)
def test_9_06_rates_as_people_write_them_are_numbers(tmp_path: Path, written: str, value: float) -> None:
    path = tmp_path / "pilot.yaml"
    path.write_text(f"task: demo\noptimizer: {{lr: {written}}}\noptions: {{rate: {written}}}\n")
    loaded = load(path)
    assert type(loaded.plan.optimizer.lr) is float and loaded.plan.optimizer.lr == value
    assert type(loaded.plan.options["rate"]) is float and loaded.plan.options["rate"] == value
    assert json.loads(json.dumps(to_document(loaded)))["plan"]["optimizer"]["lr"] == value
    path.write_text(plan_yaml(loaded))
    assert load(path).plan.optimizer.lr == value, "what is echoed is read back as the same number"


@pytest.mark.parametrize("written", ["2e5-", "ten", "2,5e-4", "1e-4 # per row\n  , warmup: 1e-1", "[1e-4]", "true"])
def test_9_06_what_is_no_number_is_named_with_its_line(tmp_path: Path, written: str) -> None:
    path = tmp_path / "pilot.yaml"
    path.write_text(f"task: demo\noptimizer: {{lr: {written}}}\n")
    with pytest.raises(PlanErrors) as caught:
        load(path)
    assert any((error.key or "").startswith("optimizer.") and error.line in (2, 3) for error in caught.value.errors)


def test_9_06_the_check_shows_the_number(lab: Lab) -> None:
    lab.write("task: demo\noptimizer: {lr: 2e-5x}\n")
    done = pilot_tui(["check", "pilot.yaml"], lab.folder)
    assert done.returncode == 2 and "optimizer.lr" in done.stderr and "2e-5x" in done.stderr


# -- 9.08 ------------------------------------------------------------------------------------------------------------
SCHEDULES = """
import math
from torch.optim import lr_scheduler as schedules

class Own(Small):
    \"\"\"Shares of the rate by update: ``options.kind``; warm-up over 100 of 400 updates where there is one.\"\"\"
    def build_scheduler(self, optimizer, updates):
        return schedules.LambdaLR(optimizer, getattr(self, self.plan.options["kind"]))

    def joined(self, step):
        return 0.01 + 0.99 * step / 100 if step <= 100 else 0.01

    def a_third(self, step):
        return step / 100 if step <= 100 else 0.3

    def warmed_twice(self, step):
        return step / 100 if step <= 100 else min(1.0, (step - 100) / 100)

    def right(self, step):
        return 0.01 + 0.99 * step / 100 if step <= 100 else 0.5 * (1 + math.cos(math.pi * (step - 100) / 300))

    def steps(self, step):
        return step / 100 if step < 100 else 1.0 if step < 250 else 0.1

    def restarts(self, step):
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step % 50) / 50))

    def inverse_root(self, step):
        return min(step / 100, (100 / max(step, 1)) ** 0.5)

class Groups(Small):
    def build_optimizer(self, model):
        return torch.optim.SGD([{"params": list(model.embed.parameters()), "lr": 0.1},
                                {"params": list(model.head.parameters()), "lr": 0.2}], lr=0.1)

    def build_scheduler(self, optimizer, updates):
        return schedules.LambdaLR(optimizer, [lambda step: 1.0, lambda step: 0.5])
"""


def scheduled(lab: Lab, kind: str) -> Row:
    state = stages(
        lab, "Own", SCHEDULES, "train", skip=TRAIN, more=f"options: {{kind: {kind}}}\n", updates="400", lr="0.01"
    )
    return state.row("batch")


@pytest.mark.parametrize(("kind", "rate"), [("joined", "0.0001"), ("a_third", "0.003"), ("warmed_twice", "0.0001")])
def test_9_08_schedule_that_falls_when_the_warm_up_ends(lab: Lab, kind: str, rate: str) -> None:
    reason = reason_of(scheduled(lab, kind), "lr_curve_differs")
    assert reason["severity"] == "fail" and reason["where"]["update"] == 101
    assert "(after warm-up)" in reason["text"] and "planned 1.0e-2" in reason["text"], reason
    assert float(reason["text"].partition(") is ")[2].partition(",")[0]) == pytest.approx(float(rate))


@pytest.mark.parametrize("kind", ["right", "steps", "restarts", "inverse_root"])
def test_9_08_schedules_that_hold_or_fall_later_pass(lab: Lab, kind: str) -> None:
    row = scheduled(lab, kind)
    assert quiet(row), row.reasons
    assert [point["name"] for point in row.inputs["learning_rates"]] == ["start", "warm-up end", "half", "end"]


def test_9_08_the_plans_own_curve_is_shown(lab: Lab) -> None:
    row = stages(lab, "small.py:Small", "", "train", skip=TRAIN, updates="40", lr="0.5", warmup="10").row("batch")
    assert quiet(row), row.reasons
    points = [(each["name"], each["update"], each["seen"]) for each in row.inputs["learning_rates"]]
    assert points == [("start", 0, 0.0), ("warm-up end", 10, 0.5), ("half", 20, 0.5), ("end", 40, 0.5)]


def test_9_08_a_schedule_with_a_rate_for_each_group_passes(lab: Lab) -> None:
    row = stages(lab, "Groups", SCHEDULES, "train", skip=TRAIN).row("batch")
    assert quiet(row), row.reasons


# -- 9.09 ------------------------------------------------------------------------------------------------------------
MIXING = """
class Mixing(Measured):
    \"\"\"Keeps sums in its loss, of every row it ever saw.\"\"\"
    def __init__(self, plan):
        super().__init__(plan)
        self.total = self.rows = 0

    def loss(self, model, batch):
        found = super().loss(model, batch)
        self.total, self.rows = self.total + float(found), self.rows + len(batch["input_ids"])
        return found

    def scores(self, predictions):
        return {"mean_loss": self.total / self.rows, **super().scores(predictions)}

class Resetting(Mixing):
    def scores(self, predictions):
        found = super().scores(predictions)
        self.total, self.rows = 0, 1
        return found

class Keeping(Mixing):
    \"\"\"Keeps the sums and reports none of them.\"\"\"
    def scores(self, predictions):
        return Measured.scores(self, predictions)
"""


@pytest.mark.parametrize("task", ["Mixing", "Resetting"])
def test_9_09_metric_that_counts_other_batches_too(lab: Lab, task: str) -> None:
    row = peak(lab, task, MEASURED + MIXING)
    reason = reason_of(row, "metric_mixed")
    assert reason["severity"] == "fail" and reason["where"]["key"] == "mean_loss"
    assert reason["where"]["rows"] == ["validation-0", "validation-1"]
    assert "mean_loss of the same 2 predictions was" in reason["text"] and "after 2 other rows" in reason["text"]


def test_9_09_metric_of_the_predictions_alone_passes(lab: Lab) -> None:
    row = peak(lab, "Keeping", MEASURED + MIXING)
    assert quiet(row), row.reasons


def test_9_09_training_metric_averaged_with_evaluation_batches_by_hand() -> None:
    """Four training steps and four evaluation batches, divided by eight: half the true value."""
    steps, again = [2.0, 2.0, 2.0, 2.0], {"name": "train_loss", "rows": [0, 1, 2, 3], "between": 4}
    mixed = {**again, "first": sum(steps) / 4, "second": sum(steps) / (4 + 4)}
    reason = found("evaluate", {"rows": 4, "metrics": {"loss": 1.0}, "metric_again": mixed})["metric_mixed"]
    assert "train_loss of the same 4 predictions was 2, and 1 after 4 other rows" in reason.text
    assert found("evaluate", {"rows": 4, "metrics": {"loss": 1.0}, "metric_again": None}) == {}
