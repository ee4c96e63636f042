"""Set-ups that are right and look unlike a chat model's: no gate may call them a fault, nor their wrong twins right."""

from __future__ import annotations

from typing import Any

import pytest
import right_setups as right
from lab import Lab, codes, reason_of

from tui_pilot.store.state import Row, RunState

PLAN = """name: right
task: own.py:Own
batch: {micro: 4, accumulation: 2}
budget: {epochs: 4}
optimizer: {lr: 5.0e-3, warmup: 2}
pilot: {steady: 2, timed: 2, reference: 2}
evaluate: {rows: 4}
device: cpu
"""


def ran(lab: Lab, code: str, *stages: str, gates: str = "", plan: str = PLAN) -> RunState:
    """The stages of a class ``Own``; the stack is skipped, it would import every package in a process of its own."""
    lab.prepare(f"{plan}gates: {{skip: [stack], stop_on_fail: false, {gates}}}\n", {"own.py": right.BASE + code})
    return lab.stage(*stages)


def row(state: RunState, phase: str) -> Row:
    found = next(each for each in state.rows if each.phase == phase)
    assert found.verdict is not None
    return found


def alarms(state: RunState) -> list[dict[str, Any]]:
    """Everything that is more than a note and more than a check that says it could not look."""
    return [dict(each) for row in state.rows for each in row.reasons if each["severity"] in ("fail", "warn")]


def unchecked(state: RunState, phase: str) -> str:
    return " ".join(each["text"] for each in row(state, phase).reasons if each["severity"] == "unchecked")


# -- rows of other kinds ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("code", [right.PICTURES, right.TARGET_OF_ITS_OWN, right.NUMBERS_TO_COME_NEAR])
def test_rows_that_are_no_line_of_ids(lab: Lab, code: str) -> None:
    state = ran(lab, code, "data", "overfit", gates="overfit: {rows: 2, lr: 2.0e-2}")
    assert alarms(state) == []
    assert row(state, "overfit").inputs["recovered"] == 1.0


def test_a_target_of_its_own_needs_its_end_token(lab: Lab) -> None:
    state = ran(lab, right.TARGET_OF_ITS_OWN.replace("[1::-1]), END]", "[1::-1])]"), "data")
    assert reason_of(row(state, "examples"), "missing_end_token")["where"]["rows_count"] == 30


def test_labels_that_are_the_ids_and_too_few_are_no_target_of_their_own(lab: Lab) -> None:
    code = "class Own(Words):\n    def encode(self, record):\n        example = super().encode(record)\n"
    code += "        return {**example, 'labels': example['labels'][:-1]}\n"
    assert "span_shifted" in codes(row(ran(lab, code, "data"), "examples"))


# -- two ways to one gradient ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (right.IN_BATCH, "compares the rows of one microbatch with each other"),
        (right.BALANCED, "beside the sum over its items"),
        (right.NOISE_IN_LOSS, "is drawn anew each time"),
        (right.NOISE_IN_ROWS, ""),
        (right.NOISE_IN_MODEL, ""),
        (right.NORMED, ""),
    ],
)
def test_losses_that_need_more_than_one_row_or_draw(lab: Lab, code: str, words: str) -> None:
    state = ran(lab, code, "peak", "train")
    assert alarms(state) == []
    assert words in unchecked(state, "batch")
    assert words or row(state, "batch").inputs["gradient_error"] < 1e-4


@pytest.mark.parametrize("code", [right.NOISE_IN_ROWS, right.NOISE_IN_MODEL, right.NORMED, right.MEAN_AND_BALANCE])
def test_a_mean_over_the_microbatch_hides_behind_none_of_them(lab: Lab, code: str) -> None:
    if code is not right.MEAN_AND_BALANCE:
        code += "\n    def loss(self, model, batch):\n"
        code += "        return token_loss(model(batch['input_ids']), batch['labels'], 'mean') * len(batch['labels'])\n"
        code = code.replace("answer(self, record)", "answer(self, record)")
    code += "\n    def answer(self, record):\n        return record['word'][::-1]\n"
    found = codes(row(ran(lab, code, "train"), "batch"), "fail")
    assert found == ["loss_not_token_weighted"]


# -- recovery --------------------------------------------------------------------------------------------------------
def test_masks_drawn_in_the_collating_and_torchs_own_encoder_layer(lab: Lab) -> None:
    state = ran(lab, right.MASKED, "data", "overfit", "train", "resume", "reload")
    assert alarms(state) == []
    assert "is drawn anew each time" in unchecked(state, "batch")


@pytest.mark.parametrize("code", [right.ALIKE, right.WHOLE_TEXTS])
def test_rows_that_begin_alike_and_go_on_differently(lab: Lab, code: str) -> None:
    state = ran(lab, code, "overfit", gates="overfit: {rows: 6, lr: 2.0e-2}")
    assert alarms(state) == [] and row(state, "overfit").inputs["recovered"] == 1.0


def test_nearly_all_back_and_still_falling_gets_more_steps(lab: Lab) -> None:
    first = row(ran(lab, "class Own(Words):\n    pass\n", "overfit", gates="overfit: {lr: 1.0e-2}"), "overfit")
    steps = int(first.inputs["steps"]) - 4
    second = row(
        ran(lab, "class Own(Words):\n    pass\n", "overfit", gates=f"overfit: {{lr: 1.0e-2, steps: {steps}}}"),
        "overfit",
    )
    assert second.verdict == "pass" and steps < second.inputs["steps"] <= 3 * steps


# -- gradients -------------------------------------------------------------------------------------------------------
def test_a_head_that_other_rows_train(lab: Lab) -> None:
    state = ran(lab, right.TWO_HEADS, "overfit", "peak")
    assert alarms(state) == []
    found = reason_of(row(state, "overfit"), "no_gradient")
    assert found["severity"] == "note" and found["where"]["tensors"] == ["second.weight", "second.bias"]


def test_a_head_that_no_row_trains(lab: Lab) -> None:
    state = ran(lab, right.TWO_HEADS.replace('batch["kind"].any()', 'batch["kind"].gt(1).any()'), "overfit", "peak")
    for phase in ("overfit", "backward"):
        assert reason_of(row(state, phase), "no_gradient")["severity"] == "fail"


# -- orders ----------------------------------------------------------------------------------------------------------
def test_rows_drawn_with_replacement_are_a_warning(lab: Lab) -> None:
    judged = row(ran(lab, right.SAMPLED, "train"), "batch")
    assert codes(judged) == ["order_differs"] and judged.verdict == "warn"


def test_the_same_rows_left_out_of_every_epoch_are_not(lab: Lab) -> None:
    code = right.SAMPLED.replace(
        'draw.choices(rows, [1 + 2 * each["kind"] for each in rows], k=len(rows))', "2 * rows[:12]"
    )
    assert code != right.SAMPLED
    assert "order_differs" in codes(row(ran(lab, code, "train"), "batch"), "fail")
