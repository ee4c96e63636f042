"""Whether the trained tensors came back from the artifact, by name and value, however quiet the load was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tui_pilot.observe.tensor_files import read_folder
from tui_pilot.observe.tensors import tensor_hash
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.trainable_set import is_adapter
from tui_pilot.run_folder import RunFolder, write_json

TRAINED = "trained.json"
WRAPPERS = ("_orig_mod", "module", "default")
"""Parts of a name that compilation, data parallelism and an adapter library put in, and that mean nothing."""
HALF = (torch.bfloat16, torch.float16)


def plain_name(name: str) -> str:
    """A tensor's name without the parts that wrappers put in."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def forms_of(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """A tensor as an artifact may hold it: as it is, rounded to half precision, and rounded and widened again."""
    own = tensor.detach()
    yield own
    if not own.is_floating_point():
        return
    for kind in HALF:
        if own.dtype != kind:
            rounded = own.to(kind)
            yield rounded
            if own.dtype == torch.float32:
                yield rounded.to(own.dtype)
    if own.dtype in HALF:
        yield own.to(torch.float32)


def store(context: Context, model: nn.Module) -> None:
    """Hashes of what was trained, in every form it may come back in, and which names are one tensor."""
    if context.plan.export.kind == "merged" and context.plan.model.adapter is not None:
        trained: dict[str, list[str]] = {}
    else:
        trained = {
            name: [tensor_hash(form) for form in forms_of(parameter)]
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
    context.run.reference.mkdir(exist_ok=True)
    write_json(context.run.reference / TRAINED, {"schema": 1, "tensors": trained, "tied": tied(model)})


def tied(model: nn.Module) -> list[list[str]]:
    """Groups of names that are one and the same parameter."""
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def compare(run: RunFolder, model: nn.Module) -> dict[str, Any]:
    """``tensors``: how many trained tensors the reloaded model has again; ``untied``: names that no longer agree.

    Only names that both have are judged: an artifact may be of another structure, and then its answers decide.
    """
    path = run.reference / TRAINED
    if not path.is_file():
        return {}
    stored = run.read_json(path)
    here = {plain_name(name): parameter for name, parameter in model.named_parameters(remove_duplicate=False)}
    both = {name: forms for name, forms in stored["tensors"].items() if plain_name(name) in here}
    differ = [name for name, forms in both.items() if tensor_hash(here[plain_name(name)]) not in forms]
    found: dict[str, Any] = {
        "tensors": {
            "expected": len(both),
            "matched": len(both) - len(differ),
            "differ": differ,
            "adapter": bool(differ) and all(is_adapter(name) for name in differ),
        },
        "untied": _untied(stored["tied"], here),
    }
    if differ:
        found["tensors"] |= keys(run.artifact, model)
    return found


def _untied(groups: list[list[str]], here: dict[str, nn.Parameter]) -> list[list[str]]:
    apart = []
    for names in groups:
        present = [name for name in names if plain_name(name) in here]
        if len({tensor_hash(here[plain_name(name)]) for name in present}) > 1:
            apart.append(present)
    return apart


def keys(folder: Path, model: nn.Module) -> dict[str, Any]:
    """The file's names against the model's: how many are equal, and one of each side where they are not."""
    saved, wanted = set(read_folder(folder).shapes), set(model.state_dict())
    return {
        "keys_matched": len(saved & wanted),
        "keys": len(saved),
        "key_of_file": min(saved - wanted, default=None),
        "key_of_model": min(wanted - saved, default=None),
    }
