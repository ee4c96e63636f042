"""Task files of area 1: a byte-level chat task that is right, and one row list that says its ids itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lab import Lab

from tui_pilot.store.state import Row

WORDS = '''
"""Bytes as tokens; a conversation is BOS, then for each message a mark, its bytes and END. Everything right."""

import json

from tui_pilot.tasks import IGNORE, Task

PAD, BOS, END, MARK = range(4)


class Words(Task):
    def lines(self, split):
        path = {"train": self.plan.data.train, "validation": self.plan.data.validation}.get(split)
        if not isinstance(path, str):
            return []
        with open(path, encoding="utf-8-sig") as stream:
            return [json.loads(line) for line in stream.read().split("\\n") if line.strip()]

    def records(self, split):
        return self.lines(split)

    def answers(self, record):
        turns = [turn for turn, each in enumerate(record["messages"]) if each["role"] == "assistant"]
        return turns[-1:] if self.plan.data.train_on == "last_assistant" else turns

    def source_text(self, record):
        if "messages" not in record:
            return record["text"]
        return "".join(record["messages"][turn]["content"] for turn in self.answers(record))

    def encode(self, record, max_length=None):
        if "messages" not in record:
            ids = [BOS, *self.ids(record["text"]), END]
            return {"input_ids": ids[:max_length], "labels": [IGNORE, *ids[1:]][:max_length]}
        ids, labels = [BOS], [IGNORE]
        for turn, message in enumerate(record["messages"]):
            piece = [*self.ids(self.render(record["messages"], turn)), END]
            ids += [MARK, *piece]
            labels += [IGNORE, *(piece if turn in self.answers(record) else [IGNORE] * len(piece))]
        return {"input_ids": ids[:max_length], "labels": labels[:max_length]}

    def render(self, messages, turn):
        return messages[turn]["content"]

    def spans(self, record, example):
        if "messages" not in record:
            return [(1, len(example["input_ids"]), "assistant", 0)]
        found, at = [], 1
        for turn, message in enumerate(record["messages"]):
            stop = at + len(self.ids(self.render(record["messages"], turn))) + 2
            if at < len(example["input_ids"]):
                found.append((at, min(stop, len(example["input_ids"])), message["role"], turn))
            at = stop
        return found

    def special_ids(self):
        return {"bos": BOS, "end": END, "pad": PAD}

    def ids(self, text):
        return [4 + byte for byte in text.encode()]

    def decode(self, ids):
        return bytes(each - 4 for each in ids if each > 3).decode("utf-8", "replace")
'''

GIVEN = '''
"""Rows that say their own ids, labels and spans: ``options.rows``."""

from tui_pilot.tasks import Task


class Given(Task):
    def records(self, split):
        return [{"id": str(n), **row} for n, row in enumerate(self.plan.options["rows"])] if split == "train" else []

    def encode(self, record, max_length=None):
        ids = record["ids"]
        return {"input_ids": ids[:max_length], "labels": record.get("labels", ids)[:max_length]}

    def spans(self, record, example):
        size = len(example["input_ids"])
        return [(a, min(b, size), role, turn) for a, b, role, turn in record.get("spans", []) if a < size]

    def special_ids(self):
        return {"end": self.plan.options.get("end"), "pad": self.plan.options.get("pad", 0)}
'''


def chat(*words: str, first: str = "user", **more: Any) -> dict[str, Any]:
    """A conversation whose roles take turns."""
    roles = ["user", "assistant"] if first == "user" else ["assistant", "user"]
    turns = [{"role": roles[turn % 2], "content": text} for turn, text in enumerate(words)]
    return {"messages": turns, **more}


def jsonl(rows: Sequence[Mapping[str, Any]]) -> str:
    """One object a line, each with an id of its own unless it has one."""
    return "".join(
        json.dumps({"id": f"r{number}", **row}, ensure_ascii=False) + "\n" for number, row in enumerate(rows)
    )


def examine(
    lab: Lab,
    task: str,
    rows: Sequence[Mapping[str, Any]] | str | None = None,
    *,
    code: str = "",
    data: str = "",
    more: str = "",
    gates: str = "",
    files: Mapping[str, str | bytes] | None = None,
    train: str = "train.jsonl",
) -> Row:
    """The ``examples`` row of a plan over a task (a class of ``code``, or a built-in name) and one file of rows."""
    written: dict[str, str | bytes] = {"words.py": WORDS, "given.py": GIVEN, "own.py": code, **(files or {})}
    if rows is not None:
        written[train] = rows if isinstance(rows, str) else jsonl(rows)
    named = f"train: {train}, " if train in written else ""
    where = task if task in ("sft", "classification") or ":" in task else f"own.py:{task}"
    # the stack phase imports every package once more in a process of its own: seconds that show nothing here
    plan = f"name: case\ntask: {where}\ndata: {{{named}{data}}}\ndevice: cpu\ngates: {{skip: [stack], {gates}}}\n{more}"
    lab.prepare(plan, written)
    state = lab.stage("data")
    row = next(each for each in state.rows if each.phase == "examples")
    assert row.verdict is not None, lab.code.stdout.decode()
    assert not [each for each in row.reasons if each["code"] == "crash"], row.reasons
    return row


def given(lab: Lab, rows: Sequence[Mapping[str, Any]], *, data: str = "train_on: all", **options: Any) -> Row:
    """The ``examples`` row of rows that say their own ids."""
    return examine(lab, "given.py:Given", data=data, more=f"options: {json.dumps({'rows': list(rows), **options})}\n")
