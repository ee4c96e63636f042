"""``pilot-tui fit`` as a script sees it, with a prediction of known size in place of a pass over a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from tui_pilot.cli import run_command
from tui_pilot.commands import fit as fitting
from tui_pilot.predict.catalogue import Gpu
from tui_pilot.run_folder import all_runs, write_json
from tui_pilot.store.earlier import PREDICTION_FILE, documents

Capture = pytest.CaptureFixture[str]
GIB = 1 << 30
ROW_GIB = 4


def plan_file(folder: Path, fake: dict[str, str] | None = None, more: str = "") -> Path:
    path = folder / "pilot.yaml"
    fakes = json.dumps(fake or {})
    path.write_text(
        f"name: mine\ntask: demo\nbatch: {{micro: 4, accumulation: 4}}\noptions: {{fake: {fakes}}}\n{more}\n"
    )
    return path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Any]]:
    """Predictions of 10 GiB and 4 more a row of the microbatch; what was asked for is kept."""
    seen: list[tuple[int, Any]] = []

    def predicted(loaded: Any, gpu: Gpu) -> dict[str, Any]:
        plan = loaded.plan
        assert plan.batch.micro * plan.batch.accumulation == 16
        seen.append((plan.batch.micro, gpu.capability))
        peak = (10 + ROW_GIB * plan.batch.micro) * GIB
        return {"phases": [{"phase": "backward", "allocated_peak": peak, "reserved_peak": peak}], "not_predicted": []}

    monkeypatch.setattr(fitting, "predicted", predicted)
    return seen


def call(capture: Capture, *arguments: str) -> tuple[int, str, str]:
    code = run_command(["fit", *arguments])
    captured = capture.readouterr()
    return code, captured.out, captured.err


def document(capture: Capture, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = call(capture, *arguments, "--json")
    found: dict[str, Any] = json.loads(out)
    return code, found


def test_the_largest_for_each_gpu_named(here: Path, capsys: Capture, asked: list[Any]) -> None:
    plan_file(here)
    code, found = document(capsys, "--gpu", "4090", "--gpu", "h100 80gb", "--gpu", "b200")
    assert code == 0
    assert (found["effective_batch"], found["planned"]) == (16, {"micro": 4, "accumulation": 4})
    best = {gpu["name"]: (gpu["best"]["micro"], gpu["best"]["accumulation"]) for gpu in found["gpus"]}
    assert best == {"RTX 4090 24GB": (2, 8), "H100 80GB": (8, 2), "B200 180GB": (16, 1)}
    assert {capability for _, capability in asked} == {(8, 9), (9, 0), (10, 0)}
    first = found["gpus"][0]
    assert first["basis"] == "measured" and first["residuals"]["margin"] == 0.1
    assert all(each["fits"] == (each["micro"] <= 2) for each in first["asked"])
    assert found["run"] is None


def test_lines_for_people(here: Path, capsys: Capture, asked: list[Any]) -> None:
    plan_file(here)
    code, out, err = call(capsys, "--gpu", "4090")
    assert code == 0
    assert "effective batch held at 16 rows" in out
    assert "RTX 4090 24GB" in out and "backward" in out and "no run on RTX 4090 24GB here" in out
    assert "predicting microbatch 4, accumulation 4" in err


def test_a_gpu_of_which_only_the_memory_is_said(here: Path, capsys: Capture, asked: list[Any]) -> None:
    plan_file(here)
    code, found = document(capsys, "--usable", "50GiB")
    assert code == 0
    (gpu,) = found["gpus"]
    assert (gpu["usable_bytes"], gpu["basis"], gpu["best"]["micro"]) == (50 * GIB, "given", 8)


def test_the_plans_gpus_when_none_is_named(here: Path, capsys: Capture, asked: list[Any]) -> None:
    plan_file(here, more="rental: {gpus: [L4 24GB]}")
    assert [gpu["name"] for gpu in document(capsys)[1]["gpus"]] == ["L4 24GB"]


def test_no_gpu_anywhere_is_said_with_what_to_type(
    here: Path, capsys: Capture, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_file(here)
    monkeypatch.setattr(fitting, "here", list)
    code, found = document(capsys)
    assert code == 2 and "--gpu" in found["error"]["advice"]
    code, found = document(capsys, "--gpu", "h1000")
    assert code == 2 and "H100" in found["error"]["advice"]


def test_nothing_fits(here: Path, capsys: Capture, asked: list[Any]) -> None:
    plan_file(here)
    code, found = document(capsys, "--usable", "12GiB")
    assert code == 1 and found["gpus"][0]["best"] is None
    code, out, _ = call(capsys, "--usable", "12GiB")
    assert code == 1 and "microbatch 1 needs 14.0 GiB in backward" in out


def test_what_cannot_be_predicted_is_unchecked(here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_file(here)
    missing = {"phase": "forward", "text": "it reads a value of a tensor", "file": "my_task.py", "line": 7}
    answer = {"phases": [], "not_predicted": [missing]}
    monkeypatch.setattr(fitting, "predicted", lambda loaded, gpu: answer)
    code, found = document(capsys, "--gpu", "t4")
    assert code == 4
    assert found["gpus"][0]["asked"][0]["why"] == "forward: my_task.py:7: it reads a value of a tensor"
    assert "my_task.py:7" in call(capsys, "--gpu", "t4")[1]


def test_what_is_missing_beside_the_step_does_not_matter(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_file(here)
    missing = {"phase": "evaluate", "text": "there are no validation rows", "file": None, "line": None}
    phases = [{"phase": "backward", "allocated_peak": GIB, "reserved_peak": GIB}]
    answer = {"phases": phases, "not_predicted": [missing]}
    monkeypatch.setattr(fitting, "predicted", lambda loaded, gpu: answer)
    code, found = document(capsys, "--gpu", "t4")
    assert code == 0 and found["gpus"][0]["best"]["micro"] == 16


def test_a_larger_margin_of_the_plan_is_asked(here: Path, capsys: Capture, asked: list[Any]) -> None:
    plan_file(here, more="rental: {memory_margin: 0.5}")
    assert document(capsys, "--usable", "50GiB")[1]["gpus"][0]["best"]["micro"] == 2


def test_run_verifies_with_a_variant_and_says_that_a_cpu_tells_nothing(
    here: Path, capsys: Capture, asked: list[Any]
) -> None:
    plan_file(here)
    code, found = document(capsys, "--usable", "50GiB", "--run")
    assert code == 0
    assert found["run"]["micro"] == 8 and found["run"]["on_gpu"] is False and found["run"]["out_of_memory"] == []
    (folder,) = all_runs(here / "runs")
    run = folder.read_json(folder.run_file)
    assert (run["kind"], run["variant"], folder.id) == ("variant", "micro-8", found["run"]["run"])
    batch = folder.read_json(folder.plan_file)["plan"]["batch"]
    assert (batch["micro"], batch["accumulation"]) == (8, 2)
    assert folder.read_json(folder.baseline_file)["same_question"] is True


def test_run_goes_down_when_memory_does_not_suffice(here: Path, capsys: Capture, asked: list[Any]) -> None:
    plan_file(here, {"backward": "oom"})
    code, found = document(capsys, "--usable", "40GiB", "--run")
    assert code == 1
    assert found["run"]["out_of_memory"] == ["backward"]
    batches = [folder.read_json(folder.plan_file)["plan"]["batch"]["micro"] for folder in all_runs(here / "runs")]
    assert sorted(batches) == [1, 2, 4]
    kinds = {folder.read_json(folder.run_file)["kind"] for folder in all_runs(here / "runs")}
    assert kinds == {"pilot", "variant"}


def test_earlier_runs_correct_the_answer(
    here: Path, capsys: Capture, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run on a T4 measured half as much again as was predicted of it."""
    plan_file(here, more="rental: {gpus: [T4 16GB]}")
    document(capsys, "--usable", "50GiB", "--run")
    (folder,) = all_runs(here / "runs")
    assert list(documents(here / "runs")) == []
    row = {"phase": "backward", "allocated_peak": 1, "reserved_peak": 100}
    write_json(folder.path / PREDICTION_FILE, {"phases": [row]})
    (found,) = documents(here / "runs")
    measured = {"phase": "backward", "verdict": "pass", "inputs": {"gpu": "Tesla T4"},
                "memory": [{"device": "cuda:0", "reserved_peak": 150}]}  # fmt: skip
    monkeypatch.setattr("tui_pilot.store.earlier.documents", lambda root: [{**found, "phases": [measured]}])
    asked.clear()
    gpus = document(capsys, "--gpu", "t4", "--gpu", "b200")[1]["gpus"]
    assert gpus[0]["residuals"]["by_phase"] == {"backward": 1.5}
    assert gpus[0]["best"] is None
    assert gpus[0]["asked"][0]["need_bytes"] == 21 * GIB
    assert gpus[1]["residuals"]["runs"] == 0


@pytest.mark.parametrize(
    ("typed", "count"),
    [("22GiB", 22 * GIB), ("24 GB", 24 * 10**9), ("1.5gib", 3 * GIB // 2), ("1000", 1000), ("512MiB", 512 << 20)],
)
def test_sizes(typed: str, count: int) -> None:
    command = click.Command("fit")
    assert fitting.bytes_of(click.Context(command), click.Option(["--usable"]), typed) == count


@pytest.mark.parametrize("typed", ["", "much", "-3GiB", "0", "1.2.3GiB", "3PiB"])
def test_what_is_no_size(typed: str) -> None:
    with pytest.raises(click.BadParameter):
        fitting.bytes_of(click.Context(click.Command("fit")), click.Option(["--usable"]), typed)


def test_a_run_on_the_very_gpu_keeps_its_prediction(
    here: Path, capsys: Capture, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_file(here)
    own = Gpu("T4 16GB", 50 * GIB, None, (7, 5), False, False, "measured", fitting.HERE)
    monkeypatch.setattr(fitting, "here", lambda: [own])
    code, found = document(capsys, "--run")
    assert code == 0
    (folder,) = all_runs(here / "runs")
    assert folder.read_json(folder.path / PREDICTION_FILE)["phases"][0]["reserved_peak"] == (10 + 8 * ROW_GIB) * GIB
    assert found["run"]["micro"] == 8
