"""``pilot-tui init``: looks at the data and writes a commented plan, or lists what there is to look at."""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import click
import yaml

from tui_pilot.commands.init_look import Look, look, places_of, tokens_of
from tui_pilot.errors import PilotError, PlanError, PlanErrors
from tui_pilot.plan.load import load
from tui_pilot.tasks.formats import sniff
from tui_pilot.text import count, cut, harmless, plural, size

DATA_ENDINGS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".txt")
SIDES = {"validation": ("validation", "valid", "val", "dev", "eval"), "test": ("test",)}
TEMPLATE = 32
"""Tokens left free for what a chat template writes around the turns."""
TASK_FILE = re.compile(r".+\.py:[A-Za-z_][A-Za-z0-9_]*\Z")


@click.command("init")
@click.option("--task", metavar="T", help="sft, classification, demo, command, or my_file.py:MyTask.")
@click.option("--data", metavar="F", type=click.Path(path_type=Path), help="The file to train on.")
@click.option("--model", metavar="M", type=click.Path(path_type=Path), help="A model's folder.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), default=Path("pilot.yaml"))
@click.pass_context
def init(ctx: click.Context, task: str | None, data: Path | None, model: Path | None, output: Path) -> None:
    """Write a commented plan by looking at the data.

    Without flags it lists the data files and model folders found here and says which line to type. It never
    overwrites a file.
    """
    try:
        if task is None and data is None and model is None:
            click.echo(listing(Path()))
            return
        written = write_plan(task, data, model, output)
    except PilotError as error:
        click.echo(str(error), err=True)
        ctx.exit(2)
    for line in written:
        click.echo(line, err=True)
    click.echo(str(output))


def listing(folder: Path) -> str:
    """Data files and model folders in a folder and one level below, and the line to type."""
    files = [each for each in _inside(folder) if each.suffix.lower() in DATA_ENDINGS and each.is_file()]
    models = [each for each in _inside(folder) if _is_model(each)]
    files = [each for each in files if not any(model in each.parents for model in models)]
    lines = []
    for file in files:
        try:
            found = sniff(file)
            what = found.format if found.container in ("json", "jsonl", "text") else found.container
        except PilotError as error:
            what = error.text
        lines.append(f"data   {harmless(str(file)):<40} {size(file.stat().st_size):>10}  {harmless(what)}")
    lines += [f"model  {harmless(str(each))}" for each in models]
    if not files:
        lines.append(f"No data file here ({', '.join(DATA_ENDINGS)}).")
        lines.append("Type: pilot-tui init --data FILE, or pilot-tui run for the built-in demo")
        return "\n".join(lines)
    train = next((each for each in files if "train" in each.stem.lower()), files[0])
    words = ["pilot-tui init --data", _shell(train), *(["--model", _shell(models[0])] if models else [])]
    lines.append("Type: " + " ".join(words))
    return "\n".join(lines)


def write_plan(task: str | None, data: Path | None, model: Path | None, output: Path) -> list[str]:
    """Look, write the plan and say in sentences what it rests on. Raises ``PlanError``; nothing is then written."""
    if output.exists() or output.is_symlink():
        advice = f"Nothing was written. Name another file: -o {output.stem}-2.yaml"
        raise PlanError("exists already and is never overwritten.", advice, file=str(output))
    if not output.parent.is_dir():
        raise PlanError("its folder does not exist.", "Make it first.", file=str(output))
    known = task in (None, "sft", "classification", "demo", "command") or TASK_FILE.match(task or "")
    if not known:
        advice = "Allowed: sft, classification, demo, command, my_file.py:MyTask."
        raise PlanError(f"{task} is no task.", advice, key="--task", value=task)
    if task in (None, "sft", "classification") and data is None:
        advice = f"Give the file to train on. {listing(Path()).splitlines()[-1]}"
        raise PlanError("missing: a plan is proposed from the data.", advice, key="--data")
    if task in ("demo", "command") and data is not None:
        raise PlanError(f"task {task} takes no data from the plan.", "Leave it out.", key="--data", value=str(data))
    if task is None and model is not None and _writes_text(model):
        task = "sft"  # a model that writes text was asked for by name
    if task == "sft" or task is None:
        model = model or _only_model(Path())
    counter = tokens_of(model)
    own = "own" if task is not None and TASK_FILE.match(task) else task
    seen = look(data, counter, own) if data is not None else None
    kind = task or (seen.task if seen else "demo")
    if kind == "sft" and model is None:
        found = ", ".join(str(each) for each in _inside(Path()) if _is_model(each)) or "none"
        raise PlanError("missing: task sft trains a model.", f"Add --model FOLDER; found here: {found}.", key="--model")
    if kind == "classification" and task is None and seen is not None and model == _only_model(Path()):
        model, counter = None, None  # not asked for: the small classifier needs no model
        seen = look(seen.path, None, None)
    draft = Draft(kind, seen, model, output, counter is not None)
    _store(draft.text(), output)
    return draft.said()


def _writes_text(model: Path) -> bool:
    """Whether the model folder's own config says that it generates text."""
    try:
        names = json.loads((model / "config.json").read_text("utf-8")).get("architectures") or []
    except (OSError, ValueError, AttributeError):
        return False
    return any(str(name).endswith(("ForCausalLM", "LMHeadModel")) for name in names)


@dataclass
class Draft:
    """The plan's text from what was seen."""

    task: str
    seen: Look | None
    model: Path | None
    output: Path
    counted: bool

    def text(self) -> str:
        """The commented plan."""
        parts = [self._head(), self._model(), self._data(), self._loop()]
        return "\n".join(line for part in parts for line in part) + "\n"

    def said(self) -> list[str]:
        """What a person should know before the first run, one sentence a line."""
        lines = []
        if self.seen is not None:
            rows = plural(self.seen.rows, "row") + (f", the first {count(20_000)} looked at" if self.seen.more else "")
            lines.append(f"{self.seen.path}: {rows}; {harmless(self.seen.why_task)}.")
            if self.seen.broken is not None:
                lines.append(f"A row cannot be read: {self.seen.broken}")
            if not self.seen.unit:
                lines.append("No field groups rows, so there is no data.unit: the splits gate will say unchecked.")
        lines.append(f"Next: pilot-tui check {self.output}")
        return lines

    def _head(self) -> list[str]:
        name = self.task.partition(".")[0]
        if self.seen is not None:
            places = [self.seen.path.stem, *(each.name for each in self.seen.path.resolve().parents)]
            name = next((each for each in places if each not in ("train", "data", "datasets")), name)
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)
        why = harmless(self.seen.why_task) if self.seen and self.seen.task == self.task else ""
        return [
            "# Written by pilot-tui init from a look at the data. Every line can be changed; unknown keys are refused.",
            f"# Next: pilot-tui check {harmless(str(self.output))}  (looks at every row, trains nothing)",
            f"name: {scalar(name.strip('-.') or 'pilot')}",
            f"task: {scalar(self.task)}" + _comment(why),
            *(
                ["command: [python, train.py]" + _comment("your own training command")]
                if self.task == "command"
                else []
            ),
        ]

    def _model(self) -> list[str]:
        if self.task in ("demo", "command"):
            return []
        if self.model is None:
            if self.task == "classification":
                return ["# model: {path: ./folder}" + _comment("without one: a small classifier on bytes, torch alone")]
            return []
        path = self._relative(self.model)
        return [
            "model:",
            f"  path: {scalar(path)}",
            "  adapter: {kind: lora, r: 8, alpha: 16}" + _comment("leave this line out to train every weight"),
        ]

    def _data(self) -> list[str]:
        seen = self.seen
        if seen is None:
            return []
        lines = ["data:", f"  train: {scalar(self._relative(seen.path))}" + _comment(plural(seen.rows, "row"))]
        sides = {side: _beside(seen.path, names) for side, names in SIDES.items()}
        if sides["validation"]:
            lines.append(f"  validation: {scalar(self._relative(sides['validation']))}")
        else:
            lines.append("  validation: {fraction: 0.1, seed: 0}" + _comment("a part of train, whole units"))
        if sides["test"]:
            lines.append(f"  test: {scalar(self._relative(sides['test']))}" + _comment("looked at for leakage alone"))
        if not seen.header:
            lines.append("  header: false" + _comment(harmless(seen.why_header)))
        if seen.quoting_none:
            lines.append("  quoting: none" + _comment(cut(harmless(seen.quoting_none), 100)))
        if seen.columns:
            pairs = ", ".join(f"{key}: {scalar(name)}" for key, name in seen.columns.items())
            lines.append(f"  columns: {{{pairs}}}" + _comment(self._class_words()))
        if seen.unit:
            unit = seen.unit if seen.unit.startswith("{") else scalar(seen.unit)
            lines.append(f"  unit: {unit}" + _comment(harmless(seen.why_unit)))
        else:
            lines.append(
                "  # unit: conversation_id" + _comment("no field groups rows; without a unit splits is unchecked")
            )
        lines.append(f"  max_length: {self._length()}" + _comment(self._length_words()))
        return lines

    def _class_words(self) -> str:
        classes = self.seen.classes if self.seen else {}
        if not self.seen or not classes:
            return ""
        words = ", ".join(f"{name} {number:,}" for name, number in self.seen.classes.most_common(5))
        return cut(harmless(words) + (f" and {len(classes) - 5} more" if len(classes) > 5 else ""), 100)

    def _length(self) -> int:
        assert self.seen is not None
        longest = self.seen.longest_bytes + 1 if self._bytes else self.seen.lengths[-1] + TEMPLATE
        room = longest if self.counted or self._bytes else longest * 5 // 4
        proposed = max(64, -(-room // 64) * 64)
        places = None if self._bytes or self.model is None else places_of(self.model)
        return proposed if places is None else min(proposed, places)

    def _length_words(self) -> str:
        assert self.seen is not None
        if self._bytes:
            return f"in bytes; the longest row has {self.seen.longest_bytes:,}"
        p95 = self.seen.lengths[min(len(self.seen.lengths) - 1, len(self.seen.lengths) * 95 // 100)]
        how = "counted with the model's tokenizer" if self.counted else "estimated at 4 characters a token"
        longest = f"the longest row has about {self.seen.lengths[-1]:,} tokens"
        return f"{longest}, {how}" if self.counted else f"{longest}, 19 of 20 at most {p95:,}, {how}"

    @property
    def _bytes(self) -> bool:
        return self.task == "classification" and self.model is None

    def _loop(self) -> list[str]:
        if self.task == "command":
            return []
        small = self.task != "sft" and self.model is None
        micro, accumulation = (8, 2) if small else (1, 8)
        updates = self.seen.rows // (micro * accumulation) if self.seen else 100
        lines = [
            f"batch: {{micro: {micro}, accumulation: {accumulation}}}"
            + _comment(f"{micro * accumulation} rows in one update on one GPU"),
            "budget: {epochs: 1}" + _comment("or updates, examples, tokens"),
            f"optimizer: {{lr: {'1.0e-3' if small else '1.0e-4'}, schedule: cosine, warmup: {min(10, updates // 10)}}}",
            "precision: fp32" + _comment("bf16 on a GPU: half the memory of the weights"),
            f"evaluate: {{every: 50, rows: 64, metric: {self._metric()}}}",
        ]
        return lines

    def _metric(self) -> str:
        if self.task != "classification" or self.seen is None:
            return "loss, direction: min"
        most = max(self.seen.classes.values(), default=0)
        uneven = most > 1.5 * sum(self.seen.classes.values()) / max(1, len(self.seen.classes))
        return ("macro_f1" if uneven else "accuracy") + ", direction: max"

    def _relative(self, path: Path) -> str:
        start = os.path.abspath(self.output.parent)
        text = os.path.relpath(os.path.abspath(path), start)
        return text if path != self.model else f"./{text}"


def scalar(value: str) -> str:
    """A text as one YAML value on one line."""
    plain = yaml.safe_dump(value, width=1 << 30, allow_unicode=False).strip()
    return plain.removesuffix("...").strip()


def _comment(words: str) -> str:
    return f"  # {words}" if words else ""


def _store(text: str, output: Path) -> None:
    """Check the text as a plan from a hidden neighbour, then give it its name unless somebody took it meanwhile."""
    hidden = output.parent / f".{output.name}.{os.getpid()}"
    try:
        hidden.write_text(text, "utf-8")
        load(hidden, need_weights=False)
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise PlanError("exists already and is never overwritten.", "Name another.", file=str(output)) from None
    except PlanErrors as errors:
        for error in errors.errors:
            error.file, error.line = str(output), None
        raise
    except OSError as error:
        raise PlanError(f"cannot be written: {error.strerror}.", "Name a place with -o.", file=str(output)) from None
    finally:
        with contextlib.suppress(OSError):
            hidden.unlink()


def _inside(folder: Path) -> list[Path]:
    """What lies in a folder and one level below, without hidden names and run folders."""
    found: list[Path] = []
    for each in sorted(_children(folder)):
        found.append(each)
        if each.is_dir():
            found += sorted(_children(each))
    return found[:500]


def _children(folder: Path) -> list[Path]:
    try:
        return [each for each in folder.iterdir() if not each.name.startswith(".") and each.name != "runs"]
    except OSError:
        return []


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() and '"model_type"' in (folder / "config.json").read_text(
        "utf-8", "replace"
    )


def _only_model(folder: Path) -> Path | None:
    models = [each for each in _inside(folder) if _is_model(each)]
    return models[0] if len(models) == 1 else None


def _beside(train: Path, names: tuple[str, ...]) -> Path | None:
    """The file of another side beside the training file: ``train.jsonl`` and ``test.jsonl``."""
    for name in names:
        for stem in (train.stem.replace("train", name), name):
            other = train.with_name(stem + train.suffix)
            if other != train and other.is_file():
                return other
    return None


def _shell(path: Path) -> str:
    text = str(path)
    return text if re.fullmatch(r"[A-Za-z0-9_./-]+", text) else "'" + harmless(text).replace("'", "'\\''") + "'"
