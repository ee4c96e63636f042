"""What the audit looks at in one row: ids and labels as they leave the collating, spans, and the source's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tui_pilot.gates.content import Message, lost_messages, messages_of
from tui_pilot.gates.entities import word_labels
from tui_pilot.gates.label_kinds import IGNORE
from tui_pilot.gates.rows import Expected, RowFacts
from tui_pilot.pilot.row_view import plain_list
from tui_pilot.tasks.base import Example, Task, defines

Collated = tuple[list[int], list[int], int]
"""A row's ids and labels inside a batch, padding left out, and how many labels stand on padding."""


def is_own(task: Task, method: str | None = None) -> bool:
    """Whether the task, or the class that gives it a method, is a person's own and not part of this package."""
    kinds = type(task).__mro__
    kind = kinds[0] if method is None else next(each for each in kinds if method in vars(each))
    return not kind.__module__.startswith("tui_pilot.")


class FactsOf:
    """Makes ``RowFacts`` of a task's rows; what the task does not define stays out."""

    def __init__(self, task: Task, expected: Expected) -> None:
        self.task, self.expected = task, expected
        self.own = is_own(task)
        self.collates = is_own(task, "collate")
        self.decodes = defines(task, "decode")
        self.spans = defines(task, "spans")
        self.source = defines(task, "source_text")

    def collated(self, examples: Sequence[Example]) -> list[Collated | None]:
        """The rows of one microbatch after the task's own ``collate``; None where they cannot be told apart in it."""
        nothing: list[Collated | None] = [None] * len(examples)
        if not self.collates or not all("input_ids" in each and "labels" in each for each in examples):
            return nothing
        batch = self.task.collate([dict(each) for each in examples])
        ids, labels = batch.get("input_ids"), batch.get("labels")
        if not isinstance(ids, torch.Tensor) or not isinstance(labels, torch.Tensor):
            return nothing
        if ids.dim() != 2 or ids.shape != labels.shape or len(ids) != len(examples):
            return nothing
        rows = zip(examples, ids.tolist(), labels.tolist(), strict=True)
        return [_inside(plain_list(example["input_ids"]), *row) for example, *row in rows]

    def __call__(
        self, row: Any, split: str, record: Any, source: Any, example: Example, full: Example, collated: Collated | None
    ) -> RowFacts:
        """One row. ``source`` is the file's own row where it is known, else the record."""
        ids, labels = ids_of(example), plain_list(example.get("labels"))
        facts = RowFacts(row, split, ids, labels)
        if full is not example:
            facts.full_ids, facts.full_labels = ids_of(full), plain_list(full.get("labels"))
        if collated is not None:
            facts.full_ids, facts.full_labels = facts.full_ids or ids, facts.full_labels or labels
            facts.ids, facts.labels, facts.padding = collated
        if self.spans:
            facts.spans = [tuple(span) for span in self.task.spans(record, dict(example))]  # type: ignore[misc]
            if facts.cut:
                facts.full_spans = [tuple(span) for span in self.task.spans(record, dict(full))]  # type: ignore[misc]
        messages = messages_of(source) or messages_of(record)
        if messages is not None:
            facts.conversation = messages
            facts.messages = [message.role for message in messages]
        if isinstance(facts.labels, list) and self.expected.classes:
            facts.words = word_labels(record, self.expected.names, facts.labels)
        if self.source:
            facts.source = self.task.source_text(record)
        if self.decodes:
            self._texts(facts, messages)
        return facts

    def _texts(self, facts: RowFacts, messages: Sequence[Message] | None) -> None:
        tokens = isinstance(facts.labels, list) and not self.expected.classes
        if not tokens and not self.own:
            return
        if self.source or messages or self.expected.marker:
            facts.text = self.task.decode(list(facts.whole))
        if not tokens:
            return
        if self.source:
            facts.supervised_text = self._supervised_text(facts.labels)
        spans = facts.full_spans or facts.spans
        if messages is not None and spans is not None and facts.text is not None:

            def of_turn(turn: int) -> str | None:
                places = [span[:2] for span in spans or () if span[3] == turn]
                if not places:
                    return None
                start, end = min(place[0] for place in places), max(place[1] for place in places)
                return self.task.decode(list(facts.whole[start:end]))

            facts.lost, facts.normalised = lost_messages(messages, facts.text, of_turn)

    def _supervised_text(self, labels: Sequence[int]) -> str:
        silent = {IGNORE, *self.expected.ends}
        runs: list[str] = []
        run: list[int] = []
        for label in [*labels, IGNORE]:
            if label not in silent:
                run.append(label)
            elif run:
                runs.append(self.task.decode(run))
                run = []
        return "".join(runs)


def ids_of(example: Example) -> list[int]:
    """The row's ids; none where it is a picture or holds several texts, whose ids are no single row of them."""
    ids = plain_list(example.get("input_ids"))
    # Once for each kind of item: a row has thousands of ids, and this is asked several times of each.
    flat = isinstance(ids, list) and not any(issubclass(kind, (list, tuple)) for kind in set(map(type, ids)))
    return ids if flat else []


def _inside(own: list[int], ids: list[int], labels: list[int]) -> Collated | None:
    """Where a row lies in its line of a batch: at the start, at the end (padding on the left), or cut."""
    size = len(own)
    if ids[:size] == own:
        start = 0
    elif size <= len(ids) and ids[len(ids) - size :] == own:
        start = len(ids) - size
    elif size > len(ids) and own[: len(ids)] == ids:
        return ids, labels, 0
    else:
        return None
    outside = labels[:start] + labels[start + size :]
    return own, labels[start : start + size], sum(1 for label in outside if label != IGNORE)


def marker_of(task: Task) -> str | None:
    """The task's ``response_marker`` as text."""
    marker: Any = getattr(task, "response_marker", None)
    if marker is None or isinstance(marker, str):
        return marker
    return task.decode(list(marker)) if defines(task, "decode") else str(list(marker))


def ends_open(source: Any) -> bool:
    """Whether a conversation goes on after its last answer: there is nothing to learn in what follows."""
    messages = messages_of(source)
    return messages is not None and messages[-1].role != "assistant"
