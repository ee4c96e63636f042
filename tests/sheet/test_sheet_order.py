"""The order file: what SkyPilot reads, with the measured need, and nothing for a run that is not retained."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from sheet_documents import PLAN, reason, row, shown

from tui_pilot.cli import run_command
from tui_pilot.errors import PilotError
from tui_pilot.plan.model import Compare, Plan, Rental, Trial
from tui_pilot.predict.catalogue import catalogue
from tui_pilot.sheet.build import configuration
from tui_pilot.sheet.order import sky_name, skypilot

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
TRIALS = dataclasses.replace(PLAN, compare=Compare(trials=(Trial("base"), Trial("half", {"optimizer.lr": 5e-5}))))


def ordered(plan: Plan = TRIALS, device: str = "cuda") -> str:
    return skypilot(configuration(shown(device, plan)), plan, "/home/you/chat", "/home/you/chat/runs/a/plan.yaml")


def test_resources_come_from_the_measured_need() -> None:
    found = yaml.safe_load(ordered())
    gpus = found["resources"]["accelerators"]
    assert gpus["H100"] == 8 and gpus["A100-80GB"] == 8  # eight processes, as measured
    assert "A100" not in gpus and "RTX4090" not in gpus  # less is free there than the plan asks
    assert found["resources"]["memory"] == "82+"  # twice the host's peak of 41 GiB
    assert found["resources"]["use_spot"] is True and "job_recovery" in found["resources"]
    assert "34.7 GiB measured on each GPU" in ordered().split("\nname:")[0]


def test_what_the_plan_reads_is_mounted_where_it_reads_it() -> None:
    found = yaml.safe_load(ordered())["file_mounts"]
    assert found["~/campaign/support.jsonl"] == "/home/you/chat/support.jsonl"
    assert found["~/campaign/llama-3.1-8b"] == "/home/you/chat/llama-3.1-8b"
    assert found["~/campaign/pilot.yaml"] == "/home/you/chat/runs/a/plan.yaml"
    assert found["/checkpoints"]["mode"] == "MOUNT" and found["/checkpoints"]["persistent"] is True


def test_it_goes_on_after_a_pre_emption() -> None:
    found = yaml.safe_load(ordered())
    assert found["envs"]["PILOT_TUI_RUNS"] == "/checkpoints/runs"  # runs lie in the bucket
    assert found["run"].splitlines()[-1] == "pilot-tui compare pilot.yaml"
    assert "the pilot alone" not in ordered() and "the pilot alone" in ordered(PLAN)


def test_a_cpu_run_asks_for_no_gpu_and_says_why() -> None:
    text = ordered(device="cpu")
    assert "accelerators" not in yaml.safe_load(text)["resources"]
    assert "No GPU is asked for: measured on CPU" in text


def test_nothing_is_ordered_for_what_is_not_retained_or_fits_nowhere() -> None:
    show = shown()
    row(show, "resume").update(verdict="fail", reasons=[reason("rows_repeated", "row 7 comes twice")])
    with pytest.raises(PilotError, match="is not retained: resume is FAIL"):
        skypilot(configuration(show), PLAN, "/a", "/a/plan.yaml")
    small = dataclasses.replace(PLAN, rental=Rental(gpus=("T4 16GB",)))
    with pytest.raises(PilotError, match="No GPU of those asked holds"):
        skypilot(configuration(shown(plan=small)), small, "/a", "/a/plan.yaml")


def test_through_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["sheet", str(RECORDED / "demo"), "--order", "skypilot"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["name"] == "demo"
    assert run_command(["sheet", str(RECORDED / "demo-broken"), "--order", "skypilot"]) == 2
    assert "is not retained" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_skypilot_itself_reads_it(device: str, tmp_path: Path) -> None:
    sky: Any = pytest.importorskip("sky", reason="skypilot is not installed: pip install skypilot")
    file = tmp_path / "order.yaml"
    plan = TRIALS
    folder = tmp_path / "chat"
    (folder / "llama-3.1-8b").mkdir(parents=True)
    (folder / "support.jsonl").write_text("{}\n")
    (folder / "plan.yaml").write_text("name: chat\n")
    file.write_text(skypilot(configuration(shown(device, plan)), plan, str(folder), str(folder / "plan.yaml")))
    task = sky.Task.from_yaml(str(file))
    assert task.name == "llama8b-lora" and task.num_nodes == 1
    asked = {name for each in task.resources for name in (each.accelerators or {})}
    assert bool(asked) is (device == "cuda") and all(each.use_spot for each in task.resources)


def test_every_gpu_has_a_name_there() -> None:
    names = {gpu.name: sky_name(gpu.name) for gpu in catalogue()}
    assert names["L40S 48GB"] == "L40S" and names["RTX 4090 24GB"] == "RTX4090" and names["H200 141GB"] == "H200"
    assert all(" " not in name for name in names.values())
