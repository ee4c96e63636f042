"""Area 7, resume in a new process: every state named apart, rows by id, and the newest checkpoint if it is whole."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from area_5 import row, stages
from lab import Lab, codes, reason_of

from tui_pilot.gates.judge import judge
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan

TEN = "timed: 10, reference: 3"


def found(seen: dict[str, Any]) -> dict[str, Reason]:
    """What the ``resume`` gate says of a resumed run beside its twin, by code."""
    return {reason.code: reason for reason in judge("resume", seen, Plan()).reasons}


def resumed(lab: Lab, code: str = "", **more: Any) -> Any:
    """Train, checkpoint, and the resume of a new process."""
    state = stages(lab, "train", "resume", code=code, pilot=more.pop("pilot", "timed: 3, reference: 3"), **more)
    return row(state, "resume")


# A task learns that it is being resumed as any script does: there is a checkpoint already.
RESUMED = """
import sys
RESUMED = sys.argv[2] == "resume"
"""


@pytest.mark.parametrize("drop", [0.0, 0.3])
def test_control_a_right_resume_repeats_every_bit(lab: Lab, drop: float) -> None:
    judged = resumed(lab, budget="updates: 20", optimizer="lr: 0.01, schedule: cosine, warmup: 3", drop=drop)
    assert judged.verdict == "pass" and judged.inputs["bit_equal"], judged.reasons
    assert judged.inputs["losses"] == judged.inputs["twin_losses"]


# -- 7.02, 7.03 ------------------------------------------------------------------------------------------------------
FORGETFUL = (
    RESUMED
    + """
class Forgetful(torch.optim.lr_scheduler.LambdaLR):
    def load_state_dict(self, state):
        %s

class Own(Tiny):
    def build_scheduler(self, optimizer, updates):
        return Forgetful(optimizer, lambda step: 1 - step / 20)
"""
)
LINEAR = {"optimizer": "name: sgd, lr: 1.0, schedule: linear", "budget": "updates: 20", "pilot": TEN}
RESTART = "self.last_epoch = 0; self.optimizer.param_groups[0]['lr'] = 1.0"


def test_7_02_schedule_that_starts_again(lab: Lab) -> None:
    reason = reason_of(resumed(lab, FORGETFUL % RESTART, **LINEAR), "scheduler_restarted")
    assert "last_epoch is 0, saved 10" in reason["text"] and reason["severity"] == "fail"
    assert "learning rate is 1.0e0, the twin's was 5.0e-1" in reason["text"], reason["text"]


def test_7_02_schedule_that_is_loaded_passes(lab: Lab) -> None:
    judged = resumed(lab, FORGETFUL % "super().load_state_dict(state)", **LINEAR)
    assert judged.verdict == "pass", judged.reasons
    assert judged.inputs["learning_rates"] == pytest.approx([0.5, 0.45, 0.4])


BY_HAND = """
class Schedule:
    def __init__(self, optimizer):
        self.optimizer, self.at = optimizer, 0

    def step(self):
        self.at += 1
        self.optimizer.param_groups[0]["lr"] = 1 - self.at / 20

class Own(Tiny):
    def build_scheduler(self, optimizer, updates):
        return Schedule(optimizer)
"""


def test_7_02_schedule_without_a_state_is_missing_from_the_checkpoint_and_named_after_the_resume(lab: Lab) -> None:
    state = stages(lab, "train", "resume", code=BY_HAND, **LINEAR)
    assert reason_of(row(state, "checkpoint"), "state_missing")["text"] == "Not in the checkpoint: scheduler."
    reason = reason_of(row(state, "resume"), "scheduler_restarted")
    assert "update 12 is 9.5e-1, the twin's was 4.5e-1" in reason["text"], reason["text"]


ADAM = (
    RESUMED
    + """
class Forgetful(torch.optim.AdamW):
    def load_state_dict(self, state):
        super().load_state_dict({**state, "state": {}})

class Own(Tiny):
    def build_optimizer(self, model):
        return Forgetful(model.parameters(), lr=0.01)
"""
)


def test_7_02_optimizer_state_saved_and_not_loaded(lab: Lab) -> None:
    judged = resumed(lab, ADAM)
    reason = reason_of(judged, "optimizer_not_restored")
    assert "5 of 5 tensors, 0 have a state here" in reason["text"] and reason["where"]["tensor"] == "token.weight"
    assert codes(judged, "fail") == ["optimizer_not_restored"], "what follows from it is not another fault"


def test_7_02_only_one_tensor_loses_its_state(lab: Lab) -> None:
    code = ADAM.replace('"state": {}', '"state": {n: each for n, each in state["state"].items() if n != 1}')
    assert reason_of(resumed(lab, code), "optimizer_not_restored")["where"]["tensors"] == ["inner.weight"]


PLACES = (
    RESUMED
    + """
class Own(Tiny):
    def build_optimizer(self, model):
        first, *rest = model.parameters()
        return torch.optim.AdamW([*rest, first] if RESUMED else [first, *rest], lr=0.01)
"""
)
EQUAL_SHAPES = (
    RESUMED
    + """
class Own(Tiny):
    def build_model(self):
        model = super().build_model()
        model.second = torch.nn.Linear(8, 8, bias=False)
        model.inner.register_forward_hook(lambda module, inputs, output: output + model.second(inputs[0]))
        return model

    def build_optimizer(self, model):
        pair = [model.inner.weight, model.second.weight]
        return torch.optim.AdamW(pair[::-1] if RESUMED else pair, lr=0.01)
"""
)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (PLACES, "5 of 5 tensors stand in another place, inner.weight where token.weight stood"),
        (EQUAL_SHAPES, "2 of 2 tensors stand in another"),
    ],
)
def test_7_02_states_that_go_to_another_tensor(lab: Lab, code: str, words: str) -> None:
    reason = reason_of(resumed(lab, code), "optimizer_not_restored")
    assert words in reason["text"], reason["text"]
    if code == EQUAL_SHAPES:
        assert reason["where"]["tensors"] == ["second.weight", "inner.weight"]


PRIVATE = (
    RESUMED
    + """
class Heavy(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        self.mine = getattr(self, "mine", {})
        for parameter in self.param_groups[0]["params"]:
            self.mine[parameter] = parameter.grad + 0.9 * self.mine.get(parameter, 0)
            parameter -= 0.01 * self.mine[parameter]

class Own(Tiny):
    def build_optimizer(self, model):
        return Heavy(model.parameters(), lr=0.01)
"""
)


def test_7_02_a_state_that_no_file_holds(lab: Lab) -> None:
    reason = reason_of(resumed(lab, PRIVATE), "loss_diverges")
    assert "weights after update 3 differ" in reason["text"], reason["text"]


SCALED = (
    RESUMED
    + """
class Own(Tiny):
    def build_optimizer(self, model):
        if RESUMED:
            torch.amp.GradScaler.load_state_dict = lambda self, state: None
        return super().build_optimizer(model)

    def loss(self, model, batch):
        return super().loss(model, batch) * 0.5
"""
)


def test_7_02_scaler_that_starts_at_its_first_scale(lab: Lab) -> None:
    # a growth counter that is not restored is the same fault before the scale has moved
    reason = reason_of(resumed(lab, SCALED, more="precision: fp16-amp\n"), "scaler_not_restored")
    assert "_growth_tracker is 0, saved 2" in reason["text"], reason["text"]
    assert resumed(lab, more="precision: fp16-amp\n").verdict == "pass"


def test_7_03_schedule_seeded_with_the_epoch(lab: Lab) -> None:
    code = FORGETFUL % "super().load_state_dict({**state, 'last_epoch': state['last_epoch'] // 2})"
    reason = reason_of(resumed(lab, code, **LINEAR, batch="micro: 1, accumulation: 4"), "scheduler_restarted")
    assert "last_epoch is 5, saved 10" in reason["text"]


def test_7_03_numbers_of_a_foreign_loop() -> None:
    import torch

    def at(step: int) -> float:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, n / 100))
        schedule.last_epoch = step - 1
        optimizer.step()
        schedule.step()
        return float(optimizer.param_groups[0]["lr"])

    wrong = {"stands": 2, "updates": 400, "epoch": 2, "lr": at(2), "lr_expected": at(400)}
    text = found({"schedule": wrong})["scheduler_restarted"].text
    assert "stands at 2 (the epoch's number) and 400 updates are done" in text
    assert "learning rate 2.0e-2, expected 1.0" in text, text
    assert not found({"schedule": {"stands": 400, "updates": 400, "epoch": 2}})
    assert not found({"schedule": {"stands": 397, "updates": 400, "skipped": 3, "epoch": 2}}), "skipped by a scaler"


# -- 7.05, 7.06, 7.08 ------------------------------------------------------------------------------------------------
def shuffled(seed: int) -> list[int]:
    rows = list(range(12))
    random.Random(seed).shuffle(rows)
    return rows


def test_7_05_the_sampler_of_epoch_0_in_epoch_1() -> None:
    first, second = shuffled(42), shuffled(43)
    seen = {
        "rows_before": second[:4],
        "epoch_twin": {"epoch": 1, "rest": second[4:]},
        "epoch_here": {"epoch": 1, "rest": first[4:]},
    }
    reason = found(seen)["rows_repeated"]
    twice, never = sorted(set(second[:4]) & set(first[4:])), sorted(set(second[4:]) - set(first[4:]))
    assert sorted(reason.where["rows"]) == twice and reason.where["epoch"] == 1
    assert all(f"{each}" in reason.text for each in never) and "come twice" in reason.text and "never" in reason.text
    assert not found({**seen, "epoch_here": {"epoch": 1, "rest": second[4:]}})


ORDERED = (
    RESUMED
    + """
class Own(Tiny):
    def order(self, split, epoch, seed):
        rows = torch.randperm(12, generator=torch.Generator().manual_seed(42 + epoch)).tolist()
        %s
        return rows
"""
)
TWELVE = {"lengths": [4, 5, 6] * 4, "batch": "micro: 4", "pilot": "timed: 4, reference: 2", "budget": "epochs: 9"}
EPOCH_0 = "rows = Own.order(self, split, 0, seed) if RESUMED and epoch == 1 else rows"


def test_7_05_through_a_task(lab: Lab) -> None:
    import torch

    first, second = (torch.randperm(12, generator=torch.Generator().manual_seed(42 + n)).tolist() for n in (0, 1))
    assert second[4:8] == [9, 8, 1, 5] and first[4:8] == [0, 2, 10, 11], "the numbers of the report"
    judged = resumed(lab, ORDERED % EPOCH_0, **TWELVE)
    reason = reason_of(judged, "rows_repeated")
    assert "rows r2, r4 come twice and rows r8, r1 never" in reason["text"].replace("r4, r2", "r2, r4"), reason["text"]
    assert "next rows are r0, r2, r10, r11" in reason["text"] and "the twin's were r9, r8, r1, r5" in reason["text"]
    assert set(reason["where"]["rows"]) == {"r2", "r4"} and reason["where"]["epoch"] == 1
    assert resumed(lab, ORDERED % "pass", **TWELVE).verdict == "pass"


def test_7_06_resumed_in_file_order(lab: Lab) -> None:
    judged = resumed(lab, ORDERED % "rows = list(range(12)) if RESUMED and epoch else rows", **TWELVE)
    reason = reason_of(judged, "order_differs")
    assert "The resumed order is file order" in reason["text"] and "next rows are r4, r5, r6, r7" in reason["text"]
    assert codes(judged, "fail") == ["order_differs"]


def test_7_06_a_first_run_in_file_order_may_go_on_in_it(lab: Lab) -> None:
    judged = resumed(lab, ORDERED % "rows = list(range(12))", **TWELVE)
    assert judged.verdict == "pass", judged.reasons


def test_7_06_another_seed_in_a_later_part_of_the_epoch_is_seen_without_running_it(lab: Lab) -> None:
    change = "rows = [*rows[:10], rows[11], rows[10]] if RESUMED and epoch == 1 else rows"
    more = {**TWELVE, "batch": "micro: 1", "pilot": "timed: 13, reference: 2"}
    judged = resumed(lab, ORDERED % change, **more)
    assert "of epoch 1 come in another order" in reason_of(judged, "order_differs")["text"]


@pytest.mark.parametrize(
    ("counts", "code", "words"),
    [
        ([16, 16], "rows_skipped", "Epoch 2 has 16 microbatches in it after the resume; expected 20"),
        ([0, 20], "rows_skipped", "Epoch 1 has 0 microbatches still to come after the resume; expected 16"),
        ([20, 20], "rows_repeated", "Epoch 1 has 20 microbatches still to come"),
        ([17, 20], "rows_repeated", "Epoch 1 has 17 microbatches still to come"),
        ([16, 20], "", ""),
    ],
)
def test_7_08_rows_per_epoch_after_the_resume(counts: list[int], code: str, words: str) -> None:
    seen = {"epoch_twin": {"epoch": 1, "batches": [16, 20]}, "epoch_here": {"epoch": 1, "batches": counts}}
    assert list(found(seen)) == ([code] if code else [])
    assert not code or words in found(seen)[code].text


def test_7_08_one_batch_twice_is_named_by_its_rows() -> None:
    rows = [[2 * n, 2 * n + 1] for n in range(20)]
    rest = [row for group in rows[4:] for row in group]
    again = [*rows[3], *rest]
    seen = {
        "rows_before": [row for group in rows[:4] for row in group],
        "epoch_twin": {"epoch": 0, "rest": rest},
        "epoch_here": {"epoch": 0, "rest": again},
    }
    assert found(seen)["rows_repeated"].where["rows"] == rows[3]


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("rows = rows[4:] if RESUMED and epoch == 2 else rows", "rows_skipped", "Epoch 2 has 2 microbatches in it"),
        ("rows = rows[:4] if RESUMED and epoch == 1 else rows", "rows_skipped", "r9, r8, r1, r5"),
        ("rows = [*rows[:4], *rows] if RESUMED and epoch == 1 else rows", "rows_repeated", "come twice"),
    ],
)
def test_7_08_through_a_task(lab: Lab, change: str, code: str, words: str) -> None:
    reason = reason_of(resumed(lab, ORDERED % change, **TWELVE), code)
    assert words in reason["text"], reason["text"]


# -- 7.09 ------------------------------------------------------------------------------------------------------------
DRAWS = (
    RESUMED
    + """
import random

class Own(Tiny):
    def encode(self, record, max_length=None):
        example = super().encode(record, max_length)
        %s
        return example

    def loss(self, model, batch):
        %s
        return super().loss(model, batch)
"""
)
AUGMENT = "example['input_ids'][0] = random.randrange(3, 30)"


def test_7_09_augmentation_and_dropout_that_are_restored_pass(lab: Lab) -> None:
    draws = f"{AUGMENT} + int(numpy.random.randint(2))"
    judged = resumed(lab, "import numpy\n" + DRAWS % (draws, "pass"), drop=0.3)
    assert judged.verdict == "pass" and judged.inputs["bit_equal"], judged.reasons


@pytest.mark.parametrize(
    ("spoil", "where", "key", "words"),
    [
        ("RESUMED and numpy.random.seed(7)", "numpy", "numpy_rng", "the numpy random state"),
        ("RESUMED and model.training and torch.manual_seed(7)", "loss", "torch_rng", "the torch random state"),
        ("RESUMED and random.seed(7)", "encode", "python_rng", "the Python random state"),
    ],
)
def test_7_09_the_stream_that_was_not_restored_is_named(lab: Lab, spoil: str, where: str, key: str, words: str) -> None:
    draws = "example['input_ids'][0] = int(numpy.random.randint(3, 30))" if where == "numpy" else AUGMENT
    spots = (draws, spoil) if where == "loss" else (f"{spoil}; {draws}", "pass")
    head = "import numpy\n" if where == "numpy" else ""
    judged = resumed(lab, head + DRAWS % spots, drop=0.3)
    reason = reason_of(judged, "rng_not_restored")
    assert words in reason["text"] and reason["where"]["key"] == key, reason["text"]
    assert codes(judged, "fail") == ["rng_not_restored"]


def test_7_09_streams_of_a_foreign_loop() -> None:
    one = {
        "update": 5,
        "rows": [1, 2],
        "lr": 0.1,
        "loss": 2.5,
        "weights": "w",
        "streams": {"torch": "a", "python": "b"},
    }
    for stream, said in (("torch", "torch"), ("python", "Python")):
        other = {**one, "loss": 2.6, "streams": {**one["streams"], stream: "z"}}
        reason = found({"twin": [one], "here": [other]})["rng_not_restored"]
        assert f"the {said} random state" in reason.text and reason.where == {"update": 5, "key": f"{stream}_rng"}
    quiet = {**one, "streams": {**one["streams"], "python": "z"}}
    assert not found({"twin": [one], "here": [quiet]}), "a stream that nothing draws from changes nothing"
    assert list(found({"twin": [one], "here": [{**one, "loss": 2.6}]})) == ["loss_diverges"]


def test_7_09_a_stream_of_the_tasks_own(lab: Lab) -> None:
    own = DRAWS.replace("class Own(Tiny):", "OWN = random.Random(3)\n\nclass Own(Tiny):")
    judged = resumed(lab, own % (AUGMENT.replace("random.", "OWN."), "pass"))
    reason = reason_of(judged, "rng_not_restored")
    assert "a random stream of the task's own" in reason["text"] and reason["where"]["key"] == "data"


# -- 7.11 ------------------------------------------------------------------------------------------------------------
FROZEN = (
    RESUMED
    + """
class Own(Tiny):
    def build_model(self):
        model = super().build_model()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(%s)
        return model
"""
)


@pytest.mark.parametrize(
    ("takes", "after", "code", "tensor"),
    [
        ("not RESUMED", "616 -> 0", "trainable_lost", "token.weight"),
        ("not RESUMED or name != 'inner.bias'", "616 -> 608", "trainable_lost", "inner.bias"),
        ("RESUMED or name != 'inner.bias'", "608 -> 616", "trainable_set_differs", "inner.bias"),
    ],
)
def test_7_11_what_trains_after_the_resume(lab: Lab, takes: str, after: str, code: str, tensor: str) -> None:
    judged = resumed(lab, FROZEN % takes)
    reason = reason_of(judged, code)
    assert f"Trainable parameters {after} after the resume: {tensor}" in reason["text"], reason["text"]
    assert reason["where"]["tensor"] == tensor and reason["severity"] == "fail"


def test_7_11_a_frozen_base_that_stays_frozen_passes(lab: Lab) -> None:
    assert resumed(lab, FROZEN % "name != 'token.weight'").verdict == "pass"


def test_7_11_renamed_tensors_have_no_place(lab: Lab) -> None:
    code = RESUMED + (
        "class Other(Net):\n    def __init__(self, drop=0.0):\n        super().__init__(drop=drop)\n"
        "        if RESUMED:\n            self.middle = self.inner\n            del self.inner\n"
        "            self.inner = torch.nn.Identity()\n\n"
        "class Own(Tiny):\n    def build_model(self):\n        return Other()\n"
    )
    reason = reason_of(resumed(lab, code), "weights_not_restored")
    assert reason["where"]["tensor"] == "inner.weight" and "no place in this model" in reason["text"]


# -- 7.12 ------------------------------------------------------------------------------------------------------------
SAVES = (
    RESUMED
    + """
import pathlib

class Own(Tiny):
    def build_optimizer(self, model):
        control = pathlib.Path(sys.argv[1]) / "control"
        control.mkdir(exist_ok=True)
        if not RESUMED:
            (control / "save_now").touch()
        return super().build_optimizer(model)
"""
)


def cut(folder: Path) -> None:
    file = folder / "model.pt"
    file.write_bytes(file.read_bytes()[:-100])


def swap(folder: Path) -> None:
    file = folder / "optimizer.pt"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def unfinished(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def half_way(folder: Path) -> None:
    folder.rename(folder.with_name(f".{folder.name}.part"))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (cut, "model.pt has"),
        (swap, "optimizer.pt differs from its hash"),
        (unfinished, "the save did not finish"),
        (half_way, "the save did not finish"),
        (lambda folder: (folder / "loop.pt").unlink(), "loop.pt is missing"),
    ],
)
def test_7_12_a_cut_off_checkpoint_gives_way_to_the_one_before(lab: Lab, damage: Any, why: str) -> None:
    pilot = "timed: 3, reference: 1"
    stages(lab, "train", code=SAVES, pilot=pilot, more="keep: {checkpoints: 2}\n", budget="updates: 40")
    assert lab.run is not None
    older, newer = sorted(lab.run.checkpoints.glob("step-*"))
    damage(newer)
    judged = row(lab.stage("resume"), "resume")
    reason = reason_of(judged, "newest_incomplete")
    assert newer.name in reason["text"] and why in reason["text"] and f"resumed from {older.name}" in reason["text"]
    assert judged.verdict == "warn" and judged.inputs["bit_equal"], judged.reasons


def test_7_12_numbers_and_not_names_decide_which_is_the_newest(lab: Lab) -> None:
    from tui_pilot.pilot.checkpoint import newest

    stages(lab, "train", pilot="timed: 3, reference: 1")
    assert lab.run is not None
    (only,) = lab.run.checkpoints.glob("step-*")
    only.rename(only.with_name("step-1000000"))
    (lab.run.checkpoints / "step-999999").mkdir()
    saved, broken = newest(lab.run.checkpoints)
    assert saved is not None and saved.path.name == "step-1000000" and not broken


def foreign(folder: Path, step: int, trainer: bool = True) -> Path:
    """A checkpoint folder as a trainer of Hugging Face leaves it."""
    import struct
    import zipfile

    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    header = json.dumps({"w": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}}).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 256)
    with zipfile.ZipFile(path / "optimizer.pt", "w") as archive:
        archive.writestr("optimizer/data.pkl", b"x" * 500)
    if trainer:
        (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return path


def test_7_12_foreign_checkpoint_folders(tmp_path: Path) -> None:
    from tui_pilot.observe.checkpoint_folders import newest_whole

    for step in (10, 9, 100):
        foreign(tmp_path, step)
    best, broken = newest_whole(tmp_path)
    assert best is not None and (best.step, broken) == (100, []), "100 is newer than 9 and 10"
    last = foreign(tmp_path, 110, trainer=False)
    best, broken = newest_whole(tmp_path)
    assert best is not None and best.step == 100 and broken[0]["name"] == "checkpoint-110"
    assert "trainer_state.json is missing" in broken[0]["why"]
    (last / "trainer_state.json").write_text("{}")
    assert newest_whole(tmp_path)[1] == []
    for file, cut_by, why in (("model.safetensors", 100, "its header says"), ("optimizer.pt", 30, "cut off")):
        whole = (last / file).read_bytes()
        (last / file).write_bytes(whole[:-cut_by])
        best, broken = newest_whole(tmp_path)
        assert best is not None and best.step == 100 and why in broken[0]["why"], broken
        (last / file).write_bytes(whole)
    (last / "trainer_state.json").write_text('{"global_step": 1')
    assert "trainer_state.json cannot be read" in newest_whole(tmp_path)[1][0]["why"]
    for each in tmp_path.glob("checkpoint-*/trainer_state.json"):
        each.unlink()
    assert newest_whole(tmp_path)[0] is None


# -- 7.14 ------------------------------------------------------------------------------------------------------------
def test_7_14_checkpoint_at_the_end_of_the_plan(lab: Lab) -> None:
    import torch

    from tui_pilot.pilot.checkpoint import sha256

    stages(lab, "train", budget="updates: 20")
    assert lab.run is not None
    (folder,) = lab.run.checkpoints.glob("step-*")
    state = torch.load(folder / "loop.pt", weights_only=True)
    torch.save({**state, "updates": 20}, folder / "loop.pt")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["loop.pt"] = {"bytes": (folder / "loop.pt").stat().st_size, "sha256": sha256(folder / "loop.pt")}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    reason = reason_of(row(lab.stage("resume"), "resume"), "nothing_left")
    assert "stands at update 20 of 20: nothing is left to do" in reason["text"] and reason["severity"] == "fail"


def test_7_14_updates_that_a_resumed_run_really_made() -> None:
    assert "0 updates" in found({"step": 40, "total": 100, "left": 60, "updates_after": 0})["nothing_left"].text
    again = found({"step": 40, "total": 100, "left": 60, "updates_after": 100})["updates_left_differ"]
    assert "100 updates from update 40 of 100; expected 60" in again.text
    assert not found({"step": 40, "total": 100, "left": 60, "updates_after": 60})
    assert "nothing_left" in found({"step": 100, "total": 100, "left": 0})


def test_7_14_a_plan_of_two_updates_is_no_fault(lab: Lab) -> None:
    judged = resumed(lab, budget="updates: 2", pilot="timed: 2, reference: 1")
    assert judged.verdict == "pass", judged.reasons
