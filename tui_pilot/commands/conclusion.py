"""``pilot-tui conclusion``: one page over one or several runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tui_pilot.commands.options import json_option, runs_option
from tui_pilot.commands.output import new_file, write_json
from tui_pilot.errors import EXIT_OK


@click.command()
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A new file, instead of stdout.")
@json_option
@runs_option
def conclusion(names: tuple[str, ...], output: Path | None, as_json: bool, runs: Path) -> int:
    """What was asked, held constant, ran, was seen and decided, how sure it is and what stays open: one page.

    What the runs came from and every trial of their comparison are on it too, however they ended.
    """
    from tui_pilot.report.conclusion import document
    from tui_pilot.report.gather import given
    from tui_pilot.report.page import render

    found = document([folder for name in names for folder in given(runs, name)])
    if as_json:
        write_json(found)
        if output is None:
            return EXIT_OK
    text = render(found)
    if output is not None:
        new_file(output, text)
        return EXIT_OK
    sys.stdout.write(text)
    sys.stdout.flush()
    return EXIT_OK
