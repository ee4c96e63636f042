"""Options and arguments that several commands share."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tui_pilot.errors import EXIT_PLAN_WRONG, PilotError
from tui_pilot.events.schema import PHASES
from tui_pilot.ui.theme_names import THEMES

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_PLAN = Path("pilot.yaml")


def _runs(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path:
    given = value or context.find_root().params.get("runs") or os.environ.get("PILOT_TUI_RUNS") or "runs"
    return Path(given)


def runs_option(command: F) -> F:
    """``--runs DIR``, after the command or before it."""
    return click.option(
        "--runs", metavar="DIR", type=click.Path(path_type=Path), callback=_runs, help="Where the runs are."
    )(command)


def json_option(command: F) -> F:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")(command)


def set_option(command: F) -> F:
    """``--set key=value``."""
    return click.option(
        "--set", "sets", metavar="KEY=VALUE", multiple=True, help="Change one value of the plan: optimizer.lr=1e-4."
    )(command)


def allow_option(command: F) -> F:
    """``--allow-unchecked PHASE``."""
    return click.option(
        "--allow-unchecked", "allowed", metavar="PHASE", multiple=True, callback=_phases,
        help="Accept that this phase is unchecked or skipped: it then does not make the exit code 4.",
    )(command)  # fmt: skip


def plain_option(command: F) -> F:
    """``--plain``."""
    return click.option("--plain", is_flag=True, help="Sentences on stdout, for logs and screen readers.")(command)


def _theme(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and value not in THEMES:
        raise PilotError(
            f"There is no theme {value!r}.", f"Themes: {', '.join(THEMES)}.", code="unknown_theme",
            title="The command line is wrong", exit_code=EXIT_PLAN_WRONG, value=value,
        )  # fmt: skip
    return value


def screen_options(command: F) -> F:
    """``--ascii``, ``--theme``, ``--mouse``."""
    for option in (
        click.option("--mouse", is_flag=True, help="Let the screen take the mouse."),
        click.option("--theme", metavar="NAME", callback=_theme, help=f"{', '.join(THEMES[:-1])} or {THEMES[-1]}."),
        click.option("--ascii", is_flag=True, help="Only ASCII characters on the screen."),
    ):
        command = option(command)
    return command


def _phases(context: click.Context, parameter: click.Parameter, value: Sequence[str]) -> tuple[str, ...]:
    for name in value:
        if name not in PHASES:
            raise unknown("phase", name, PHASES)
    return tuple(value)


def unknown(what: str, name: str, known: Sequence[str]) -> PilotError:
    """A name that is none of the known ones."""
    near = difflib.get_close_matches(name, known, 1)
    advice = f"Nearest: {near[0]}." if near else f"Known: {', '.join(known)}."
    return PilotError(
        f"There is no {what} {name!r}.", advice, code=f"unknown_{what}", title="The command line is wrong",
        exit_code=EXIT_PLAN_WRONG, value=name,
    )  # fmt: skip


def load_plan(
    path: Path | None, sets: Sequence[str] = (), variant: str | None = None, *, need_weights: bool = True
) -> tuple[LoadedPlan, str]:
    """The plan to use and a line that says which: PATH, else ./pilot.yaml, else the built-in demo.

    ``need_weights=False``: of a model folder its config is enough.
    """
    from tui_pilot.plan import load, variants

    overrides = load.parse_set(sets)
    if path is not None and path.is_dir() and (path / DEFAULT_PLAN).is_file():
        path = path / DEFAULT_PLAN
    if path is None and DEFAULT_PLAN.exists():
        path = DEFAULT_PLAN
    if path is None:
        loaded = load.default_demo(overrides)
        words = "plan: the built-in demo (no ./pilot.yaml here): made-up data, not yours"
    else:
        loaded = load.load(path, overrides, need_weights=need_weights)
        words = f"plan: {path}"
    if variant is not None:
        loaded = variants.variant(loaded, variant)
        words += f", variant {variant}"
    return loaded, words
