"""The plan's dotted keys, read off its dataclasses: which exist, what each allows, which is nearest. Pure.

One walk over the types serves the loader's messages, the origins, ``--set`` and the differences between plans, so a
field added to the model is known everywhere at once.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from tui_pilot.plan.model import Plan

Path = tuple[str | int, ...]


def dotted(path: Path) -> str:
    """``("variants", 0, "id")`` as ``variants.0.id``."""
    return ".".join(str(part) for part in path)


@functools.cache
def fields_of(kind: Any) -> dict[str, Any]:
    """Field names of a dataclass with their resolved types, in file order."""
    return typing.get_type_hints(kind)


def options_of(kind: Any) -> tuple[Any, ...]:
    """The alternatives of a type: of ``str | Held | None`` all three, else the type alone."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.get_args(kind)
    return (kind,)


def section_of(kind: Any) -> Any:
    """The dataclass among a type's alternatives, or None."""
    return next((option for option in options_of(kind) if dataclasses.is_dataclass(option)), None)


def item_of(kind: Any, container: type) -> Any:
    """What a ``tuple`` or ``dict`` among a type's alternatives holds, or None: not such a container."""
    for option in options_of(kind):
        if typing.get_origin(option) is container:
            arguments = typing.get_args(option)
            return arguments[1] if container is dict else arguments[0]
    return None


def kind_at(path: Path) -> Any:
    """The type that belongs at a place of the plan; None when the place does not exist."""
    kind: Any = Plan
    for part in path:
        section = section_of(kind)
        if kind is Any:
            return Any
        if section is not None and isinstance(part, str):
            kind = fields_of(section).get(part)
        else:
            kind = item_of(kind, tuple if isinstance(part, int) else dict)
        if kind is None:
            return None
    return kind


def split(key: str) -> Path | None:
    """A dotted key as a path, or None when no such key exists.

    Below a field that holds names of the person's own (``prices``, ``columns``) the rest is one name, dots and all;
    below ``options`` every dot nests.
    """
    kind: Any = Plan
    path: list[str] = []
    parts = key.split(".")
    for number, part in enumerate(parts):
        section = section_of(kind)
        if kind is Any:
            path.append(part)
            continue
        if section is not None and part in fields_of(section):
            kind = fields_of(section)[part]
            path.append(part)
            continue
        below = item_of(kind, dict)
        if below is None or not part:
            return None
        if below is not Any:
            return (*path, ".".join(parts[number:]))
        path.append(part)
        kind = Any
    return tuple(path) if key else None


@functools.cache
def known_keys() -> tuple[str, ...]:
    """Every dotted key that a plan may set, sections and fields, in file order."""

    def walk(kind: Any, head: tuple[str, ...]) -> Iterator[str]:
        for name, each in fields_of(typing.cast(Any, kind)).items():
            path = (*head, name)
            yield dotted(path)
            section = section_of(each)
            if section is not None:
                yield from walk(section, path)

    return tuple(walk(Plan, ()))


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    lower = {each.lower(): each for each in reversed(list(names))}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    return lower[found[0]] if found else None


def nearest_key(path: Path) -> str | None:
    """The key that an unknown one probably means: a sibling, else the same field of another section, dotted."""
    name = str(path[-1])
    section = section_of(kind_at(path[:-1]))
    sibling = None if section is None else nearest(name, fields_of(section))
    return sibling or _elsewhere(name) or (nearest_dotted(name) if len(path) == 1 else None)


def nearest_dotted(key: str) -> str | None:
    """The same over whole dotted keys: ``lr`` finds ``optimizer.lr``."""
    return _elsewhere(key.rsplit(".", 1)[-1]) or nearest(key, known_keys())


def _elsewhere(name: str) -> str | None:
    """Where a field of this name stands, or of the name that training libraries have for it."""
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    return next((known for known in known_keys() if known.rsplit(".", 1)[-1] == name), None)


def describe(kind: Any) -> str:
    """What a type allows, in words: ``a whole number, or null``."""
    words: list[str] = []
    for option in options_of(kind):
        if typing.get_origin(option) is Literal:
            choices = [str(choice) for choice in typing.get_args(option)]
            words.append(choices[0] if len(choices) == 1 else "one of " + ", ".join(choices))
        elif dataclasses.is_dataclass(option):
            words.append("a section with " + ", ".join(fields_of(typing.cast(Any, option))))
        elif typing.get_origin(option) is tuple:
            words.append("a list, each " + describe(typing.get_args(option)[0]))
        elif typing.get_origin(option) is dict:
            words.append("names with values, each " + describe(typing.get_args(option)[1]))
        else:
            words.append(_SIMPLE.get(typing.cast(Any, option), "anything"))
    return ", or ".join(words)


def choices_of(kind: Any) -> list[str]:
    """The words that a type allows, when it allows only some."""
    found = [option for option in options_of(kind) if typing.get_origin(option) is Literal]
    return [str(choice) for option in found for choice in typing.get_args(option)]


def leaves(value: Any, head: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every field of a plan that is no section, with its path; lists and free names count as one value."""
    for each in dataclasses.fields(value):
        item = getattr(value, each.name)
        path = (*head, each.name)
        if dataclasses.is_dataclass(item):
            yield from leaves(item, path)
        else:
            yield path, item


_SIMPLE: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
}

_OTHER_NAMES = {
    "learning_rate": "optimizer.lr",
    "batch_size": "batch.micro",
    "per_device_train_batch_size": "batch.micro",
    "micro_batch_size": "batch.micro",
    "gradient_accumulation_steps": "batch.accumulation",
    "per_device_eval_batch_size": "evaluate.micro",
    "num_train_epochs": "budget.epochs",
    "num_epochs": "budget.epochs",
    "max_steps": "budget.updates",
    "warmup_steps": "optimizer.warmup",
    "lr_scheduler_type": "optimizer.schedule",
    "max_grad_norm": "optimizer.clip",
    "label_smoothing_factor": "loss.label_smoothing",
    "gradient_checkpointing": "memory.activation_checkpointing",
    "max_seq_length": "data.max_length",
    "cutoff_len": "data.max_length",
    "model_name_or_path": "model.path",
    "attn_implementation": "model.attention",
    "rank": "model.adapter.r",
    "lora_r": "model.adapter.r",
    "lora_rank": "model.adapter.r",
    "lora_alpha": "model.adapter.alpha",
    "target_modules": "model.adapter.targets",
    "dtype": "precision",
    "eval_steps": "evaluate.every",
    "save_steps": "checkpoint.every",
    "save_total_limit": "checkpoint.keep",
    "dataloader_num_workers": "data.workers",
}
