"""Starts the trials of a comparison as runs of their own and follows them; each outlives whoever follows.

What ran already is found in the runs themselves, by what their ``run.json`` says, so that a follower killed at any
moment leaves nothing that only it knew.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui_pilot.devices.pythons import choose
from tui_pilot.errors import PilotError, RunFolderError
from tui_pilot.launch import control, not_yet, start
from tui_pilot.launch.asking import Died, ask
from tui_pilot.launch.code import copy_pilot_side
from tui_pilot.plan.model import Plan, as_json
from tui_pilot.run_folder import RunFolder, all_runs, is_live
from tui_pilot.store.state import RunState
from tui_pilot.store.view import as_seen, load_state, reload_state

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan

POLL_S = 0.3
TRIES = 2
"""Starts of one trial and seed by one follower: a run that is lost twice in a row needs a person."""


@dataclass(frozen=True)
class Job:
    """One trial at one seed that still has to run. ``parent`` is the run it is compared or continued from."""

    id: str
    seed: int
    loaded: LoadedPlan
    more: Mapping[str, Any]
    parent: str | None = None


@dataclass
class Live:
    """A trial that runs now."""

    folder: RunFolder
    job: Job
    slot: int | None
    state: RunState = field(default_factory=RunState)
    reader: Any = None


def probe(trials: Mapping[str, Sequence[Plan]], loaded: LoadedPlan) -> dict[str, list[dict[str, Any]]]:
    """What each trial would really do at each of its seeds, each setting asked in a process of its own.

    Raises PilotError where nothing could be asked.
    """
    not_yet.refuse(loaded.plan, str(loaded.file) if loaded.file else None)
    choice = choose("cpu", loaded.plan.launch.python)  # nothing of it needs a GPU
    if choice.python is None:
        text = f"{choice.problem or 'no Python here has a torch'}."
        raise PilotError(text, choice.advice or "", code="no_torch", title="Nothing can be compared")
    found = {}
    with tempfile.TemporaryDirectory(prefix="pilot-tui-compare-") as place:
        code = Path(place) / "code"
        copy_pilot_side(code)
        for id, plans in trials.items():
            request = {"plans": [as_json(plan) for plan in plans], "folder": str(loaded.folder)}
            try:
                found[id] = ask(choice.python, code, "trial_probe.py", request, loaded.folder)["seeds"]
            except Died as died:
                raise PilotError(
                    f"Trial {id} could not be looked at: exit {died.exit_code}.{died.words}",
                    "pilot-tui check looks at the plan; what breaks there breaks here. Nothing was run.",
                    code="not_verified",
                    title="What the comparison holds could not be verified",
                ) from died
    return found


def runs_of(root: Path, comparison: str) -> list[tuple[RunFolder, dict[str, Any]]]:
    """Every run of a comparison, oldest first."""
    found = []
    for folder in all_runs(root):
        with contextlib.suppress(RunFolderError):
            run = folder.read_json(folder.run_file)
            if run.get("comparison") == comparison:
                found.append((folder, run))
    return found


def newest_pilot(root: Path, name: str) -> str | None:
    """The newest run of the plan's name that is no trial: what the trials descend from."""
    for folder in reversed(all_runs(root)):
        with contextlib.suppress(RunFolderError):
            run = folder.read_json(folder.run_file)
            if run.get("name") == name and run.get("kind") in ("pilot", "variant"):
                return folder.id
    return None


def slots(jobs: int, processes: int, uuids: Sequence[str]) -> list[dict[str, str]]:
    """What each trial that runs at the same time finds in its environment: its own GPUs, ``processes`` of them.

    One trial alone sees what the follower sees. Without GPUs the trials share the processor.
    """
    if jobs <= 1 or not uuids:
        return [{} for _ in range(max(1, jobs))]
    groups = [uuids[n : n + processes] for n in range(0, len(uuids) - processes + 1, processes)]
    return [{"CUDA_VISIBLE_DEVICES": ",".join(group)} for group in groups[:jobs]]


class Follower:
    """Runs jobs in their order, so many at a time as there are slots. ``again`` says whether an ended run must be
    started once more; ``tell`` hears what happens; ``changed`` is called when something worth writing did;
    ``ancestor`` names the run that a trial without a parent of its own descends from. ``code`` is the training side as
    the first trial took it: an upgrade in the middle must not give later trials another loop."""

    def __init__(
        self,
        root: Path,
        jobs: Sequence[Job],
        around: Sequence[Mapping[str, str]],
        *,
        again: Callable[[RunFolder], bool],
        tell: Callable[[str], None],
        changed: Callable[[], object],
        argv: Sequence[str],
        ancestor: Callable[[], str | None],
        code: Path,
    ) -> None:
        self.root, self.around, self.argv, self.ancestor, self.code = root, list(around), list(argv), ancestor, code
        self.queue = list(jobs)
        self.again, self.tell, self.changed = again, tell, changed
        self.live: list[Live] = []
        self.tries: dict[tuple[str, int], int] = {}

    def take_over(self, folder: RunFolder, job: Job) -> None:
        """Follow a trial that is live already, or was prepared and never started."""
        if not is_live(folder):
            start.start(folder, environment=self.around[0])
        taken = {each.slot for each in self.live}
        slot = next((n for n in range(len(self.around)) if n not in taken), None)
        self.live.append(Live(folder, job, slot))

    def go(self, stop: Callable[[], str | None]) -> str | None:
        """To the end of every trial. ``stop`` gives a word once somebody wants an end: live trials are stopped, their
        rows kept, and the word is returned; the trials that wait keep waiting for the next time."""
        asked: str | None = None
        while self.live or (self.queue and asked is None):
            word = stop()
            if word is not None and asked is None:
                asked = word
                for each in self.live:
                    with contextlib.suppress(PilotError):
                        control.request_stop(each.folder, interrupt=word == "interrupt")
            if asked is None:
                self._fill()
            ended = [each for each in self.live if self._look(each)]
            for each in ended:
                self.live.remove(each)
                self.tell(f"{_name(each.job)}: {each.state.state}{': ' + each.state.text if each.state.text else ''}")
                key = (each.job.id, each.job.seed)
                if asked is None and self.again(each.folder) and self.tries.get(key, 0) < TRIES:
                    parent = each.folder.id
                    self.queue.insert(0, Job(each.job.id, each.job.seed, each.job.loaded, each.job.more, parent))
            if ended:
                self.changed()
            if self.live:
                time.sleep(POLL_S)
        return asked

    def _fill(self) -> None:
        free = [n for n in range(len(self.around)) if n not in {each.slot for each in self.live}]
        while self.queue and free:
            slot, job = free.pop(0), self.queue.pop(0)
            around = self.around[slot]
            key = (job.id, job.seed)
            self.tries[key] = self.tries.get(key, 0) + 1
            folder = start.prepare(
                job.loaded, self.root, argv=self.argv, kind="trial", tell=self.tell,
                parent=job.parent or self.ancestor() or "", code_source=self.code,
                label=f"{job.loaded.plan.name}-{job.id}-s{job.seed}",
                more={**job.more, "trial": job.id, "seed": job.seed, "gpus": around.get("CUDA_VISIBLE_DEVICES")},
            )  # fmt: skip
            start.start(folder, environment=around)
            self.tell(f"{_name(job)}: run {folder.id}")
            self.live.append(Live(folder, job, slot))
            self.changed()

    def _look(self, each: Live) -> bool:
        """Read what is new; whether the run is over."""
        live = is_live(each.folder)
        before = len(each.state.validation)
        if each.reader is None:
            each.state, each.reader = load_state(each.folder)
        else:
            each.state = reload_state(each.state, each.reader)
        for at, metrics in each.state.validation[before:]:
            said = ", ".join(f"{key} {value:.4g}" for key, value in metrics.items() if isinstance(value, (int, float)))
            self.tell(f"{_name(each.job)}: update {at}: {said}")
        if len(each.state.validation) != before:
            self.changed()
        if live:
            return False
        each.state = as_seen(each.state, False)
        return True


def _name(job: Job) -> str:
    return f"{job.id}, seed {job.seed}"
