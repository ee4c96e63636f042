"""``--plain``: a run as sentences on stdout; and the terminals and themes the screen does not open on."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch_runs import finish, prepare
from test_cli_commands import Capture, call, plan_file

from tui_pilot.commands import open_screen
from tui_pilot.commands.spoken import Speaker, seconds
from tui_pilot.events import schema
from tui_pilot.events.schema import PHASES
from tui_pilot.store.fold import fold
from tui_pilot.store.state import RunState
from tui_pilot.ui.theme import PALETTES, THEMES


def test_run_plain_is_one_sentence_an_event_on_stdout(here: Path, capsys: Capture) -> None:
    plan_file(here, {"examples": "warn"})
    code, out, err = call(capsys, "run", "--plain")
    lines = out.splitlines()
    assert code == 0 and err.splitlines()[0] == "plan: pilot.yaml"
    assert "phase 1 of 15, stack: began" in lines
    assert [line for line in lines if line.startswith("phase 2 of 15, examples: warn after")]
    assert sum(": began" in line and line.startswith("phase ") for line in lines) == len(PHASES)
    assert lines[-2].startswith("finished") and lines[-1].startswith("all of it: pilot-tui show ")
    assert not any("  " in line for line in lines), "no columns"

    # The same is said to somebody who comes later, and the run does not mind.
    later, said, _ = call(capsys, "attach", "--plain")
    assert later == 0 and [line for line in said.splitlines() if line.startswith("phase ")] == [
        line for line in lines if line.startswith("phase ")
    ]


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_gets_sentences(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    folder = prepare(here / "runs")
    finish(folder)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(open_screen, "has_terminal", lambda: True)
    for words in (["attach"], ["latest"], []):
        if words:
            code, out, _ = call(capsys, *words)
            assert code == 0 and "phase 15 of 15, reload: pass" in out, words
    plan_file(here)
    code, out, _ = call(capsys)
    assert code == 0 and "mine: ready, 15 phases, not run yet. Start it: pilot-tui run" in out and "--plain" in out


def test_a_summary_comes_when_nothing_else_is_said() -> None:
    said: list[str] = []
    now = [100.0]
    speaker = Speaker(said.append, every=30.0, clock=lambda: now[0])
    started = {"kind": schema.RUN_STARTED, "run": "a-1", "name": "a", "at": "2026-01-01T00:00:00.000Z", "mono": 100.0}
    phase = {"kind": schema.PHASE_STARTED, "phase": "steady_step", "attempt": 1, "at": started["at"], "mono": 100.0}
    step = {"kind": schema.PROGRESS, "phase": "steady_step", "attempt": 1, "done": 3, "total": 5, "unit": "update"}
    state = RunState()
    for event in (started, phase, {**step, "at": started["at"], "mono": 101.0}):
        state = fold([event], state)
        speaker.event(event, state)
    assert said == ["run a-1 began", "phase 9 of 15, steady_step: began"]
    for now[0] in (110.0, 129.9, 130.0, 150.0, 161.0):
        speaker.look(state)
    assert said[2:] == [
        "running: phase 9 of 15, steady_step for 30.0 seconds; update 3 of 5; last event 29.0 seconds ago",
        "running: phase 9 of 15, steady_step for 1 minute 1 second; update 3 of 5; last event 1 minute ago",
    ]


def test_times_are_read_aloud() -> None:
    assert [seconds(each) for each in (0.4, 12.84, 107, 3600, 7500)] == [
        "0.40 seconds", "12.8 seconds", "1 minute 47 seconds", "1 hour", "2 hours 5 minutes",
    ]  # fmt: skip


@pytest.mark.parametrize("words", [["attach"], ["run"], []])
def test_an_unknown_theme_is_refused_with_the_five_names(here: Path, capsys: Capture, words: list[str]) -> None:
    code, out, err = call(capsys, *words, "--theme", "bogus")
    assert code == 2 and out == "" and not (here / "runs").exists()
    assert "There is no theme 'bogus'. Themes: dark, light, high-contrast, colour-blind, ansi." in err


def test_the_names_are_those_of_the_colours() -> None:
    assert list(THEMES) == [*PALETTES, "ansi"]
