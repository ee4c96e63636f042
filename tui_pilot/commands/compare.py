"""``pilot-tui compare``: every trial a run of its own, then what their seeds can say."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tui_pilot.commands.options import json_option, load_plan, runs_option, set_option
from tui_pilot.commands.output import say, write_json, write_lines
from tui_pilot.errors import EXIT_GATE_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_STOPPED, EXIT_TOOL_FAILED, PilotError

if TYPE_CHECKING:
    from tui_pilot.campaign.trials import Trial
    from tui_pilot.plan.load import LoadedPlan
    from tui_pilot.run_folder import RunFolder

RECORD = "record.json"
LOCK = "comparison.lock"


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
    identity = _identity(listed, runs)
    folder = None if again else _find(runs, identity)
    if folder is None:
        record = _new(loaded, listed, identity, runs, jobs)
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


def _identity(listed: Sequence[Trial], runs: Path) -> str:
    """One digest over everything that can change the comparison: each trial's own identity, and the rules."""
    import tempfile

    from tui_pilot.devices.pythons import choose
    from tui_pilot.launch import revisions
    from tui_pilot.launch.code import copy_pilot_side
    from tui_pilot.plan.model import plain

    with tempfile.TemporaryDirectory(prefix="pilot-tui-compare-") as place:
        code = copy_pilot_side(Path(place) / "code")
    runs.mkdir(parents=True, exist_ok=True)
    each = [revisions.of_plan(one.loaded.plan, one.loaded.folder, code=code, runs=runs)["identity"] for one in listed]
    choice = choose(listed[0].loaded.plan.device, listed[0].loaded.plan.launch.python)
    rules = plain(listed[0].loaded.plan.compare)
    software = None if choice.probe is None else [choice.probe.version, choice.probe.torch, choice.probe.build]
    return hashlib.sha256(json.dumps([each, rules, software], sort_keys=True).encode()).hexdigest()


def _find(runs: Path, identity: str) -> Path | None:
    """The newest comparison of this identity."""
    for path in sorted(runs.glob(f"*/{RECORD}"), reverse=True):
        try:
            if json.loads(path.read_text("utf-8")).get("identity") == identity:
                return path.parent
        except (OSError, ValueError, AttributeError):
            continue
    return None


def _new(loaded: LoadedPlan, listed: Sequence[Trial], identity: str, runs: Path, jobs: int) -> dict[str, Any]:
    """What is fixed before the first trial; raises where something is not held."""
    from tui_pilot.campaign import cost, hold, trials
    from tui_pilot.launch import comparing
    from tui_pilot.plan.model import as_json, plain
    from tui_pilot.run_folder import new_id
    from tui_pilot.version import VERSION

    plan, file = loaded.plan, str(loaded.file) if loaded.file else None
    settings = list(dict.fromkeys(one.id for one in listed))
    say(f"looking at {len(settings)} settings x {len(plan.compare.seeds)} seeds: what they hold equal")
    by_id = {id: [one for one in listed if one.id == id] for id in settings}
    found = comparing.probe({id: [one.loaded.plan for one in each] for id, each in by_id.items()}, loaded)
    probes = {one.key: found[id][n] for id, each in by_id.items() for n, one in enumerate(each)}
    first = probes[listed[0].key]
    trials.control_metrics(first.get("metrics") or [], plan, file)
    held = hold.verify(plan, [(one.id, one.seed, one.loaded.plan) for one in listed], probes)
    hold.refuse(held, file)
    updates = int(first["updates"]["planned"])
    base = listed[0].loaded.plan
    points = _validation_at(updates, base.evaluate.every)
    saves = len(range(base.checkpoint.every, updates, base.checkpoint.every)) + 1
    measured = cost.measured(runs, base)
    kept = {f"{id}:{seed}": _kept(each) for (id, seed), each in probes.items()}
    return {
        "schema": 1,
        "tool": VERSION,
        "id": new_id(f"{plan.name}-comparison"),
        "name": plan.name,
        "demo": loaded.demo,
        "identity": identity,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "plan": as_json(plan),
        "metric": plan.evaluate.metric,
        "direction": plan.evaluate.direction,
        "baseline": listed[0].id,
        "seeds": list(plan.compare.seeds),
        "sets": {one.id: plain(one.set) for one in listed},
        "order": [[one.id, one.seed] for one in listed],
        "planned": {
            "updates": updates,
            "examples": first["updates"]["examples"],
            "validation_every": base.evaluate.every,
            "validation_at": points,
            "save_every": base.checkpoint.every,
            "stop": plain(plan.compare.stop),
        },
        "held": held.held,
        "not_matched": hold.labels(held),
        "cost": cost.predicted(measured, len(listed), updates, len(points), saves, jobs),
        "probes": kept,
    }


def _kept(probe: Mapping[str, Any]) -> dict[str, Any]:
    """Of a probe, what the trial's own events are held against afterwards."""
    return {key: probe[key] for key in ("order", "windows", "schedule", "weights_digest", "effective_batch", "updates")}


def _validation_at(updates: int, every: int) -> list[int]:
    return sorted({*range(every, updates + 1, every), updates})


def _make(folder: Path, record: Mapping[str, Any]) -> None:
    from tui_pilot.campaign import comparison, words
    from tui_pilot.launch.start import not_writable
    from tui_pilot.run_folder import write_json as write_file

    document = comparison.build(record, [])
    try:
        folder.mkdir(parents=True)
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
        runs, waiting, around, again=again, tell=say, changed=lambda: _quietly(folder, record, runs), argv=sys.argv,
        ancestor=ancestor,
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


def _quietly(folder: Path, record: Mapping[str, Any], runs: Path) -> None:
    _document(folder, record, runs, now=True)


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
