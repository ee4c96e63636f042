"""Control inputs: a few fixed rows asked before the first update, before the export and after the reload."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tui_pilot.pilot.answers import ask, batch_loss
from tui_pilot.pilot.context import Context, seed_everything
from tui_pilot.run_folder import RunFolder, write_json

BATCH, ANSWERS = "control.pt", "control.json"


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
    """The task's control rows, made once per process."""
    batch: dict[str, Any] = context.once("control", lambda: dict(context.task().control_inputs()))
    return batch


def base_control(context: Context, model: nn.Module) -> None:
    """The untrained model's answers: what a lost adapter would give back."""
    if context.main:
        from tui_pilot.pilot.checkpoint import random_state, restore_random_state

        streams = random_state(context.device)
        found = answers(context, model, control_batch(context))
        restore_random_state(streams, context.device)
        context.cache["control_base"] = found.get("loss")


def control_loss(context: Context, model: nn.Module) -> dict[str, Any]:
    """The untrained model's loss on the control rows, with what it depends on: what a lock keeps."""
    found = answers(context, model, control_batch(context))
    return {"value": found.get("loss"), "device": context.device.type, "precision": context.plan.precision}


def locked_control(context: Context, model: nn.Module) -> dict[str, Any] | None:
    """The lock's control loss beside this one; None without a lock made on this kind of device and precision."""
    try:
        locked = json.loads((context.folder / "pilot.lock.json").read_text("utf-8"))["control_loss"]
        stored, kind = float(locked["value"]), (locked["device"], locked["precision"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if kind != (context.device.type, context.plan.precision):
        return None
    return {"stored": stored, "now": control_loss(context, model)["value"]}


def store(context: Context, model: nn.Module) -> dict[str, Any]:
    """The trained model's answers, with the inputs themselves, as tensors and numbers."""
    batch = control_batch(context)
    found = answers(context, model, batch)
    found["base_loss"] = context.cache.get("control_base")
    folder = context.run.reference
    folder.mkdir(exist_ok=True)
    torch.save({key: value for key, value in batch.items() if isinstance(value, torch.Tensor)}, folder / BATCH)
    write_json(folder / ANSWERS, found)
    return found


def stored(run: RunFolder) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The stored control inputs and answers; None where no export left them."""
    batch, found = run.reference / BATCH, run.reference / ANSWERS
    if not batch.is_file() or not found.is_file():
        return None
    return torch.load(batch, map_location="cpu", weights_only=True), run.read_json(Path(found))
