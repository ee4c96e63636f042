"""Control inputs: a few fixed rows asked before the first update, before the export and after the reload."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tui_pilot.errors import PilotError
from tui_pilot.observe.random_streams import streams_kept
from tui_pilot.observe.tensors import state_hash
from tui_pilot.pilot.answers import ask, batch_loss
from tui_pilot.pilot.context import Context, seed_everything
from tui_pilot.pilot.loop import autocast
from tui_pilot.pilot.row_facts import is_own
from tui_pilot.pilot.rows import to_device
from tui_pilot.plan.model import as_json
from tui_pilot.run_folder import RunFolder, write_json

BATCH, ANSWERS = "control.pt", "control.json"
MOST_GRADIENTS = 1 << 30
"""Above this many trainable elements a second set of gradients costs more than it tells."""


def answers(context: Context, model: nn.Module, batch: dict[str, Any]) -> dict[str, Any]:
    """Loss per item and answers on the control rows, in evaluation mode; the mode is given back."""
    mode = model.training
    model.eval()
    try:
        seed_everything(context.plan.seed)
        found: dict[str, Any] = {"answers": ask(context, model, batch)}
        if "labels" in batch:
            total, count = batch_loss(context, model, batch)
            value = total / max(1, count)
            found["loss"] = value if math.isfinite(value) else None
    finally:
        model.train(mode)
    return found


def control_batch(context: Context) -> dict[str, Any]:
    """The task's control rows, made once per process; what they draw at random follows from the seed."""
    batch: dict[str, Any] = context.once("control", lambda: seeded(context, context.task().control_inputs))
    return batch


def seeded(context: Context, make: Callable[[], Any]) -> dict[str, Any]:
    """What ``make`` gives after the seed; the random streams go on from where they were."""
    with streams_kept(context.device):
        seed_everything(context.plan.seed)
        return dict(make())


def base_control(context: Context, model: nn.Module) -> None:
    """The untrained model's answers: what a lost adapter would give back."""
    if context.main:
        with streams_kept(context.device):
            found = answers(context, model, control_batch(context))
        context.cache["control_base"] = found.get("loss")


def control_loss(context: Context, model: nn.Module) -> dict[str, Any]:
    """The untrained model's loss and gradient norm on the control rows, with what they depend on: a lock keeps it."""
    batch = control_batch(context)
    found = answers(context, model, batch)
    return {
        "value": found.get("loss"),
        "gradient_norm": gradient_norm(context, model, batch) if "labels" in batch else None,
        "items": int(context.task().count(batch)) if "labels" in batch else None,
        "rows": state_hash({key: value for key, value in batch.items() if isinstance(value, torch.Tensor)}),
        "made_from": made_from(context),
        "device": context.device.type,
        "precision": context.plan.precision,
    }


def gradient_norm(context: Context, model: nn.Module, batch: dict[str, Any]) -> float | None:
    """The norm of the control rows' gradient per item, in evaluation mode, so that no dropout moves it.

    Asked of autograd directly: a backward would leave gradients and call what data parallelism hangs on them.
    """
    mode = model.training
    model.eval()
    try:
        seed_everything(context.plan.seed)
        with autocast(context):
            out = context.task().loss(model, to_device(batch, context.device))
        total, count = out if isinstance(out, tuple) else (out, context.task().count(batch))
        taking = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not getattr(total, "requires_grad", False) or not 0 < sum(p.numel() for p in taking) <= MOST_GRADIENTS:
            return None
        parts = torch.autograd.grad(total / max(1, int(count)), taking, allow_unused=True)
        square = sum(float(part.detach().float().norm() ** 2) for part in parts if part is not None)
    finally:
        model.train(mode)
    return math.sqrt(square) if math.isfinite(square) else None


def made_from(context: Context) -> str | None:
    """One hash over what the control rows and the model come from: files by content, and the plan's words on them.

    The same hash and another loss: something below has changed, a version or the machine.
    """
    try:
        revisions = context.run.read_json(context.run.run_file)["revisions"]
    except (PilotError, KeyError):
        return None
    plan = as_json(context.plan)
    files = {name: entry.get("sha256") for name, entry in (revisions.get("data") or {}).items()}
    words = {key: value for key, value in plan["data"].items() if key not in files}
    model = {key: value for key, value in plan["model"].items() if key != "path"}
    parts = {
        "data": files,
        "model": (revisions.get("model") or {}).get("files"),
        "task_file": (revisions.get("task_file") or {}).get("sha256"),
        "plan": [plan["task"].rpartition("/")[2], words, model, plan["loss"], plan["options"], plan["seed"]],
    }
    return state_hash(json.loads(json.dumps(parts)))


def locked_control(context: Context, model: nn.Module) -> dict[str, Any] | None:
    """The lock's control loss and gradient norm beside this model's; None without a lock that holds one."""
    try:
        locked = dict(json.loads((context.folder / "pilot.lock.json").read_text("utf-8"))["control_loss"])
        stored = float(locked["value"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    now = control_loss(context, model)
    same = {
        key: locked.get(key) == now[key] if locked.get(key) is not None else None
        for key in ("rows", "made_from", "device", "precision")
    }
    return {
        "stored": stored,
        "now": now["value"],
        "norm_stored": locked.get("gradient_norm"),
        "norm_now": now["gradient_norm"],
        "items_stored": locked.get("items"),
        "items_now": now["items"],
        "half": any(name not in ("fp32", None) for name in (locked.get("precision"), now["precision"])),
        "same": same,
        "of": f"{locked.get('device')}, {locked.get('precision')}",
    }


def store(context: Context, model: nn.Module) -> dict[str, Any]:
    """The trained model's answers, with the inputs themselves, as tensors and numbers."""
    batch = control_batch(context)
    found = answers(context, model, batch)
    found["base_loss"] = context.cache.get("control_base")
    fresh = _of_a_new_task(context, model, batch) if is_own(context.task()) else None
    if fresh is not None and fresh != found.get("loss"):
        # a penalty that fades, say: the artifact's own task starts without what this one has been through
        found |= {"loss": fresh, "loss_of_trained_task": found["loss"]}
    folder = context.run.reference
    folder.mkdir(exist_ok=True)
    torch.save({key: value for key, value in batch.items() if isinstance(value, torch.Tensor)}, folder / BATCH)
    write_json(folder / ANSWERS, found)
    return found


def _of_a_new_task(context: Context, model: nn.Module, batch: dict[str, Any]) -> float | None:
    """The trained model's loss by a task that has not trained: what a reload can be compared with."""
    found: float | None = None
    # Its loss may need what only building or training leaves in the task: then that is what counts.
    with streams_kept(context.device), contextlib.suppress(Exception):
        found = answers(dataclasses.replace(context, cache={}), model, batch).get("loss")
    return found


def stored(run: RunFolder) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The stored control inputs and answers; None where no export left them."""
    batch, found = run.reference / BATCH, run.reference / ANSWERS
    if not batch.is_file() or not found.is_file():
        return None
    return torch.load(batch, map_location="cpu", weights_only=True), run.read_json(Path(found))
