"""The audit of every row as the loss gets it: streamed, one short record per row on disk, rows kept for the view."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tui_pilot.errors import DataError
from tui_pilot.gates.content import pile_up
from tui_pilot.gates.rows import Expected, RowFacts, RowReport, inspect
from tui_pilot.gates.verdict import LIST_LIMIT
from tui_pilot.pilot.audit_problems import broken_rows, class_tables, duplicate_ids, task_problems
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.pairs import report_pair, sides_of
from tui_pilot.pilot.phase import Phase
from tui_pilot.pilot.row_facts import Collated, FactsOf, ends_open, is_own, marker_of
from tui_pilot.pilot.row_view import histogram, padding_share, quantile, row_view
from tui_pilot.pilot.rows import Split
from tui_pilot.pilot.source_rows import SourceCheck
from tui_pilot.tasks.base import Example, NotDefined, Task, defines, encode, takes_max_length
from tui_pilot.tasks.sizes import example_length
from tui_pilot.text import plural

SPLITS = ("train", "validation")
KEPT_PER_REASON = 100
SAMPLED = 60
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
    auditor.compare_with_files(context)
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
        "longest_row": auditor.longest_row,
        "median_length": quantile(sorted(auditor.lengths), 0.5),
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
        max_length=plan.data.max_length,
        classes=len(task.class_names()),
        names=tuple(map(str, task.class_names())),
        table=special.get("table"),
        positions=special.get("positions"),
        marker=marker_of(task),
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
        self.kinds: Counter[str | None] = Counter()
        self.open_ends = 0
        self.longest_row: Any = None
        self._top = -1
        self.ends = [0, 0]
        self.facts_of = FactsOf(task, self.expected)
        self.check: SourceCheck | None = None
        self._unit = defines(task, "unit")
        folder = context.run.examples
        (folder / "rows").mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._audit = (folder / "audit.jsonl").open("wb")
        self._index = (folder / "audit.idx").open("wb")
        self._written = 0

    def audit(self, split: Split, current: Phase) -> None:
        """Every row of a split."""
        total, micro = len(split), max(1, self.task.plan.batch.micro)
        twice = duplicate_ids(split)
        self.problems += [twice] if twice else []
        for start in range(0, total, micro):
            numbers = range(start, min(start + micro, total))
            records = [split.records[number] for number in numbers]
            examples: list[Example] = []
            for number, record in zip(numbers, records, strict=True):
                current.at = {"rows": [split.ids[number]], "split": split.name}
                if number % 500 == 0:
                    current.progress(number, total, "rows", split.name)
                examples.append(encode(self.task, record))
            current.at = {"rows": [split.ids[number] for number in numbers], "split": split.name}
            collated = self.facts_of.collated(examples)
            for number, record, example, inside in zip(numbers, records, examples, collated, strict=True):
                current.at = {"rows": [split.ids[number]], "split": split.name}
                self.row(split, number, record, example, inside)
        current.progress(total, total, "rows", split.name)

    def compare_with_files(self, context: Context) -> None:
        """Look at a person's own loader beside the plan's files; ours are read by the same reader."""
        if is_own(self.task, "records"):
            self.check = SourceCheck(self.task.plan, {name: split_of(context, name) for name in (*SPLITS, "test")})

    def row(self, split: Split, number: int, record: Any, example: Example, collated: Collated | None) -> None:
        """One row, as the loss gets it and uncut: inspect, write its record."""
        row = split.ids[number]
        full = example
        if takes_max_length(self.task) and self.task.plan.data.max_length is not None:
            full = self.task.encode(record, max_length=None)
        source = self.check.source_of(split.name, number, record) if self.check else None
        if self.check:
            self.check.look(row, split.name, record, source)
        facts = None
        if sides_of(example) is not None:
            report = report_pair(row, split.name, record, example, full, self.expected)
        else:
            facts = self.facts_of(row, split.name, record, source, example, full, collated)
            report = inspect(facts, self.expected)
            self.open_ends += ends_open(source or record)
        if facts is not None and not facts.ids:
            report.length = report.tokens = example_length(example)
        self.rows += 1
        self.kinds[report.kind if facts is not None else "pair"] += 1
        self.supervised_rows += bool(report.supervised)
        if report.length > self._top:
            self._top, self.longest_row = report.length, row
        self.lengths.append(report.length)
        self.ends = [self.ends[0] + bool(report.ends[0]), self.ends[1] + bool(report.ends[1])]
        if split.name == "train":
            self.train_lengths.append(report.length)
            self.train_supervised.append(report.supervised)
        if facts is not None and not isinstance(facts.labels, (list, tuple, type(None))):
            self.classes[facts.labels] += 1
        for code, detail in report.faults:
            self._count(code, detail, row, split.name)
        self._write(split, number, row, record, report)
        if facts is not None and (report.faults or self.kept < SAMPLED):
            self._keep(split, number, row, record, facts, report)

    def _count(self, code: str, detail: dict[str, Any], row: Any, split: str) -> None:
        fault = self.faults.setdefault(code, Fault(first=detail, split=split))
        fault.count += 1
        if len(fault.rows) < 10 * LIST_LIMIT:
            fault.rows.append(row)
        for key, value in detail.items():
            if isinstance(value, int) and not isinstance(value, bool):
                fault.sums[key] += value
            elif isinstance(value, Mapping):
                fault.sums.update({name: each for name, each in value.items() if isinstance(each, int)})

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
        self._index.write(struct.pack("<Q", self._written))
        text = json.dumps(line, ensure_ascii=False, default=str)
        self._written += self._audit.write(text.encode("utf-8", "backslashreplace") + b"\n")

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
        problems = [*self.problems, *task_problems(self.task), *class_tables(self.task), *self._of_the_set()]
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
        tokens = bool(self.kinds[None]) and not self.classes and not self.expected.classes
        if tokens and not self.facts_of.spans and self.task.plan.data.train_on != "all":
            unchecked.append("The task gives no spans: whether only the planned roles are trained was not looked at.")
        if self.kinds["none"]:
            unchecked.append(f"{plural(self.kinds['none'], 'row')} have no labels: what is trained was not looked at.")
        if (tokens or self.kinds["sequence"]) and not self.expected.ends:
            unchecked.append("The task names no end token: whether it is trained on was not looked at.")
        return {
            "rows": self.rows if self.train_lengths else 0,
            "broken": any(problem["code"] == "broken_line" for problem in self.problems),
            "faults": faults,
            "unchecked": unchecked,
            "problems": problems,
            "ends": self.ends,
        }

    def _of_the_set(self) -> list[dict[str, Any]]:
        """What only all rows together show."""
        found = list(self.check.problems()) if self.check else []
        if self.open_ends:
            text = f"{plural(self.open_ends, 'conversation')} go on after the last answer: context without a label."
            found.append({"code": "file_note", "text": text})
        found += self._hidden_cap()
        return found

    def _hidden_cap(self) -> list[dict[str, Any]]:
        """One odd length at which many different rows end, where nothing else tells a cut."""
        planned = self.task.plan.data.max_length
        if "length_cap" in self.faults or self.expected.classes or not self.expected.ends:
            return []
        found = pile_up(Counter(self.train_lengths))
        open_rows = self.faults.get("missing_end_token", Fault()).count
        if found is None or found[0] == planned or open_rows + self._unsupervised() < found[1]:
            return []
        text = (
            f"{found[1]:,} of {len(self.train_lengths):,} rows of train end at exactly {found[0]:,} tokens without an "
            f"end token, and data.max_length is {planned or 'not set'}: something cuts them."
        )
        return [{"code": "length_cap", "text": text, "where": {"split": "train"}}]

    def _unsupervised(self) -> int:
        return self.faults.get("no_supervised_token", Fault()).count

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
