"""What the keys do to the run, through ``launch`` and ``sheet``. Every function blocks: they run on worker threads."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from tui_pilot.errors import PilotError
from tui_pilot.run_folder import RunFolder, short_id, write_whole

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan


def run(
    plan: LoadedPlan, runs: Path, keep_going: bool = False, variant: str | None = None, parent: str | None = None
) -> RunFolder:
    """Make the run folder and start its supervisor, detached. Raises PilotError."""
    from tui_pilot.launch import start

    kind = "variant" if variant else "pilot"
    folder = start.prepare(plan, runs, argv=sys.argv, kind=kind, parent=parent, keep_going=keep_going, variant=variant)
    start.start(folder)
    return folder


COMPARE_LOG = "compare.log"
COMPARE_SECONDS = 20.0
"""So long a comparison is watched for a refusal; verifying what is held may take longer, and then the log has it."""


def compare(plan: LoadedPlan, runs: Path) -> str:
    """Start ``pilot-tui compare`` in a session of its own, so that it outlives the screen; what to say then."""
    log = runs / COMPARE_LOG
    runs.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "tui_pilot.cli", "--runs", str(runs.resolve()), "compare", str(plan.file)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, cwd=runs, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    until = time.monotonic() + COMPARE_SECONDS
    while time.monotonic() < until and process.poll() is None:
        time.sleep(0.2)
    if process.poll():
        lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        raise PilotError(lines[-1] if lines else f"compare ended with exit {process.poll()}.", f"Its words: {log}")
    return f"the comparison goes on by itself, its trials come to this list; its words: {log}"


def stop(folder: RunFolder) -> str:
    """Ask the live run to stop; what to say then."""
    from tui_pilot.launch import control

    control.request_stop(folder)
    return "stop asked: the run ends at its next safe place, its rows are kept"


def resume_test(folder: RunFolder) -> str:
    """Ask for a resume test; what to say then."""
    from tui_pilot.launch import control

    return f"resume test: {control.request_resume_test(folder)}"


def mark(folder: RunFolder, phase: str, verdict: str | None, note: str | None) -> str:
    """Mark a phase, or take the mark back."""
    from tui_pilot.launch import control

    control.mark(folder, phase, verdict, note or None)
    return f"{phase}: your mark is {verdict}" if verdict else f"{phase}: your mark is taken back"


def note(folder: RunFolder, text: str, phase: str | None = None) -> str:
    """Write a note on the run, or on one of its phases."""
    from tui_pilot.launch import control

    control.note(folder, text, phase)
    return "the note is kept with the run; it will stand on the sheet"


def decide(folder: RunFolder, decision: str, why: str) -> str:
    """Keep the decision about the run, with its reason."""
    from tui_pilot.launch import control

    control.decide(folder, decision, why)
    return f"{short_id(folder.id)}: {decision}, kept with the run; it will stand on the sheet"


def sheet(folder: RunFolder, target: Path, format: str = "md") -> str:
    """Write the selection sheet under a name that was free; where it is, and how to fetch it."""
    from tui_pilot.sheet import write

    path = write.write([folder], target, format)
    return f"written: {path}   fetch it: scp {_here()}:{path} ."


def copied(folder: RunFolder | None, text: str) -> str:
    """Keep the copied text beside the run, since a terminal may drop it; what to say."""
    size = len(text.encode())
    said = f"{size:,} bytes sent to your terminal"
    if folder is not None:
        path = folder.path / "copied.txt"
        try:
            write_whole(path, text.encode("utf-8", "backslashreplace"))
            said += f", also in {path}"
        except OSError as error:
            said += f" ({path} cannot be written: {error.strerror})"
    if os.environ.get("TMUX"):
        said += ". Inside tmux: tmux set -s set-clipboard on"
    return said


def fault(folder: RunFolder | None, error: BaseException) -> str:
    """Keep the traceback of a fault beside the run; what is known of it in one line."""
    said = f"{type(error).__name__}: {error}"
    if folder is None:
        return said
    path = folder.path / "logs" / "screen.log"
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("w", encoding="utf-8", errors="backslashreplace") as stream:
            traceback.print_exception(type(error), error, error.__traceback__, file=stream)
    except OSError:
        return said
    return f"{said}. Where: {path}"


def sentence(error: BaseException) -> str:
    """An error as a person reads it; one that is not ours names its type and what to do."""
    if isinstance(error, PilotError):
        return str(error)
    return f"{type(error).__name__}: {error}. Nothing was changed; this is a fault of pilot-tui itself."


def _here() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "you"
    return f"{user}@{os.uname().nodename}"
