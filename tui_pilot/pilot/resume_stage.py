"""The resume stage: a new process, the checkpoint alone, and the twin's updates once more."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from tui_pilot.gates.codes import reason
from tui_pilot.observe.memory import reachable_bytes
from tui_pilot.observe.random_streams import streams_kept
from tui_pilot.observe.tensors import changing, state_hash, tensor_hash
from tui_pilot.pilot import checkpoint, seek, twin
from tui_pilot.pilot.audit import split_of
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.loop import Loop, build_loop, build_model, trainable
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
        model = build_model(context)
        unlike = trainable_unlike(model, saved)
        if not unlike:
            loop = build_loop(context, model, split_of(context, "train"))
            files = checkpoint.read(saved)
            strange = checkpoint.strangers(loop, files[checkpoint.MODEL])
            if not strange:
                checkpoint.restore(loop, files)
    current.seen |= {"checkpoint": saved.path.name, "incomplete": broken, "step": saved.step}
    if unlike:
        current.seen |= unlike
        return
    if strange:
        text = f"{len(strange)} tensors of {saved.path.name} have no place in this model: {strange[0]}."
        where = {"tensors": strange, "tensor": strange[0]}
        current.seen["problems"] = [{"code": "weights_not_restored", "text": text, "where": where}]
        return
    current.at = loop.at
    mine = stored["ranks"][context.rank if context.rank < len(stored["ranks"]) else 0]
    current.seen |= {
        "total": stored["total_updates"],
        "states": compare_states(mine["states"], checkpoint.state_hashes(loop), loop, files),
        "schedule": schedule_stands(loop, files),
        "rows_before": mine["rows_before"],
        "epoch_twin": mine.get("epoch"),
        "twin": stored["trace"],
        "environment": apart,
    }
    if files[checkpoint.LOOP].get("optimizer_names") not in (None, checkpoint.optimizer_names(loop)):
        current.seen["twin"] = []  # each tensor has another one's state: no update can be repeated with that
        return
    if stored["step"] < stored["total_updates"]:  # a very short plan's pilot ends where the plan does
        current.seen["left"] = stored["total_updates"] - loop.updates
        current.seen["step"] = loop.updates
    if saved.manifest.get("frozen") != checkpoint.frozen_hash(loop):
        current.seen["states"]["weights"] = {"equal": False, "detail": "the frozen base is another one", "tensors": []}
    del files  # the copies read from disk would stand in every peak that follows
    with streams_kept(context.device):  # some rows draw while they are encoded
        started = time.monotonic()
        for group in loop.feed.microbatches_of(loop.feed.cursor.epoch)[loop.feed.cursor.microbatch :][:1]:
            loop.feed.build(group)
        first = time.monotonic() - started
        consumed = loop.feed.cursor.microbatch * context.plan.batch.micro * context.world
        current.seen["seek"] = seek.estimate(loop.feed.split.records, min(consumed, len(loop.feed.split) - 1))
        current.seen["seek_estimate_s"] = max(first, current.seen["seek"]["end_s"])
        current.seen["epoch_here"] = twin.position(loop)["epoch"]
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
        "resident_at_first_forward": current.parts["forward"][0].memory.get("allocated_before") if here else None,
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


def trainable_unlike(model: nn.Module, saved: checkpoint.Saved) -> dict[str, Any]:
    """What the gate needs to say which tensors stopped (or began) to train; empty where as many train as before."""
    stored, now = saved.manifest.get("trainable"), sum(parameter.numel() for _, parameter in trainable(model))
    if stored is None or stored == now:
        return {}
    kept = set(checkpoint.read(saved)[checkpoint.MODEL])
    takes = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    lost = [name for name, gradient in takes.items() if name in kept and not gradient]
    new = [name for name, gradient in takes.items() if name not in kept and gradient]
    gone = sorted(kept - set(dict(changing(model))) - set(lost))
    names = lost or gone if now < stored else new
    return {"trainable_before": stored, "trainable_after": now, "trainable_names": names}


def schedule_stands(loop: Loop, files: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """Where the schedule stands beside the updates done; None for a schedule that does not count like torch's."""
    stands = getattr(loop.scheduler, "last_epoch", None)
    kept = files[checkpoint.LOOP]["scheduler"].get("last_epoch")
    if not isinstance(stands, int) or not isinstance(kept, int):
        return None
    skipped = loop.updates - kept  # a scaler's skipped updates move no schedule
    return {"stands": stands, "updates": loop.updates, "skipped": skipped, "epoch": loop.feed.cursor.epoch}


def compare_states(
    want: dict[str, str], have: dict[str, str], loop: Loop, files: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Each state by its own name, and what of it differs: tensors of weights and optimizer, numbers of the others."""
    found: dict[str, dict[str, Any]] = {}
    now, then = checkpoint.optimizer_names(loop), files[checkpoint.LOOP].get("optimizer_names")
    for name, value in want.items():
        equal = have.get(name) == value or (name == "numpy_rng" and name not in have)
        found[name] = {"equal": equal}
        if name == "optimizer" and then is not None and now != then:
            found[name] = {"equal": False, **_other_order(now, then)}
        elif equal:
            continue
        elif name == "weights":
            kept = files[checkpoint.MODEL]
            differ = [n for n, t in changing(loop.raw) if n not in kept or tensor_hash(t) != tensor_hash(kept[n])]
            found[name]["tensors"] = differ or ["the checkpoint's own file"]
        elif name == "optimizer":
            found[name] |= _optimizer_differs(loop, files[checkpoint.OPTIMIZER])
        elif name == "scheduler" and hasattr(loop.scheduler, "state_dict"):
            found[name]["detail"] = _numbers(loop.scheduler.state_dict(), files[checkpoint.LOOP]["scheduler"])
        elif name == "scaler" and loop.scaler is not None:
            found[name]["detail"] = _numbers(loop.scaler.state_dict(), files[checkpoint.LOOP]["scaler"] or {})
    return found


def _other_order(now: list[str], then: list[str]) -> dict[str, Any]:
    """States go to tensors by their place: in another order each gets the state of another one."""
    moved = [name for name, old in zip(now, then, strict=False) if name != old] or sorted(set(now) ^ set(then))
    place = next(
        (n for n, (name, old) in enumerate(zip(now, then, strict=False)) if name != old), min(len(now), len(then))
    )
    old = then[place] if place < len(then) else "nothing"
    detail = f"{len(moved)} of {len(then)} tensors stand in another place, {moved[0]} where {old} stood"
    return {"tensors": moved, "detail": detail}


def _optimizer_differs(loop: Loop, kept: dict[str, Any]) -> dict[str, Any]:
    """Tensors whose optimizer state is not what was saved, by their parameters' names."""
    now = loop.optimizer.state_dict()
    order = checkpoint.optimizer_names(loop)
    states, saved = now.get("state", {}), kept.get("state", {})
    differ = [
        order[n] if n < len(order) else str(n) for n in saved if state_hash(states.get(n)) != state_hash(saved[n])
    ]
    if differ:
        detail = f"{len(differ)} of {len(saved)} tensors, {len(states)} have a state here"
        return {"tensors": differ, "detail": detail}
    groups = zip(now.get("param_groups", []), kept.get("param_groups", []), strict=False)
    return {"detail": "; ".join(filter(None, (_numbers(group, old) for group, old in groups)))}


def _numbers(now: Mapping[str, Any], kept: Mapping[str, Any]) -> str:
    """The numbers and words that differ, seen and saved, the first four."""
    differ = [
        f"{key} is {now.get(key)}, saved {value}"
        for key, value in kept.items()
        if isinstance(value, (int, float, str)) and now.get(key) != value
    ]
    return ", ".join(differ[:4])


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
