"""The rows that a prediction is made for: the longest real ones, or rows of the planned length without data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tui_pilot.errors import DataError
from tui_pilot.tasks.base import Batch, Task, encode
from tui_pilot.tasks.sizes import example_length

ENCODED_ROWS = 2000
"""Of more rows than this the longest by characters are encoded; the rest cannot be longer by much."""

BUILT_IN = ("sft", "classification")
TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "merges.txt", "*.tiktoken", "spiece*")


@dataclass
class Micro:
    """One microbatch on the host, and the supervised items it holds."""

    batch: Batch
    count: int


@dataclass
class Rows:
    """Microbatches of training, longest first, and of evaluation; ``length`` in tokens; ``basis`` in words."""

    window: list[Micro]
    evaluation: Micro | None
    length: int
    basis: str


def rows_of(task: Task, rows: int) -> Rows:
    """``rows`` longest training rows as microbatches, and one longest evaluation microbatch.

    Of several replicas: what the first one gets, every so-many-th of the longest of all.
    """
    plan = task.plan
    micro, length = plan.batch.micro, plan.data.max_length
    try:
        if plan.task in BUILT_IN and plan.model.path is not None and not _has_tokenizer(Path(plan.model.path)):
            # Some libraries make an empty tokenizer where there are no files, and every row would have one token.
            raise DataError("the model's folder has no tokenizer")
        train, why = _longest(task, "train", rows * plan.replicas), "no rows are here"
    except Exception as error:
        # A model folder of a config alone has no tokenizer: the planned length is then what a row can have at most.
        if length is None or plan.model.path is None:
            raise
        train, why = None, f"the rows cannot be encoded here ({str(error).splitlines()[0][:120]})"
    if train is None:
        if length is None or plan.model.path is None:
            raise DataError("there are no rows, and no data.max_length that says how long one may be")
        classes = plan.task == "classification"
        window = [_made(micro, length, classes)] * -(-rows // micro)
        return Rows(window, _made(plan.evaluate.micro or micro, length, classes), length, f"data.max_length: {why}")
    examples, basis = train[0][:: plan.replicas], train[1]
    window = [_collated(task, examples[start : start + micro]) for start in range(0, len(examples), micro)]
    checked = _longest(task, "validation", plan.evaluate.micro or micro)
    evaluation = None if checked is None else _collated(task, checked[0])
    return Rows(window, evaluation, example_length(examples[0]), basis)


def _longest(task: Task, split: str, count: int) -> tuple[list[Any], str] | None:
    """The longest encoded rows of a split, longest first, taken again from the front where there are too few."""
    records = task.records(split)
    if not len(records):
        return None
    places: Sequence[int] = range(len(records))
    basis = f"the longest of {len(records):,} rows"
    if len(records) > ENCODED_ROWS:
        places = sorted(places, key=lambda place: -len(str(records[place])))[:ENCODED_ROWS]
        basis = f"the longest of the {ENCODED_ROWS:,} rows with most characters, of {len(records):,}"
    encoded = []
    for place in places:
        example = encode(task, records[place])
        encoded.append((-example_length(example), place, example))
    encoded.sort(key=lambda each: each[:2])
    examples = [example for _, _, example in encoded[:count]]
    return [examples[number % len(examples)] for number in range(count)], basis


def _has_tokenizer(folder: Path) -> bool:
    return any(True for pattern in TOKENIZERS for _ in folder.glob(pattern))


def _collated(task: Task, examples: list[Any]) -> Micro:
    batch = task.collate(list(examples))
    return Micro(batch, int(task.count(batch)))


def _made(rows: int, length: int, classes: bool) -> Micro:
    ids = torch.zeros((rows, length), dtype=torch.long)
    labels = torch.zeros(rows, dtype=torch.long) if classes else ids.clone()
    batch = {"input_ids": ids, "labels": labels, "attention_mask": torch.ones_like(ids)}
    return Micro(batch, rows if classes else rows * (length - 1))
