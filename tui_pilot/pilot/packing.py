"""Several documents in one row: does a later one see the first? Judged by what the model does, not by its settings.

One id of the first document is changed; the answers inside the documents after it must stay as they were.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tui_pilot.pilot.loop import Loop
from tui_pilot.pilot.row_view import plain_list
from tui_pilot.pilot.rows import Microbatch, chunks, to_device
from tui_pilot.tasks.base import IGNORE, Batch, defines, encode

Range = tuple[int, int]
LOOKED_AT = 64
"""Rows of train among which a packed one is looked for when the longest have none."""


def probe(loop: Loop, window: Sequence[Microbatch]) -> dict[str, Any] | None:
    """How far the later documents of a packed row move; None where no row holds several documents."""
    for micro in _candidates(loop, window):
        for row, documents in enumerate(documents_of(loop, micro)):
            found = _look(loop, micro, row, documents)
            if found is not None:
                return found
    return {"unknown": True} if loop.context.plan.data.packing != "none" else None


def _candidates(loop: Loop, window: Sequence[Microbatch]) -> Iterator[Microbatch]:
    yield from window[:2]
    places = range(min(LOOKED_AT, len(loop.feed.split)))
    for group in chunks(places, loop.context.plan.batch.micro):
        yield loop.feed.build(group)


def documents_of(loop: Loop, micro: Microbatch) -> list[list[Range]]:
    """Places ``[start, end)`` of the documents in each row of a batch, by the first thing that tells them."""
    batch = micro.batch
    ids = batch.get("input_ids")
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2:
        return []
    rows, length = ids.shape
    ends = _real(batch, micro, rows, length)
    if "documents" in batch:
        numbers = [plain_list(row) for row in batch["documents"]]
        return [_runs(row[:end]) for row, end in zip(numbers, ends, strict=False)]
    for key in ("seq_lens", "seq_lengths"):
        if key in batch:
            return [_lengths(plain_list(row)) for row in batch[key]]
    for key in ("cu_seqlens", "cu_seq_lens_q"):
        if key in batch and rows == 1:
            edges = plain_list(batch[key])
            return [[each for each in itertools.pairwise(edges) if each[1] > each[0]]]
    places = batch.get("position_ids")
    if isinstance(places, torch.Tensor) and places.shape == ids.shape:
        return [_restarts(row[:end]) for row, end in zip(places.tolist(), ends, strict=True)]
    if rows == len(micro.places) and defines(loop.feed.task, "spans"):
        return [_by_turns(loop, place) for place in micro.places]
    return []


def _real(batch: Batch, micro: Microbatch, rows: int, length: int) -> list[int]:
    """Where the padding on the right of each row begins."""
    mask = batch.get("attention_mask")
    if isinstance(mask, torch.Tensor) and mask.shape == (rows, length):
        return [max((place + 1 for place, on in enumerate(row) if on), default=0) for row in mask.tolist()]
    return micro.lengths if len(micro.lengths) == rows else [length] * rows


def _runs(numbers: Sequence[int]) -> list[Range]:
    edges = [0, *(place for place in range(1, len(numbers)) if numbers[place] != numbers[place - 1]), len(numbers)]
    return [(start, end) for start, end in itertools.pairwise(edges) if numbers[start] >= 0]


def _lengths(lengths: Sequence[int]) -> list[Range]:
    edges = [0, *itertools.accumulate(each for each in lengths if each > 0)]
    return list(itertools.pairwise(edges))


def _restarts(places: Sequence[int]) -> list[Range]:
    edges = [0, *(at for at in range(1, len(places)) if places[at] == 0), len(places)]
    return list(itertools.pairwise(edges))


def _by_turns(loop: Loop, place: int) -> list[Range]:
    """Spans whose turns begin again belong to another document."""
    task, record = loop.feed.task, loop.feed.split.records[place]
    example = encode(task, record)
    if "input_ids" not in example:
        return []
    spans = sorted(task.spans(record, example))
    starts = [0, *(one[0] for last, one in itertools.pairwise(spans) if one[3] < last[3])]
    return list(itertools.pairwise([*starts, len(example["input_ids"])]))


def _look(loop: Loop, micro: Microbatch, row: int, documents: Sequence[Range]) -> dict[str, Any] | None:
    documents = [each for each in documents if each[1] - each[0] > 1]
    labels = micro.batch.get("labels")
    ids = micro.batch["input_ids"]
    if len(documents) < 2 or not isinstance(labels, torch.Tensor) or labels.shape != ids.shape:
        return None
    start, end = documents[1][0], documents[-1][1]
    watched = torch.full_like(labels, IGNORE)
    # the label at ``start`` is predicted from the last token before it, which is not the document's own
    watched[row, start + 1 : end] = labels[row, start + 1 : end]
    place = _changeable(loop, ids[row].tolist(), documents[0])
    if place is None or not bool((watched != IGNORE).any()):
        return None
    changed = ids.clone()
    changed[row, place[0]] = place[1]
    before = _answers(loop, {**micro.batch, "labels": watched})
    after = _answers(loop, {**micro.batch, "labels": watched, "input_ids": changed})
    count = int((watched != IGNORE).sum())
    found = {
        "row": micro.ids[row] if len(micro.ids) == len(ids) else micro.ids[0],
        "rows": micro.ids,
        "documents": len(documents),
        "place": place[0],
        "by": "loss",
        "moved": abs(after[0] - before[0]) / max(1, count),
        "scale": max(1.0, abs(before[0]) / max(1, count)),
        "half": any(parameter.dtype != torch.float32 for parameter in loop.raw.parameters()) or loop.dtype != "fp32",
    }
    if before[1] is not None and after[1] is not None and before[1].shape[:2] == ids.shape == after[1].shape[:2]:
        one, other = before[1][row, start:end], after[1][row, start:end]
        found |= {"by": "logits", "moved": float((one - other).abs().max()), "scale": max(1.0, float(one.abs().max()))}
    return found


def _changeable(loop: Loop, ids: Sequence[int], document: Range) -> tuple[int, int] | None:
    """A place of the first document and another ordinary id for it; special ids may tell a model where rows end."""
    special: set[Any] = set()
    if defines(loop.feed.task, "special_ids"):
        for value in loop.feed.task.special_ids().values():
            special |= set(value) if isinstance(value, (list, tuple)) else {value}
    ordinary = [place for place in range(*document) if ids[place] not in special]
    others = sorted({one for one in ids if one not in special})
    for place in reversed(ordinary):
        for one in others:
            if one != ids[place]:
                return place, one
    return None


def _answers(loop: Loop, batch: Batch) -> tuple[float, torch.Tensor | None]:
    """The loss of the labels left, and the model's logits where they can be told; training mode, equal noise."""
    kept: list[torch.Tensor] = []

    def keep(module: Any, inputs: Any, output: Any) -> None:
        logits = getattr(output, "logits", None)
        if logits is None:
            logits = output[0] if isinstance(output, (list, tuple)) and output else output
        if isinstance(logits, torch.Tensor) and logits.is_floating_point() and logits.dim() == 3:
            kept.append(logits.detach().float())

    normed = any(getattr(module, "running_mean", None) is not None for module in loop.raw.modules())
    loop.raw.train(not normed)
    hook = loop.raw.register_forward_hook(keep)
    try:
        with torch.random.fork_rng(devices=[loop.device] if loop.device.type == "cuda" else []), torch.no_grad():
            torch.manual_seed(0)
            with loop.autocast():
                answer = loop.feed.task.loss(loop.raw, to_device(batch, loop.device))
    finally:
        hook.remove()
        loop.raw.train()
    total = answer[0] if isinstance(answer, tuple) else answer
    return float(total), kept[-1].cpu() if kept else None
