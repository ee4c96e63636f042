"""``pilot-tui [PLAN or RUN]`` and ``attach``: the screen on what is meant."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tui_pilot.commands.follow import to_the_end
from tui_pilot.commands.options import load_plan, plain_option, runs_option, screen_options
from tui_pilot.commands.output import say, write_lines
from tui_pilot.commands.spoken import is_dumb
from tui_pilot.errors import EXIT_OK, EXIT_PLAN_WRONG, PilotError
from tui_pilot.events.schema import PHASES
from tui_pilot.run_folder import RunFolder, find_run

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan


def has_terminal() -> bool:
    """Whether there is a terminal to draw on and to read keys from."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def show_screen(**settings: Any) -> int:
    """Open the screen; the one place that imports it."""
    if not has_terminal():
        raise PilotError(
            "There is no terminal here, so no screen can be shown.",
            "pilot-tui run --headless runs without one; pilot-tui show latest prints a run.",
            code="no_terminal", title="No terminal", exit_code=EXIT_PLAN_WRONG,
        )  # fmt: skip
    from tui_pilot.ui.app import run_screen

    return int(run_screen(**settings))


def _speak(folder: RunFolder | None, plan: LoadedPlan | None) -> int:
    """What the screen would show, as sentences; the run goes on when its onlooker leaves."""
    if folder is not None:
        return to_the_end(folder, as_json=False, stops=False, plain=True)
    name = plan.plan.name if plan is not None else "the plan"
    start = (
        f"pilot-tui run {plan.file} --plain" if plan is not None and plan.file is not None else "pilot-tui run --plain"
    )
    write_lines([f"{name}: ready, {len(PHASES)} phases, not run yet. Start it: {start}"])
    return EXIT_OK


@click.command(hidden=True)
@click.argument("target", required=False)
@plain_option
@runs_option
@screen_options
def open_target(target: str | None, plain: bool, runs: Path, ascii: bool, theme: str | None, mouse: bool) -> int:
    """Open the screen on PLAN or RUN, else on the live run, ./pilot.yaml, or the built-in demo."""
    folder, plan = meant(target, runs)
    if plain or (has_terminal() and is_dumb()):
        return _speak(folder, plan)
    return show_screen(runs=runs, folder=folder, plan=plan, ascii=ascii, theme=theme, mouse=mouse)


def meant(target: str | None, runs: Path) -> tuple[RunFolder | None, LoadedPlan | None]:
    """The run or the plan that was meant; exactly one of them."""
    from tui_pilot.store.ledger import live_run

    if target is None:
        live = live_run(runs)
        if live is not None:
            return live, None
        loaded, words = load_plan(None)
        say(words)
        return None, loaded
    path = Path(target)
    if (path / "run.json").is_file():
        return RunFolder(path.resolve()), None
    if path.is_file() or (path / "pilot.yaml").is_file() or path.suffix in (".yaml", ".yml"):
        return None, load_plan(path)[0]
    try:
        return find_run(runs, target), None
    except PilotError as error:
        if "means" in error.text:
            raise
        raise _neither(target, runs) from error


def _neither(target: str, runs: Path) -> PilotError:
    from tui_pilot.cli import COMMANDS

    near = difflib.get_close_matches(target, [name for name in COMMANDS if name != "open"], 1)
    advice = (
        f"Nearest command: {near[0]}."
        if near
        else f"pilot-tui --help lists commands, pilot-tui runs the runs in {runs}."
    )
    return PilotError(
        f"{target!r} is no command, no plan file and no run.", advice, code="usage",
        title="The command line is wrong", exit_code=EXIT_PLAN_WRONG, value=target,
    )  # fmt: skip


@click.command()
@click.argument("run", required=False)
@plain_option
@runs_option
@screen_options
def attach(run: str | None, plain: bool, runs: Path, ascii: bool, theme: str | None, mouse: bool) -> int:
    """Open the screen on a run: the live one, else the latest. Without a terminal its lines are printed to its end."""
    from tui_pilot.store.ledger import live_run

    folder = find_run(runs, run) if run else live_run(runs) or find_run(runs, "latest")
    if plain or (has_terminal() and is_dumb()):
        return _speak(folder, None)
    if not has_terminal():
        return to_the_end(folder, as_json=False, stops=False)
    return show_screen(runs=runs, folder=folder, ascii=ascii, theme=theme, mouse=mouse)
