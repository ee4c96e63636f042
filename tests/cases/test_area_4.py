"""Area 4, memory and time by phase: what an evaluation keeps, a save leaves, a resume needs, a disk holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from area_1 import chat
from area_3 import phase_row, small
from lab import Lab, codes, reason_of

from tui_pilot.gates.disk import needs
from tui_pilot.gates.judge import judge
from tui_pilot.plan.model import Adapter, Checkpoint, Export, Gates, Model, Optimizer, Plan, ResumeGate

GIB = 1 << 30
HELD = [chat(f"{letter}?", "jkl") for letter in "mnopqrstuvwx"]
QUICK = "optimizer: {lr: 0.01}\npilot: {steady: 2, timed: 2, reference: 2}\n"

# -- 4.01 ------------------------------------------------------------------------------------------------------------
KEEPING = """
class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(260, 4), nn.Linear(4, 20000)

    def forward(self, input_ids):
        return self.head(self.embed(input_ids))

class Own(Tiny):
    kept = []

    def build_model(self):
        return Wide()

    def predict(self, model, batch):
        logits = model(batch["input_ids"])
        %s
        return logits.argmax(dim=-1)

    def metrics(self, predictions):
        return {"right": 0.5}
"""


def evaluated(lab: Lab, code: str, held: list[dict[str, Any]] | None = None) -> Any:
    small(lab, "Own", code, held=held or HELD, more=QUICK + "evaluate: {rows: 8, micro: 2}\n")
    lab.stage("peak")
    return phase_row(lab, "evaluate")


KEEPS = {
    "logits": "self.kept.append(logits)",
    "probabilities": "self.kept.append(logits.softmax(dim=-1)[:, :, :9000].clone())",
    "a chain on the model": "model.last = (logits, getattr(model, 'last', None))",
}


@pytest.mark.parametrize("keep", KEEPS.values(), ids=KEEPS)
def test_4_01_an_evaluation_keeps_what_the_model_gave(lab: Lab, keep: str) -> None:
    row = evaluated(lab, KEEPING % keep)
    found = reason_of(row, "logits_kept")
    assert found["severity"] == "fail" and "of every batch" in found["text"] and "over all 12 rows" in found["text"]
    assert found["where"]["need_bytes"] > 3 << 20 and found["where"]["free_bytes"]


def test_4_01_one_batch_alone_is_scored_until_growth_shows(lab: Lab) -> None:
    assert reason_of(evaluated(lab, KEEPING % "self.kept.append(logits)", HELD[:2]), "logits_kept")


def test_4_01_ids_kept_pass(lab: Lab) -> None:
    row = evaluated(lab, KEEPING % "self.kept.append(logits.argmax(dim=-1))")
    assert row.verdict == "pass" and codes(row) == [] and row.inputs["rows"] == 8


def test_4_01_what_it_would_take_over_all_rows_against_what_is_free() -> None:
    logits, ids = 512 * 30522 * 4, 512 * 8
    batches: dict[str, Any] = {"rows": 32, "metrics": {"loss": 1.0}, "all_rows": 1000, "have": 24 * GIB}
    batches |= {"rows_after": [8] * 4, "cells": [8 * 512] * 4}
    kept = {**batches, "allocated_after": [GIB + batch * 8 * logits for batch in range(4)]}
    found = judge("evaluate", kept, Plan()).reasons
    assert [each.code for each in found] == ["logits_kept"] and found[0].severity == "fail"
    assert "58.2 GiB over all 1,000 rows, 24.0 GiB are free" in found[0].text
    argmax = {**batches, "allocated_after": [GIB + batch * 8 * ids for batch in range(4)]}
    assert judge("evaluate", argmax, Plan()).word == "pass"
    many = {
        **argmax,
        "all_rows": 10**8,
        "cells": [8 * 512 * 9] * 4,
        "allocated_after": [GIB + n * (6 << 20) for n in range(4)],
    }
    assert "logits_kept" in [each.code for each in judge("evaluate", many, Plan()).reasons]
    once = {**batches, "allocated_after": [GIB, GIB + 8 * logits, GIB + 8 * logits, GIB + 8 * logits]}
    assert "logits_kept" not in [each.code for each in judge("evaluate", once, Plan()).reasons]


def test_4_01_copies_on_the_host_and_logits_as_answers() -> None:
    seen: dict[str, Any] = {"rows": 32, "metrics": {"loss": 1.0}, "all_rows": 1000, "have": 24 * GIB}
    seen |= {"rows_after": [8] * 6, "cells": [8 * 512] * 6, "allocated_after": [GIB] * 6}
    host = {**seen, "resident_after": [2 * GIB + batch * (477 << 20) for batch in range(6)]}
    assert "477.0 MiB of every batch on the host" in judge("evaluate", host, Plan()).reasons[0].text
    warming = {**seen, "resident_after": [2 * GIB, 2 * GIB + (300 << 20), *([2 * GIB + (310 << 20)] * 4)]}
    assert judge("evaluate", warming, Plan()).word == "pass"
    answers = {**seen, "predicted": {"shape": [512, 30522], "dtype": "float32", "bytes_per_row": 512 * 30522 * 4}}
    found = judge("evaluate", answers, Plan()).reasons[0]
    assert "predict returns 512 x 30,522 numbers of float32 a row, not ids: 58.2 GiB" in found.text
    classes = {**seen, "predicted": {"shape": [3], "dtype": "float32", "bytes_per_row": 12}}
    assert judge("evaluate", classes, Plan()).word == "pass"


# -- 4.02 ------------------------------------------------------------------------------------------------------------
BUDGET = """
BUDGET = %d

def gather(tensors):
    need = sum(each.numel() * each.element_size() for each in tensors)
    if need > BUDGET:
        raise %s
    return [each.clone() for each in tensors]

class Whole(torch.optim.AdamW):
    def state_dict(self):
        gather([value for state in self.state.values() for value in state.values()])
        return super().state_dict()

class InCheckpoint(Tiny):
    def build_optimizer(self, model):
        return Whole(model.parameters(), lr=0.01)

class InExport(Tiny):
    def save_artifact(self, model, folder):
        gather(list(model.parameters()))
        super().save_artifact(model, folder)
"""
CPU = 'RuntimeError(f"[enforce fail] DefaultCPUAllocator: can\'t allocate memory: you tried to allocate {need} bytes.")'
CUDA = 'torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {need} bytes.")'


def trained(lab: Lab, task: str, code: str) -> None:
    small(lab, task, code, more=QUICK, held=HELD[:2])
    lab.stage("train")


@pytest.mark.parametrize(("task", "phase"), [("InCheckpoint", "checkpoint"), ("InExport", "export")])
@pytest.mark.parametrize("error", [CPU, CUDA], ids=["host", "device"])
def test_4_02_a_save_that_gathers_everything_runs_out_of_memory(lab: Lab, task: str, phase: str, error: str) -> None:
    trained(lab, task, BUDGET % (1000, error))
    assert phase_row(lab, "batch").verdict == "pass"
    found = reason_of(phase_row(lab, phase), "oom")
    assert found["severity"] == "fail" and f"Out of memory in {phase}" in found["text"]
    assert found["where"]["asked_bytes"] > 1000 and "batch.micro" not in found["advice"]


@pytest.mark.parametrize(("task", "phase"), [("InCheckpoint", "checkpoint"), ("InExport", "export")])
def test_4_02_a_save_with_room_passes_with_a_peak_of_its_own(lab: Lab, task: str, phase: str) -> None:
    trained(lab, task, BUDGET % (1 << 30, CPU))
    row = phase_row(lab, phase)
    assert row.verdict == "pass" and row.memory[0]["allocated_peak"] and row.memory[0]["host_peak"]


# -- 4.04 ------------------------------------------------------------------------------------------------------------
HEAVY = """
class Heavy(Net):
    def __init__(self):
        super().__init__()
        self.base = nn.Sequential(nn.Linear(24, 8000), nn.ReLU(), nn.Linear(8000, 24))

class Own(Tiny):
    def build_model(self):
        return Heavy()
"""
WEIGHTS = 4 * (2 * 24 * 8000)


def test_4_04_the_first_resumed_forward_has_a_row_of_its_own(lab: Lab) -> None:
    small(lab, "Own", HEAVY, more=QUICK, held=HELD[:2])
    lab.stage("peak", "train", "resume")
    fresh, resumed = phase_row(lab, "forward"), phase_row(lab, "resume")
    assert resumed.verdict == "pass" and codes(resumed) == []
    resident = resumed.inputs["resident_at_first_forward"]
    # Two moments of AdamW stand beside the weights before a resumed run's first forward, and not before a fresh one's.
    assert resident - fresh.memory[0]["allocated_before"] >= 1.9 * WEIGHTS
    assert {"load", "forward", "backward", "step"} <= set(resumed.parts)
    assert resumed.parts["forward"]["allocated_before"] == resident and resumed.parts["forward"]["allocated_peak"]


def test_4_04_not_measured_is_unchecked_and_a_higher_peak_is_said() -> None:
    seen: dict[str, Any] = {"twin": [], "here": [], "states": {}, "train_peak": 3 * GIB, "peak": None}
    assert judge("resume", seen, Plan()).word == "unchecked"
    assert "first resumed forward was not measured" in judge("resume", seen, Plan()).reasons[0].text
    higher = judge("resume", {**seen, "peak": 4 * GIB}, Plan()).reasons[0]
    assert higher.code == "resume_peak_higher" and "peaks at 4.0 GiB, training at 3.0 GiB" in higher.text
    assert judge("resume", {**seen, "peak": 3 * GIB}, Plan()).word == "pass"


# -- 4.05 ------------------------------------------------------------------------------------------------------------
KEPT = (
    HEAVY
    + """
LAST = []

class Keeps(torch.optim.AdamW):
    def state_dict(self):
        state = super().state_dict()
        LAST.append([value.clone() for each in state["state"].values() for value in each.values()])
        return state

class InCheckpoint(Own):
    def build_optimizer(self, model):
        return Keeps(model.parameters(), lr=0.01)

class InExport(Own):
    def save_artifact(self, model, folder):
        LAST.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        super().save_artifact(model, folder)

class GivesBack(Own):
    def save_artifact(self, model, folder):
        copy = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        torch.save(copy, folder / "weights.pt")
"""
)


@pytest.mark.parametrize(("task", "phase"), [("InCheckpoint", "checkpoint"), ("InExport", "export")])
def test_4_05_a_save_that_keeps_its_copy(lab: Lab, task: str, phase: str) -> None:
    trained(lab, task, KEPT)
    found = reason_of(phase_row(lab, phase), "residue")
    assert (
        found["severity"] == "fail"
        and "expected about 0" in found["text"]
        and "MiB more are allocated" in found["text"]
    )
    if phase == "export":
        assert WEIGHTS <= found["where"]["left_bytes"] < 1.3 * WEIGHTS


def test_4_05_a_copy_that_is_given_back_passes(lab: Lab) -> None:
    trained(lab, "GivesBack", KEPT)
    assert phase_row(lab, "checkpoint").verdict == "pass" and phase_row(lab, "export").verdict == "pass"


# -- 4.07 ------------------------------------------------------------------------------------------------------------
ADAPTED = Plan(model=Model(adapter=Adapter()), export=Export(kind="merged", dtype="bf16"), precision="bf16")


def disk_word(plan: Plan, elements: int, free: int) -> tuple[str, str]:
    parts = needs(plan, elements, None)
    verdict = judge(
        "stack", {"disk": {"path": "runs", "free": free, "need": sum(parts.values()), "parts": parts}}, plan
    )
    return verdict.word, verdict.reasons[0].text if verdict.reasons else ""


def test_4_07_a_merged_export_larger_than_what_is_free() -> None:
    word, text = disk_word(ADAPTED, 1_100_000_000, 1_000_000_000)
    assert word == "fail" and "merged export 2.0 GiB" in text and "953.7 MiB are free" in text
    assert needs(ADAPTED, 1_100_000_000)["merged export"] == 2_200_000_000


def test_4_07_checkpoints_kept_count_too() -> None:
    plan = Plan(checkpoint=Checkpoint(keep=3), precision="bf16")
    export = needs(plan, 10**9)["full export"]
    word, text = disk_word(plan, 10**9, export)
    assert word == "fail" and "4 checkpoints 22.4 GiB" in text
    assert disk_word(plan, 10**9, export + 4 * 6 * 10**9) == ("pass", "")
    assert needs(plan, 10**9)["4 checkpoints"] == 4 * 3 * 2 * 10**9
    sgd = Plan(checkpoint=Checkpoint(keep=3), optimizer=Optimizer(name="sgd"))
    assert needs(sgd, 10**9)["4 checkpoints"] == 4 * 4 * 10**9


def weights(folder: Path, elements: int) -> None:
    """A model folder whose one weight file names its elements and is cut off after that."""
    folder.mkdir()
    header = json.dumps({"w": {"dtype": "BF16", "shape": [elements], "data_offsets": [0, 2 * elements]}}).encode()
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)


def test_4_07_a_folder_larger_than_the_disk_is_refused_before_training(lab: Lab) -> None:
    weights(lab.folder / "large", 4 * 10**11)
    small(lab, "Tiny", more="model: {path: large}\nexport: {dtype: bf16}\n" + QUICK, skip="examples, splits")
    lab.stage("data")
    found = reason_of(phase_row(lab, "stack"), "disk_too_small")
    assert found["severity"] == "fail" and "full export 745.1 GiB" in found["text"]
    assert found["where"]["need_bytes"] == 8 * 10**11 + 3 * 3 * 4 * 4 * 10**11


def test_4_07_a_task_of_its_own_is_counted_once_it_is_built(lab: Lab) -> None:
    plan_keep = "checkpoint: {keep: %d}\n"
    small(lab, "Tiny", more=QUICK + plan_keep % 10**9)
    lab.stage("peak")
    found = reason_of(phase_row(lab, "load"), "disk_too_small")
    assert "1000000001 checkpoints" in found["text"] and found["severity"] == "fail"
    small(lab, "Tiny", more=QUICK + plan_keep % 3)
    lab.stage("peak")
    assert phase_row(lab, "load").verdict == "pass"


# -- 4.08 ------------------------------------------------------------------------------------------------------------
REPLAYED = """
import time

class Rows:
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        return iter(self.rows)

    def __getitem__(self, place):
        time.sleep(%s * place)
        return self.rows[place]

class Own(Tiny):
    def records(self, split):
        if split != "train":
            return []
        turns = [{"role": "user", "content": "a?"}, {"role": "assistant", "content": "bc"}]
        return Rows([{"id": str(number), "messages": turns} for number in range(4000)])

    def order(self, split, epoch, seed):
        return range(len(self.records(split)))
"""


@pytest.mark.parametrize(("cost", "verdict"), [("0.0002", "fail"), ("0.0", "pass")], ids=["read through", "asked"])
def test_4_08_seconds_to_the_last_row_from_the_first_ones(lab: Lab, cost: str, verdict: str) -> None:
    small(lab, "Own", REPLAYED % cost, more=QUICK, gate="steps: 5}, resume: {max_seek_seconds: 0.5")
    lab.stage("train", "resume")
    row = phase_row(lab, "resume")
    assert row.verdict == verdict, row.reasons
    if verdict == "fail":
        text = reason_of(row, "seek_too_slow")["text"]
        assert "allowed 0.5 s" in text
        assert "Every row before them is read again" in text and "to where this checkpoint stands" in text


def test_4_08_five_milliseconds_a_row_against_the_budget() -> None:
    probe = {"now_s": 5.0, "end_s": 500.0, "per_row_s": 0.005, "probed": 200, "rows": 100_000, "position": 1000}
    seen: dict[str, Any] = {"twin": [], "here": [], "states": {}, "seek": probe, "seek_estimate_s": 500.0}
    assert judge("resume", seen, Plan()).word == "pass"
    tight = judge("resume", seen, Plan(gates=Gates(resume=ResumeGate(max_seek_seconds=60)))).reasons[0]
    assert tight.code == "seek_too_slow" and "about 500 s, allowed 60 s" in tight.text
    assert "5 ms each: 5 s to where this checkpoint stands" in tight.text
