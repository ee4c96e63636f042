"""``pilot-tui gpus``: what NVML sees, every Python with its torch, and how the two counts match."""

from __future__ import annotations

import click

from tui_pilot.commands.options import json_option
from tui_pilot.commands.output import write_json, write_lines
from tui_pilot.errors import EXIT_OK


@click.command()
@click.option("--python", metavar="PATH", help="Look at this Python too, as launch.python would name it.")
@json_option
def gpus(python: str | None, as_json: bool) -> int:
    """Show the GPUs, the Pythons found here with their torch, and which CUDA number is which GPU."""
    from tui_pilot.devices import report

    found = report.report(python)
    if as_json:
        write_json(found)
    else:
        write_lines(report.lines(found))
    return EXIT_OK
