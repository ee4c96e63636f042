"""An unpacked archive's control rows, asked once more: its own reload stage, in a new process, from its files alone."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tui_pilot.archive.contents import BASE
from tui_pilot.archive.names import RUN, TASK
from tui_pilot.devices.pythons import choose
from tui_pilot.errors import EXIT_PLAN_WRONG, PilotError, RunFolderError
from tui_pilot.launch.revisions import sha256_of
from tui_pilot.launch.stage_process import StageProcess
from tui_pilot.run_folder import RunFolder, write_json
from tui_pilot.store.state import RunState
from tui_pilot.store.view import load_state

LOOK_SECONDS = 0.05
NOT_RUN = ("crash", "data_wrong", "model_wrong", "task_missing", "missing_module")
"""Codes of a replay that could not ask: with files missing here that is no difference of answers."""


@dataclass
class Replay:
    """``equal`` is None where the rows could not be asked; ``text`` says why, or what differs.

    ``rows`` are the numbers of the control rows, ``changed_rows`` those whose answers are not the recorded ones.
    """

    equal: bool | None = None
    text: str = ""
    rows: list[int] = field(default_factory=list)
    changed_rows: list[int] = field(default_factory=list)
    loss_recorded: float | None = None
    loss_replayed: float | None = None
    answers: list[str] = field(default_factory=list)
    python: str | None = None
    here: dict[str, Any] = field(default_factory=dict)
    recorded_on: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder of our own that is gone afterwards. Raises PilotError where none can be made."""
    try:
        place = Path(tempfile.mkdtemp(prefix="pilot-tui-archive-"))
    except OSError as error:
        raise PilotError(f"No temporary folder: {error.strerror or error}.", "Set TMPDIR.", code="no_room") from error
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def replay(
    unpacked: Path,
    manifest: Mapping[str, Any],
    *,
    model: Path | None = None,
    data: Path | None = None,
    python: str | None = None,
    tell: Callable[[str], None] = lambda words: None,
) -> Replay:
    """Ask the archive's control rows. ``unpacked`` was checked and is changed: paths in it are set to this machine's.

    ``model``: the folder of the base model, ``data``: a folder with the data files; each file is held against the hash
    in the archive first, and PilotError names one that differs. ``python``: None takes the first with torch;
    ``tell`` hears that the archive's code runs now.
    """
    found = Replay()
    folder = RunFolder(unpacked / RUN)
    if not manifest.get("artifact"):
        found.text = "no artifact with control rows is packed: there is nothing to replay"
        return found
    base = manifest["not_packed"].get("model")
    if base and model is None:
        found.text = (
            f"the base model {base['folder']!r} is not packed, {len(base['files'])} files of it are named by hash: "
            "--model FOLDER says where it is"
        )
        return found
    try:
        if model is not None:
            _same_files(model, (base or {}).get("files") or {}, "--model")
        present = _data_here(data, manifest["not_packed"].get("data") or {})
        plan = _at_home(folder, unpacked, manifest, model, present)
    except (KeyError, TypeError, AttributeError, ValueError, RunFolderError) as error:
        found.text = f"the archive's plan cannot be read: {error}"
        return found
    # The person's Python, never one that the archive names.
    choice = choose(str(plan.get("device") or "auto"), python)
    if choice.python is None:
        found.text = f"{choice.problem}. {choice.advice}"
        return found
    found.python = choice.python
    found.recorded_on = _where(load_state(folder)[0])
    recorded = folder.path / "events"
    recorded.rename(folder.path / "events-recorded")
    for name in ("events", "logs", "crash", "control", "examples"):
        (folder.path / name).mkdir(exist_ok=True)
    tell("asking the control rows with the code of the archive, in a new process")
    code = _run(folder, choice.python, unpacked / TASK)
    _judge(found, folder, code, bool(present) or not (manifest["not_packed"].get("data")))
    return found


def _same_files(folder: Path, files: Mapping[str, str], option: str) -> None:
    for name, digest in files.items():
        place = folder / name
        if not place.is_file():
            raise _differs(place, f"There is no {name} in it", option)
        if digest is not None and sha256_of(place) != digest:
            raise _differs(place, f"{name} is not the file that the run used: its SHA-256 differs", option)


def _differs(place: Path, what: str, option: str) -> PilotError:
    return PilotError(
        f"{option}: {what}.", "MANIFEST.json of the archive lists the files with their hashes.", code="base_differs",
        title="Nothing was replayed", exit_code=EXIT_PLAN_WRONG, file=str(place),
    )  # fmt: skip


def _data_here(folder: Path | None, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The plan's data keys with a file here, each of the right hash."""
    if folder is None:
        return {}
    for entry in entries.values():
        _same_files(folder, {str(entry["name"]): str(entry["sha256"])}, "--data")
    return {key: str((folder / str(entry["name"])).resolve()) for key, entry in entries.items()}


def _at_home(
    folder: RunFolder, unpacked: Path, manifest: Mapping[str, Any], model: Path | None, present: Mapping[str, str]
) -> Mapping[str, Any]:
    """Set the plan's paths to where things are here: task, data, base model. Data that is not here stays away."""
    document = folder.read_json(folder.plan_file)
    plan = document["plan"]
    home = unpacked / TASK
    home.mkdir(exist_ok=True)
    document["folder"] = str(home)
    if ":" in str(plan["task"]):
        plan["task"] = str(manifest["task"]).removeprefix(f"{TASK}/")
    for key, value in list(plan["data"].items()):
        if key in ("train", "validation", "test", "benchmark") and isinstance(value, str):
            plan["data"][key] = present.get(key, str(unpacked / "not-packed" / Path(value).name))
    if model is not None:
        plan["model"]["path"] = str(model.resolve())
        _point_at(folder.artifact, model.resolve())
    elif plan["model"]["path"] is not None:
        plan["model"]["path"] = str(unpacked / "not-packed" / Path(str(plan["model"]["path"])).name)
    # Adapter settings, precision and the like stay as they ran; one process is enough for four rows.
    plan["launch"]["processes"] = 1
    write_json(folder.plan_file, document)
    result: Mapping[str, Any] = plan
    return result


def _point_at(artifact: Path, model: Path) -> None:
    """An adapter names its base by path: the path of this machine, in the unpacked copy and its manifest."""
    record = artifact / BASE
    if not record.is_file():
        return
    write_json(record, {**json.loads(record.read_text("utf-8")), "path": str(model)})
    listing = artifact / "manifest.json"
    document = json.loads(listing.read_text("utf-8"))
    document["files"][BASE] = {"bytes": record.stat().st_size, "sha256": sha256_of(record)}
    write_json(listing, document)


def _run(folder: RunFolder, python: str, home: Path) -> int:
    """The reload stage to its end; an interrupt ends it first."""
    try:
        process = StageProcess.spawn(folder, python, "reload", 1, processes=1, cwd=home)
    except OSError as error:
        raise PilotError(
            f"{python}: {error.strerror or error}.", "Name another: --python PATH.", code="no_python"
        ) from error
    try:
        while (code := process.peek()) is None:
            time.sleep(LOOK_SECONDS)
    except BaseException:
        process.terminate()
        process.popen.kill()
        process.peek()
        raise
    return code


def _judge(found: Replay, folder: RunFolder, code: int, data_here: bool) -> None:
    state, _ = load_state(folder)
    row = state.row("reload")
    reasons = [dict(reason) for reason in row.reasons]
    inputs = row.inputs
    recorded = folder.read_json(folder.reference / "control.json")
    count = inputs.get("control_rows") or len(recorded.get("answers") or ())
    found.rows = list(range(int(count)))
    found.loss_recorded, found.loss_replayed = inputs.get("control_loss_before"), inputs.get("control_loss_after")
    found.answers = [str(each) for each in inputs.get("control_answers") or ()]
    found.here = _where(state)
    worst = next((reason for reason in reasons if reason.get("severity") == "fail"), None)
    if row.verdict in (None, "running"):
        last = _last_line(folder)
        found.text = f"the replay ended with exit {code}" + (f": {last}" if last else "")
        return
    changed = [int(each) for each in inputs.get("answers_changed_rows") or ()]
    if worst is None and inputs.get("answers_equal") is not None:
        found.equal, found.changed_rows = True, changed
        found.text = "the answers to all control rows are the recorded ones"
        if changed:
            of = f"{len(changed)} of {len(found.rows)} answers differ"
            found.text = f"{of}, within what the gate accepts of {inputs.get('dtype')}"
    elif worst is None:
        found.text = _text(reasons) or "the stage compared nothing"
    elif worst.get("code") in NOT_RUN and not data_here:
        said = str(worst.get("text")).rstrip(".")
        found.text = f"{said}. If it needs the data, which is not packed: --data FOLDER says where it is"
    else:
        found.equal = False
        found.text = str(worst.get("text"))
        rows = (worst.get("where") or {}).get("rows") or ()
        found.changed_rows = changed or [int(each) for each in rows if isinstance(each, int)]
        if found.here.get("device_name") != found.recorded_on.get("device_name"):
            found.notes.append("recorded on another device: rounding there may differ from here")
    found.notes += [str(reason.get("text")) for reason in reasons if reason is not worst]


def _where(state: RunState) -> dict[str, Any]:
    """Where the first rank ran: device, its name, torch."""
    rank = dict(state.ranks.get(0) or {})
    return {key: rank.get(key) for key in ("device", "device_name", "torch")}


def _text(reasons: Sequence[Mapping[str, Any]]) -> str:
    return str(reasons[0].get("text")) if reasons else ""


def _last_line(folder: RunFolder) -> str:
    try:
        lines = (folder.logs / "reload.log").read_text("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
