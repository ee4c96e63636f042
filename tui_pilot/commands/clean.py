"""``pilot-tui clean``: removes checkpoint and artifact payloads; manifests, hashes and an event stay."""

from __future__ import annotations

from pathlib import Path

import click

from tui_pilot.commands.options import json_option, runs_option
from tui_pilot.commands.output import say, write_json, write_lines
from tui_pilot.errors import EXIT_OK, EXIT_PLAN_WRONG, PilotError
from tui_pilot.run_folder import find_run, is_live, short_id


@click.command()
@click.argument("run")
@json_option
@runs_option
def clean(run: str, as_json: bool, runs: Path) -> int:
    """Remove what takes space: the payloads of checkpoints and artifact. Rows, manifests and hashes stay."""
    from tui_pilot.launch import control
    from tui_pilot.launch.start import not_writable
    from tui_pilot.store.files import payloads, remove_payloads
    from tui_pilot.text import plural, size

    folder = find_run(runs, run)
    if is_live(folder):
        raise PilotError(
            f"{short_id(folder.id)} is live: its payloads are in use.", f"pilot-tui stop {short_id(folder.id)} first.",
            code="run_is_live", title="That cannot be done now", exit_code=EXIT_PLAN_WRONG,
        )  # fmt: skip
    removed = []
    if payloads(folder):
        try:
            removed = remove_payloads(folder)
        except OSError as error:
            raise not_writable(folder.path, error) from error
        control.record_cleaned(folder, removed)
    freed = sum(each["bytes"] for each in removed)
    if as_json:
        write_json({"run": folder.id, "removed": removed, "freed_bytes": freed})
    else:
        write_lines(f"{each['path']}  {size(each['bytes'])}" for each in removed)
    say(f"{plural(len(removed), 'file')} removed, {size(freed)} freed; manifests with their hashes stay")
    return EXIT_OK
