"""``pilot-tui sheet``: the selection sheet of one or several runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from tui_pilot.commands.options import json_option, runs_option
from tui_pilot.commands.output import new_file
from tui_pilot.errors import EXIT_OK, EXIT_PLAN_WRONG, PilotError
from tui_pilot.run_folder import RunFolder, find_run


@click.command()
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@click.option("--format", "form", type=click.Choice(["md", "json", "yaml", "csv", "html"]), help="md by default.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A new file, instead of stdout.")
@click.option("--order", type=click.Choice(["skypilot"]), help="Not the sheet: a task file for this engine.")
@json_option
@runs_option
def sheet(
    names: tuple[str, ...], form: str | None, output: Path | None, order: str | None, as_json: bool, runs: Path
) -> int:
    """The selection sheet: memory, batch, precision, software, what may be retained and what is open."""
    from tui_pilot.sheet import build, write

    folders = [find_run(runs, name) for name in names]
    found = build.document(folders)
    text = ordered(folders, found) if order else write.text(found, "json" if as_json else form or "md")
    if output is None:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
        return EXIT_OK
    new_file(output, text)
    return EXIT_OK


def ordered(folders: list[RunFolder], found: dict[str, Any]) -> str:
    """The order file of the one run that is given."""
    from tui_pilot.campaign.variant_runs import plan_of
    from tui_pilot.sheet.order import skypilot

    if len(folders) != 1:
        raise PilotError(
            f"An order is for one run, not {len(folders)}.", "Name the run to rent for.", code="usage",
            title="No order was written", exit_code=EXIT_PLAN_WRONG,
        )  # fmt: skip
    (folder,) = folders
    document = folder.read_json(folder.plan_file)
    plan = plan_of(document)
    if plan is None:
        raise PilotError(
            f"{folder.id} has no plan that can be read.", "Name another run.", code="run_folder",
            title="No order was written", exit_code=EXIT_PLAN_WRONG,
        )  # fmt: skip
    base = str(document.get("folder") or ".")
    return skypilot(found["configurations"][0], plan, base, str(folder.path.resolve() / "plan.yaml"))
