"""``stop``, ``verdict``, ``note`` and ``decide``: what a person does to a run from outside."""

from __future__ import annotations

from pathlib import Path

import click

from tui_pilot.commands.options import json_option, runs_option
from tui_pilot.commands.output import say, write_json
from tui_pilot.errors import EXIT_OK, EXIT_TOOL_FAILED
from tui_pilot.run_folder import find_run, short_id


@click.command()
@click.argument("run")
@json_option
@runs_option
def stop(run: str, as_json: bool, runs: Path) -> int:
    """Stop a live run cleanly and wait for its end; every row is kept."""
    from tui_pilot.commands.follow import Left, follow
    from tui_pilot.launch import control

    folder = find_run(runs, run)
    control.request_stop(folder)
    say(f"stopping {short_id(folder.id)}")
    try:
        state = follow(folder, stops=False, quiet=True)
    except Left as left:
        return left.exit_code
    say(f"{short_id(folder.id)}: {state.state} {state.text}".rstrip())
    if as_json:
        write_json({"run": folder.id, "state": state.state, "text": state.text})
    return EXIT_TOOL_FAILED if state.state == "lost" else EXIT_OK


@click.command()
@click.argument("run")
@click.argument("phase")
@click.argument("mark", metavar="pass|warn|fail|clear")
@click.option("--note", metavar="TEXT", help="Why; required over an automatic fail.")
@json_option
@runs_option
def verdict(*, run: str, phase: str, mark: str, note: str | None, as_json: bool, runs: Path) -> int:
    """Put your own mark beside a phase's verdict, or take it back with `clear`; the verdict itself stays."""
    from tui_pilot.launch import control
    from tui_pilot.store.view import load_state

    folder = find_run(runs, run)
    control.mark(folder, phase, None if mark == "clear" else mark, note)
    row = load_state(folder)[0].row(phase)
    if as_json:
        write_json({"run": folder.id, "phase": phase, "verdict": row.verdict, "mark": row.mark, "note": row.note})
    say(f"{phase}: verdict {row.verdict or 'none yet'}, your mark {row.mark or 'none'}")
    return EXIT_OK


@click.command()
@click.argument("run")
@click.argument("text")
@click.option("--phase", metavar="PHASE", help="The phase it is about.")
@json_option
@runs_option
def note(run: str, text: str, phase: str | None, as_json: bool, runs: Path) -> int:
    """Write an observation on a run; it will stand on the sheet."""
    from tui_pilot.launch import control

    folder = find_run(runs, run)
    control.note(folder, text, phase)
    if as_json:
        write_json({"run": folder.id, "phase": phase, "text": text})
    say(f"kept with {short_id(folder.id)}")
    return EXIT_OK


@click.command()
@click.argument("run")
@click.argument("decision", metavar="retain|reject|defer")
@click.option("--note", "text", metavar="TEXT", default="", help="The reason; a decision needs one.")
@json_option
@runs_option
def decide(run: str, decision: str, text: str, as_json: bool, runs: Path) -> int:
    """Decide on a configuration, with the reason."""
    from tui_pilot.launch import control

    folder = find_run(runs, run)
    control.decide(folder, decision, text)
    if as_json:
        write_json({"run": folder.id, "decision": decision, "note": text})
    say(f"{short_id(folder.id)}: {decision}")
    if decision == "retain":
        from tui_pilot.sheet.build import document

        for why in document([folder])["configurations"][0].get("why_not") or ():
            say(f"the sheet still says not retained: {why}")
    return EXIT_OK
