"""``pilot-tui schedule``: what fits into a package of days, from what a pilot measured."""

from __future__ import annotations

import textwrap
from pathlib import Path

import click

from tui_pilot.commands.options import json_option, runs_option
from tui_pilot.commands.output import say, write_json, write_lines
from tui_pilot.errors import EXIT_OK, EXIT_UNCHECKED, RunFolderError
from tui_pilot.run_folder import find_run


@click.command()
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@click.option("--days", type=click.IntRange(1), multiple=True, help="3, 7 or 30; without it the plan's packages.")
@click.option("--restarts", type=click.IntRange(0), default=0, help="Pre-emptions to keep time for.")
@json_option
@runs_option
def schedule(names: tuple[str, ...], days: tuple[int, ...], restarts: int, as_json: bool, runs: Path) -> int:
    """Pack the plan, its trials and its variants into 3, 7 or 30 days.

    Time for evaluation, export and the margin (rental in the plan) is taken first. Hours are those that the run
    measured; a variant that no run measured is predicted from it, and says so. One job at a time has the machine.
    """
    from tui_pilot.campaign import schedule as arithmetic
    from tui_pilot.campaign.variant_runs import others_of, plan_of
    from tui_pilot.store.view import snapshot

    folders = [find_run(runs, name) for name in names]
    given = []
    for folder in folders:
        show = snapshot(folder)
        plan = plan_of(show)
        if plan is None:
            raise RunFolderError(f"{folder.id} has no plan that can be read.", "Name another run.", exit_code=2)
        given.append((show, plan))
    others = others_of(folders, given)
    asked = days or given[0][1].rental.packages
    found = [arithmetic.document(given, each, others, restarts) for each in asked]
    if as_json:
        write_json(found[0] if len(found) == 1 else {"packages": found})
    else:
        for each in found:
            write_lines([*arithmetic.lines(each), ""])
        write_lines(line for note in arithmetic.notes(found[0]) for line in textwrap.wrap(note, 100))
    unpriced = found[0]["unpriced"]
    if unpriced:
        say("not priced: " + "; ".join(f"{each['id']}: {each['why']}" for each in unpriced))
    return EXIT_UNCHECKED if unpriced else EXIT_OK
