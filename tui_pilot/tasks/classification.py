"""One class per text: a table or JSONL with a text and a label, a Hugging Face classifier or a small one of our own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from tui_pilot.errors import DataError, PlanError
from tui_pilot.plan.model import Plan
from tui_pilot.tasks.base import IGNORE, Batch, Example, NotDefined, Record, Span, Task
from tui_pilot.tasks.formats.table import LINE, Note
from tui_pilot.tasks.formats.tables import column_key
from tui_pilot.tasks.labels import Labelled, LabelTable, Problem, build_labels, read_label
from tui_pilot.tasks.picked_rows import row_number
from tui_pilot.tasks.splits import SplitFiles
from tui_pilot.tasks.text_classifier import PAD, START, TextClassifier, byte_ids, byte_pieces, byte_text
from tui_pilot.tasks.units import Parents, parents_of, unit_of

if TYPE_CHECKING:
    from tui_pilot.tasks.sequence_model import SequenceModel

SIZES = {"width": 64, "buckets": 1 << 15, "orders": 4, "hidden": 128}
"""``plan.options`` of the small classifier and their defaults."""
LABELS, SETTINGS = "labels.json", "text_classifier.json"
NAME_COLUMNS = ("label_text", "label_name")


class ClassificationTask(Task):
    """Texts and their classes; ``labels`` of an example is one class id.

    The loss is a cross entropy summed over rows. A label that names no class is given by ``label_problems``; such a row
    is left out of a batch (-100), so that one bad label does not hide what the later phases measure.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.files = SplitFiles(plan)
        unknown = sorted(set(plan.options) - set(SIZES)) if plan.model.path is None else []
        if unknown:
            allowed = f"Known for the small classifier: {', '.join(SIZES)}."
            raise PlanError("unknown option.", allowed, key=f"options.{unknown[0]}", value=plan.options[unknown[0]])

    # -- data ------------------------------------------------------------------------------------------------------
    def records(self, split: str) -> Sequence[Record]:
        return self.files.records(split)

    def file_notes(self) -> list[Note]:
        """What reading the files and making the label table noticed: nothing wrong, but worth showing."""
        found: list[Note] = []
        for split in ("train", "validation", "test"):
            found += [one for one in self.files.notes(split) if one not in found]
        return found + self.labels.notes

    def faults(self, split: str) -> list[DataError]:
        """Every row of the split's file that cannot be read; reads the whole file."""
        return self.files.faults(split)

    def row_id(self, record: Record) -> str | int | None:
        own = super().row_id(record)
        if own in (None, "") and row_number(record) is not None:
            # both sides come from one file: numbers within a side would make different rows look the same
            return f"line-{record[LINE]}"
        return None if own == "" else own

    def unit(self, record: Record) -> Any:
        rule = self.plan.data.unit
        if rule is None:
            raise NotDefined("unit")
        return unit_of(rule, record, self._parents)

    def source_text(self, record: Record) -> str:
        return self._text(record)

    def encode(self, record: Record, max_length: int | None = None) -> Example:
        """``input_ids`` cut at ``max_length``, and the class id; what is no class is as ``LabelTable.id_of`` says."""
        text, label = self._text(record), self.labels.id_of(self._value("label", record))
        if self.model is not None:
            return {**self.model.encode(text, max_length), "labels": label}
        return {"input_ids": byte_ids(text)[:max_length], "labels": label}

    def spans(self, record: Record, example: Example) -> Sequence[Span]:
        """One span, the text: every token but the marks around it."""
        if self.model is not None:
            start, end = self.model.text_span(example["input_ids"])
        else:
            start, end = 1, len(example["input_ids"])
        return [(start, end, "text", 0)] if start < end else []

    def special_ids(self) -> dict[str, Any]:
        if self.model is not None:
            return self.model.special_ids()
        return {"bos": START, "end": None, "pad": PAD, "bos_count": [1]}

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Padded ids and one label a row; a label outside the classes is -100 here."""
        batch = super().collate(examples)
        labels = batch["labels"]
        known = (labels >= 0) & (labels < len(self.class_names()))
        batch["labels"] = torch.where(known, labels, torch.full_like(labels, IGNORE))
        return batch

    # -- labels ----------------------------------------------------------------------------------------------------
    @cached_property
    def labels(self) -> LabelTable:
        """The one table from label to class id, from every row of train and validation."""
        rows: list[Labelled] = []
        named: dict[int, str] = {}
        problems: list[Problem] = []
        for split in ("train", "validation"):
            for place, record in enumerate(self.records(split)):
                name = self.row_id(record)
                row = Labelled(place if name is None else name, split, self._value("label", record))
                rows.append(row)
                self._collect_name(row, record, named, problems)
        model = self.model.class_names() if self.model is not None else None
        table = build_labels(rows, self.plan.data.classes, model, named)
        table.problems[:0] = problems
        return table

    def _collect_name(self, row: Labelled, record: Record, named: dict[int, str], problems: list[Problem]) -> None:
        """A name that a row has beside its number, in a column ``label_text`` or ``label_name``."""
        label = read_label(row.value)
        key = self.plan.data.columns.get("label_name") or next((each for each in NAME_COLUMNS if each in record), None)
        name = record.get(key) if key else None
        if label.kind != "number" or label.key < 0 or not isinstance(name, str) or not name:
            return
        known = named.setdefault(label.key, name)
        if known != name:
            text = f"label {label.key} is {name!r} here and {known!r} in an earlier row"
            problems.append(
                {"row": row.row, "split": row.split, "code": "class_names_disagree", "text": text, "value": name}
            )

    def label_problems(self) -> list[Problem]:
        """``{row, split, code, text, value}`` of every label that the loss cannot take; ``row`` None: all of them."""
        return self.labels.problems

    def class_names(self) -> Sequence[str]:
        return self.labels.names

    def class_counts(self) -> list[dict[str, Any]]:
        """``{id, name, count}`` by id, over train and validation."""
        table = self.labels
        return [{"id": each, "name": name, "count": table.counts.get(each, 0)} for each, name in enumerate(table.names)]

    # -- model -----------------------------------------------------------------------------------------------------
    @cached_property
    def model(self) -> SequenceModel | None:
        """The Hugging Face model of the plan, or None: the small classifier of our own."""
        if self.plan.model.path is None:
            return None
        from tui_pilot.tasks.sequence_model import SequenceModel

        return SequenceModel(self.plan)

    def packages(self) -> Sequence[str]:
        adapter = ["peft"] if self.plan.model.adapter else []
        model = [] if self.plan.model.path is None else ["transformers", "tokenizers", "safetensors", *adapter]
        return model + self.files.packages()

    def build_model(self) -> nn.Module:
        classes = len(self.class_names())
        if classes < 1:
            raise DataError("no row has a label that names a class", "Check data.columns.label.", key="data.columns")
        if self.model is not None:
            return self.model.build(self.class_names())
        return self._small({**SIZES, **self.plan.options}, classes)

    def _small(self, sizes: Mapping[str, Any], classes: int) -> nn.Module:
        model = TextClassifier(classes, **{name: int(sizes[name]) for name in SIZES})
        model.checkpointing = self.plan.memory.activation_checkpointing
        return model.to(torch.bfloat16) if self.plan.precision == "bf16" else model

    def logits(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """``(rows, classes)``, in fp32."""
        inputs = {key: value for key, value in batch.items() if key != "labels"}
        answer = model(**inputs)
        found: torch.Tensor = getattr(answer, "logits", answer)
        return found.float()

    def count(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORE).sum())

    def loss(self, model: nn.Module, batch: Batch) -> Any:
        total = functional.cross_entropy(
            self.logits(model, batch),
            batch["labels"],
            ignore_index=IGNORE,
            reduction="sum",
            label_smoothing=self.plan.loss.label_smoothing,
        )
        return total, self.count(batch)

    # -- answers ---------------------------------------------------------------------------------------------------
    def predict(self, model: nn.Module, batch: Batch) -> Any:
        return self.logits(model, batch).argmax(dim=-1)

    def decode(self, ids: Sequence[int]) -> str:
        return byte_text(ids) if self.model is None else self.model.tokens.decode(ids)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One text per id; of a character that takes several ids the last has it and the others have nothing."""
        return byte_pieces(ids) if self.model is None else self.model.tokens.texts(ids)

    def metrics(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """``accuracy`` and ``macro_f1`` (the plain mean over classes that occur) of rows with a label."""
        pairs = [(int(each["predicted"]), int(each["labels"])) for each in predictions]
        pairs = [(predicted, label) for predicted, label in pairs if label != IGNORE]
        if not pairs:
            return {}
        scores = []
        for number in {label for pair in pairs for label in pair}:
            right = sum(1 for pair in pairs if pair == (number, number))
            named = sum(1 for predicted, _ in pairs if predicted == number)
            real = sum(1 for _, label in pairs if label == number)
            scores.append(2 * right / (named + real))
        accuracy = sum(1 for predicted, label in pairs if predicted == label) / len(pairs)
        return {"accuracy": accuracy, "macro_f1": sum(scores) / len(scores)}

    # -- close -----------------------------------------------------------------------------------------------------
    def save_artifact(self, model: nn.Module, folder: Path) -> None:
        """Weights, the class names by id, and what turns a text into ids; a reader needs nothing else."""
        document = {"schema": 1, "classes": list(self.class_names()), "source": self.labels.source}
        (Path(folder) / LABELS).write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", "utf-8")
        if self.model is not None:
            self.model.save(model, Path(folder))
            return
        super().save_artifact(model, folder)
        sizes = {**SIZES, **self.plan.options}
        (Path(folder) / SETTINGS).write_text(json.dumps(sizes) + "\n", "utf-8")

    def load_artifact(self, folder: Path) -> nn.Module:
        folder = Path(folder)
        classes = json.loads((folder / LABELS).read_text("utf-8"))["classes"]
        if self.model is not None:
            return self.model.load(folder, classes)
        model = self._small(json.loads((folder / SETTINGS).read_text("utf-8")), len(classes))
        state = torch.load(folder / "weights.pt", map_location="cpu", weights_only=True)
        model.load_state_dict(state, strict=True)
        return model

    def control_inputs(self) -> Batch:
        """The first rows of validation (or train) that have a class."""
        records = list(self.records("validation")[:64]) or list(self.records("train")[:64])
        examples = [self.encode(record, self.plan.data.max_length) for record in records]
        known = [each for each in examples if 0 <= each["labels"] < len(self.class_names())]
        return self.collate((known or examples)[:4])

    # -- columns ---------------------------------------------------------------------------------------------------
    @cached_property
    def _parents(self) -> Parents:
        """Chain links of every file, for a unit that is the root of a parent chain."""
        return parents_of(self.plan.data.unit, *(self.files.whole(name) for name in ("train", "validation", "test")))

    def _value(self, role: str, record: Record) -> Any:
        """The record's text or label; None where this row lacks what the first row of train has."""
        key = self._keys[role]
        if key in record:
            return record[key]
        return record.get(column_key(self.plan.data.columns, role, list(record)) or key)

    @cached_property
    def _keys(self) -> dict[str, str]:
        """The record keys of text and label, by the plan and the first row."""
        rows = self.files.whole("train")
        if not rows:
            raise PlanError("missing: a classifier needs rows.", "Name a file: train.csv", key="data.train")
        record = rows[0]
        found = {role: column_key(self.plan.data.columns, role, list(record)) for role in ("text", "label")}
        keys = {role: key for role, key in found.items() if key is not None}
        for role in found.keys() - keys.keys():
            names = [str(name) for name in record if not str(name).startswith("_")]
            wanted = self.plan.data.columns.get(role, role)
            raise DataError(
                f"no column {wanted!r}; there are: {', '.join(names)[:200]}",
                f"Say which one it is in data.columns.{role}; a file without a header line needs data.header: false.",
                file=self.plan.data.train,
                key=f"data.columns.{role}",
                value=wanted,
            )
        return keys

    def _text(self, record: Record) -> str:
        value = self._value("text", record)
        if isinstance(value, str):
            return value
        raise DataError(
            f"the text is {'missing' if value is None else type(value).__name__}",
            "Every row needs a text; check data.columns.text.",
            file=self.plan.data.train,
            line=record.get("_line"),
        )
