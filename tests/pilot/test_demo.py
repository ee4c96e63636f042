"""The main job on the built-in demo: one real run without a screen, and the same with faults planted in its task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab import DemoRun, pilot_tui

from tui_pilot.events.schema import PHASES
from tui_pilot.pilot import checkpoint
from tui_pilot.store.view import snapshot

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def row(document: dict[str, Any], phase: str) -> dict[str, Any]:
    return next(each for each in document["phases"] if each["phase"] == phase)


def test_fifteen_phases_pass_with_duration_and_memory(demo_run: DemoRun) -> None:
    document = demo_run.document
    assert demo_run.code == 0, demo_run.stderr
    assert [each["phase"] for each in document["phases"]] == list(PHASES)
    assert {each["verdict"] for each in document["phases"]} == {"pass"}
    assert (document["state"], document["verdict"], document["exit_code"]) == ("finished", "pass", 0)
    assert document["demo"] is True and "built-in demo" in demo_run.stderr.splitlines()[0]
    for each in document["phases"]:
        assert each["duration_s"] > 0, each["phase"]
        assert each["started"] < each["ended"]
        memory = each["memory"][0]
        assert memory["host_peak"] > 0
        # No accelerator: what cannot be there is null with a reason, never 0.
        assert memory["reserved_peak"] is None
        assert memory["known"]["reserved_peak"]["why"] == "no accelerator"


def test_memory_phases_are_measured_apart(demo_run: DemoRun) -> None:
    document = demo_run.document
    peak = {phase: row(document, phase)["memory"][0]["allocated_peak"] for phase in PHASES}
    parameters = row(document, "load")["inputs"]["parameter_bytes"]
    assert peak["load"] >= parameters
    assert peak["forward"] > peak["load"]
    state = row(document, "first_step")["inputs"]["optimizer_state_bytes"]
    assert state == pytest.approx(2 * parameters, rel=0.01)
    assert peak["steady_step"] > peak["first_step"] - parameters
    assert document["binding_phase"] in ("first_step", "steady_step", "backward", "batch")
    assert set(row(document, "first_step")["parts"]) == {"window", "step"}
    assert set(row(document, "steady_step")["parts"]) == {"forward", "backward", "step"}
    assert set(row(document, "resume")["parts"]) == {"load", "forward", "backward", "step"}


def test_memory_inside_phases_was_said_while_they_ran(demo_run: DemoRun) -> None:
    for stage in ("overfit", "peak", "train"):
        lines = [
            json.loads(line) for line in (demo_run.folder.events / f"{stage}.rank0.jsonl").read_text().splitlines()
        ]
        phase = None
        for line in lines:
            if line["kind"] == "phase_started":
                phase = line["phase"]
            elif line["kind"] == "phase_ended":
                phase = None
            elif line["kind"] == "live":
                assert line["phase"] == phase, "nothing is said between phases"
                assert 0 <= line["allocated"] < 1 << 31 and line["reserved"] is None and line["rank"] == 0
    said = [
        line for line in (demo_run.folder.events / "overfit.rank0.jsonl").read_text().splitlines() if '"live"' in line
    ]
    assert said and all(len(line) < 300 for line in said), "small lines"
    host = row(demo_run.document, "steady_step")["memory"][0]
    assert host["rss_anon_peak"] > 0 and host["rss_file_peak"] > 0 and host["host_limit"] > host["host_peak"]


def test_resume_is_bit_equal_in_a_new_process(demo_run: DemoRun) -> None:
    inputs = row(demo_run.document, "resume")["inputs"]
    assert inputs["bit_equal"] is True and inputs["tolerance"] == 0.0
    assert inputs["losses"] == inputs["twin_losses"] and len(inputs["losses"]) == 3
    resumed = (demo_run.folder.events / "resume.rank0.jsonl").read_text()
    trained = (demo_run.folder.events / "train.rank0.jsonl").read_text()
    pids = [json.loads(text.splitlines()[0])["pid"] for text in (resumed, trained)]
    assert pids[0] != pids[1]


def test_reload_answers_as_the_trained_model_did(demo_run: DemoRun) -> None:
    inputs = row(demo_run.document, "reload")["inputs"]
    assert inputs["answers_equal"] is True
    assert inputs["control_loss_after"] == pytest.approx(inputs["control_loss_before"], rel=1e-6)
    assert inputs["control_loss_base"] > inputs["control_loss_before"]


def test_counted_is_planned(demo_run: DemoRun) -> None:
    batch = demo_run.document["batch"]
    assert batch["counted"]["effective_batch"] == batch["planned"]["effective_batch"] == 8
    assert batch["counted"]["optimizer_steps"] == batch["counted"]["scheduler_ticks"] == batch["counted"]["updates"]
    assert row(demo_run.document, "batch")["inputs"]["gradient_error"] < 1e-4
    losses = [value for _, value in demo_run.document["metrics"]["loss"]]
    assert losses[-1] < losses[0]


def test_checkpoint_and_artifact_are_whole_and_tensors_alone(demo_run: DemoRun) -> None:
    saved, broken = checkpoint.newest(demo_run.folder.checkpoints)
    assert saved is not None and broken == []
    assert set(checkpoint.read(saved)) == {"model.pt", "optimizer.pt", "loop.pt"}
    assert checkpoint.why_incomplete(demo_run.folder.artifact) is None
    assert not list(demo_run.folder.path.rglob("*.part"))


def test_show_and_sheet_agree_with_the_run(demo_run: DemoRun) -> None:
    shown = json.loads(pilot_tui(["show", "latest", "--json"], demo_run.work).stdout)
    assert shown["phases"] == demo_run.document["phases"]
    assert shown == {**snapshot(demo_run.folder), "schema": 1, "tool": shown["tool"]}
    sheet = json.loads(pilot_tui(["sheet", "latest", "--format", "json"], demo_run.work).stdout)
    only = sheet["configurations"][0]
    assert (only["run"], only["verdict"], only["retained"]) == (shown["run"], "pass", True)
    assert only["effective_batch"] == 8 and only["binding_phase"] == shown["binding_phase"]
    # Memory of a CPU says nothing about a GPU.
    assert only["fits"] == []


def test_audit_has_one_record_per_row(demo_run: DemoRun) -> None:
    lines = (demo_run.folder.examples / "audit.jsonl").read_bytes().splitlines()
    facts = demo_run.document["facts"]["examples"]
    assert len(lines) == facts["rows"] == facts["supervised_rows"]
    index = (demo_run.folder.examples / "audit.idx").read_bytes()
    assert len(index) == 8 * len(lines)
    offset = int.from_bytes(index[8 * 100 : 8 * 101], "little")
    data = (demo_run.folder.examples / "audit.jsonl").read_bytes()
    assert json.loads(data[offset:].split(b"\n")[0]) == json.loads(lines[100])


def test_every_planted_fault_is_named_with_code_and_rows(tmp_path: Path) -> None:
    done = pilot_tui(["run", str(CONFIGS / "demo-broken.yaml"), "--headless", "--json", "--runs", "runs"], tmp_path)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    found = {each["phase"]: {reason["code"]: reason for reason in each["reasons"]} for each in document["phases"]}
    planted = {
        "examples": {"no_supervised_token", "end_token_unsupervised", "wrong_role_supervised"},
        "splits": {"unit_in_two_splits", "same_rows"},
        "overfit": {"untouched_tensor"},
        "steady_step": {"memory_grows"},
        "evaluate": {"metric_missing", "logits_kept"},
        "batch": {"loss_not_token_weighted", "order_differs"},
        "export": {"trained_not_saved"},
        "resume": {"scheduler_restarted"},
        "reload": {"outputs_differ"},
    }
    for phase, wanted in planted.items():
        assert wanted <= set(found[phase]), (phase, sorted(found[phase]))
    assert found["examples"]["no_supervised_token"]["where"]["rows"] == ["c003-0", "c010-0"]
    assert found["splits"]["unit_in_two_splits"]["where"]["rows"]
    assert "c020" in found["splits"]["unit_in_two_splits"]["text"]
    assert found["export"]["trained_not_saved"]["where"]["tensors"] == ["head.weight"]
    assert all(name.startswith("blocks.3.") for name in found["overfit"]["untouched_tensor"]["where"]["tensors"])
    for phase in ("stack", "load", "forward", "backward", "first_step"):
        assert row(document, phase)["verdict"] == "pass", (phase, found[phase])
