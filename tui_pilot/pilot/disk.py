"""Free bytes where a run lies, against what its checkpoints and export will take: from files, later from the model."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from tui_pilot.devices import host
from tui_pilot.gates.disk import needs
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.loop import Loop, trainable

PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
LARGEST_HEADER = 100 << 20


def planned(context: Context) -> dict[str, Any]:
    """Before anything is loaded: by the elements that the model folder's files name; without a folder nothing."""
    elements = elements_of(context.plan.model.path)
    return {
        **_free(context),
        "overlay": host.on_overlay_root(context.run.path),
        **_sum(None if elements is None else needs(context.plan, elements)),
    }


def exact(context: Context, loop: Loop) -> dict[str, Any]:
    """With the model at hand: what really trains, and as many optimizer tensors as its kind keeps."""
    trained = sum(parameter.numel() for _, parameter in trainable(loop.raw))
    elements = sum(parameter.numel() for parameter in loop.raw.parameters())
    return {**_free(context), **_sum(needs(context.plan, elements, trained, moments_of(loop)))}


def moments_of(loop: Loop) -> int:
    """Optimizer tensors as large as the parameter: two for the Adam family, one for momentum."""
    if "adam" in type(loop.optimizer).__name__.lower() or "lamb" in type(loop.optimizer).__name__.lower():
        return 2
    return 1 if any(group.get("momentum") for group in loop.optimizer.param_groups) else 0


def _free(context: Context) -> dict[str, Any]:
    return {"path": str(context.run.path), "free": host.free_bytes(context.run.path)}


def _sum(parts: dict[str, int] | None) -> dict[str, Any]:
    return {"parts": parts or {}, "need": None if parts is None else sum(parts.values())}


def elements_of(path: str | None) -> int | None:
    """Weights in a model folder, by the headers of its safetensors files, else by the bytes of its pickles, as fp32."""
    if path is None or not Path(path).is_dir():
        return None
    files = sorted(Path(path).iterdir())
    safe = [file for file in files if file.suffix == ".safetensors"]
    if safe:
        return sum(_header_elements(file) for file in safe) or None
    return sum(file.stat().st_size for file in files if file.suffix in PICKLES) // 4 or None


def _header_elements(file: Path) -> int:
    """Elements by a safetensors header; half its bytes where the header cannot be read."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length)) if length < LARGEST_HEADER else {}
        return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return file.stat().st_size // 2
