"""A person's task file that raises: the row says ``crash`` and names their own file, line and function first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fault_runs import TINY, plan, row
from lab import reason_of

from tui_pilot.events.schema import PHASES_OF, STAGE_OF

if TYPE_CHECKING:
    from lab import Lab

RAISING = """\
from tiny import Tiny


class Mine(Tiny):
    def {method}(self, *args, **more):
        if {when}:
            raise ValueError("planted in {method}")
        return super().{method}(*args, **more)
"""
LINE = 7

METHODS = {
    "__init__": "stack",
    "packages": "stack",
    "records": "examples",
    "row_id": "examples",
    "unit": "examples",
    "source_text": "examples",
    "encode": "examples",
    "spans": "examples",
    "special_ids": "examples",
    "decode": "examples",
    "class_names": "examples",
    "collate": "overfit",
    "count": "overfit",
    "build_model": "overfit",
    "build_optimizer": "overfit",
    "build_scheduler": "overfit",
    "loss": "overfit",
    "predict": "overfit",
    "order": "batch",
    "control_inputs": "batch",
    "metrics": "batch",
    "save_artifact": "export",
    "load_artifact": "reload",
}


def files(method: str, when: str = "True") -> dict[str, str]:
    text = RAISING.format(method=method, when=when)
    if method == "metrics":  # the tiny task has none of its own
        text = text.replace("return super().metrics(*args, **more)", "return {}")
    return {"tiny.py": TINY, "mine.py": text}


def is_named(lab: Lab, phase: str, method: str, line: int = LINE) -> None:
    """The row's reason names the person's own place, and a traceback is kept."""
    assert lab.code.returncode == 0, lab.code.stderr.decode()
    assert lab.run is not None
    found = reason_of(row(lab.state(), phase), "crash")
    assert found["severity"] == "fail"
    assert found["where"]["file"] == str(lab.folder / "mine.py") and found["where"]["line"] == line
    assert f"in {method} (mine.py:{line})" in found["text"] and f"planted in {method}" in found["text"]
    kept = lab.run.crash / f"{STAGE_OF[phase]}-{phase}-1.rank0.txt"
    assert "Traceback" in kept.read_text() and f"planted in {method}" in kept.read_text()
    assert found["where"]["log"] == str(kept)


@pytest.mark.parametrize("method", METHODS)
def test_method_that_raises_is_named(lab: Lab, method: str) -> None:
    phase = METHODS[method]
    stage = STAGE_OF[phase]
    skip = "" if phase == "stack" else "gates: {skip: [stack]}\n"
    # What stands before the phase in its stage must not meet the fault already.
    lab.prepare(plan(task="mine.py:Mine", more=skip), files(method))
    if phase == "reload":
        lab.stage("train")
    state = lab.stage(stage)
    is_named(lab, phase, method)
    before = PHASES_OF[stage][: PHASES_OF[stage].index(phase)]
    assert all(row(state, each).verdict in ("pass", "skipped") for each in before)
    assert not any(each.running for each in state.rows), "a phase was left open"


def test_file_that_raises_on_import_is_named(lab: Lab) -> None:
    text = '"""Mine."""\n\nfrom tiny import Tiny\n\nraise ValueError("planted in <module>")\n'
    lab.prepare(plan(task="mine.py:Mine"), {"tiny.py": TINY, "mine.py": text})
    lab.stage("data")
    is_named(lab, "stack", "<module>", 5)


def test_file_that_is_no_python_names_its_line(lab: Lab) -> None:
    lab.prepare(plan(task="mine.py:Mine"), {"mine.py": "from tiny import Tiny\n\nclass Mine(Tiny:\n    pass\n"})
    state = lab.stage("data")
    assert lab.code.returncode == 0
    found = reason_of(row(state, "stack"), "crash")
    assert found["where"]["file"] == str(lab.folder / "mine.py") and found["where"]["line"] == 3
    assert "SyntaxError" in found["text"]


def test_fault_below_the_persons_call_names_the_person(lab: Lab) -> None:
    text = (
        "from tiny import Tiny\nfrom torch.nn import functional\n\n\nclass Mine(Tiny):\n"
        "    def loss(self, model, batch):\n"
        "        return functional.cross_entropy(model(batch['input_ids']), batch['labels'][:, :2])\n"
    )
    lab.prepare(plan(task="mine.py:Mine"), {"tiny.py": TINY, "mine.py": text})
    found = reason_of(row(lab.stage("overfit"), "overfit"), "crash")
    assert found["where"]["file"] == str(lab.folder / "mine.py") and found["where"]["line"] == 7
    assert "in loss (mine.py:7)" in found["text"] and found["where"]["rows"]


def test_class_that_is_not_there_is_named_with_those_that_are(lab: Lab) -> None:
    lab.prepare(plan(), {"tiny.py": TINY})
    (lab.folder / "tiny.py").write_text(TINY.replace("class Tiny(", "class Tinier("))
    found = reason_of(row(lab.stage("data"), "stack"), "task_missing")
    assert found["where"]["file"] == str(lab.folder / "tiny.py") and "no class Tiny" in found["text"]
    assert "Tinier" in found["advice"]


WITHOUT = """\
from tiny import Net
from torch.nn import functional
from tui_pilot.tasks import IGNORE, Task


class Mine(Task):
    def records(self, split):
        numbers = {"train": range(18), "validation": range(18, 24)}.get(split, ())
        return [{"letter": number} for number in numbers]

    def encode(self, record):
        letter = 4 + record["letter"]
        return {"input_ids": [1, letter, letter + 1], "labels": [IGNORE, IGNORE, letter + 1]}

    def build_model(self):
        return Net()

    def loss(self, model, batch):
        logits, targets = model(batch["input_ids"])[:, :-1], batch["labels"][:, 1:]
        return functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORE, reduction="sum")
"""


def test_what_a_task_leaves_out_is_unchecked_and_never_pass(lab: Lab) -> None:
    lab.prepare(plan(task="mine.py:Mine", more="gates: {skip: [stack]}\n"), {"tiny.py": TINY, "mine.py": WITHOUT})
    state = lab.stage("data", "overfit", "train", "reload")
    said = {phase: row(state, phase) for phase in ("examples", "splits", "overfit", "reload")}
    assert {phase: found.verdict for phase, found in said.items()} == dict.fromkeys(said, "unchecked")
    assert "spans" in reason_of(said["examples"], "not_observed")["text"]
    assert reason_of(said["splits"], "unit_unknown")
    assert "predict" in reason_of(said["overfit"], "not_observed")["text"]
    assert "predict" in reason_of(said["reload"], "not_observed")["text"]
    assert row(state, "export").verdict == "pass" and row(state, "checkpoint").verdict == "pass"


def test_needed_method_that_is_missing_says_which(lab: Lab) -> None:
    text = WITHOUT.replace("def build_model", "def build_a_model")
    lab.prepare(plan(task="mine.py:Mine"), {"tiny.py": TINY, "mine.py": text})
    state = lab.stage("overfit")
    found = row(state, "overfit").reasons[0]
    assert "build_model" in found["text"] and row(state, "overfit").verdict in ("fail", "unchecked")


def test_crash_folder_is_a_file_and_the_row_is_still_written(lab: Lab) -> None:
    run = lab.prepare(plan(task="mine.py:Mine"), files("loss"))
    run.crash.rmdir()
    run.crash.write_text("in the way")
    assert "planted in loss" in reason_of(row(lab.stage("overfit"), "overfit"), "crash")["text"]


def test_system_exit_in_a_task_is_a_crash(lab: Lab) -> None:
    text = RAISING.format(method="loss", when="True").replace("raise ValueError(", "raise SystemExit(")
    lab.prepare(plan(task="mine.py:Mine"), {"tiny.py": TINY, "mine.py": text})
    assert "planted in loss" in reason_of(row(lab.stage("overfit"), "overfit"), "crash")["text"]
