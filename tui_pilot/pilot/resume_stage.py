"""The resume stage: a new process, the checkpoint alone, and the twin's updates once more."""

from __future__ import annotations

import time
from typing import Any

import torch

from tui_pilot.gates.codes import reason
from tui_pilot.observe.memory import reachable_bytes
from tui_pilot.pilot import checkpoint, twin
from tui_pilot.pilot.audit import split_of
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.loop import Loop, build_loop
from tui_pilot.pilot.main import environment
from tui_pilot.pilot.phase import Phase, PhaseBroken, phase, skip

LEAST_TOLERANCE = 1e-6
OTHER_ENVIRONMENT = 1e-5
IGNORED = ("omp",)


def run(context: Context) -> None:
    """The one phase of this stage."""
    if "resume" in context.skipped:
        skip(context, "resume")
        return
    saved, broken = checkpoint.newest(context.run.checkpoints)
    if saved is None:
        why = "; ".join(f"{one['name']}: {one['why']}" for one in broken) or "no checkpoint folder"
        skip(context, "resume", "not_run", reason("needs_checkpoint", f"No whole checkpoint: {why}."))
        return
    try:
        with phase(context, "resume") as current:
            resume(context, current, saved, broken)
    except PhaseBroken:
        if context.world > 1:
            raise


def resume(context: Context, current: Phase, saved: checkpoint.Saved, broken: list[dict[str, str]]) -> None:
    """Load, compare every state, repeat the reference updates, compare those."""
    current.inputs |= {"checkpoint": saved.path.name, "step": saved.step}
    path = twin.twin_file(context.run, saved)
    if not path.is_file():
        current.seen["problems"] = [
            {"code": "not_observed", "text": f"{saved.path.name} has no twin's trace to compare with."}
        ]
        return
    stored = twin.read_twin(path)
    apart = differences(stored.get("environment", {}), environment(context))
    restore_environment(stored.get("environment", {}))
    with current.measure("load"):
        loop = build_loop(context, split=split_of(context, "train"))
        files = checkpoint.read(saved)
        checkpoint.restore(loop, files)
    current.at = loop.at
    mine = stored["ranks"][context.rank if context.rank < len(stored["ranks"]) else 0]
    before = sum(p.numel() for p in loop.raw.parameters() if p.requires_grad)
    current.seen |= {
        "checkpoint": saved.path.name,
        "incomplete": broken,
        "step": saved.step,
        "total": stored["total_updates"],
        "states": compare_states(mine["states"], checkpoint.state_hashes(loop), loop, files),
        "rows_before": mine["rows_before"],
        "twin": stored["trace"],
        "trainable_before": stored.get("trainable"),
        "trainable_after": before,
        "environment": apart,
    }
    if stored["total_updates"] > context.plan.pilot.reference:
        current.seen["left"] = stored["total_updates"] - loop.updates
    if saved.manifest.get("frozen") != checkpoint.frozen_hash(loop):
        current.seen["states"]["weights"] = {"equal": False, "detail": "the frozen base is another one", "tensors": []}
    del files  # the copies read from disk would stand in every peak that follows
    started = time.monotonic()
    loop.feed.build(loop.feed.microbatches_of(loop.feed.cursor.epoch)[loop.feed.cursor.microbatch])
    current.seen["seek_estimate_s"] = time.monotonic() - started
    count = len(stored["trace"])
    here = twin.reference_updates(loop, count, current, measured=True)
    current.reachable = reachable_bytes(loop.raw, loop.optimizer)
    current.seen["here"] = here
    current.seen["tolerance"] = tolerance(context, loop, saved, here, current)
    peaks = [
        window.memory.get("reserved_peak") or window.memory.get("allocated_peak") for window in current.windows[1:]
    ]
    current.seen["train_peak"] = stored.get("train_peak")
    current.seen["peak"] = max((peak for peak in peaks if peak), default=None)
    current.inputs |= {
        "updates_repeated": len(here),
        "next_rows": here[0]["rows"][:16] if here else [],
        "losses": [one["loss"] for one in here],
        "twin_losses": [one["loss"] for one in stored["trace"]],
        "learning_rates": [one["lr"] for one in here],
        "bit_equal": [one["weights"] for one in here] == [one["weights"] for one in stored["trace"]],
        "tolerance": current.seen["tolerance"],
        "optimizer_state_bytes": sum(
            v.numel() * v.element_size()
            for s in loop.optimizer.state.values()
            for v in s.values()
            if isinstance(v, torch.Tensor)
        ),
    }
    context.facts(
        "resume",
        {
            "bit_equal": current.inputs["bit_equal"],
            "tolerance": current.seen["tolerance"],
            "updates": len(here),
            "load_seconds": current.parts["load"][0].duration_s,
            "step": saved.step,
        },
    )


def restore_environment(stored: dict[str, Any]) -> None:
    """Set the thread count back where it differs.

    Only then: asking torch for the count it already has switches MKL's own choice of threads off, which changes the
    last bits of a matrix product. A count that had to be set therefore counts as another environment.
    """
    threads = stored.get("threads")
    if isinstance(threads, int) and threads > 0 and threads != torch.get_num_threads():
        torch.set_num_threads(threads)


def differences(left: dict[str, Any], right: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What differs between two environments."""
    return {key: (left[key], right.get(key)) for key in left if key not in IGNORED and left[key] != right.get(key)}


def compare_states(
    want: dict[str, str], have: dict[str, str], loop: Loop, files: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Each state by its own name; for weights the tensors that differ."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in want.items():
        equal = have.get(name) == value
        found[name] = {"equal": equal}
        if name == "weights" and not equal:
            from tui_pilot.observe.tensors import changing, tensor_hash

            kept = files[checkpoint.MODEL]
            differ = [n for n, t in changing(loop.raw) if n not in kept or tensor_hash(t) != tensor_hash(kept[n])]
            found[name]["tensors"] = differ or ["the checkpoint's own file"]
        if name == "numpy_rng" and not equal and name not in have:
            found[name] = {"equal": True}
    return found


def tolerance(
    context: Context, loop: Loop, saved: checkpoint.Saved, here: list[dict[str, Any]], current: Phase
) -> float:
    """0 on a CPU in the same environment. Elsewhere the updates run twice and ten times their difference is allowed."""
    if context.device.type == "cpu":
        return OTHER_ENVIRONMENT if current.seen["environment"] else 0.0
    checkpoint.restore(loop, checkpoint.read(saved))
    again = twin.reference_updates(loop, len(here), current, measured=False)
    spread = [
        abs(left["loss"] - right["loss"]) / max(1e-12, abs(left["loss"]))
        for left, right in zip(here, again, strict=False)
        if isinstance(left["loss"], float) and isinstance(right["loss"], float)
    ]
    return max(LEAST_TOLERANCE, 10 * max(spread, default=0.0))
