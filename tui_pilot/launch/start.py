"""From a plan to a live run: makes the run folder, then starts the supervisor in a session of its own."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui_pilot.devices.pythons import Choice, choose
from tui_pilot.errors import RunFolderError
from tui_pilot.events import schema
from tui_pilot.launch import not_yet, revisions
from tui_pilot.launch.code import copy_pilot_side
from tui_pilot.launch.stage_process import tail_of
from tui_pilot.plan import model as plan_model
from tui_pilot.plan import variants
from tui_pilot.run_folder import Holder, RunFolder, all_runs, new_id, read_lock, write_json, write_whole
from tui_pilot.version import VERSION

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan

SCHEMA = 1
START_SECONDS = 30.0
STAGES_OF_KIND = {"check": ["data"], "trial": list(schema.TRIAL_STAGES)}
SUBFOLDERS = ("events", "samples", "logs", "crash", "examples", "control")
_spawned: list[subprocess.Popen[bytes]] = []  # kept, so that an ended supervisor can be reaped


def prepare(
    loaded: LoadedPlan,
    runs: Path,
    *,
    argv: Sequence[str],
    kind: str = "pilot",
    parent: str | None = None,
    keep_going: bool = False,
    variant: str | None = None,
    code_source: Path | None = None,
    tell: Callable[[str], None] | None = None,
    label: str | None = None,
    more: Mapping[str, Any] | None = None,
) -> RunFolder:
    """Make a run folder that holds everything the supervisor needs; ``run.json`` is written last.

    ``kind`` is pilot, trial, variant, observe or check. ``parent`` defaults to the newest run of the same plan name.
    ``code_source`` takes the place of the pilot side (a folder with a ``run_stage.py``). ``tell`` hears what takes
    long. ``label`` stands in the id instead of the plan's name; ``more`` is kept in ``run.json`` as it is.
    Raises RunFolderError where the folder cannot be written; nothing is left behind then.
    """
    plan, base = loaded.plan, loaded.folder
    not_yet.refuse(plan, str(loaded.file) if loaded.file else None)
    choice = choose(plan.device, plan.launch.python)
    folder = _new_folder(runs, label or plan.name)
    try:
        _fill(folder, loaded, choice, code_source)
        code = copy_pilot_side(folder.code, code_source)
        found = revisions.of_plan(plan, base, code=code, runs=runs, tell=tell, software=_software(choice))
        earlier = _parent(runs, parent, plan.name, folder.id)
        write_json(
            folder.run_file,
            {
                "schema": SCHEMA,
                "tool": VERSION,
                "run": folder.id,
                "kind": kind,
                "demo": loaded.demo,
                "name": plan.name,
                "parent": earlier.id if earlier is not None else None,
                "changed": _changed(earlier, plan, found),
                "replicate_of": _first_alike(runs, found["identity"], folder.id),
                "created": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
                "host": os.uname().nodename,
                "argv": list(argv),
                "python": choice.python,
                "python_choice": _choice_json(choice),
                "keep_going": keep_going,
                "variant": variant,
                "stages": STAGES_OF_KIND.get(kind),
                "revisions": found,
                **(more or {}),
            },
        )
    except OSError as error:
        shutil.rmtree(folder.path, ignore_errors=True)
        raise not_writable(folder.path, error) from error
    except BaseException:
        shutil.rmtree(folder.path, ignore_errors=True)
        raise
    return folder


def _new_folder(runs: Path, name: str) -> RunFolder:
    try:
        runs.mkdir(parents=True, exist_ok=True)
        while True:
            folder = RunFolder((runs / new_id(name)).resolve())
            try:
                folder.path.mkdir()
                return folder
            except FileExistsError:
                if not folder.path.exists():  # `runs` itself is no folder
                    raise
    except OSError as error:
        raise not_writable(runs, error) from error


def _fill(folder: RunFolder, loaded: LoadedPlan, choice: Choice, code_source: Path | None) -> None:
    from tui_pilot.plan import document

    for name in SUBFOLDERS:
        (folder.path / name).mkdir()
    write_whole(folder.path / "plan.yaml", document.plan_yaml(loaded).encode("utf-8", "backslashreplace"))
    if loaded.text:
        write_whole(folder.path / "written.yaml", loaded.text.encode("utf-8", "backslashreplace"))
    write_json(folder.plan_file, document.to_document(loaded))
    baseline = variants.baseline_document(loaded)
    if baseline is not None:
        write_json(folder.baseline_file, baseline)


def not_writable(path: Path, error: OSError) -> RunFolderError:
    """What is wrong with a place that cannot be written, and where else to go."""
    elsewhere = "Put the runs elsewhere: --runs DIR, or PILOT_TUI_RUNS."
    words = {
        errno.EROFS: "lies on a read-only file system",
        errno.EACCES: "may not be written by this user",
        errno.EPERM: "may not be written by this user",
        errno.ENOSPC: "lies on a full disk",
        errno.EDQUOT: "is over this user's disk quota",
        errno.ENOTDIR: "is not below a folder",
        errno.EEXIST: "is a file, not a folder",
    }
    what = words.get(error.errno or 0, f"cannot be written: {error.strerror or error}")
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = f"Free some space (pilot-tui clean RUN removes payloads). {elsewhere}" if full else elsewhere
    return RunFolderError(f"{path} {what}. Nothing was run.", advice, file=str(path))


def _parent(runs: Path, wanted: str | None, name: str, own: str) -> RunFolder | None:
    earlier = [run for run in all_runs(runs) if run.id != own]
    if wanted is not None:
        return next((run for run in earlier if run.id == wanted), None)
    for run in reversed(earlier):
        try:
            if run.read_json(run.run_file).get("name") == name:
                return run
        except RunFolderError:
            continue
    return None


def _changed(earlier: RunFolder | None, plan: plan_model.Plan, found: dict[str, Any]) -> dict[str, Any]:
    """What differs from the parent: plan keys, and contents that changed under the same name."""
    if earlier is None:
        return {}
    try:
        before = plan_model.from_json(earlier.read_json(earlier.plan_file)["plan"])
        old = earlier.read_json(earlier.run_file).get("revisions") or {}
    except (RunFolderError, KeyError, TypeError, AttributeError):
        return {}
    return {**variants.differences(before, plan), **revisions.changed_content(old, found)}


def _first_alike(runs: Path, identity: str, own: str) -> str | None:
    """The first run of this very identity: a run that repeats one is a replicate of it, and both are kept."""
    for run in all_runs(runs):
        try:
            revisions_of = run.read_json(run.run_file).get("revisions") or {}
        except RunFolderError:
            continue
        if run.id != own and isinstance(revisions_of, dict) and revisions_of.get("identity") == identity:
            return run.id
    return None


def _software(choice: Choice) -> dict[str, Any]:
    """What the training Python is, as far as it can change a result."""
    probe = choice.probe
    return {} if probe is None else {"python": probe.version, "torch": probe.torch, "build": probe.build}


def _choice_json(choice: Choice) -> dict[str, Any]:
    return {
        "why": choice.why,
        "device": choice.device,
        "problem": choice.problem,
        "advice": choice.advice,
        "rejected": [{"python": each.python, "why": each.why} for each in choice.rejected],
    }


def start(
    folder: RunFolder, *, only: str | None = None, attempt: int = 1, environment: Mapping[str, str] | None = None
) -> Holder:
    """Start the supervisor, detached: no terminal, no pipe, a session of its own. Returns once it holds the lock.

    ``only`` runs one stage of an ended run again as ``attempt``. ``environment`` is added to this process's own. A
    supervisor that ends before it took the lock is a RunFolderError with the last line of its log.
    """
    if only is None and (folder.events / "supervisor.jsonl").exists():
        raise RunFolderError(f"{folder.id} ran already; an id is never used twice.", "Run the plan again.")
    log = folder.logs / "supervisor.log"
    argv = [sys.executable, "-m", "tui_pilot.launch.supervisor", str(folder.path.resolve())]
    if only is not None:
        argv += ["--only", only, "--attempt", str(attempt)]
    try:
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") as output:
            # Its own folder as working folder: a folder of the person's may hold a module that shadows ours.
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder.path, start_new_session=True,
                env={**os.environ, **(environment or {})},
            )  # fmt: skip
    except OSError as error:
        raise not_writable(log, error) from error
    _spawned.append(process)
    seen_end = False
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        holder = read_lock(folder.lock_file)
        if holder is not None and holder.pid == process.pid:
            return holder
        if seen_end:
            break
        seen_end = process.poll() is not None
        time.sleep(0.02)
    if process.poll() == 0:  # so short a run that its lock was never seen
        return Holder(process.pid, None, None, os.uname().nodename, time.time())
    words = tail_of(log, 1)
    last = f" It says: {words[0]}" if words else ""
    ended = "did not take the run's lock in time" if process.poll() is None else f"ended with exit {process.poll()}"
    raise RunFolderError(f"The supervisor {ended}.{last}", f"Its log: {log}", file=str(log))
