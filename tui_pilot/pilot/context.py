"""What every stage works with: the plan, the task, the device, this rank's event file, and the memory meter."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from tui_pilot.devices.host import process_start
from tui_pilot.errors import PilotError
from tui_pilot.events import schema
from tui_pilot.events.writer import Writer
from tui_pilot.observe.memory import Meter
from tui_pilot.plan.model import Plan, from_json
from tui_pilot.run_folder import RunFolder
from tui_pilot.tasks.base import Task

BUILT_IN = {
    "demo": ("tui_pilot.tasks.demo", "DemoTask"),
    "sft": ("tui_pilot.tasks.sft", "SftTask"),
    "classification": ("tui_pilot.tasks.classification", "ClassificationTask"),
}


@dataclass
class Context:
    """One stage of one run in this process. ``plan`` holds absolute paths; ``folder`` is where relative ones start."""

    run: RunFolder
    stage: str
    attempt: int
    plan: Plan
    folder: Path
    writer: Writer
    meter: Meter
    rank: int = 0
    world: int = 1
    skipped: frozenset[str] = frozenset()
    cache: dict[str, Any] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        return self.meter.device

    @property
    def main(self) -> bool:
        """Whether this rank speaks for all."""
        return self.rank == 0

    def emit(self, kind: str, **fields: Any) -> None:
        """One event of this stage."""
        self.writer.emit(kind, stage=self.stage, attempt=self.attempt, **fields)

    def facts(self, name: str, value: Any) -> None:
        """A summary that screen, sheet and ``--json`` read by its name."""
        if self.main:
            self.writer.emit(schema.FACTS, name=name, value=value)

    def notice(self, level: str, text: str, advice: str = "") -> None:
        """A sentence for the feed."""
        self.writer.emit(schema.NOTICE, level=level, text=text, advice=advice)

    def gather(self, value: Any) -> list[Any]:
        """The same value of every rank, in rank order, on every rank."""
        if self.world == 1:
            return [value]
        out: list[Any] = [None] * self.world
        dist.all_gather_object(out, value)
        return out

    def task(self) -> Task:
        """The task, built once per process."""
        if "task" not in self.cache:
            self.cache["task"] = build_task(self.plan, self.folder)
        built: Task = self.cache["task"]
        return built

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """A value made once per process."""
        if name not in self.cache:
            self.cache[name] = make()
        return self.cache[name]


def open_context(run: Path, stage: str, attempt: int) -> Context:
    """Read the run's plan, pick the device, open this rank's event file and say so."""
    folder = RunFolder(run.resolve())
    document = folder.read_json(folder.plan_file)
    base = Path(document["folder"])
    plan = absolute_paths(from_json(document["plan"]), base)
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    name = f"{stage}.rank{rank}" if attempt == 1 else f"{stage}-{attempt}.rank{rank}"
    writer = Writer(folder.events, name)
    device = choose_device(plan, stage)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    meter = Meter(device, rank)
    context = Context(folder, stage, attempt, plan, base, writer, meter, rank, world, frozenset(plan.gates.skip))
    writer.emit(
        schema.RANK_STARTED,
        stage=stage,
        attempt=attempt,
        rank=rank,
        world=world,
        pid=os.getpid(),
        pid_start=process_start(os.getpid()),
        device=str(device),
        uuid=meter.uuid,
        device_name=torch.cuda.get_device_name(device) if meter.cuda else None,
        amd=meter.amd,
        torch=torch.__version__,
        python=sys.executable,
        threads=torch.get_num_threads(),
        counter=meter.counter.name if meter.counter else "torch.cuda",
        counter_note=meter.counter_note,
    )
    return context


def choose_device(plan: Plan, stage: str) -> torch.device:
    """The planned device; the data stage never touches a GPU, and a GPU that cannot be used is a ``stack`` fail."""
    if stage == "data" or plan.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def absolute_paths(plan: Plan, folder: Path) -> Plan:
    """The plan with its data and model paths made absolute from the plan's folder."""

    def whole(path: Any) -> Any:
        return str((folder / path).resolve()) if isinstance(path, str) else path

    data = dataclasses.replace(
        plan.data,
        train=whole(plan.data.train),
        validation=whole(plan.data.validation),
        test=whole(plan.data.test),
        benchmark=whole(plan.data.benchmark),
    )
    return dataclasses.replace(plan, data=data, model=dataclasses.replace(plan.model, path=whole(plan.model.path)))


def build_task(plan: Plan, folder: Path) -> Task:
    """The planned task's object. A person's own file is imported from where it lies, its folder on the path."""
    if plan.task in BUILT_IN:
        module_name, class_name = BUILT_IN[plan.task]
        kind = getattr(importlib.import_module(module_name), class_name)
    else:
        file, _, class_name = plan.task.rpartition(":")
        path = (folder / file).resolve()
        module = import_file(path)
        kind = getattr(module, class_name, None)
        if kind is None:
            raise PilotError(
                f"{path.name} has no class {class_name}.",
                f"It defines: {', '.join(_classes(module)) or 'no class'}.",
                code="task_missing",
                title="The task cannot be found",
                file=str(path),
                key="task",
                value=plan.task,
            )
    task: Task = kind(plan)
    if not isinstance(getattr(task, "plan", None), Plan):
        task.plan = plan
    return task


def import_file(path: Path) -> ModuleType:
    """Import one Python file under its own name."""
    if str(path.parent) not in sys.path:
        sys.path.insert(1, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise PilotError(f"{path} is no Python file.", code="task_missing", file=str(path), key="task")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _classes(module: ModuleType) -> list[str]:
    return [
        name for name, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__
    ]


def seed_everything(seed: int) -> None:
    """The streams a task may draw from: Python's, torch's on every device, and numpy's where numpy is loaded."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
