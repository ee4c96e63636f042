"""Checks of what a plan points at: data files, the model folder, the task's file. Looks, never loads or downloads."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path as FilePath

from tui_pilot.plan import keys
from tui_pilot.plan.keys import Path
from tui_pilot.plan.model import Plan
from tui_pilot.plan.problems import Problems, shown

TASKS = ("demo", "sft", "classification", "command")
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
_NO_WEIGHTS = re.compile(r"(training_args|optimizer|scheduler|scaler|rng_state|random_states|tokenizer)", re.IGNORECASE)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?\Z")
_TASK_FILE = re.compile(r"(?P<file>.+\.py):(?P<name>[^:/]+)\Z")
_LFS = b"version https://git-lfs"


@dataclass(frozen=True)
class Files:
    """The folder where relative paths start, and where faults go."""

    folder: FilePath
    problems: Problems

    def check(self, plan: Plan, need_weights: bool) -> None:
        """Everything the plan names on disk."""
        own = self.task(plan.task)
        for name in ("train", "validation", "test", "benchmark"):
            value = getattr(plan.data, name)
            if isinstance(value, str):
                self.data(("data", name), value)
        if plan.model.path is not None:
            self.model(plan.model.path, own, need_weights)

    def data(self, path: Path, value: str) -> None:
        """A data file must be there, be a file, be readable and not be empty."""
        if self.problems.touches(path):
            return
        place = self.folder / value
        try:
            if not place.exists():
                near = keys.nearest(place.name, _names(place.parent))
                advice = f"Nearest there: {near}." if near else f"Paths start at {self.folder}."
                self.problems.add(path, f"{shown(value)} does not exist.", advice, value)
            elif not place.is_file():
                self.problems.add(path, f"{shown(value)} is no file.", "Name the data file itself.", value)
            else:
                with place.open("rb") as file:
                    if not file.read(1):
                        self.problems.add(path, f"{shown(value)} is empty: 0 bytes.", "Give a file with rows.", value)
        except (OSError, ValueError) as error:
            self.problems.add(path, f"{shown(value)} cannot be read: {_why(error)}.", "", value)

    def model(self, value: str, own: bool, need_weights: bool) -> None:
        """A model folder with its config and weights; a task of one's own may lay out its folder as it likes."""
        path: Path = ("model", "path")
        if self.problems.touches(path):
            return
        place = self.folder / value
        try:
            self._model(place, value, own, need_weights)
        except (OSError, ValueError) as error:
            self.problems.add(path, f"{shown(value)} cannot be read: {_why(error)}.", "", value)

    def _model(self, place: FilePath, value: str, own: bool, need_weights: bool) -> None:
        path: Path = ("model", "path")
        if not place.exists():
            if _HUB_ID.match(value):
                folder = "./" + value.rsplit("/", 1)[-1].lower()
                advice = f"hf download {value} --local-dir {folder}, then model.path: {folder}"
                text = f"{shown(value)} is no folder here, and pilot-tui downloads nothing."
                self.problems.add(path, text, advice, value)
            else:
                self.problems.add(path, f"{shown(value)} does not exist.", f"Paths start at {self.folder}.", value)
            return
        if not place.is_dir():
            self.problems.add(path, f"{shown(value)} is a file.", "Name the folder that holds config.json.", value)
            return
        if own:
            return
        if not self._config(place, value):
            return
        if need_weights:
            self._weights(place, value)

    def _config(self, place: FilePath, value: str) -> bool:
        path: Path = ("model", "path")
        config = place / "config.json"
        if not config.is_file():
            advice = "Name the folder that holds config.json and the weights."
            if (place / "adapter_config.json").is_file():
                advice = "It holds an adapter: name the folder of its base model."
            self.problems.add(path, f"{shown(value)} has no config.json.", advice, value)
            return False
        try:
            good = isinstance(json.loads(config.read_bytes()), dict)
        except ValueError:
            good = False
        if not good:
            advice = "Copy or download the model again."
            self.problems.add(path, f"config.json in {shown(value)} is no JSON object.", advice, value)
        return good

    def _weights(self, place: FilePath, value: str) -> None:
        path: Path = ("model", "path")
        weights = [
            file
            for file in sorted(place.iterdir())
            if file.suffix.lower() in WEIGHTS and file.is_file() and not _NO_WEIGHTS.match(file.name)
        ]
        advice = "Download the model again, whole."
        for index in sorted(place.glob("*.index.json")):
            missing = [name for name in _shards(index) if not (place / name).is_file()]
            if missing:
                text = f"{shown(value)} lacks {missing[0]}" + (f" and {len(missing) - 1} more" if missing[1:] else "")
                self.problems.add(path, f"{text}, which {index.name} names.", advice, value)
                return
        if not weights:
            allowed = ", ".join("*" + ending for ending in WEIGHTS)
            self.problems.add(path, f"{shown(value)} has no weights.", f"Looked for: {allowed}.", value)
        for file in weights:
            with file.open("rb") as stream:
                start = stream.read(len(_LFS))
            if not start:
                self.problems.add(path, f"{file.name} in {shown(value)} is empty: 0 bytes.", advice, value)
                return
            if start == _LFS:
                text = f"{file.name} in {shown(value)} is a Git LFS pointer and no weights."
                self.problems.add(path, text, "git lfs pull there.", value)
                return

    def task(self, value: str) -> bool:
        """A built-in task, or ``file.py:Class`` whose file exists and has the class; True for one's own."""
        path: Path = ("task",)
        if value in TASKS or self.problems.touches(path):
            return False
        match = _TASK_FILE.match(value)
        if match is None:
            allowed = "demo, sft, classification, command, or my_file.py:MyTask"
            near = keys.nearest(value, TASKS)
            if value.endswith(".py") and (self.folder / value).is_file():
                names = _classes(self.folder / value)[0]
                near = f"{value}:{names[0]}" if names else None
            advice = f"Allowed: {allowed}." + (f" Nearest: {near}." if near else "")
            self.problems.add(path, f"{shown(value)} is no task.", advice, value)
            return True
        file = self.folder / match["file"]
        if not file.is_file():
            text = f"{shown(match['file'])} does not exist."
            self.problems.add(path, text, f"Paths start at {self.folder}.", value)
            return True
        names, sure = _classes(file)
        if sure and match["name"] not in names:
            near = keys.nearest(match["name"], names)
            advice = f"Nearest: {near}." if near else "Classes there: " + (", ".join(names) or "none") + "."
            self.problems.add(path, f"{match['file']} has no class {shown(match['name'])}.", advice, value)
        return True


def _classes(file: FilePath) -> tuple[list[str], bool]:
    """Classes of a Python file, read without running it, and whether that is all there can be.

    A syntax error is left to the training interpreter: it may be newer than this one.
    """
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return [], False
    names = [node.name for node in body if isinstance(node, ast.ClassDef)]
    plain = (ast.ClassDef, ast.FunctionDef, ast.Expr)
    imports = [alias.asname or alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names]
    others = [
        node for node in body if not isinstance(node, (*plain, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign))
    ]
    assigned = [
        target.id
        for node in body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    ]
    return names + imports + assigned, not others and "*" not in imports


def _shards(index: FilePath) -> list[str]:
    try:
        named = json.loads(index.read_bytes())["weight_map"].values()
        return sorted({str(name) for name in named})
    except (ValueError, KeyError, AttributeError, TypeError):
        return []


def _names(folder: FilePath) -> list[str]:
    try:
        return [each.name for each in folder.iterdir() if each.is_file()]
    except OSError:
        return []


def _why(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
