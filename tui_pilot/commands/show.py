"""``runs`` and ``show``: the ledger, and one run's rows."""

from __future__ import annotations

from pathlib import Path

import click

from tui_pilot.commands.options import allow_option, json_option, runs_option
from tui_pilot.commands.output import say, write_json, write_lines
from tui_pilot.errors import EXIT_OK
from tui_pilot.run_folder import find_run


@click.command()
@click.argument("run", default="latest")
@json_option
@allow_option
@runs_option
def show(run: str, as_json: bool, allowed: tuple[str, ...], runs: Path) -> int:
    """Show one run's rows; the run's own exit code is in the document, this command's is 0."""
    from tui_pilot.commands import tables
    from tui_pilot.store.view import snapshot

    document = snapshot(find_run(runs, run), allowed)
    if as_json:
        write_json(document)
    else:
        write_lines(
            [
                *tables.heading(document),
                *tables.rows_of_run(document),
                *tables.reasons_of_run(document),
                *tables.tail(document),
            ]
        )
    return EXIT_OK


@click.command()
@json_option
@runs_option
def runs(as_json: bool, runs: Path) -> int:
    """List all runs, oldest first, with their sizes on disk; none is ever taken off this list."""
    from tui_pilot.commands import tables
    from tui_pilot.store.ledger import ledger
    from tui_pilot.text import plural, size

    entries = [entry.as_json() for entry in ledger(runs)]
    total = sum(entry["bytes"] for entry in entries)
    if as_json:
        write_json({"folder": str(runs), "bytes": total, "runs": entries})
        return EXIT_OK
    if not entries:
        say(f"No run in {runs} yet. Start one: pilot-tui run")
        return EXIT_OK
    write_lines([*tables.rows_of_ledger(entries), f"{plural(len(entries), 'run')} in {runs}, {size(total)}"])
    return EXIT_OK
