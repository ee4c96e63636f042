"""Area 5, effective batch and update counts: what an update really averages, and whether there is one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from area_5 import row, stages
from lab import Lab, codes, reason_of

from tui_pilot.gates.judge import judge
from tui_pilot.gates.sources import from_arguments
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Batch, Plan

if TYPE_CHECKING:
    import torch

FOUR = Plan(batch=Batch(micro=1, accumulation=4))


def found(seen: dict[str, Any], plan: Plan = FOUR) -> dict[str, Reason]:
    """What the ``batch`` gate says of what a loop of any kind showed, by code."""
    return {reason.code: reason for reason in judge("batch", seen, plan).reasons}


class HandLoop:
    """A foreign loop: two classes, ``micros`` of labelled rows, watched by the hooks alone."""

    def __init__(self, sizes: list[int], loss: Callable[..., torch.Tensor], accumulation: int = 4) -> None:
        import torch

        from tui_pilot.observe.counters import Counters
        from tui_pilot.observe.gradients import StepGradients

        generator = torch.Generator().manual_seed(0)
        self.micros = [
            (torch.randn(size, 3, generator=generator), torch.randint(0, 2, (size,), generator=generator))
            for size in sizes
        ]
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.ConstantLR(self.optimizer)
        self.counters = Counters.watch(self.optimizer, self.scheduler)
        self.gradients = StepGradients(self.model, self.optimizer)
        self.loss, self.accumulation = loss, accumulation

    def run(self, last_window: bool = True, tick_each: bool = False) -> HandLoop:
        for number, (rows, labels) in enumerate(self.micros, 1):
            self.loss(self.model(rows), labels).backward()
            if tick_each:
                self.scheduler.step()
            if number % self.accumulation == 0 or (last_window and number == len(self.micros)):
                self.optimizer.step()
                if not tick_each:
                    self.scheduler.step()
                self.optimizer.zero_grad()
        return self

    def seen(self) -> dict[str, Any]:
        return {
            **self.counters.numbers(),
            "microbatches": len(self.micros),
            "rows_used": sum(map(self.size, self.micros)),
        }

    @staticmethod
    def size(micro: tuple[torch.Tensor, torch.Tensor]) -> int:
        return len(micro[1])


def against_one_batch(sizes: list[int], divide: float, smoothing: float = 0.0, token_weighted: bool = False) -> Any:
    """The gradient of accumulated means, each divided, against one mean over the same rows."""
    import torch
    from torch.nn.functional import cross_entropy

    from tui_pilot.observe.gradients import comparison

    def part(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if token_weighted:
            return cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing) / sum(sizes)
        return cross_entropy(logits, labels, label_smoothing=smoothing) / divide

    def whole(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(logits, labels, label_smoothing=smoothing)

    parts = HandLoop(sizes, part, len(sizes)).run()
    one = HandLoop(sizes, whole, 1)
    one.micros = [(torch.cat([each[0] for each in one.micros]), torch.cat([each[1] for each in one.micros]))]
    one.run()
    rows = list(range(len(sizes)))
    return {"gradient": comparison(parts.gradients.steps[0], one.gradients.steps[0], len(sizes), rows)}


def test_the_right_task_is_quiet(lab: Lab) -> None:
    judged = row(stages(lab, "train"), "batch")
    assert judged.verdict == "pass" and codes(judged) == [], judged.reasons
    assert judged.inputs["gradient_error"] < 1e-6


# -- 5.02 ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("divide", "ratio", "words"), [(1, 4.0, "not divided by them"), (4, 1.0, ""), (16, 0.25, "divided twice")]
)
def test_5_02_gradient_grows_with_the_accumulation(divide: int, ratio: float, words: str) -> None:
    seen = against_one_batch([2, 2, 2, 2], divide)
    assert seen["gradient"]["ratio"] == pytest.approx(ratio, rel=1e-5)
    if not words:
        assert not found(seen)
        return
    reason = found(seen)["gradient_scaled"]
    assert (
        words in reason.text and f"ratio {ratio:.3g} over 4 microbatches" in reason.text and reason.severity == "fail"
    )
    assert reason.where["rows"] == [0, 1, 2, 3]


def test_5_02_last_window_divided_by_the_whole_accumulation() -> None:
    reason = found(against_one_batch([2, 2, 2], 4))["gradient_scaled"]
    assert "length ratio 0.75 over 3 microbatches" in reason.text


def test_5_02_unequal_counts_weighted_by_tokens_pass_and_a_mean_of_means_does_not() -> None:
    assert not found(against_one_batch([2, 8, 1, 9], 0, token_weighted=True))
    assert list(found(against_one_batch([2, 8, 1, 9], 4))) == ["loss_not_token_weighted"]


TIMES = """
class Own(Tiny):
    def loss(self, model, batch):
        return super().loss(model, batch) %s
"""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("* self.plan.batch.accumulation", "with accumulation 4 and"),
        ("/ self.plan.batch.accumulation", "with accumulation 4 and"),
        ("* 4.0", "multiplied by the accumulation (4)?"),
        ("/ 4.0", "divided once more by the accumulation (4)?"),
    ],
)
def test_5_02_a_task_that_scales_by_the_accumulation_itself(lab: Lab, change: str, words: str) -> None:
    reason = reason_of(row(stages(lab, "train", code=TIMES % change), "batch"), "gradient_scaled")
    assert words in reason["text"] and reason["where"]["rows"]
    assert reason["severity"] == ("fail" if "plan" in change else "warn"), "a weight may be 4 by chance"


@pytest.mark.parametrize("batch", ["micro: 1, accumulation: 4", "micro: 4, accumulation: 1"])
def test_5_02_a_task_that_returns_a_mean(lab: Lab, batch: str) -> None:
    code = TIMES % "/ max(1, self.count(batch))"
    reason = reason_of(row(stages(lab, "train", code=code, batch=batch), "batch"), "loss_not_token_weighted")
    assert reason["severity"] == "fail" and reason["where"]["rows"]


COUNTS = """
class Own(Tiny):
    def count(self, batch):
        return %s
"""


@pytest.mark.parametrize(
    ("count", "wrong"), [('int((batch["input_ids"] > 0).sum())', True), ("super().count(batch)", False)]
)
def test_5_02_a_count_that_the_loss_does_not_work_on(lab: Lab, count: str, wrong: bool) -> None:
    judged = row(stages(lab, "train", code=COUNTS % count), "batch")
    assert codes(judged) == (["sources_disagree"] if wrong else []), judged.reasons
    assert not wrong or "the loss in force works on" in reason_of(judged, "sources_disagree")["text"]


MASKS = """
class Own(Tiny):
    def loss(self, model, batch):
        labels = batch["labels"][:, 1:]
        each = functional.cross_entropy(self.logits(model, batch), labels.clamp(min=0), reduction="none")
        return (each * (labels != IGNORE)).sum()
"""


def test_5_02_a_task_that_masks_its_loss_itself_passes(lab: Lab) -> None:
    lengths = [4, 16, 4, 16, 4, 16, 4, 16]
    assert (
        codes(row(stages(lab, "train", code=MASKS, batch="micro: 2, accumulation: 2", lengths=lengths), "batch")) == []
    )


def test_5_02_a_task_that_weighs_its_loss_by_a_number_of_its_own_passes(lab: Lab) -> None:
    judged = row(stages(lab, "train", code=TIMES % "* 0.7"), "batch")
    assert codes(judged) == [], judged.reasons


# -- 5.03 ------------------------------------------------------------------------------------------------------------
SMOOTH = """
class Own(Tiny):
    def loss(self, model, batch):
        total = super().loss(model, batch)
        return total / self.count(batch) if self.plan.loss.label_smoothing else total
"""


def test_5_03_only_the_smoothed_loss_is_a_mean(lab: Lab) -> None:
    smooth = "loss: {label_smoothing: 0.1}\n"
    assert "loss_not_token_weighted" in codes(row(stages(lab, "train", code=SMOOTH, more=smooth), "batch"))
    assert codes(row(stages(lab, "train", code=SMOOTH), "batch")) == []
    assert codes(row(stages(lab, "train", more=smooth), "batch")) == [], "the right loss, smoothed"


def test_5_03_in_a_loop_of_its_own() -> None:
    assert "gradient_scaled" in found(against_one_batch([3, 3, 3, 3], 1, smoothing=0.1))
    assert not found(against_one_batch([3, 3, 3, 3], 4, smoothing=0.1))


# -- 5.05, 5.06 ------------------------------------------------------------------------------------------------------
def mean_of_four(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits, labels) / 4


def test_5_05_fewer_microbatches_than_an_update_needs() -> None:
    loop = HandLoop([1, 1, 1], mean_of_four).run(last_window=False)
    reason = found(loop.seen())["no_update"]
    assert "0 updates in 3 microbatches of 3 rows; expected at least 1" in reason.text
    assert not found(HandLoop([1, 1, 1], mean_of_four).run().seen()), "an incomplete window that steps"
    seven = HandLoop([1] * 7, mean_of_four).run()
    assert seven.counters.optimizer_steps == 2 and not found(seven.seen())


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_5_05_schedule_that_ticks_for_every_microbatch() -> None:
    reason = found(HandLoop([1] * 8, mean_of_four).run(tick_each=True).seen())["scheduler_ticks"]
    assert "ticks 8 > updates 2" in reason.text


def test_5_05_a_plan_whose_rows_fill_no_window(lab: Lab) -> None:
    batch = "micro: 1, accumulation: 4, tail: %s"
    reason = reason_of(row(stages(lab, "train", batch=batch % "drop", lengths=[4, 5, 6]), "batch"), "no_update")
    assert "3 rows make 3 microbatches, an update needs 4" in reason["text"]
    judged = row(stages(lab, "train", batch=batch % "step", lengths=[4, 5, 6]), "batch")
    assert judged.verdict == "pass" and judged.inputs["planned_updates"] == 1
    assert judged.inputs["rows_per_update"][0] == 3


FILTER = """
class Own(Tiny):
    def records(self, split):
        return [each for each in super().records(split) if each["length"] <= 8]
"""
HUNDRED = [4] * 18 + [20] * 82


def test_5_06_length_filter_and_drop_last_leave_nothing(lab: Lab) -> None:
    batch = "micro: %d, drop_last: true"
    state = stages(lab, "train", code=FILTER, batch=batch % 32, lengths=HUNDRED)
    reason = reason_of(row(state, "batch"), "no_update")
    assert "would end without an update" in reason["text"]
    assert "18 rows fill no whole microbatch of 32, and drop_last drops the rest" in reason["text"]
    judged = row(stages(lab, "train", code=FILTER, batch=batch % 18, lengths=HUNDRED), "batch")
    assert judged.inputs["planned_updates"] == 1 and "no_update" not in codes(judged)


def test_5_06_rows_left_over_are_a_warning(lab: Lab) -> None:
    judged = row(stages(lab, "train", batch="micro: 4, drop_last: true", lengths=[4, 5, 6, 7, 8]), "batch")
    assert judged.verdict == "warn" and "1 row out" in reason_of(judged, "rows_dropped")["text"]
    assert judged.inputs["planned_updates"] == 1


def test_5_06_no_rows_at_all(lab: Lab) -> None:
    code = FILTER.replace("<= 8", "> 99")
    judged = row(stages(lab, "train", code=code), "batch")
    assert "there are no training rows" in reason_of(judged, "no_update")["text"]


@pytest.mark.parametrize(
    "words",
    [
        "args.max_steps must be set to a positive value if dataloader does not have a length, was -1",
        "num_samples should be a positive integer value, but got num_samples=0",
    ],
)
def test_5_06_a_librarys_misleading_words_are_translated(lab: Lab, words: str) -> None:
    code = (
        f"class Own(Tiny):\n    def build_scheduler(self, optimizer, updates):\n        raise ValueError({words!r})\n"
    )
    reason = reason_of(row(stages(lab, "train", code=code), "batch"), "no_update")
    assert "would end without an update" in reason["text"] and words in reason["text"]
    assert reason["where"]["file"].endswith("own.py")


# -- 5.08 ------------------------------------------------------------------------------------------------------------
ZERO = {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}


def deepspeed(lab: Lab, document: dict[str, Any], accumulation: int = 2) -> Any:
    batch = f"micro: 1, accumulation: {accumulation}"
    files = {"ds_config.json": json.dumps(document)}
    return row(stages(lab, "train", batch=batch, files=files, deepspeed="ds_config.json"), "batch")


def test_5_08_accumulation_of_a_deepspeed_file_against_the_plans(lab: Lab) -> None:
    reason = reason_of(deepspeed(lab, ZERO), "sources_disagree")
    assert "the plan says 2, ds_config.json 1 (no gradient_accumulation_steps in it, so 1)" in reason["text"]
    assert "counted: 2" in reason["text"], "what was counted wins over both"
    assert reason["where"] == {"file": "ds_config.json", "key": "gradient_accumulation_steps"}


def test_5_08_auto_and_an_equal_number_pass(lab: Lab) -> None:
    assert codes(deepspeed(lab, {**ZERO, "gradient_accumulation_steps": "auto"})) == []
    assert codes(deepspeed(lab, {**ZERO, "gradient_accumulation_steps": 2, "train_batch_size": 2})) == []


def test_5_08_other_sources_and_other_numbers() -> None:
    from tui_pilot.gates.sources import batch_of

    plan = Plan(batch=Batch(micro=2, accumulation=4))
    said = batch_of(from_arguments(["--per-device-train-batch-size=4", "--gradient_accumulation_steps", "4"]), 1)
    reason = found({"sources": [{"name": "command", **(said or {})}]}, plan)["sources_disagree"]
    assert "the microbatch: the plan says 2, command 4" in reason.text
    whole = batch_of({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2}, 1)
    assert whole is not None and whole["accumulation"] == 8
    assert batch_of({"width": 3}, 1) is None
    assert batch_of({**ZERO, "train_micro_batch_size_per_gpu": 1}, 1) == {
        "micro_key": "train_micro_batch_size_per_gpu", "micro": 1, "accumulation": 1, "default": True
    }  # fmt: skip


COSINE = """
class Own(Tiny):
    def build_scheduler(self, optimizer, updates):
        import math
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5 * (1 + math.cos(math.pi * n / %s)))
"""


def test_5_08_a_cosine_that_runs_past_one_cycle(lab: Lab) -> None:
    judged = row(stages(lab, "train", code=COSINE % "(updates / 2)", budget="updates: 40"), "batch")
    reason = reason_of(judged, "lr_curve_differs")
    assert "update 40 (after its end) is 1.0e-2" in reason["text"] and reason["severity"] == "warn", reason["text"]
    judged = row(stages(lab, "train", code=COSINE % "updates", budget="updates: 40"), "batch")
    assert codes(judged) == [], judged.reasons


WRITES = """
class Own(Tiny):
    def loss(self, model, batch):
        for group in self.held.param_groups if model.training else []:
            group["lr"] = 0.05
        return super().loss(model, batch)

    def build_optimizer(self, model):
        self.held = super().build_optimizer(model)
        return self.held
"""


def test_5_08_a_rate_that_the_schedule_did_not_give(lab: Lab) -> None:
    state = stages(lab, "train", code=WRITES, optimizer="lr: 0.01, schedule: linear, warmup: 2", budget="updates: 20")
    reason = reason_of(row(state, "batch"), "lr_curve_differs")
    assert "(counted) is 5.0e-2, planned" in reason["text"] and reason["where"]["update"] == 1


# -- microbatches that hold nothing, and the loss in force -------------------------------------------------------------
MASKED = """
class Own(Tiny):
    def records(self, split):
        return [{**each, "masked": each["n"] in (2, 5)} for each in super().records(split)]
"""
MEAN_TIMES_COUNT = """
    def loss(self, model, batch):
        mean = functional.cross_entropy(self.logits(model, batch), batch["labels"][:, 1:], ignore_index=IGNORE)
        return mean * self.count(batch)
"""


def test_control_one_masked_microbatch_among_good_ones(lab: Lab) -> None:
    judged = row(stages(lab, "train", code=MASKED), "batch")
    assert judged.verdict == "pass" and codes(judged) == [], judged.reasons


def test_a_mean_over_a_masked_microbatch_is_not_finite_and_names_its_row(lab: Lab) -> None:
    judged = row(stages(lab, "train", code=MASKED + MEAN_TIMES_COUNT), "batch")
    reason = reason_of(judged, "not_finite")
    assert set(reason["where"]["rows"]) <= {"r2", "r5"} and reason["where"]["rows"]


def test_an_update_that_holds_nothing_is_a_warning_and_all_of_them_a_fail(lab: Lab) -> None:
    state = stages(lab, "train", code=MASKED, batch="micro: 1", pilot="timed: 6, reference: 1")
    judged = row(state, "batch")
    assert (
        judged.verdict == "warn" and "held no supervised item" in reason_of(judged, "zero_loss_zero_gradient")["text"]
    )
    assert found({"items_per_update": [0, 0]})["zero_loss_zero_gradient"].severity == "fail"


NUMBERS = """
class Own(Tiny):
    def encode(self, record, max_length=None):
        return {"input_ids": [1, 3 + record["n"], 2], "labels": %s}

    def loss(self, model, batch):
        return functional.mse_loss(%s, batch["labels"].float(), reduction="sum"), len(batch["labels"])

    def count(self, batch):
        return len(batch["labels"])

    def class_names(self):
        return %s
"""
ONE, COLUMN = 'model(batch["input_ids"])[:, 0, 0]', 'model(batch["input_ids"])[:, 0, :1]'


DISTILS = """
class Own(Tiny):
    def loss(self, model, batch):
        logits = self.logits(model, batch)
        return super().loss(model, batch) + 0.1 * functional.mse_loss(logits, torch.zeros_like(logits), reduction="sum")

    def class_names(self):
        return ["a", "b"]
"""


def test_a_second_loss_on_numbers_beside_the_classes_passes(lab: Lab) -> None:
    judged = row(stages(lab, "train", code=DISTILS, batch="micro: 1, accumulation: 2"), "batch")
    assert "loss_mismatch" not in codes(judged), judged.reasons


@pytest.mark.parametrize(
    ("label", "answer", "names", "words"),
    [
        ('0.5 * record["n"]', ONE, [], ""),
        ('0.5 * record["n"]', COLUMN, [], "mse_loss is in force on 2 x 1 answers against 2 labels"),
        ('record["n"] % 3', ONE, ["a", "b", "c"], "mse_loss is in force on int64 labels, and the task names 3 classes"),
        ('float(record["n"] % 3)', ONE, ["a", "b"], "mse_loss is in force on float32 labels"),
    ],
)
def test_labels_against_the_loss_in_force(lab: Lab, label: str, answer: str, names: list[str], words: str) -> None:
    state = stages(lab, "train", code=NUMBERS % (label, answer, names), batch="micro: 2, accumulation: 2")
    judged = row(state, "batch")
    if words:
        assert words in reason_of(judged, "loss_mismatch")["text"]
    else:
        assert codes(judged) == [], judged.reasons
