"""``pilot-tui metrics``: what was measured, as one table."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tui_pilot.commands.options import json_option, runs_option
from tui_pilot.commands.output import new_file, write_json
from tui_pilot.errors import EXIT_OK
from tui_pilot.run_folder import find_run


@click.command()
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A new file, instead of stdout.")
@json_option
@runs_option
def metrics(names: tuple[str, ...], output: Path | None, as_json: bool, runs: Path) -> int:
    """Losses, rates, validation, durations and memory as CSV, a line per value, from the event log."""
    from tui_pilot.report.metrics import csv_of, rows_of

    folders = [find_run(runs, name) for name in names]
    if as_json:
        write_json(
            {"runs": [folder.id for folder in folders], "rows": [row for each in folders for row in rows_of(each)]}
        )
        return EXIT_OK
    text = csv_of(folders)
    if output is not None:
        new_file(output, text)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    return EXIT_OK
