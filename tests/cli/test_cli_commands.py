"""Every command as a script sees it: exit codes, the JSON document on stdout, words on stderr."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launch_runs import FAKE_STAGE, LONG, ended, finish, prepare, running, until

from tui_pilot.cli import COMMANDS, run_command, with_default
from tui_pilot.events.schema import PHASES
from tui_pilot.launch import start as starting
from tui_pilot.run_folder import RunFolder, all_runs, is_live
from tui_pilot.store.view import load_state

Capture = pytest.CaptureFixture[str]


def plan_file(folder: Path, fake: dict[str, str] | None = None, gates: str = "") -> Path:
    path = folder / "pilot.yaml"
    path.write_text(f"name: mine\ntask: demo\noptions: {{fake: {json.dumps(fake or {})}}}\n{gates}\n")
    return path


def call(capture: Capture, *arguments: str) -> tuple[int, str, str]:
    code = run_command(arguments)
    captured = capture.readouterr()
    return code, captured.out, captured.err


def document(capture: Capture, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = call(capture, *arguments, "--json")
    found: dict[str, Any] = json.loads(out)
    assert found["schema"] == 1 and found["tool"]
    return code, found


def test_version_and_help(capsys: Capture) -> None:
    assert run_command(["--version"]) == 0 and "pilot-tui" in capsys.readouterr().out
    code, out, _ = call(capsys, "--help")
    assert code == 0 and all(name in out for name in COMMANDS if name != "open")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "open"])
def test_every_command_has_help(capsys: Capture, name: str) -> None:
    code, out, _ = call(capsys, name, "--help")
    assert code == 0 and "Usage" in out


def test_help_imports_neither_yaml_nor_pydantic_nor_a_screen() -> None:
    code = (
        "import sys\nfrom tui_pilot.cli import run_command\nassert run_command(['--help']) == 0\n"
        "assert not {'yaml', 'pydantic', 'textual', 'torch', 'psutil'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_default_command() -> None:
    assert with_default([]) == ["open"]
    assert with_default(["my.yaml"]) == ["open", "my.yaml"]
    assert with_default(["--runs", "x", "show", "latest"]) == ["--runs", "x", "show", "latest"]
    assert with_default(["--runs=x", "3f9a"]) == ["--runs=x", "open", "3f9a"]


def test_run_headless_json(here: Path, capsys: Capture) -> None:
    plan_file(here)
    code, found = document(capsys, "run", "--headless")
    assert code == 0 and found["exit_code"] == 0 and found["state"] == "finished" and found["demo"] is False
    assert [row["phase"] for row in found["phases"]] == list(PHASES)
    assert found["plan"]["name"] == "mine" and found["events"]["broken_lines"] == 0
    keys = {
        "phase", "verdict", "reasons", "mark", "note", "attempt", "attempts", "inputs", "thresholds", "started",
        "ended", "duration_s", "parts", "memory",
    }  # fmt: skip
    assert keys <= set(found["phases"][0])
    code, again = document(capsys, "show", "latest")
    assert code == 0 and again == found


def test_run_without_plan_says_demo(here: Path, capsys: Capture) -> None:
    code, out, err = call(capsys, "run", "--headless", "--json")
    assert code == 0 and json.loads(out)["demo"] is True
    assert err.splitlines()[0].startswith("plan: the built-in demo")


def test_run_narrates_each_phase_and_prints_the_table(here: Path, capsys: Capture) -> None:
    plan_file(here, {"examples": "warn"})
    code, out, err = call(capsys, "run", "--headless")
    assert code == 0 and err.splitlines()[0] == "plan: pilot.yaml"
    assert " 2/15 examples    warn" in err and "response_truncated" in err and "15/15 reload" in err
    assert "\x1b" not in out + err
    assert len([line for line in out.splitlines() if line.split(" ")[0] in PHASES]) == 15


@pytest.mark.parametrize(
    ("fake", "extra", "code"),
    [
        ({"forward": "fail"}, [], 1),
        ({"forward": "fail"}, ["--keep-going"], 1),
        ({"splits": "unchecked"}, [], 4),
        ({"splits": "unchecked"}, ["--allow-unchecked", "splits"], 0),
        ({"backward": "kill"}, [], 1),
    ],
)
def test_exit_codes(here: Path, capsys: Capture, fake: dict[str, str], extra: list[str], code: int) -> None:
    plan_file(here, fake)
    got, out, err = call(capsys, "run", "--plain", "--json", *extra)
    assert got == code and json.loads(out)["exit_code"] == code
    if code == 4:
        assert "splits is unchecked" in err.splitlines()[-1]
    if "--keep-going" in extra:
        assert json.loads(out)["phases"][-1]["verdict"] == "pass"


def test_wrong_plan_gives_all_errors_and_runs_nothing(here: Path, capsys: Capture) -> None:
    (here / "pilot.yaml").write_text("task: demo\nbatch: {micr: 2}\nseeed: 1\n")
    code, found = document(capsys, "run", "--headless")
    assert code == 2 and len(found["errors"]) == 2 and found["error"]["code"] == "plan_wrong"
    assert {error["line"] for error in found["errors"]} == {2, 3}
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "nope"],
        ["run", "missing.yaml"],
        ["run", "--set", "nonsense"],
        ["run", "--variant", "none"],
        ["run", "--allow-unchecked", "nothing"],
        ["calc", "--micro", "2", "--examples", "0"],
        ["calc", "--micro", "2", "--examples", "8", "--updates", "3", "--epochs", "2"],
        ["calc", "--micro", "2"],
        ["calc", "--micro", "1", "--examples", "8", "--world", "6", "--tensor-parallel", "4"],
        ["verdict", "nope", "stack", "pass"],
        ["stop", "nope"],
        ["clean", "nope"],
        ["no-such-command"],
        ["show", "--frobnicate"],
        ["attach", "nope"],
        ["resume-test", "latest"],
    ],
)
def test_every_failure_is_one_error_document(here: Path, capsys: Capture, arguments: list[str]) -> None:
    code, found = document(capsys, *arguments)
    assert code == 2
    assert {"code", "title", "text", "file", "line", "key", "value", "advice"} == set(found["error"])
    assert found["error"]["text"]


def test_fault_of_ours_is_exit_3_with_a_document(here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "prepare", lambda *_, **__: 1 / 0)
    code, found = document(capsys, "run", "--headless")
    assert code == 3 and found["error"]["code"] == "internal" and "ZeroDivisionError" in found["error"]["text"]


def test_runs_folder_that_cannot_be_used(here: Path, capsys: Capture) -> None:
    (here / "runs").write_text("")
    code, found = document(capsys, "run", "--headless")
    assert code == 3 and found["error"]["code"] == "run_folder" and "PILOT_TUI_RUNS" in found["error"]["advice"]


def test_no_terminal_is_said(here: Path, capsys: Capture) -> None:
    code, _, err = call(capsys)
    assert code == 2 and "terminal" in err and "--headless" in err


def test_ledger_lists_runs_with_sizes_and_parents(here: Path, capsys: Capture) -> None:
    code, _, err = call(capsys, "runs")
    assert code == 0 and "No run" in err
    first, second = prepare(here / "runs"), prepare(here / "runs", {"stack": "fail"})
    finish(first)
    finish(second)
    (here / "runs" / "half").mkdir()
    code, found = document(capsys, "runs")
    assert code == 0 and [run["run"] for run in found["runs"]] == sorted([first.id, second.id])
    by_id = {run["run"]: run for run in found["runs"]}
    assert by_id[first.id]["bytes"] > 8000 and by_id[first.id]["payload_bytes"] == 8000
    assert by_id[second.id]["parent"] == first.id and "options.fake.stack" in by_id[second.id]["changed"]
    assert by_id[second.id]["state"] == "failed" and by_id[second.id]["exit_code"] == 1
    code, out, _ = call(capsys, "--runs", str(here / "runs"), "runs")
    assert code == 0 and first.id in out


def test_broken_run_folder_is_a_line_not_an_end(here: Path, capsys: Capture) -> None:
    folder = prepare(here / "runs")
    folder.run_file.write_text("{")
    code, found = document(capsys, "runs")
    assert code == 0 and found["runs"][0]["state"] == "unreadable" and found["runs"][0]["problem"]
    code, found = document(capsys, "show", folder.id)
    assert code == 3 and "run.json" in found["error"]["text"]


def test_clean_removes_payloads_and_keeps_manifests(here: Path, capsys: Capture) -> None:
    folder = prepare(here / "runs")
    finish(folder)
    code, found = document(capsys, "clean", "latest")
    assert code == 0 and found["freed_bytes"] == 8000
    assert {each["path"] for each in found["removed"]} == {"checkpoints/step-000003/weights.pt", "artifact/weights.pt"}
    assert (folder.checkpoints / "step-000003" / "manifest.json").is_file()
    assert (folder.artifact / "manifest.json").is_file()
    assert load_state(folder)[0].cleaned and document(capsys, "clean", "latest")[1]["removed"] == []
    code, found = document(capsys, "resume-test", "latest")
    assert code == 2 and found["error"]["code"] == "needs_checkpoint"


def test_verdict_note_and_decision(here: Path, capsys: Capture) -> None:
    folder = prepare(here / "runs", {"splits": "fail"})
    finish(folder)
    code, found = document(capsys, "verdict", "latest", "splits", "pass")
    assert code == 2 and found["error"]["code"] == "note_required"
    code, found = document(capsys, "verdict", "latest", "splits", "pass", "--note", "wanted")
    assert code == 0 and (found["verdict"], found["mark"], found["note"]) == ("fail", "pass", "wanted")
    assert document(capsys, "note", "latest", "an eye on the cat")[0] == 0
    assert document(capsys, "decide", "latest", "reject", "--note", "too slow")[0] == 0
    shown = document(capsys, "show", folder.id)[1]
    assert shown["notes"][0]["text"] == "an eye on the cat" and shown["decision"]["decision"] == "reject"
    code, found = document(capsys, "verdict", "latest", "splits", "clear")
    assert code == 0 and found["mark"] is None


def test_stop_and_clean_of_a_live_run(here: Path, capsys: Capture) -> None:
    folder = prepare(here / "runs", {"evaluate": "hang"})
    starting.start(folder)
    running(folder, "evaluate")
    code, found = document(capsys, "clean", folder.id)
    assert code == 2 and found["error"]["code"] == "run_is_live"
    code, found = document(capsys, "stop", folder.id)
    assert code == 0 and found["state"] == "stopped" and not is_live(folder)
    assert document(capsys, "show", folder.id)[1]["exit_code"] == 5
    code, found = document(capsys, "stop", folder.id)
    assert code == 2 and found["error"]["code"] == "not_running"


def test_resume_test_has_the_exit_code_of_its_attempt(here: Path, capsys: Capture) -> None:
    folder = prepare(here / "runs", {"resume@3": "fail"})
    finish(folder)
    code, found = document(capsys, "resume-test", "latest")
    assert code == 0 and found["phase"]["attempt"] == 2 and found["phase"]["verdict"] == "pass"
    code, found = document(capsys, "resume-test", "latest")
    assert code == 1 and found["phase"]["attempt"] == 3


def test_resume_test_without_waiting(here: Path, capsys: Capture) -> None:
    folder = prepare(here / "runs")
    finish(folder)
    code, found = document(capsys, "resume-test", "latest", "--no-wait")
    assert code == 0 and "attempt 2" in found["text"]
    assert ended(folder).row("resume").attempt == 2


def test_attach_without_terminal_follows_to_the_end(here: Path, capsys: Capture) -> None:
    folder = prepare(here / "runs", {"splits": "hang"})
    starting.start(folder)
    running(folder, "splits")
    (folder.path / "control" / "save_now").touch()
    code, out, err = call(capsys, "attach")
    assert code == 0 and "15/15 reload" in err and folder.id in out


def test_check_runs_the_data_stage_alone_and_leaves_nothing(here: Path, capsys: Capture) -> None:
    plan_file(here)
    code, found = document(capsys, "check", "pilot.yaml")
    assert code == 0 and [row["phase"] for row in found["phases"]] == ["stack", "examples", "splits"]
    assert found["examples"]["rows"] == 4 and found["splits"]["unit"] == "conversation_id"
    assert not (here / "runs").exists() and not (here / "pilot.lock.json").exists()


def test_check_is_in_no_ledger_and_keeps_on_demand(here: Path, capsys: Capture) -> None:
    plan_file(here, {"splits": "unchecked"})
    code, found = document(capsys, "check", "--keep", "--lock")
    assert code == 4 and (Path(found["folder"]) / "run.json").is_file()
    assert document(capsys, "runs")[1]["runs"] == []
    lock = json.loads((here / "pilot.lock.json").read_text())
    assert lock["versions"]["torch"] == "2.99.0"


def test_check_with_a_fail(here: Path, capsys: Capture) -> None:
    plan_file(here, {"examples": "fail"})
    code, out, err = call(capsys, "check")
    assert code == 1 and "FAIL" in out and "judged in forward" in err


def test_calc_human_words(capsys: Capture) -> None:
    code, out, _ = call(capsys, "calc", "--micro", "2", "--accumulation", "8", "--examples", "3200")
    assert code == 0 and "16 rows" in out and "200 updates" in out


def test_sheet_to_stdout_and_never_over_a_file(here: Path, capsys: Capture) -> None:
    finish(prepare(here / "runs"))
    code, out, _ = call(capsys, "sheet", "latest")
    assert code == 0 and out.startswith("#")
    code, found = document(capsys, "sheet", "latest")
    assert code == 0 and found["configurations"][0]["verdict"] == "pass"
    assert call(capsys, "sheet", "latest", "-o", "s.md")[0] == 0
    assert call(capsys, "sheet", "latest", "-o", "s.md")[0] == 2


def headless(here: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command in a process of its own, over the stand-in."""
    places = [str(FAKE_STAGE.parents[0]), str(FAKE_STAGE.parents[1])]
    code = (
        "import os, sys; sys.path[:0] = sys.argv.pop(1).split(os.pathsep)\n"
        "from launch_runs import FAKE_STAGE, fake_choice\n"
        "from tui_pilot.launch import start\n"
        "real = start.copy_pilot_side\n"
        "start.choose = fake_choice\n"
        "start.copy_pilot_side = lambda target, source: real(target, source or FAKE_STAGE)\n"
        "from tui_pilot.cli import main\nmain()\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, os.pathsep.join(places), "run", "--headless", "--json", *arguments],
        cwd=here, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 5)])
def test_signals_stop_the_run(here: Path, number: int, code: int) -> None:
    plan_file(here, {"evaluate": "hang"})
    process = headless(here)
    folder = one_run(here)
    running(folder, "evaluate")
    process.send_signal(number)
    out, err = process.communicate(timeout=LONG)
    assert process.returncode == code, err
    found = json.loads(out)
    assert found["state"] == "stopped" and found["exit_code"] == code and "stopping" in err


def test_hang_up_detaches_and_the_pilot_goes_on(here: Path) -> None:
    plan_file(here, {"evaluate": "hang"})
    process = headless(here)
    folder = one_run(here)
    running(folder, "evaluate")
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=LONG)
    assert process.returncode == 129 and is_live(folder)
    (folder.path / "control" / "save_now").touch()
    assert ended(folder).state == "finished"


def test_killed_supervisor_is_exit_3(here: Path) -> None:
    plan_file(here, {"evaluate": "hang"})
    process = headless(here)
    folder = one_run(here)
    state = running(folder, "evaluate")
    os.kill(int(state.supervisor["pid"]), signal.SIGKILL)
    out, err = process.communicate(timeout=LONG)
    assert process.returncode == 3 and json.loads(out)["state"] == "lost" and "no sign of life" in err


def one_run(here: Path) -> RunFolder:
    found: list[RunFolder] = until(lambda: all_runs(here / "runs"), "a run")
    return found[0]


def test_calc_says_the_effective_batch_without_a_number_of_rows(capsys: Capture) -> None:
    assert run_command(["calc", "--micro", "3", "--accumulation", "7", "--replicas", "2"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("One update averages 42 rows") and "--examples" in said
