"""The audit of every row as the loss gets it: streamed, one short record per row on disk, rows kept for the view."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tui_pilot.errors import DataError
from tui_pilot.gates.rows import Expected, RowFacts, RowReport, inspect
from tui_pilot.gates.verdict import LIST_LIMIT
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.phase import Phase
from tui_pilot.pilot.row_view import histogram, padding_share, plain_list, quantile, row_view
from tui_pilot.pilot.rows import Split
from tui_pilot.tasks.base import IGNORE, NotDefined, Task, defines, encode, takes_max_length
from tui_pilot.text import plural

SPLITS = ("train", "validation")
KEPT_PER_REASON = 100
SAMPLED = 60
MOST_BROKEN = 20
LABEL_CODES = ("label_out_of_range", "loss_mismatch")


def look(current: Phase) -> None:
    """Audit every row of train and validation, and fill the examples row."""
    context = current.context
    task = context.task()
    broken = {name: broken_rows(task, name) for name in SPLITS}
    problems = [problem for name in SPLITS for problem in broken[name]]
    context.cache["broken_rows"] = bool(problems)
    try:
        auditor = Auditor(context, task)
    except DataError:
        if not problems:
            raise
        # Class names come from every row: with a broken one no row can be looked at.
        current.seen |= {"rows": 0, "broken": True, "problems": problems}
        return
    auditor.problems += problems
    for name in SPLITS:
        if broken[name]:
            continue
        split = split_of(context, name)
        if not split.records and name != "train":
            continue
        auditor.audit(split, current)
    auditor.close()
    current.seen |= auditor.seen(context)
    current.inputs |= {
        "rows": auditor.rows,
        "max_length": context.plan.data.max_length,
        "train_on": context.plan.data.train_on,
        "longest": max(auditor.lengths, default=None),
    }
    context.facts("examples", auditor.summary())


def split_of(context: Context, name: str) -> Split:
    """A split, read once per process."""
    split: Split = context.once(f"split:{name}", lambda: Split.of(context.task(), name))
    return split


def expectations(task: Task) -> Expected:
    """What a right row looks like, from the plan and from what the task says of itself."""
    plan = task.plan
    special = dict(task.special_ids()) if defines(task, "special_ids") else {}
    ends = special.get("end")
    listed = [ends] if isinstance(ends, int) else list(ends or ())
    counts = special.get("bos_count", 1 if special.get("bos") is not None else 0)
    roles = None if plan.data.train_on == "all" else frozenset({"assistant"})
    return Expected(
        ends=frozenset(listed),
        bos=special.get("bos"),
        bos_counts=tuple(counts) if isinstance(counts, (list, tuple)) else (counts,),
        pad=special.get("pad"),
        roles=roles,
        last_only=plan.data.train_on == "last_assistant",
        max_length=plan.data.max_length if takes_max_length(task) else None,
        classes=len(task.class_names()),
        table=special.get("table"),
    )


@dataclass
class Fault:
    """One code over all rows."""

    count: int = 0
    rows: list[Any] = field(default_factory=list)
    first: dict[str, Any] = field(default_factory=dict)
    split: str | None = None
    sums: Counter[str] = field(default_factory=Counter)


class Auditor:
    """Goes once over rows, keeps counts and a bounded number of whole rows, never the set."""

    def __init__(self, context: Context, task: Task) -> None:
        self.task = task
        self.expected = expectations(task)
        self.rows = 0
        self.supervised_rows = 0
        self.faults: dict[str, Fault] = {}
        self.lengths: list[int] = []
        self.train_lengths: list[int] = []
        self.train_supervised: list[int] = []
        self.classes: Counter[Any] = Counter()
        self.problems: list[dict[str, Any]] = []
        self.kept = 0
        self._source = defines(task, "source_text")
        self._decode = defines(task, "decode")
        self._spans = defines(task, "spans")
        self._unit = defines(task, "unit")
        folder = context.run.examples
        (folder / "rows").mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._audit = (folder / "audit.jsonl").open("wb")
        self._index = (folder / "audit.idx").open("wb")

    def audit(self, split: Split, current: Phase) -> None:
        """Every row of a split."""
        total = len(split)
        if len(split.place) < total:
            self.problems.append(duplicate_ids(split))
        for number in range(total):
            current.at = {"rows": [split.ids[number]], "split": split.name}
            if number % 500 == 0:
                current.progress(number, total, "rows", split.name)
            self.row(split, number, split.records[number])
        current.progress(total, total, "rows", split.name)

    def row(self, split: Split, number: int, record: Any) -> None:
        """One row: encode as for the loss and uncut, inspect, write its record."""
        row = split.ids[number]
        example = encode(self.task, record)
        full = example
        if takes_max_length(self.task) and self.task.plan.data.max_length is not None:
            full = self.task.encode(record, max_length=None)
        if "chosen" in example:
            report = self._pair(row, split, example, full)
            facts = None
        else:
            facts = self._facts(row, split.name, record, example, full)
            report = inspect(facts, self.expected)
        self.rows += 1
        self.supervised_rows += bool(report.supervised)
        self.lengths.append(report.length)
        if split.name == "train":
            self.train_lengths.append(report.length)
            self.train_supervised.append(report.supervised)
        if facts is not None and not isinstance(facts.labels, (list, tuple)):
            self.classes[facts.labels] += 1
        for code, detail in report.faults:
            self._count(code, detail, row, split.name)
        self._write(split, number, row, record, report)
        if facts is not None and (report.faults or self.kept < SAMPLED):
            self._keep(split, number, row, record, facts, report)

    def _facts(
        self, row: Any, split: str, record: Any, example: Mapping[str, Any], full: Mapping[str, Any]
    ) -> RowFacts:
        ids, labels = plain_list(example["input_ids"]), plain_list(example["labels"])
        facts = RowFacts(row, split, ids, labels)
        if full is not example:
            facts.full_ids = plain_list(full["input_ids"])
            facts.full_labels = plain_list(full["labels"])
        if self._spans:
            facts.spans = [tuple(span) for span in self.task.spans(record, dict(example))]  # type: ignore[misc]
            if facts.cut:
                facts.full_spans = [tuple(span) for span in self.task.spans(record, dict(full))]  # type: ignore[misc]
            messages = record.get("messages") if isinstance(record, Mapping) else None
            if isinstance(messages, (list, tuple)) and all(isinstance(message, Mapping) for message in messages):
                facts.messages = [str(message.get("role")) for message in messages]
        if self._source:
            facts.source = self.task.source_text(record)
            if self._decode and isinstance(labels, list):
                facts.supervised_text = self._supervised_text(facts)
        return facts

    def _supervised_text(self, facts: RowFacts) -> str:
        ends = self.expected.ends
        runs: list[str] = []
        run: list[int] = []
        for label in [*facts.labels, IGNORE]:
            if label != IGNORE and label not in ends:
                run.append(label)
            elif run:
                runs.append(self.task.decode(run))
                run = []
        return "".join(runs)

    def _pair(self, row: Any, split: Split, example: Mapping[str, Any], full: Mapping[str, Any]) -> RowReport:
        sides = {name: plain_list(example[name]["input_ids"]) for name in ("chosen", "rejected")}
        counts = {name: _supervised(example[name]) for name in sides}
        report = RowReport(length=max(map(len, sides.values())), supervised=min(counts.values()))
        report.tokens = max(len(plain_list(full[name]["input_ids"])) for name in sides)
        if sides["chosen"] == sides["rejected"]:
            report.add("pair_identical")
        for name, count in counts.items():
            if not count:
                report.add("pair_side_empty", side=name)
        return report

    def _count(self, code: str, detail: dict[str, Any], row: Any, split: str) -> None:
        fault = self.faults.setdefault(code, Fault(first=detail, split=split))
        fault.count += 1
        if len(fault.rows) < 10 * LIST_LIMIT:
            fault.rows.append(row)
        for key, value in detail.items():
            if isinstance(value, int) and not isinstance(value, bool):
                fault.sums[key] += value

    def _write(self, split: Split, number: int, row: Any, record: Any, report: RowReport) -> None:
        line: dict[str, Any] = {
            "n": number,
            "row": row,
            "split": split.name,
            "tokens": report.tokens,
            "length": report.length,
            "supervised": report.supervised,
            "lost": report.lost,
            "reasons": [code for code, _ in report.faults],
        }
        if report.roles:
            line["roles"] = report.roles
        if self._unit:
            try:
                line["unit"] = self.task.unit(record)
            except NotDefined:
                self._unit = False
        self._index.write(struct.pack("<Q", self._audit.tell()))
        self._audit.write(json.dumps(line, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace") + b"\n")

    def _keep(self, split: Split, number: int, row: Any, record: Any, facts: RowFacts, report: RowReport) -> None:
        if report.faults and all(self.faults[code].count > KEPT_PER_REASON for code, _ in report.faults):
            return
        self.kept += not report.faults
        view = row_view(self.task, record, facts)
        view |= {"n": number, "reasons": [{"code": code, **detail} for code, detail in report.faults]}
        view["max_length"] = self.task.plan.data.max_length
        if self._unit:
            view["unit"] = self.task.unit(record)
        path = self.folder / "rows" / f"{split.name}-{number}.json"
        path.write_text(json.dumps(view, ensure_ascii=False, default=str), "utf-8", "backslashreplace")

    def close(self) -> None:
        self._audit.close()
        self._index.close()

    def seen(self, context: Context) -> dict[str, Any]:
        """The observation that the gate judges."""
        faults: dict[str, Any] = {}
        problems = [*self.problems, *task_problems(self.task)]
        told = {problem["code"] for problem in problems}
        for code, fault in self.faults.items():
            if code in told and code in LABEL_CODES:
                # The task names the very value of its file; the audit saw only what became of it.
                continue
            faults[code] = {
                "count": fault.count,
                "rows": fault.rows,
                "first": fault.first,
                "split": fault.split,
                "sum": dict(fault.sums),
            }
            if fault.count > LIST_LIMIT:
                faults[code]["file"] = str(context.run.examples / "audit.jsonl")
        unchecked = []
        tokens = not self.classes
        if tokens and not self._spans and self.task.plan.data.train_on != "all":
            unchecked.append("The task gives no spans: whether only the planned roles are trained was not looked at.")
        if tokens and not self.expected.ends and "chosen" not in self.faults:
            unchecked.append("The task names no end token: whether it is trained on was not looked at.")
        return {
            "rows": self.rows if self.train_lengths else 0,
            "broken": any(problem["code"] == "broken_line" for problem in self.problems),
            "faults": faults,
            "unchecked": unchecked,
            "problems": problems,
        }

    def summary(self) -> dict[str, Any]:
        """The ``examples`` object of ``check --json``."""
        ordered = sorted(self.lengths)
        none, cut = self.faults.get("no_supervised_token", Fault()), self.faults.get("response_truncated", Fault())
        names = list(self.task.class_names())
        supervised = [count for count in self.train_supervised if count]
        return {
            "rows": self.rows,
            "train_rows": len(self.train_lengths),
            "supervised_rows": self.supervised_rows,
            "no_supervised": none.rows[:LIST_LIMIT],
            "no_supervised_count": none.count,
            "truncated": cut.count + self.faults.get("input_truncated", Fault()).count,
            "response_tokens_lost": cut.sums.get("lost", 0) + none.sums.get("before_cut", 0),
            "length": {
                "max": ordered[-1] if ordered else None,
                "p50": quantile(ordered, 0.5),
                "p95": quantile(ordered, 0.95),
            },
            "padding_share": padding_share(self.train_lengths, self.task.plan.batch.micro),
            "supervised_tokens": {
                "mean": sum(supervised) / len(supervised) if supervised else None,
                "min": min(supervised, default=None),
                "max": max(supervised, default=None),
            },
            "histogram": histogram(self.lengths, self.task.plan.data.max_length),
            "classes": [
                {"id": number, "name": name, "count": self.classes.get(number, 0)} for number, name in enumerate(names)
            ],
        }


def duplicate_ids(split: Split) -> dict[str, Any]:
    """Names that more than one row of a split carries."""
    counts = Counter(split.ids)
    twice = [row for row, count in counts.items() if count > 1]
    text = (
        f"{plural(len(twice), 'row id')} of {split.name} on more than one row, first {twice[0]}; expected one row each."
    )
    return {"code": "duplicate_ids", "text": text, "where": {"rows": twice, "split": split.name}}


def broken_rows(task: Task, split: str) -> list[dict[str, Any]]:
    """Rows of the split's file that cannot be read, all of them, by file and line; the rest is then not looked at."""
    faults = getattr(task, "faults", None)
    errors = list(faults(split)) if callable(faults) else []
    found = [
        {
            "code": "broken_line",
            "text": str(error),
            "where": {key: value for key, value in (("file", error.file), ("line", error.line)) if value},
        }
        for error in errors[:MOST_BROKEN]
    ]
    if len(errors) > MOST_BROKEN:
        text = f"{len(errors):,} rows of {split} cannot be read; the first {MOST_BROKEN} are named."
        found.append({"code": "broken_line", "text": text, "where": {"split": split}})
    return found


def task_problems(task: Task) -> list[dict[str, Any]]:
    """What a task found itself while it read its files: label tables that disagree, notes of the reader."""
    found: list[dict[str, Any]] = []
    labels = getattr(task, "label_problems", None)
    if callable(labels):
        grouped: dict[str, list[dict[str, Any]]] = {}
        for problem in labels():
            grouped.setdefault(problem["code"], []).append(problem)
        for code, group in grouped.items():
            rows = [problem.get("row") for problem in group if problem.get("row") is not None]
            where = {"rows": rows, "rows_count": len(rows)} if rows else {}
            more = f" And {plural(len(group) - 1, 'row')} more." if len(group) > 1 else ""
            text = group[0]["text"].rstrip(".") + "." + more
            found.append({"code": code, "text": text, "where": where, "severity": group[0].get("severity")})
    notes = getattr(task, "file_notes", None)
    if callable(notes):
        said: set[str] = set()
        for note in notes():
            # Rows held out of the training file come with the same notes once more.
            if note["text"] in said:
                continue
            said.add(note["text"])
            found.append({"code": "file_note", "text": note["text"], "where": note.get("where") or {}})
    return found


def _supervised(side: Mapping[str, Any]) -> int:
    return sum(1 for label in plain_list(side["labels"])[1:] if label != IGNORE)
