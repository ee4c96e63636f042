"""``pilot-tui run``: the whole pilot, with the screen or without."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tui_pilot.commands.options import (
    allow_option,
    json_option,
    load_plan,
    runs_option,
    screen_options,
    set_option,
)
from tui_pilot.commands.output import say
from tui_pilot.run_folder import all_runs, is_live, short_id


@click.command()
@click.argument("plan", required=False, type=click.Path(path_type=Path))
@set_option
@click.option("--variant", metavar="ID", help="Run this variant of the plan.")
@click.option("--keep-going", is_flag=True, help="Run on past a fail.")
@click.option("--headless", is_flag=True, help="No screen: plain lines on stderr, the table on stdout, the exit code.")
@click.option("--plain", is_flag=True, help="No screen: sentences on stdout, for logs and screen readers.")
@json_option
@allow_option
@runs_option
@screen_options
def run(
    *,
    plan: Path | None,
    sets: tuple[str, ...],
    variant: str | None,
    keep_going: bool,
    headless: bool,
    plain: bool,
    as_json: bool,
    allowed: tuple[str, ...],
    runs: Path,
    ascii: bool,
    theme: str | None,
    mouse: bool,
) -> int:
    """Start the whole pilot at once and open the screen on it.

    Without PLAN: ./pilot.yaml, else the built-in demo; the first line says which. The pilot outlives the screen:
    leaving it, or losing the connection, stops nothing.
    """
    from tui_pilot.commands.follow import to_the_end
    from tui_pilot.commands.open_screen import has_terminal, show_screen
    from tui_pilot.commands.spoken import is_dumb
    from tui_pilot.launch import start

    loaded, words = load_plan(plan, sets, variant)
    say(words)
    live = [each.id for each in all_runs(runs) if is_live(each)]
    if live:
        say(f"{short_id(live[-1])} is live here too: both share the machine, and each measures the other's load")
    folder = start.prepare(
        loaded, runs, argv=sys.argv, kind="variant" if variant else "pilot", keep_going=keep_going, variant=variant,
        tell=say,
    )  # fmt: skip
    start.start(folder)
    spoken = not (headless or as_json) and (plain or (has_terminal() and is_dumb()))
    if headless or as_json or spoken or not has_terminal():
        say(f"run: {folder.id} in {folder.path}")
        return to_the_end(folder, as_json=as_json, allowed=allowed, plain=spoken)
    return show_screen(runs=runs, folder=folder, ascii=ascii, theme=theme, mouse=mouse)
