"""What the sheet retains, what it refuses, what it leaves open."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from sheet_documents import GIB, PLAN, memory, reason, row, shown

from tui_pilot.plan.model import Evaluate, Plan, Rental, as_json
from tui_pilot.run_folder import RunFolder
from tui_pilot.sheet.build import configuration, document, from_shown

PROMISED = {
    "run", "name", "retained", "verdict", "mark", "decision", "micro", "accumulation", "replicas", "effective_batch",
    "precision", "sharding", "max_length", "binding_phase", "memory", "software", "software_checked", "expected_result",
    "fits", "variants", "open",
}  # fmt: skip


def test_a_run_that_passed_is_retained_with_everything_the_contract_names() -> None:
    found = configuration(shown())
    assert found.keys() >= PROMISED
    assert found["retained"] and found["why_not"] == []
    assert (found["micro"], found["accumulation"], found["replicas"], found["effective_batch"]) == (1, 2, 8, 16)
    assert found["software_checked"] == {
        "value": True,
        "on": {"gpu": "NVIDIA H100 80GB HBM3", "driver": "580.95", "torch": "2.13.0+cu130"},
    }
    assert found["binding_phase"] == "steady_step"
    assert found["expected_result"] == PLAN.expected
    assert [entry["id"] for entry in found["variants"]] == ["ckpt", "r64"]
    assert found["seconds"]["update"] == 1.31 and found["seconds"]["resume"] == 1.5
    by_name = {each["name"]: each for each in found["fits"]}
    assert by_name["H100 80GB"]["fits"] and by_name["H100 80GB"]["basis"] == "measured on this GPU"
    assert by_name["A100 40GB"]["fits"] is False  # 34.7 of 39.4 GiB: less is free than the plan asks
    assert by_name["L40S 48GB"]["fits"] and by_name["L40S 48GB"]["basis"] == "measured on H100 80GB"
    assert by_name["RTX 4090 24GB"]["margin"] < 0
    assert "measured on H100 80GB only" in found["fits_note"] and found["fits_note"] in found["open"]


def test_memory_is_kept_per_gpu_and_phase_and_the_need_ignores_the_tiny_subset() -> None:
    found = configuration(shown())
    assert len([entry for entry in found["memory"] if entry["phase"] == "steady_step"]) == 8
    assert {entry["phase"] for entry in found["memory"]} >= {"load", "overfit", "reload"}
    need = found["memory_need"]
    assert need["phase"] in ("steady_step", "resume")
    assert need["bytes"] == round(34.7 * GIB)
    assert need["margin"] == pytest.approx(1 - 34.7 / 79.1, abs=1e-3)


@pytest.mark.parametrize("verdict", ["unchecked", "skipped", "not_run", "fail", None])
def test_nothing_is_retained_before_its_software_stack_was_checked(verdict: str | None) -> None:
    show = shown()
    row(show, "stack").update(verdict=verdict, mark="pass", note="I know this box")
    found = configuration(show)
    assert not found["retained"]
    assert found["software_checked"]["value"] is False
    assert "software stack was not checked" in found["why_not"][0]


def test_a_fail_is_not_retained_and_is_named() -> None:
    show = shown()
    row(show, "resume").update(verdict="fail", reasons=[reason("rows_repeated", "row 0417 comes twice")])
    show["state"] = "failed"
    found = configuration(show)
    assert not found["retained"]
    assert found["why_not"] == ["resume is FAIL: row 0417 comes twice"]


def test_a_mark_with_a_note_lifts_a_fail_and_is_printed_as_an_override() -> None:
    show = shown()
    row(show, "splits").update(
        verdict="fail", reasons=[reason("same_rows", "2 rows on both sides")], mark="warn", note="greetings only"
    )
    show["state"] = "failed"
    found = configuration(show)
    assert found["retained"]
    assert found["mark"] == "warn"
    (override,) = found["overrides"]
    assert (override["phase"], override["mark"], override["note"]) == ("splits", "warn", "greetings only")
    assert override["codes"] == ["same_rows"]


@pytest.mark.parametrize(("mark", "note"), [("pass", None), ("pass", "  "), ("fail", "it is broken")])
def test_a_mark_without_a_note_or_a_mark_fail_lifts_nothing(mark: str, note: str | None) -> None:
    show = shown()
    row(show, "splits").update(verdict="fail", reasons=[reason("same_rows", "2 rows")], mark=mark, note=note)
    found = configuration(show)
    assert not found["retained"] and found["overrides"] == []


def test_a_row_that_passed_but_was_marked_fail_by_hand_is_not_retained() -> None:
    show = shown()
    row(show, "reload").update(mark="fail", note="the answers are poor")
    found = configuration(show)
    assert found["why_not"] == ["reload is marked fail by hand: the answers are poor"]


@pytest.mark.parametrize(("decision", "retained"), [("retain", True), ("defer", False), ("reject", False)])
def test_the_decision(decision: str, retained: bool) -> None:
    show = shown()
    show["decision"] = {"decision": decision, "note": "because"}
    found = configuration(show)
    assert found["retained"] is retained
    assert found["decision"]["note"] == "because"


@pytest.mark.parametrize("state", ["running", "lost", "stopped", "diverged"])
def test_a_run_that_did_not_come_to_its_end_is_not_retained(state: str) -> None:
    show = shown()
    show["state"] = state
    assert not configuration(show)["retained"]


def test_phases_that_were_not_run_are_named_and_nothing_is_retained() -> None:
    show = shown()
    for phase in ("resume", "reload"):
        row(show, phase).update(verdict="not_run", memory=[])
    found = configuration(show)
    assert found["why_not"] == ["2 phases not run: resume, reload"]


def test_a_margin_below_what_the_plan_asks_is_not_retained() -> None:
    show = shown()
    row(show, "first_step")["memory"] = memory("cuda", 74.0)
    found = configuration(show)
    assert not found["retained"]
    assert "3% of the GPU's usable memory stays free; the plan asks 15%" in found["why_not"]


def test_a_run_on_cpu_says_nothing_about_a_gpu() -> None:
    found = configuration(shown("cpu"))
    assert found["retained"]
    assert found["fits"] == [] and found["memory_need"] is None
    assert "measured on CPU: says nothing about a GPU" in found["fits_note"]
    assert found["fits_note"] in found["open"]


def test_open_questions() -> None:
    plan = dataclasses.replace(PLAN, evaluate=Evaluate(max_new_tokens=0), expected="")
    show = shown(plan=plan)
    row(show, "splits").update(verdict="unchecked", reasons=[reason("unit_unknown", "no unit given", "unchecked")])
    row(show, "examples").update(verdict="warn", reasons=[reason("response_truncated", "37 rows", "warn")])
    row(show, "evaluate").update(mark="warn")
    show["events"]["broken_lines"] = 2
    said = "\n".join(configuration(show)["open"])
    assert "splits is unchecked: no unit given" in said
    assert "examples warns, and nobody has judged it by hand" in said
    assert "evaluate is pass and marked warn by hand, without a note" in said
    assert "generation not rehearsed" in said
    assert "no expected result" in said
    assert "2 lines of the event log" in said


def test_a_marked_warning_is_no_open_question() -> None:
    show = shown()
    row(show, "examples").update(verdict="warn", mark="pass", note="long threads are rare")
    assert not any("examples" in question for question in configuration(show)["open"])


def test_several_runs_keep_the_failed_one_in_sight() -> None:
    failed = shown(run="20261201-190000-llama8b-full-3f9a")
    failed["state"] = "failed"
    row(failed, "first_step").update(verdict="fail", reasons=[reason("oom", "out of memory on 8 of 8 GPUs")])
    again = shown()
    row(again, "resume")["attempts"] = [
        {"attempt": 1, "verdict": "fail", "reasons": [reason("loss_diverges", "update 7: 1.2 against 1.3")]}
    ]
    found = from_shown([again, failed])
    assert found["schema"] == 1 and found["tool"]
    assert [item["retained"] for item in found["configurations"]] == [True, False]
    texts = [f"{line['short']}: {line['text']}" for line in found["seen_and_kept"]]
    assert "llama8b-full-3f9a: failed, first_step: out of memory on 8 of 8 GPUs" in texts
    assert "llama8b-lora-77c1: resume, attempt 1: FAIL, update 7: 1.2 against 1.3" in texts
    assert all(question.startswith("llama8b-") for question in found["open"])


def test_a_run_whose_plan_cannot_be_read_still_has_every_key() -> None:
    show = shown()
    show["plan"] = None
    found = configuration(show)
    assert found.keys() >= PROMISED
    assert found["micro"] is None and found["name"] == "llama8b-lora-77c1"


def test_an_empty_run_is_not_retained() -> None:
    found = configuration({"run": "20261201-190000-x-0000", "state": "new", "phases": [], "plan": as_json(Plan())})
    assert not found["retained"]
    assert "no phase was run" in found["why_not"]


def test_a_run_folder_is_read_and_its_parents_are_kept_in_sight(tmp_path: Path) -> None:
    first = folder_of(tmp_path, "20261201-190000-full-3f9a", state="failed", parent=None)
    second = folder_of(tmp_path, "20261201-193200-lora-77c1", state="finished", parent=first.id)
    found = document([second])
    assert [item["run"] for item in found["configurations"]] == [second.id]
    assert [(line["short"], line["text"]) for line in found["seen_and_kept"]][-1] == ("full-3f9a", "failed")


def folder_of(root: Path, run: str, state: str, parent: str | None) -> RunFolder:
    folder = RunFolder(root / run)
    folder.events.mkdir(parents=True)
    folder.run_file.write_text(json.dumps({"schema": 1, "run": run, "kind": "pilot", "parent": parent}))
    folder.plan_file.write_text(json.dumps({"schema": 1, "plan": as_json(PLAN)}))
    lines = [
        {"v": 1, "kind": "run_started", "n": 0, "at": "2026-12-01T19:00:00.000Z", "mono": 1.0, "run": run},
        {"v": 1, "kind": "run_ended", "n": 1, "at": "2026-12-01T19:01:00.000Z", "mono": 2.0, "state": state},
    ]
    (folder.events / "supervisor.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_after_a_cpu_run_the_prediction_for_a_gpu_says_what_fits() -> None:
    phases = [{"phase": "load", "reserved_peak": 10 * GIB}, {"phase": "first_step", "reserved_peak": 30 * GIB}]
    for_gpu = {"assumptions": {"target": "9.0"}, "phases": phases}
    found = configuration(shown("cpu"), for_gpu)
    by_name = {each["name"]: each for each in found["fits"]}
    assert by_name["L40S 48GB"]["fits"] and by_name["RTX 4090 24GB"]["fits"] is False
    assert all(each["basis"].startswith("predicted") for each in found["fits"])
    assert "not measured on any GPU" in found["fits_note"] and found["fits_note"] in found["open"]
    for_cpu = configuration(shown("cpu"), {**for_gpu, "assumptions": {"target": "cpu"}})
    assert for_cpu["fits"] == [] and "pilot-tui predict PLAN" in for_cpu["fits_note"]


def test_the_plan_names_the_gpus_and_their_prices() -> None:
    plan = dataclasses.replace(PLAN, rental=Rental(gpus=("H100 80GB", "NoSuch 1GB"), prices={"H100 80GB": 2.4}))
    found = configuration(shown(plan=plan))
    assert [(each["name"], each["price_an_hour"]) for each in found["fits"]] == [("H100 80GB", 2.4)]
    assert "not in the catalogue: NoSuch 1GB" in found["fits_note"]
