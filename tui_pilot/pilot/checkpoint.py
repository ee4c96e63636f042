"""Checkpoints: the full training state as tensors, numbers and strings; hashed, renamed whole, manifest last.

A folder ``step-000020`` is a checkpoint only with its ``manifest.json``, which lists every file's size and SHA-256.
Frozen base weights are not copied: the manifest keeps their hash, and a resume must find the same ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tui_pilot.errors import PilotError
from tui_pilot.events.writer import utc_now
from tui_pilot.observe.random_streams import random_state, restore_random_state
from tui_pilot.observe.tensors import changing, hashes, note_moved, one_hash, state_hash
from tui_pilot.pilot.loop import Loop
from tui_pilot.pilot.rows import Cursor
from tui_pilot.run_folder import write_json

MANIFEST = "manifest.json"
MODEL, OPTIMIZER, LOOP = "model.pt", "optimizer.pt", "loop.pt"
SAFE_SCALARS = (int, float, str, bool, type(None))


class UnsafeState(PilotError):
    """A state that holds more than tensors, numbers and strings."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint on disk."""

    path: Path
    manifest: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.manifest["step"])


def plain_state(value: Any, place: str) -> Any:
    """The state with containers made plain; anything but tensors, numbers and strings is refused by its place."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, SAFE_SCALARS):
        return value
    if isinstance(value, dict):
        return {key: plain_state(item, f"{place}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return (
            type(value)(plain_state(item, f"{place}[{n}]") for n, item in enumerate(value))
            if type(value) in (list, tuple)
            else [plain_state(item, f"{place}[{n}]") for n, item in enumerate(value)]
        )
    raise UnsafeState(
        f"{place} is a {type(value).__module__}.{type(value).__qualname__}, which only unsafe loading could read back.",
        "Keep tensors, numbers and strings in the state.",
        code="unsafe_state",
        title="The state cannot be stored safely",
        key=place,
    )


def collect(loop: Loop) -> dict[str, dict[str, Any]]:
    """Everything a resume needs, by file. Call it on every rank."""
    context = loop.context
    note_moved(loop.raw)
    cursor = loop.feed.cursor
    streams = context.gather(random_state(context.device))
    scheduler = loop.scheduler.state_dict() if hasattr(loop.scheduler, "state_dict") else {}
    scheduler = {key: value for key, value in scheduler.items() if key != "lr_lambdas"}
    return {
        MODEL: {name: tensor.detach() for name, tensor in changing(loop.raw)},
        OPTIMIZER: plain_state(loop.optimizer.state_dict(), "optimizer"),
        LOOP: plain_state(
            {
                "updates": loop.updates,
                "total_updates": loop.total_updates,
                "epoch": cursor.epoch,
                "microbatch": cursor.microbatch,
                "seed": context.plan.seed,
                "world": context.world,
                "scheduler": scheduler,
                "optimizer_names": optimizer_names(loop),
                "scaler": loop.scaler.state_dict() if loop.scaler is not None else None,
                "random": streams,
            },
            "loop",
        ),
    }


def optimizer_names(loop: Loop) -> list[str]:
    """The parameters' names in the optimizer's own order, which is all that ties a state to its tensor."""
    names = {id(parameter): name for name, parameter in loop.raw.named_parameters()}
    return [
        names.get(id(parameter), "a tensor outside the model")
        for group in loop.optimizer.param_groups
        for parameter in group["params"]
    ]


def states_in(loop: Loop, files: dict[str, dict[str, Any]]) -> list[str]:
    """Which states are really there, by the names people use: not what should be, but what was written."""
    kept, found = files[LOOP], ["model", "optimizer", "scheduler", "random state", "data position"]
    if loop.optimizer.state and not files[OPTIMIZER].get("state"):
        found.remove("optimizer")
    counts = loop.counters.scheduler_ticks in getattr(loop.scheduler, "__dict__", {}).values()
    if not kept["scheduler"] and counts and loop.lr != loop.optimizer.defaults.get("lr"):
        found.remove("scheduler")  # it counts, has moved the rate, and says nothing of where it stands
    return found + (["scaler"] if kept.get("scaler") else [])


def save(loop: Loop, root: Path, name: str) -> Saved:
    """Write a checkpoint under a temporary name, hash it, and rename it whole. Raises OSError as the disk does."""
    context = loop.context
    files = collect(loop)
    target = root / name
    manifest: dict[str, Any] = {}
    if context.main:
        temporary = root / f".{name}.part"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            entries = {}
            for file, state in files.items():
                path = temporary / file
                with path.open("wb") as stream:
                    torch.save(state, stream)
                    stream.flush()
                    os.fsync(stream.fileno())
                entries[file] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
            manifest = {
                "schema": 1,
                "step": loop.updates,
                "created": utc_now(),
                "files": entries,
                "states": states_in(loop, files),
                "weights": one_hash(hashes(files[MODEL].items())),
                "frozen": frozen_hash(loop),
                "trainable": sum(p.numel() for p in loop.raw.parameters() if p.requires_grad),
                "environment": context.cache.get("environment", {}),
            }
            write_json(temporary / MANIFEST, manifest)
            shutil.rmtree(target, ignore_errors=True)
            temporary.rename(target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    if context.world > 1:
        dist.barrier()
        manifest = context.gather(manifest)[0]
    return Saved(target, manifest)


def frozen_hash(loop: Loop) -> str:
    """One hash over what training does not change, made once per process."""
    kept = dict(changing(loop.raw))
    frozen = [(name, p) for name, p in loop.raw.named_parameters() if not p.requires_grad and name not in kept]
    value: str = loop.context.once(f"frozen_hash {len(frozen)}", lambda: one_hash(hashes(frozen)))
    return value


def sha256(path: Path) -> str:
    """SHA-256 of a file, streamed."""
    value = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            value.update(block)
    return value.hexdigest()


def why_incomplete(folder: Path) -> str | None:
    """What keeps a folder from being a whole checkpoint or artifact; None if it is whole."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text("utf-8"))
        entries = manifest["files"]
    except FileNotFoundError:
        return "no manifest.json: the save did not finish"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"manifest.json cannot be read: {type(error).__name__}"
    for name, entry in entries.items():
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != entry["bytes"]:
            return f"{name} has {file.stat().st_size:,} bytes, {entry['bytes']:,} were written"
        if sha256(file) != entry["sha256"]:
            return f"{name} differs from its hash"
    return None


def step_of(folder: Path) -> int:
    """The update that a checkpoint's name says; -1 for a name that says none."""
    number = folder.name.removeprefix(".").removeprefix("step-").partition(".")[0]
    return int(number) if number.isdigit() else -1


def newest(root: Path) -> tuple[Saved | None, list[dict[str, str]]]:
    """The newest whole checkpoint, and the newer ones that are not whole, each with why."""
    broken: list[dict[str, str]] = []
    folders = [path for pattern in ("step-*", ".step-*.part") for path in root.glob(pattern) if path.is_dir()]
    for folder in sorted(folders, key=step_of, reverse=True):
        why = "the save did not finish" if folder.name.endswith(".part") else why_incomplete(folder)
        if why is None:
            return Saved(folder, json.loads((folder / MANIFEST).read_text("utf-8"))), broken
        broken.append({"name": folder.name, "why": why})
    return None, broken


def read(saved: Saved) -> dict[str, dict[str, Any]]:
    """The checkpoint's states; tensors, numbers and strings alone, never retried in an unsafe mode."""
    files = {}
    for name in (MODEL, OPTIMIZER, LOOP):
        try:
            files[name] = torch.load(saved.path / name, map_location="cpu", weights_only=True)
        except Exception as error:
            if "weights_only" in str(error) or "Unsupported" in str(error):
                raise UnsafeState(
                    f"{saved.path / name} holds more than tensors, numbers and strings and was not opened.",
                    code="unsafe_state",
                    title="The checkpoint is not safe to load",
                    file=str(saved.path / name),
                ) from error
            raise
    return files


def restore(loop: Loop, files: dict[str, dict[str, Any]]) -> None:
    """Put every state back where it was, weights in place, random streams last."""
    note_moved(loop.raw, files[MODEL])
    named = dict(changing(loop.raw))
    with torch.no_grad():
        for name, value in files[MODEL].items():
            named[name].copy_(value)
    loop.optimizer.load_state_dict(files[OPTIMIZER])
    state = files[LOOP]
    if hasattr(loop.scheduler, "load_state_dict"):
        own = loop.scheduler.state_dict()
        loop.scheduler.load_state_dict({**own, **state["scheduler"]})
    if loop.scaler is not None and state.get("scaler") is not None:
        loop.scaler.load_state_dict(state["scaler"])
    loop.updates = int(state["updates"])
    loop.feed.cursor = Cursor(int(state["epoch"]), int(state["microbatch"]))
    streams = state["random"]
    restore_random_state(streams[loop.context.rank if loop.context.rank < len(streams) else 0], loop.context.device)


def strangers(loop: Loop, model: dict[str, Any]) -> list[str]:
    """Tensors of the checkpoint that this model has no place for."""
    note_moved(loop.raw, model)
    named = dict(changing(loop.raw))
    return [name for name, value in model.items() if name not in named or named[name].shape != value.shape]


def state_hashes(loop: Loop) -> dict[str, str]:
    """One hash per state, for comparison with the twin right after the load."""
    note_moved(loop.raw)
    streams = random_state(loop.context.device)
    scheduler = loop.scheduler.state_dict() if hasattr(loop.scheduler, "state_dict") else {}
    found = {
        "weights": one_hash(hashes(changing(loop.raw))),
        "optimizer": state_hash(loop.optimizer.state_dict()),
        "scheduler": state_hash({key: value for key, value in scheduler.items() if key != "lr_lambdas"}),
        "torch_rng": state_hash(streams["torch"]),
        "python_rng": state_hash(streams["python"]),
    }
    if loop.scaler is not None:
        found["scaler"] = state_hash(loop.scaler.state_dict())
    if "numpy" in streams:
        found["numpy_rng"] = state_hash(streams["numpy"])
    if "device" in streams:
        found["device_rng"] = state_hash(streams["device"])
    return found
