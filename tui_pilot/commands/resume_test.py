"""``pilot-tui resume-test``: the resume gate again, now, in a new process; a new attempt of its row."""

from __future__ import annotations

from pathlib import Path

import click

from tui_pilot.commands.options import json_option, runs_option
from tui_pilot.commands.output import say, write_json
from tui_pilot.errors import EXIT_GATE_FAILED, EXIT_OK, EXIT_TOOL_FAILED, EXIT_UNCHECKED
from tui_pilot.run_folder import find_run

CODES = {"pass": EXIT_OK, "warn": EXIT_OK, "fail": EXIT_GATE_FAILED}


@click.command("resume-test")
@click.argument("run")
@click.option("--no-wait", is_flag=True, help="Return at once; the test goes on without this command.")
@json_option
@runs_option
def resume_test(run: str, no_wait: bool, as_json: bool, runs: Path) -> int:
    """Test the resume again. While the run is live the test waits until a second copy fits; stderr says for what.

    The exit code is the new attempt's: 0 pass or warning, 1 fail, 4 unchecked or not run.
    """
    from tui_pilot.commands.follow import Left, follow
    from tui_pilot.launch import control
    from tui_pilot.store.view import load_state, row_json

    folder = find_run(runs, run)
    before = load_state(folder)[0].row("resume")
    words = control.request_resume_test(folder)
    say(f"resume test: {words}")
    if no_wait:
        if as_json:
            write_json({"run": folder.id, "text": words, "phase": None})
        return EXIT_OK
    try:
        state = follow(folder, stops=False, quiet=True)
    except Left as left:
        return left.exit_code
    row = state.row("resume")
    reason = row.reasons[0]["text"] if row.reasons else ""
    say(f"resume, attempt {row.attempt}: {row.verdict}  {reason}".rstrip())
    if as_json:
        write_json({"run": folder.id, "text": words, "phase": row_json(row)})
    if row.attempt <= before.attempt:
        return EXIT_UNCHECKED if state.state != "lost" else EXIT_TOOL_FAILED
    return CODES.get(str(row.verdict), EXIT_UNCHECKED)
