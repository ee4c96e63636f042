"""Names and places of a run's files, run identifiers, and the lock that tells a live run from a lost one.

Standard library only: the supervisor, the screen and the stages all go through here.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tui_pilot.devices.host import boot_id, is_alive, process_start
from tui_pilot.errors import RunFolderError


@dataclass(frozen=True)
class RunFolder:
    """One run's folder; every place in it has one name, here."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def events(self) -> Path:
        return self.path / "events"

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def crash(self) -> Path:
        return self.path / "crash"

    @property
    def examples(self) -> Path:
        return self.path / "examples"

    @property
    def reference(self) -> Path:
        return self.path / "reference"

    @property
    def predictions(self) -> Path:
        return self.path / "predictions"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def artifact(self) -> Path:
        return self.path / "artifact"

    @property
    def code(self) -> Path:
        return self.path / "code"

    @property
    def plan_file(self) -> Path:
        return self.path / "plan.json"

    @property
    def baseline_file(self) -> Path:
        """The plan that a variant is a variant of; there in a variant's run alone."""
        return self.path / "baseline.json"

    @property
    def run_file(self) -> Path:
        return self.path / "run.json"

    @property
    def lock_file(self) -> Path:
        return self.path / "run.lock"

    @property
    def control_file(self) -> Path:
        return self.path / "control.lock"

    def read_json(self, path: Path) -> dict[str, Any]:
        """A JSON object of this run; a missing or broken file is a RunFolderError that names it."""
        try:
            value = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            raise RunFolderError(f"{path} does not exist.", "This folder holds no whole run.", file=str(path)) from None
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path} cannot be read: {error}", file=str(path)) from error
        if not isinstance(value, dict):
            raise RunFolderError(f"{path} does not hold an object.", file=str(path))
        return value


def new_id(name: str, now: datetime | None = None) -> str:
    """``20261201-193200-gsm8k-lora-3f9a``: UTC time, the plan's name made safe, four random hex digits."""
    moment = now or datetime.now(timezone.utc)
    safe = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:40] or "run"
    return f"{moment:%Y%m%d-%H%M%S}-{safe}-{secrets.token_hex(2)}"


def short_id(run_id: str) -> str:
    """The name and random digits without the time: what people read on screen."""
    return re.sub(r"^\d{8}-\d{6}-", "", run_id)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing: temporary name, flushed to disk, renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except OSError:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)
        raise
    os.close(descriptor)
    temporary.replace(path)


def write_json(path: Path, value: Any) -> None:
    """``write_whole`` for one JSON document."""
    write_whole(path, (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "backslashreplace"))


@dataclass(frozen=True)
class Holder:
    """Who holds a lock: pid with start time and boot, since a pid alone can be reused."""

    pid: int
    start: int | None
    boot: str | None
    host: str
    beat: float

    def alive(self) -> bool:
        """Whether that very process still runs on this machine; a holder of another machine is judged by its beat."""
        if self.host != os.uname().nodename:
            return time.time() - self.beat < 15.0
        if self.boot is not None and self.boot != boot_id():
            return False
        return self.start is not None and is_alive(self.pid, self.start)


def take_lock(path: Path) -> bool:
    """Take a lock for this process unless another live process holds it. A stale lock is replaced."""
    holder = read_lock(path)
    if holder is not None and holder.alive() and holder.pid != os.getpid():
        return False
    me = {
        "pid": os.getpid(),
        "start": process_start(os.getpid()),
        "boot": boot_id(),
        "host": os.uname().nodename,
    }
    if holder is not None:
        write_whole(path, json.dumps(me).encode())
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            if path.stat().st_size:
                return take_lock(path) if read_lock(path) is not None else False
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(me, stream)
    settled = read_lock(path)
    return settled is not None and settled.pid == os.getpid()


def beat(path: Path) -> None:
    """A sign of life: touches the lock."""
    try:
        os.utime(path)
    except OSError:
        return


def drop_lock(path: Path) -> None:
    """Give a lock up if this process holds it."""
    holder = read_lock(path)
    if holder is not None and holder.pid == os.getpid():
        path.unlink(missing_ok=True)


def read_lock(path: Path) -> Holder | None:
    """The lock's holder; None if nobody holds it or the file cannot be read."""
    try:
        value = json.loads(path.read_text())
        return Holder(int(value["pid"]), value["start"], value.get("boot"), str(value["host"]), path.stat().st_mtime)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_live(folder: RunFolder) -> bool:
    """Whether the run's supervisor is alive."""
    holder = read_lock(folder.lock_file)
    return holder is not None and holder.alive()


def all_runs(root: Path) -> list[RunFolder]:
    """Every run folder below ``root``, oldest first by id."""
    try:
        folders = [path for path in root.iterdir() if (path / "run.json").is_file()]
    except OSError:
        return []
    return [RunFolder(path) for path in sorted(folders, key=lambda path: path.name)]


def find_run(root: Path, wanted: str) -> RunFolder:
    """RUN of the command line: an id, a unique prefix or ending, ``latest``, or a run folder."""
    as_path = Path(wanted)
    if (as_path / "run.json").is_file():
        return RunFolder(as_path.resolve())
    runs = all_runs(root)
    if wanted == "latest":
        if not runs:
            raise RunFolderError(f"No run in {root} yet.", "Start one: pilot-tui run", exit_code=2)
        return runs[-1]
    exact = [run for run in runs if run.id == wanted]
    matches = exact or [
        run
        for run in runs
        if run.id.startswith(wanted) or short_id(run.id).startswith(wanted) or run.id.endswith(wanted)
    ]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise RunFolderError(f"No run {wanted!r} in {root}.", "pilot-tui runs lists them.", value=wanted, exit_code=2)
    more = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
    names = ", ".join(run.id for run in matches[:5]) + more
    raise RunFolderError(
        f"{wanted!r} means {len(matches)} runs: {names}.", "Type more of the id.", value=wanted, exit_code=2
    )
