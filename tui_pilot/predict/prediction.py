"""What a plan's phases will take, without the device: a fake pass, the allocator over it, and what was assumed."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tui_pilot.plan.model import Plan
from tui_pilot.predict import constants, passes, sharding
from tui_pilot.predict.allocator import simulate
from tui_pilot.predict.inputs import Rows, rows_of
from tui_pilot.predict.passes import NEEDS, Pass, Target
from tui_pilot.predict.peaks import CATEGORIES, PartPeak
from tui_pilot.tasks.base import Task

ROUNDED = 512
"""CUDA's allocator gives out multiples of this."""
PHASES = ("load", *NEEDS)
OURS = Path(__file__).resolve().parents[1]


@dataclass
class Prediction:
    """``phases`` as ``predict --json`` has them; ``not_predicted`` says of each missing phase why, and in which line.

    ``other`` holds the phases with activation checkpointing turned the other way, where the task can.
    """

    phases: list[dict[str, Any]]
    assumptions: dict[str, Any]
    not_predicted: list[dict[str, Any]] = field(default_factory=list)
    other: dict[str, Any] | None = None
    units: dict[str, int] | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)


def predict_run(
    make_task: Callable[[Plan], Task], plan: Plan, folder: Path, target: Target, both: bool = True
) -> Prediction:
    """The prediction of a plan. ``make_task`` builds its task; ``folder`` is where the person's files lie.

    ``both``: also with activation checkpointing turned the other way.
    """
    started = time.monotonic()
    _import_libraries(plan, folder)
    imported = time.monotonic()
    task = make_task(plan)
    try:
        rows = rows_of(task, plan.batch.micro * passes.planned(plan))
    except Exception as error:
        missed = dict.fromkeys(PHASES, error)
        return Prediction([], _assumptions(plan, target), _not_predicted(missed, task, folder))
    done = passes.run(task, rows, target)
    found = Prediction(
        phases_of(done, target),
        _assumptions(plan, target, done, rows),
        _not_predicted(done.missed, task, folder),
    )
    if rows.evaluation is None:
        found.not_predicted.append(_missing("evaluate", "there are no validation rows"))
    if both and "forward" not in done.missed:
        found.other = _turned(make_task, plan, rows, target, done)
    if done.model is not None:
        units = sharding.units_of(done.model)
        found.units = dataclasses.asdict(units)
        _share(found, plan, units)
    found.assumptions["seconds"] = round(time.monotonic() - imported, 2)
    found.assumptions["import_seconds"] = round(imported - started, 2)
    return found


def _share(found: Prediction, plan: Plan, units: sharding.Units) -> None:
    """Of several replicas: the phases as one rank holds them, by arithmetic over those of one GPU."""
    strategy, replicas = plan.launch.strategy, plan.replicas
    if strategy == "none" or replicas < 2:
        return
    found.phases = sharding.shard(found.phases, strategy, replicas, units)
    if found.other is not None:
        found.other["phases"] = sharding.shard(found.other["phases"], strategy, replicas, units)
    found.assumptions["sharding"] = f"{replicas} replicas, {sharding.BASIS[strategy]}"


def _turned(
    make_task: Callable[[Plan], Task], plan: Plan, rows: Rows, target: Target, first: Pass
) -> dict[str, Any] | None:
    """The same with checkpointing turned; None where the task does not follow the plan's word."""
    turned = not plan.memory.activation_checkpointing
    changed = dataclasses.replace(plan, memory=dataclasses.replace(plan.memory, activation_checkpointing=turned))
    done = passes.run(make_task(changed), rows, target)
    if done.missed or len(done.tracker.trace.events) == len(first.tracker.trace.events):
        return None
    return {"activation_checkpointing": turned, "phases": phases_of(done, target)}


def phases_of(done: Pass, target: Target) -> list[dict[str, Any]]:
    """One entry a phase, with its parts: on a GPU as its allocator would count, on a CPU the bytes alone."""
    rows = done.rows(ROUNDED if target.gpu else 1)
    simulated = simulate(done.tracker.trace) if target.gpu else []
    found: dict[str, dict[str, Any]] = {}
    for number, row in enumerate(rows):
        if row.phase in done.missed:
            continue
        allocated, reserved = row.peak, None
        if target.gpu and number < len(simulated):
            allocated, reserved = simulated[number].allocated_peak, simulated[number].reserved_peak
        entry = found.setdefault(row.phase, {"phase": row.phase, **_figures(None, 0, None), "parts": {}})
        _raise(entry, row, allocated, reserved)
        if row.part is not None:
            _raise(entry["parts"].setdefault(row.part, _figures(None, 0, None)), row, allocated, reserved)
    for entry in found.values():
        entry["allocated_after"] = [row.after for row in rows if row.phase == entry["phase"]][-1]
    return list(found.values())


def _figures(row: PartPeak | None, allocated: int, reserved: int | None) -> dict[str, Any]:
    at_peak = dict.fromkeys(CATEGORIES, 0) if row is None else dict(row.at_peak)
    return {"allocated_peak": allocated, "reserved_peak": reserved, "at_peak": at_peak}


def _raise(entry: dict[str, Any], row: PartPeak, allocated: int, reserved: int | None) -> None:
    if allocated > entry["allocated_peak"]:
        entry["allocated_peak"], entry["at_peak"] = allocated, dict(row.at_peak)
    if reserved is not None:
        entry["reserved_peak"] = max(reserved, entry["reserved_peak"] or 0)


def _assumptions(plan: Plan, target: Target, done: Pass | None = None, rows: Rows | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "target": "cpu" if target.capability is None else "cuda {}.{}".format(*target.capability),
        "precision": plan.precision,
        "activation_checkpointing": plan.memory.activation_checkpointing,
        "micro": plan.batch.micro,
        "accumulation": plan.batch.accumulation,
        "microbatches_run": passes.planned(plan),
        "attention": "the CPU's own" if target.capability is None else None,
    }
    if done is not None:
        if target.gpu:
            found["attention"] = ", ".join(sorted(done.kernels)) or "none through scaled_dot_product_attention"
        found["optimizer"] = done.optimizer
        found["mapped_bytes"] = done.mapped_bytes or None
        found["parameter_bytes"] = None if done.model is None else passes.parameter_bytes(done.model)
    if rows is not None:
        found |= {"length": rows.length, "rows": rows.basis}
    if target.capability is not None:
        found["unverified"] = {
            "cublas_workspace": constants.cublas_workspace(target.capability),
            "order_of_attention_kernels": "read from torch's source",
            "flash_backward_scratch": "computed from shapes",
        }
        found["not_included"] = list(constants.UNKNOWN)
    return found


# -- what could not be predicted ---------------------------------------------------------------------------------------
def _not_predicted(missed: dict[str, Exception], task: Task, folder: Path) -> list[dict[str, Any]]:
    found = []
    for phase, error in missed.items():
        cause = next((name for name, other in missed.items() if other is error), phase)
        file, line = place_of(error, task, folder)
        text = words_of(error) if cause == phase else f"it needs {cause}, which cannot be predicted"
        found.append(_missing(phase, text, file, line))
    return found


def _missing(phase: str, text: str, file: str | None = None, line: int | None = None) -> dict[str, Any]:
    return {"phase": phase, "text": text, "file": file, "line": line}


def place_of(error: Exception, task: Task, folder: Path) -> tuple[str | None, int | None]:
    """The innermost line of the person's own files that the error passed through."""
    own = Path(getattr(sys.modules.get(type(task).__module__), "__file__", "") or "")
    libraries = tuple(str(Path(each).resolve()) for each in (sys.prefix, sys.base_prefix, os.path.dirname(os.__file__)))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename).resolve()
        if OURS in path.parents or "site-packages" in path.parts:
            continue
        if path == own.resolve() or (folder.resolve() in path.parents and not str(path).startswith(libraries)):
            return str(path), frame.lineno
    return None, None


def words_of(error: Exception) -> str:
    """Why a phase cannot run without values, for people."""
    kind, text = type(error).__name__, " ".join(str(error).split())
    if kind == "DataDependentOutputException" or "_local_scalar_dense" in text:
        return "it reads a value of a tensor (.item(), float(), bool(), tolist()); a prediction has shapes, no values"
    if kind == "DynamicOutputShapeException":
        return f"the size of a result depends on values ({text}); a prediction has shapes, no values"
    if "numpy" in text or "data_ptr" in text or "data pointer" in text:
        return "it takes a tensor's memory (numpy, data_ptr); a prediction has shapes, no memory"
    return f"{kind}: {text[:300]}"


def _import_libraries(plan: Plan, folder: Path) -> None:
    """Loaded before anything is replaced in them, and apart from the seconds of the prediction itself."""
    import torch._dynamo
    import torch._subclasses.fake_tensor  # noqa: F401

    if plan.model.path is None and "transformers" not in sys.modules and not _speaks_of_transformers(plan, folder):
        return
    for name in (
        "transformers.modeling_utils",
        "transformers.masking_utils",
        *(["peft"] if plan.model.adapter else []),
    ):
        try:
            __import__(name)
        except ImportError:
            return


def _speaks_of_transformers(plan: Plan, folder: Path) -> bool:
    """Whether a task of one's own may load the library later, inside ``build_model``."""
    file = plan.task.rpartition(":")[0]
    if not file:
        return False
    try:
        return any("transformers" in each.read_text("utf-8") for each in (folder / file).parent.glob("*.py"))
    except (OSError, UnicodeDecodeError):
        return True
