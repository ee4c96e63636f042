"""``pilot-tui check``: plan, stack, examples and splits, without training and without a GPU."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tui_pilot.commands.options import allow_option, json_option, load_plan, runs_option, set_option
from tui_pilot.commands.output import say, write_json, write_lines
from tui_pilot.errors import EXIT_PLAN_WRONG, PilotError, RunFolderError
from tui_pilot.events.schema import PHASES_OF
from tui_pilot.run_folder import RunFolder
from tui_pilot.run_folder import write_json as write_file
from tui_pilot.version import VERSION

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan

PHASES = PHASES_OF["data"]
CHECKS = ".check"  # below the runs, one level deeper than any run, so that no check is in the ledger
LOCK_FILE = "pilot.lock.json"
LATER = "packed documents and the control loss need the model: they are judged in forward, when the plan is run"


@click.command()
@click.argument("plan", required=False, type=click.Path(path_type=Path))
@set_option
@click.option(
    "--lock", is_flag=True, help=f"Write {LOCK_FILE} beside the plan: versions that later checks compare with."
)
@click.option("--keep", is_flag=True, help="Keep the check's own folder, with the audit of every row.")
@json_option
@allow_option
@runs_option
def check(
    *,
    plan: Path | None,
    sets: tuple[str, ...],
    lock: bool,
    keep: bool,
    as_json: bool,
    allowed: tuple[str, ...],
    runs: Path,
) -> int:
    """Look at the plan, the software stack, every example and the splits. Trains nothing, needs no GPU."""
    from tui_pilot.commands import tables
    from tui_pilot.commands.follow import Left, follow, last_words
    from tui_pilot.launch import start
    from tui_pilot.store.view import snapshot

    loaded, words = load_plan(plan, sets)
    say(words)
    folder = _prepare(loaded, runs)
    if lock:
        # The data stage then asks the model for the control rows too.
        (folder.path / "control").mkdir(exist_ok=True)
        (folder.path / "control" / "lock").touch()
    try:
        start.start(folder)
        try:
            state = follow(folder)
        except Left as left:
            return left.exit_code
        document = snapshot(folder, allowed)
        found = _document(document)
        if lock:
            found["lock"] = str(_write_lock(loaded, document))
            say(f"written: {found['lock']}")
        if keep:
            found["folder"] = str(folder.path)
            say(f"kept: {folder.path}")
        if as_json:
            write_json(found)
        else:
            write_lines([*tables.rows_of_run(found), *tables.reasons_of_run(found), *_words(found)])
        say(LATER)
        return last_words(state, document, allowed)
    finally:
        if not keep:
            _remove(folder)


def _prepare(loaded: LoadedPlan, runs: Path) -> RunFolder:
    """The check's own folder; somewhere temporary where the runs cannot be written."""
    from tui_pilot.launch import start

    try:
        return start.prepare(loaded, runs / CHECKS, argv=sys.argv, kind="check", tell=say)
    except RunFolderError:
        place = Path(tempfile.mkdtemp(prefix="pilot-tui-check-"))
        return start.prepare(loaded, place / CHECKS, argv=sys.argv, kind="check", tell=say)


def _remove(folder: RunFolder) -> None:
    """Leave no trace: neither the check, nor the folders that were made for it alone."""
    checks = folder.path.parent
    shutil.rmtree(folder.path, ignore_errors=True)
    with contextlib.suppress(OSError):
        if not any(path.is_dir() for path in checks.iterdir()):
            shutil.rmtree(checks)
        checks.parent.rmdir()  # fails where runs are in it


def _document(document: dict[str, Any]) -> dict[str, Any]:
    facts = document["facts"]
    kept = ("plan", "state", "verdict", "exit_code", "demo", "started", "ended", "open")
    return {
        **{key: document[key] for key in kept},
        "open": [text for text in document["open"] if text.partition(":")[0] in PHASES],
        "phases": [row for row in document["phases"] if row["phase"] in PHASES],
        "examples": facts.get("examples"),
        "splits": facts.get("splits"),
        "software": facts.get("software"),
        "judged_in_forward": LATER,
    }


def _words(found: dict[str, Any]) -> list[str]:
    from tui_pilot.text import count, plural

    examples = found["examples"]
    if not isinstance(examples, dict):
        return []
    length = examples.get("length") or {}
    longest = f"; longest {count(length.get('max'))}, p95 {count(length.get('p95'))} tokens" if length else ""
    return [
        f"{plural(examples.get('rows') or 0, 'row')}, {count(examples.get('supervised_rows'))} with supervised tokens, "
        f"{count(examples.get('truncated'))} truncated{longest}"
    ]


def _write_lock(loaded: LoadedPlan, document: dict[str, Any]) -> Path:
    versions = document["facts"].get("software")
    if not isinstance(versions, dict) or not versions:
        raise PilotError(
            "No lock was written: the check saw no versions.", "Look at the stack row.", code="no_versions",
            title="Nothing to lock", exit_code=EXIT_PLAN_WRONG,
        )  # fmt: skip
    path = loaded.folder / LOCK_FILE
    try:
        write_file(
            path,
            {
                "schema": 1,
                "tool": VERSION,
                "versions": versions,
                "control_loss": document["facts"].get("control_loss"),
            },
        )
    except OSError as error:
        raise PilotError(f"{path} cannot be written: {error.strerror or error}.", file=str(path)) from error
    return path
