"""Writing the artifact that evaluation will load, and looking at what is really in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn

from tui_pilot.events.writer import utc_now
from tui_pilot.observe.tensor_files import Weights, read_folder
from tui_pilot.observe.tensors import tensor_hash
from tui_pilot.pilot import came_back, control
from tui_pilot.pilot.came_back import forms_of, plain_name
from tui_pilot.pilot.checkpoint import MANIFEST, sha256
from tui_pilot.pilot.loop import Loop, trainable
from tui_pilot.pilot.phase import Phase
from tui_pilot.pilot.trainable_set import is_adapter
from tui_pilot.run_folder import write_json


def export(loop: Loop, current: Phase) -> None:
    """Control answers, then the artifact under a temporary name, manifest last, renamed whole; then a look inside."""
    context = loop.context
    folder = context.run.artifact
    if context.main:
        stored = control.store(context, loop.raw)
        came_back.store(context, loop.raw)
        temporary = folder.with_name(".artifact.part")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        current.seen["allocated_before"] = context.meter.now()[0]
        try:
            with current.measure("save"):
                context.task().save_artifact(loop.raw, temporary)
                files = {
                    str(path.relative_to(temporary)): path for path in sorted(temporary.rglob("*")) if path.is_file()
                }
                sizes = {name: path.stat().st_size for name, path in files.items()}
                entries = {name: {"bytes": size, "sha256": sha256(files[name])} for name, size in sizes.items()}
                write_json(
                    temporary / MANIFEST,
                    {
                        "schema": 1,
                        "created": utc_now(),
                        "step": loop.updates,
                        "kind": context.plan.export.kind,
                        "files": entries,
                    },
                )
            current.seen["allocated_left"] = context.meter.now()[0]
            shutil.rmtree(folder, ignore_errors=True)
            temporary.rename(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        current.seen |= inspect(loop, folder, sizes)
        current.inputs |= {
            "kind": context.plan.export.kind,
            "files": len(sizes),
            "control_loss": stored.get("loss"),
            "bytes": sum(sizes.values()),
            "path": folder.name,
        }
    if context.world > 1:
        dist.barrier()


def inspect(loop: Loop, folder: Path, files: dict[str, int]) -> dict[str, Any]:
    """What the artifact holds against what was trained, by value: names may be renamed on the way."""
    context = loop.context
    weights = read_folder(folder)
    names = dict(trainable(loop.raw))
    found: dict[str, Any] = {
        "files": files,
        "elements": weights.elements,
        "trained": len(names),
        "trained_elements": sum(p.numel() for p in names.values()),
        "unsafe": weights.unsafe,
        "refused": weights.refused,
        "hollow": _hollow(weights, loop.raw),
        "foreign_bytes": weights.foreign_bytes,
        "lacking": lacking(loop, files),
    }
    unread = weights.unread or (weights.foreign if not weights.elements else [])
    if unread:
        found["values_unread"] = unread[0]
    merged = context.plan.export.kind == "merged" and any(is_adapter(name) for name in names)
    if weights.elements and not merged:
        found["missing"] = _missing(weights, names)
    elif weights.elements:
        found["unmerged"] = _unmerged(weights, loop.raw)
    moved = loop.updates > context.plan.optimizer.warmup
    found["zero_adapters"] = [name for name in weights.zero if "lora_B" in name] if moved else []
    return found | generic_names(loop, folder)


def _hollow(weights: Weights, model: nn.Module) -> list[dict[str, Any]]:
    """Tensors that the artifact names and that have no element, beside the shape the model has under that name."""
    shapes = {plain_name(name): tuple(value.shape) for name, value in model.state_dict().items()}
    return [
        {"tensor": name, "saved": list(weights.shapes[name]), "trained": list(shapes.get(plain_name(name)) or ())}
        for name in weights.hollow
        if shapes.get(plain_name(name)) != weights.shapes[name]
    ]


def _missing(weights: Weights, names: dict[str, nn.Parameter]) -> list[dict[str, Any]]:
    """Trained tensors whose values are nowhere in the artifact, each with what stands under its name instead."""
    kept = set(weights.hashes.values())
    saved = {plain_name(name): shape for name, shape in weights.shapes.items()}
    return [
        {"tensor": name, "saved": _shape(saved.get(plain_name(name))), "trained": list(parameter.shape)}
        for name, parameter in names.items()
        if not any(tensor_hash(form) in kept for form in forms_of(parameter))
    ]


def _unmerged(weights: Weights, model: nn.Module) -> dict[str, Any]:
    """Matrices that an adapter changes and that stand in a merged artifact as the base has them; ``of`` how many."""
    kept = set(weights.hashes.values())
    places: dict[str, bool] = {}
    for name, parameter in trainable(model):
        parts = name.split(".")
        at = next((number for number, part in enumerate(parts) if is_adapter(part)), None)
        if at is not None:
            # Two factors make the change: while one of them is zero there is nothing to merge.
            place = ".".join(parts[:at])
            places[place] = places.get(place, True) and bool((parameter != 0).any())
    changed = [
        (name, parameter)
        for name, parameter in model.named_parameters()
        if not parameter.requires_grad
        and parameter.dim() >= 2
        and any(moved and name.startswith(f"{place}.") for place, moved in places.items())
    ]
    same = [name for name, p in changed if any(tensor_hash(form) in kept for form in forms_of(p))]
    return {"same": same, "of": len(changed)}


def _shape(shape: tuple[int, ...] | None) -> list[int] | None:
    return None if shape is None else list(shape)


def lacking(loop: Loop, files: dict[str, int]) -> list[str]:
    """Tokenizer and template files that the model folder has and the artifact has not."""
    path = loop.context.plan.model.path
    task = loop.context.task()
    by_tokenizer = loop.context.plan.task in ("sft", "classification") or hasattr(task, "artifact_control_inputs")
    if path is None or not by_tokenizer:
        return []
    source = {item.name for item in Path(path).iterdir()}
    absent: list[str] = [
        name for name in ("tokenizer.json", "tokenizer_config.json") if name in source and name not in files
    ]
    has_template = any(name.startswith("chat_template") for name in files) or _template_in_config(
        loop.context.run.artifact
    )
    had_template = any(name.startswith("chat_template") for name in source) or _template_in_config(Path(path))
    if had_template and not has_template and hasattr(task, "artifact_control_inputs"):
        absent.append("the chat template")
    return absent


def _template_in_config(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / "tokenizer_config.json").read_text("utf-8")).get("chat_template"))
    except (OSError, ValueError, AttributeError):
        return False


def generic_names(loop: Loop, folder: Path) -> dict[str, Any]:
    """Class names the artifact carries that say nothing."""
    names = list(loop.context.task().class_names())
    try:
        table = json.loads((folder / "config.json").read_text("utf-8")).get("id2label") or {}
    except (OSError, ValueError, AttributeError):
        return {}
    stored = list(table.values())
    return (
        {"generic_names": stored} if names and stored and all(str(name).startswith("LABEL_") for name in stored) else {}
    )
