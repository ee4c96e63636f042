"""The page answers a stranger's questions: what was asked, held, ran, diverged, decided, and how sure that is."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from comparisons import ID, PARENT, comparison

from tui_pilot.archive.pack import pack
from tui_pilot.commands.conclusion import conclusion as command
from tui_pilot.launch import control
from tui_pilot.report.conclusion import document
from tui_pilot.report.gather import given
from tui_pilot.report.outcome import sentences
from tui_pilot.report.page import render
from tui_pilot.run_folder import find_run

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from record_run import RECORDED, copy_all, recorded_id

HOSTILE = "</table> | # | [x](http://y) `rm` \x1b[31m red \u202e edoc\n\n# Decided: ship it"


def page(runs: Path, name: str = ID) -> tuple[dict[str, Any], str]:
    found = document(given(runs, name))
    return found, render(found)


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_page_of_a_comparison_answers_every_question(tmp_path: Path) -> None:
    comparison(tmp_path)
    base = find_run(tmp_path, "20261202-060000-desk-base0")
    control.decide(base, "retain", "the baseline is enough")
    found, text = page(tmp_path)
    said = flat(text)
    assert "Which of 3 settings (base, half, hot) of optimizer.lr gives the lowest loss" in said
    assert "The baseline base won: its final loss is the lowest, 1.11 (optimizer.lr 1.0e-4)." in said
    assert " is told apart from half." in said
    assert "hot (optimizer.lr 5.0e-1) diverged with seed 0 at update 17" in said
    assert "with seed 2 at update 19" in said
    assert "desk-base0 (base) is retained: the baseline is enough" in said
    assert "3 seeds for each setting" in said
    assert "half less base: seed 0 +0.03, seed 1 +0.04, seed 2 +0.04; mean +0.0367" in said
    assert "learning rate: 1.0e-4 in base; 5.0e-5 in half; 5.0e-1 in hot" in said
    assert "| effective batch | 8 rows an update" in text
    assert "200 updates, validation every 50" in said
    assert "next: add seeds 3 and 4" in said
    assert "the best optimizer.lr, 1.0e-4, is the largest of those that came to their end: nothing between" in said
    assert "| none finished |" in said
    assert found["comparisons"][0]["baseline_won"] is True
    for run in found["runs"]:
        assert run["short"] in text
    assert {run["run"] for run in found["runs"]} >= {PARENT}
    assert len(found["runs"]) == 10


def test_an_archive_of_a_trial_tells_the_whole_comparison(tmp_path: Path) -> None:
    comparison(tmp_path / "runs")
    trial = find_run(tmp_path / "runs", "20261202-060000-desk-base0")
    pack(trial, tmp_path / "run.zip", need_artifact=False, page=lambda one: render(document([one], alone=True)))
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        said = flat(archive.read("CONCLUSION.md").decode())
        assert json.loads(archive.read("comparison.json"))["id"] == ID
    assert "The baseline base won" in said
    assert "hot, seed 2: diverged" in said
    assert "desk-9b08" not in said


def test_one_run_of_a_comparison_brings_all_its_trials(tmp_path: Path) -> None:
    comparison(tmp_path)
    found = document([find_run(tmp_path, "20261202-060100-desk-half1")])
    assert len(found["runs"]) == 10
    assert sum(run["diverged_at"] is not None for run in found["runs"]) == 3


@pytest.mark.parametrize(("losses", "told"), [([1.05, 1.06, 1.04], True), ([1.09, 1.12, 1.10], False)])
def test_a_better_variant_wins_only_when_it_is_told_apart(losses: list[float], told: bool, tmp_path: Path) -> None:
    comparison(tmp_path, losses, told)
    said = flat(page(tmp_path)[1])
    assert "baseline base won" not in said
    assert "half (optimizer.lr 5.0e-5) has the lowest final loss" in said
    assert ("half is told apart from base." in said) is told
    assert ("half is not told apart from base: keep the baseline." in said) is not told


def test_one_seed_tells_nothing_apart_and_nothing_may_be_said_of_no_result() -> None:
    entries = [{"id": "base", "seeds": 1, "final": {"mean": 2.0}}, {"id": "half", "seeds": 1, "final": {"mean": 1.0}}]
    said = sentences({"summary": entries}, "base", "accuracy", True)
    assert said[0].startswith("The baseline base won")
    assert "not told apart from half" in said[1]
    none = sentences({"summary": [{"id": "base", "seeds": 0, "final": {"mean": None}}]}, "base", "loss", False)
    assert none == ["No setting reached a final validation: nothing can be said of which is better."]


def test_failed_stopped_and_lost_runs_are_on_the_page_with_where_they_came_from(tmp_path: Path) -> None:
    copy_all(tmp_path)
    found, text = page(tmp_path, recorded_id(RECORDED / "desk-lost"))
    assert [run["state"] for run in found["runs"]] == ["finished", "failed", "lost"]
    assert "desk-5303 came from desk-ebbd; changed: data.max_length 512, now 160" in flat(text)
    assert "92 rows of 351 lose part of the response" in flat(text)
    assert {each["run"][-4:] for each in found["beside"]} == {"9b08", "8b5c"}
    assert "desk-8b5c (variant, stopped)" in flat(text)


def test_what_was_written_by_hand_stays_also_when_it_was_taken_back(tmp_path: Path) -> None:
    copy_all(tmp_path)
    run = find_run(tmp_path, PARENT)
    control.decide(run, "reject", "too slow")
    control.decide(run, "retain", "fast enough after all")
    control.mark(run, "batch", "warn", "look again")
    control.mark(run, "batch", None)
    control.note(run, "first look", "load")
    found, text = page(tmp_path, PARENT)
    assert [(act["what"], act["value"]) for act in found["by_hand"]] == [
        ("decision", "reject"), ("decision", "retain"), ("mark", "warn"), ("mark", None), ("note", None),
    ]  # fmt: skip
    assert all(act["by"] for act in found["by_hand"])
    assert "because: too slow" in flat(text)
    assert "desk-ebbd is retained: fast enough after all" in flat(text)
    assert "took back the mark on batch" in flat(text)


def test_foreign_text_stays_text(tmp_path: Path) -> None:
    copy_all(tmp_path)
    run = find_run(tmp_path, PARENT)
    control.note(run, HOSTILE)
    control.decide(run, "defer", HOSTILE)
    text = page(tmp_path, PARENT)[1]
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert not any(line.startswith("# Decided") for line in text.splitlines())
    for bare in ("</table>", "[x](", " `rm`"):
        assert bare not in text.replace(f"\\{bare.strip()[0]}", "")
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_software_was_checked_on_one_machine_and_on_no_other_gpu(tmp_path: Path) -> None:
    copy_all(tmp_path)
    found, text = page(tmp_path, PARENT)
    assert found["software_checked"][0]["value"] is True
    assert found["software_checked"][0]["on"]["host"] == "box"
    assert found["software_checked"][0]["elsewhere"] is False
    assert "On a GPU it is not checked." in flat(text)


@pytest.mark.parametrize(
    "broken",
    ["", "[]", '{"trials": 3}', '{"trials": [3]}', '{"trials": [{"run": "../../x"}], "summary": []}', "\x00\xff"],
)
def test_a_comparison_that_cannot_be_read_is_none(broken: str, tmp_path: Path) -> None:
    copy_all(tmp_path)
    (tmp_path / ID).mkdir()
    (tmp_path / ID / "comparison.json").write_text(broken)
    assert page(tmp_path, PARENT)[0]["comparisons"] == []


def test_the_command_writes_a_new_file_and_json_of_the_same(tmp_path: Path) -> None:
    copy_all(tmp_path / "runs")
    line = [PARENT, "--runs", str(tmp_path / "runs")]
    file = tmp_path / "page.md"
    assert CliRunner().invoke(command, [*line, "-o", str(file)], standalone_mode=False).return_value == 0
    shown = CliRunner().invoke(command, [*line, "--json"], standalone_mode=False)
    found = json.loads(shown.stdout)
    assert render(found) == file.read_text("utf-8")
    again = CliRunner().invoke(command, [*line, "-o", str(file)], standalone_mode=False)
    assert again.exception is not None and "never replaced" in str(again.exception)
