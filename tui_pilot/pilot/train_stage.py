"""The train stage: whether the loop is right and how fast. Campaign order from row 0, then checkpoint, twin, export."""

from __future__ import annotations

import errno
import shutil
import time
from pathlib import Path
from typing import Any

from tui_pilot.events import schema
from tui_pilot.gates.codes import reason
from tui_pilot.gates.judge import judge
from tui_pilot.observe.memory import reachable_bytes
from tui_pilot.pilot import checkpoint, evaluation, twin
from tui_pilot.pilot.artifact import export
from tui_pilot.pilot.audit import split_of
from tui_pilot.pilot.batch_check import Watch
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.control import base_control
from tui_pilot.pilot.loop import Loop, build_loop, planned_updates
from tui_pilot.pilot.main import environment
from tui_pilot.pilot.phase import Phase, PhaseBroken, phase, skip
from tui_pilot.text import size

PHASES = ("batch", "checkpoint", "export")
MIN_TIMED = 2
FULL_WORDS = ("No space left on device", "Disk quota exceeded")  # where a library wraps the system's error
WRITER_WORDS = ("PytorchStreamWriter", "inline_container", "iostream error")
LITTLE = 4 << 20


class Train:
    """What the phases of this stage hand to each other."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.loop: Loop | None = None
        self.sizes: dict[str, Any] = {"seconds": {}}


def run(context: Context) -> None:
    """Batch, checkpoint and export, one loop through all three."""
    context.cache["environment"] = environment(context)
    train = Train(context)
    bodies = {"batch": batch, "checkpoint": save_twice, "export": write_artifact}
    broken: str | None = None
    for name in PHASES:
        if broken is not None or (train.loop is None and name != "batch"):
            why = reason("needs_model", f"{broken or 'batch'} did not end, and {name} needs what it leaves.")
            skip(context, name, "not_run", why)
            continue
        if name in context.skipped and name != "batch":
            skip(context, name)
            continue
        try:
            with phase(context, name) as current:
                if train.loop is not None:
                    train.loop.at.clear()  # the rows of the phase before are no longer on the device
                    current.at = train.loop.at
                bodies[name](train, current)
        except PhaseBroken:
            if context.world > 1:
                raise
            broken = name
    context.facts("sizes", train.sizes)


def batch(train: Train, current: Phase) -> None:
    """Timed updates in campaign order, every count beside the plan's arithmetic."""
    context = train.context
    split = split_of(context, "train")
    try:
        answer = planned_updates(context, len(split))
    except Exception as error:
        if not hasattr(error, "as_json"):
            raise
        current.seen["no_update"] = str(error)
        return
    loop = train.loop = build_loop(context, split=split)
    current.at = loop.at
    base_control(context, loop.raw)
    watch = Watch(loop, answer)
    watch.before(current)
    timed = max(MIN_TIMED, min(context.plan.pilot.timed, loop.total_updates - context.plan.pilot.reference))
    current.inputs |= {"updates": timed, "planned_updates": answer.updates, "effective_batch": answer.effective_batch}
    for number in range(timed):
        window = loop.feed.window()
        if window is None:
            current.seen["no_update"] = (
                f"{len(split)} rows give no window of {context.plan.batch.accumulation} microbatches."
            )
            return
        with current.measure("update") as one, loop.counters.clipping():
            result = loop.update(window)
        watch.after(result, window)
        twin.announce(loop, "batch", result, one.duration_s)
        current.progress(number + 1, timed, "updates", f"loss {result.loss:.3f}")
        if _asked(context):
            save_asked(train, current)
    current.reachable = reachable_bytes(loop.raw, loop.optimizer)
    watch.finish(current)
    seconds = [window.duration_s for window in current.parts["update"]]
    # The first update pays for allocation; the rest say what the campaign pays.
    steady = sorted(seconds[1:] or seconds)
    train.sizes["seconds"]["update"] = steady[len(steady) // 2]
    train.sizes["seconds"]["update_first"] = seconds[0]
    if split_of(context, "validation").records:
        started = time.monotonic()
        metrics = evaluation.evaluate(loop, context.plan.evaluate.rows)
        train.sizes["seconds"]["evaluate"] = time.monotonic() - started
        if context.main:
            context.emit(schema.VALIDATION, update=loop.updates, metrics=metrics)
    context.facts("batch", {"planned": answer.as_json(), "counted": watch.counted()})


def _asked(context: Context) -> bool:
    """Whether somebody asked for a resume test: every rank must see the same answer."""
    asked = (context.run.path / "control" / "save_now").exists()
    return bool(context.gather(asked)[0]) if context.world > 1 else asked


def save_asked(train: Train, current: Phase) -> None:
    """A checkpoint at this update boundary and its twin: the next updates, traced."""
    context, loop = train.context, train.loop
    if loop is None:
        return
    if context.main:
        (context.run.path / "control" / "save_now").unlink(missing_ok=True)
    states, before = checkpoint.state_hashes(loop), twin.position(loop)
    saved = checkpoint.save(loop, context.run.checkpoints, f"step-{loop.updates:06d}")
    twin.run_twin(loop, saved, states, before, current)
    context.facts("checkpoint_asked", {"step": saved.step, "path": str(saved.path)})


def save_twice(train: Train, current: Phase) -> None:
    """The full state saved twice, then the twin's updates; memory before, and two updates later."""
    context, loop = train.context, train.loop
    if loop is None:
        raise PhaseBroken("batch")
    states, before = checkpoint.state_hashes(loop), twin.position(loop)
    allocated, _ = context.meter.now()
    name = f"step-{loop.updates:06d}"
    root = context.run.checkpoints
    try:
        with current.measure("first"):
            saved = checkpoint.save(loop, root, name)
        with current.measure("second"):
            again = checkpoint.save(loop, root / "second", name)
        shutil.rmtree(root / "second", ignore_errors=True)
    except checkpoint.UnsafeState as error:
        current.seen["error"] = {"text": str(error), "unsafe": True, "key": error.key}
        return
    except Exception as error:
        shutil.rmtree(root / "second", ignore_errors=True)
        current.seen["error"] = disk_error(error, root, "checkpoint")
        return
    size_now = sum(entry["bytes"] for entry in saved.manifest["files"].values())
    train.sizes["checkpoint_bytes"] = size_now
    train.sizes["seconds"] |= {
        "save_first": current.parts["first"][0].duration_s,
        "save_second": current.parts["second"][0].duration_s,
    }
    trace = twin.run_twin(loop, saved, states, before, current)
    later, _ = context.meter.now()
    expected = ["model", "optimizer", "scheduler", "random state", "data position"]
    current.seen |= {
        "states_expected": expected + (["scaler"] if loop.scaler is not None else []),
        "states": saved.manifest["states"],
        "hashes": {name: entry["sha256"] for name, entry in saved.manifest["files"].items()},
        "second_hashes": {name: entry["sha256"] for name, entry in again.manifest["files"].items()},
        "allocated_before": allocated,
        "allocated_later": later if len(trace) >= MIN_TIMED else None,
        "left_over": [path.name for path in root.glob(".*.part")],
    }
    current.reachable = reachable_bytes(loop.raw, loop.optimizer)
    current.inputs |= {
        "step": saved.step,
        "bytes": size_now,
        "states": saved.manifest["states"],
        "reference_updates": len(trace),
        "path": str(saved.path.relative_to(context.run.path)),
    }
    prune(context, root)


def prune(context: Context, root: Path) -> None:
    """Keep as many checkpoints as the plan says, newest first."""
    if not context.main:
        return
    whole = sorted((path for path in root.glob("step-*") if path.is_dir()), key=checkpoint.step_of)
    for path in whole[: -max(1, context.plan.keep.checkpoints)]:
        shutil.rmtree(path, ignore_errors=True)


def disk_error(error: Exception, where: Path, what: str) -> dict[str, Any]:
    """A failed write in words, a full disk told apart; an error of another kind is raised again."""
    text = str(error)
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or any(word in text for word in FULL_WORDS)
    free = shutil.disk_usage(where if where.exists() else where.parent).free
    # torch's own writer says only that it could not write.
    full = full or (free < LITTLE and any(word in text for word in WRITER_WORDS))
    if not full and not isinstance(error, OSError):
        raise error
    file = str(getattr(error, "filename", None) or where)
    text = (
        f"Disk full while the {what} was written to {where}: {size(free)} are free."
        if full
        else f"The {what} could not be written to {file}: {getattr(error, 'strerror', None) or error}."
    )
    return {"text": text, "full": full, "file": file}


def write_artifact(train: Train, current: Phase) -> None:
    """What evaluation will load, with the control answers it must give again."""
    if train.loop is None:
        raise PhaseBroken("batch")
    try:
        export(train.loop, current)
    except Exception as error:
        current.seen = {"error": disk_error(error, train.context.run.artifact, "artifact")}
        current.verdict = judge("export", current.seen, train.context.plan)
        return
    train.sizes["artifact_bytes"] = current.inputs.get("bytes")
    train.sizes["seconds"]["export"] = current.duration_s
