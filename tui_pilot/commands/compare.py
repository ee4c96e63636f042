"""``pilot-tui compare``: every trial a run of its own, then what their seeds can say."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tui_pilot.commands import compare_record
from tui_pilot.commands.compare_record import RECORD
from tui_pilot.commands.options import json_option, load_plan, runs_option, set_option
from tui_pilot.commands.output import say, write_json, write_lines
from tui_pilot.errors import EXIT_GATE_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_STOPPED, EXIT_TOOL_FAILED, PilotError

if TYPE_CHECKING:
    from tui_pilot.campaign.trials import Trial
    from tui_pilot.run_folder import RunFolder

LOCK = "comparison.lock"
CODE = "code"


@click.command()
@click.argument("plan", required=False, type=click.Path(path_type=Path))
@set_option
@click.option("--jobs", metavar="N", type=click.IntRange(1), default=1, help="Trials at the same time, one per GPU.")
@click.option("--again", is_flag=True, help="A new comparison, though the same one was made already.")
@click.option("--dry-run", is_flag=True, help="Verify what is held, say what it costs, run nothing.")
@json_option
@runs_option
def compare(
    *, plan: Path | None, sets: tuple[str, ...], jobs: int, again: bool, dry_run: bool, as_json: bool, runs: Path
) -> int:
    """Run the plan's compare section and say what it shows.

    What the trials hold equal is verified before the first one starts. A comparison that was stopped or killed goes on
    where it was: the same command takes up what is there.
    """
    from tui_pilot.campaign import comparison, trials, words
    from tui_pilot.run_folder import drop_lock, take_lock

    loaded, said = load_plan(plan, sets)
    say(said)
    listed = trials.of_plan(loaded)
    identity = compare_record.identity_of(listed, runs)
    folder = None if again else compare_record.find(runs, identity)
    if folder is None:
        record = compare_record.new_record(loaded, listed, identity, runs, jobs)
        folder = runs / record["id"]
        if dry_run:
            document = comparison.build(record, [], now=False)
            return _print(document, as_json, words.before(document))
        _make(folder, record)
    else:
        record = json.loads((folder / RECORD).read_text("utf-8"))
        say(f"{record['id']} is there already and goes on (--again makes a new one)")
        if dry_run:
            document = _document(folder, record, runs, now=False)
            return _print(document, as_json, words.before(document))
    if not take_lock(folder / LOCK):
        raise PilotError(
            f"{record['id']} is followed by another pilot-tui compare.",
            "Wait for it, or end it: its trials go on and this command takes them up.",
            code="busy",
            title="The comparison is running",
            exit_code=2,
        )
    try:
        asked = _follow(folder, record, listed, runs, jobs)
        document = _document(folder, record, runs, now=False)
    finally:
        drop_lock(folder / LOCK)
    _print(document, as_json, words.after(document))
    return _exit(document, asked)


def _print(document: Mapping[str, Any], as_json: bool, lines: Sequence[str]) -> int:
    if as_json:
        write_json(document)
    else:
        write_lines(lines)
    return EXIT_OK


def _exit(document: Mapping[str, Any], asked: str | None) -> int:
    """A diverged trial is a result; a trial that failed, or ran otherwise than verified, is a fault."""
    if asked is not None:
        return EXIT_INTERRUPTED if asked == "interrupt" else EXIT_STOPPED
    if document["state"] != "finished":
        return EXIT_TOOL_FAILED
    failed = any(each["state"] == "failed" and each["counts"] for each in document["trials"])
    return EXIT_GATE_FAILED if failed or document["verified"]["after"] else EXIT_OK


def _make(folder: Path, record: Mapping[str, Any]) -> None:
    from tui_pilot.campaign import comparison, words
    from tui_pilot.launch.code import copy_pilot_side
    from tui_pilot.launch.start import not_writable
    from tui_pilot.run_folder import write_json as write_file

    document = comparison.build(record, [])
    try:
        folder.mkdir(parents=True)
        copy_pilot_side(folder / CODE)
        write_file(folder / RECORD, record)
        write_file(folder / comparison.FILE, document)
    except OSError as error:
        raise not_writable(folder, error) from error
    for line in words.before(document):
        say(line)


def _document(folder: Path, record: Mapping[str, Any], runs: Path, now: bool) -> dict[str, Any]:
    """The document as its runs stand, written whole."""
    from tui_pilot.campaign import comparison, cost
    from tui_pilot.launch import comparing
    from tui_pilot.run_folder import write_json as write_file
    from tui_pilot.store.view import see

    seen = [comparison.Seen(each, run, see(each)[0]) for each, run in comparing.runs_of(runs, str(record["id"]))]
    document = comparison.build(record, seen, now)
    if document["cost"].get("predicted") is None:
        ended = next((each for each in seen if each.state.state == "finished"), None)
        measured = cost.of_run(ended.folder) if ended is not None else None
        if measured is not None:
            planned = record["planned"]
            saves = len(range(planned["save_every"], planned["updates"], planned["save_every"])) + 1
            points, number = len(planned["validation_at"]), len(record["order"])
            document["cost"] |= cost.predicted(measured, number, planned["updates"], points, saves, 1)
    write_file(folder / comparison.FILE, document)
    return document


def _follow(folder: Path, record: Mapping[str, Any], listed: Sequence[Trial], runs: Path, jobs: int) -> str | None:
    """Run what has no result yet; returns what asked for an end, if anything did."""
    from tui_pilot.campaign import comparison
    from tui_pilot.commands.follow import Left, Signals
    from tui_pilot.launch import comparing
    from tui_pilot.run_folder import RunFolder, is_live
    from tui_pilot.store.view import see

    plan = listed[0].loaded.plan
    around = comparing.slots(jobs, plan.launch.processes, _gpus(plan.device) if jobs > 1 else ())
    if len(around) < jobs:
        say(f"--jobs {jobs}: {len(around)} at a time, the GPUs here hold no more with {plan.launch.processes} each")
    elif jobs > 1 and not around[0]:
        say("the trials share this processor: their seconds say nothing of one alone")

    def again(run: RunFolder) -> bool:
        return comparison.must_run_again(comparison.Seen(run, {}, see(run)[0]))

    known = [comparison.Seen(each, run, see(each)[0]) for each, run in comparing.runs_of(runs, str(record["id"]))]
    never = {each.folder.id for each in known if not (each.folder.events / "supervisor.jsonl").exists()}
    counted = comparison.counting([each for each in known if each.folder.id not in never])
    followed = {each.key: each for each in known if is_live(each.folder) or each.folder.id in never}

    def ancestor() -> str | None:
        """The pilot of this plan; without one, the first run of the baseline."""
        trials = comparing.runs_of(runs, str(record["id"]))
        first = next((each.id for each, run in trials if run.get("trial") == record["baseline"]), None)
        return comparing.newest_pilot(runs, plan.name) or first

    waiting, taken = [], []
    for one in listed:
        mine = [each for each in known if each.key == one.key]
        parent = mine[-1].folder.id if mine else None
        job = comparing.Job(one.id, one.seed, one.loaded, {"comparison": record["id"]}, parent)
        if one.key in followed and (one.key not in counted or is_live(followed[one.key].folder)):
            taken.append((followed[one.key].folder, job))
        elif one.key not in counted:
            waiting.append(job)
    done = len(listed) - len(waiting) - len(taken)
    say(f"{len(listed)} trials: {done} done, {len(taken)} live, {len(waiting)} to run")
    follower = comparing.Follower(
        runs, waiting, around, again=again, tell=say, changed=lambda: _document(folder, record, runs, now=True),
        argv=sys.argv, ancestor=ancestor, code=folder / CODE,
    )  # fmt: skip
    for run, job in taken:
        follower.take_over(run, job)
    signals = Signals(RunFolder(folder), stops=False)

    def stop() -> str | None:
        if signals.hung_up or signals.interrupts > 1:
            raise Left(EXIT_INTERRUPTED)
        return "interrupt" if signals.interrupts else "stop" if signals.terminated else None

    with signals.listening():
        try:
            return follower.go(stop)
        except Left:
            return "interrupt"


def _gpus(device: str) -> list[str]:
    """UUIDs of the GPUs that this process may use, in CUDA's order."""
    import os

    from tui_pilot.devices.nvml import Nvml
    from tui_pilot.devices.visible import visible

    if device == "cpu":
        return []
    reader = Nvml()
    try:
        inventory = reader.open()
        return [gpu.uuid for gpu in visible(inventory.gpus, os.environ).gpus if gpu.uuid] if inventory.gpus else []
    finally:
        reader.close()
