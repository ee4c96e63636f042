"""Reads a plan: strict, every fault at once, each with file, line, key, value and what is allowed.

The steps stand in ``resolve``: changes are merged in, the document is fitted to the types, derived values follow, the
checks run, and each variant and trial is tried the same way before anything costs money.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib.resources
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from tui_pilot.errors import PlanError, PlanErrors
from tui_pilot.plan import keys
from tui_pilot.plan.checks import check_relations
from tui_pilot.plan.files import Files
from tui_pilot.plan.keys import Path
from tui_pilot.plan.model import DEFAULT_UPDATES, Budget, Export, Plan, Unit, plain
from tui_pilot.plan.positions import compose, compose_value
from tui_pilot.plan.problems import NOTHING_RUN, Place, Problems, shown
from tui_pilot.plan.ranges import check_ranges
from tui_pilot.plan.shape import fit, validate
from tui_pilot.plan.source import read_text

SET = "--set"
DEMO = "built-in demo"


@dataclass(frozen=True)
class LoadedPlan:
    """A valid plan with where it came from: ``origins`` maps each dotted key to given, default, derived or set."""

    plan: Plan
    folder: FilePath
    file: FilePath | None
    origins: dict[str, str]
    text: str
    demo: bool = False
    need_weights: bool = True
    baseline: LoadedPlan | None = None
    """Of a variant: the plan that it varies."""

    def path(self, value: str) -> FilePath:
        """A path of the plan, made absolute."""
        return self.folder / value


def load(path: FilePath, overrides: Mapping[str, Any] | None = None, *, need_weights: bool = True) -> LoadedPlan:
    """The plan of a file, with ``--set`` changes (text is read as YAML). ``need_weights=False``: a config is enough."""
    path = FilePath(path)
    problems = Problems(str(path))
    text = read_text(path, problems)
    folder = FilePath(os.path.abspath(path)).parent
    file = folder / path.name
    return _load_text(text, problems, LoadedPlan(Plan(), folder, file, {}, text, False, need_weights), overrides)


def default_demo(overrides: Mapping[str, Any] | None = None) -> LoadedPlan:
    """The built-in demo, for people who have no plan yet; relative paths start in the current folder."""
    text = importlib.resources.files("tui_pilot.plan").joinpath("demo.yaml").read_text("utf-8")
    return _load_text(text, Problems(DEMO), LoadedPlan(Plan(), FilePath.cwd(), None, {}, text, True), overrides)


def parse_set(items: Iterable[str]) -> dict[str, str]:
    """``["seed=1", ...]`` of a command line as overrides; the last one of a key counts."""
    found = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            text = f"{shown(item)} is no key=value."
            raise PlanError(text, f"Write --set optimizer.lr=1e-4. {NOTHING_RUN}", file=SET, value=item)
        found[key.strip()] = value
    return found


def parse_value(text: str, key: str = "value") -> Any:
    """What a person typed for a key, read as YAML; PlanErrors when it is none."""
    problems = Problems(SET)
    value = compose_value(text, (key,), problems)
    problems.raise_all()
    return value


def changed(loaded: LoadedPlan, changes: Mapping[str, Any], label: str) -> LoadedPlan:
    """A loaded plan with dotted keys changed to values (not read as YAML), validated as if it had been a file."""
    problems = Problems(label)
    found = _targets(changes, problems, label, read=False)
    return resolve(given_document(loaded), problems, loaded, found)


def given_document(loaded: LoadedPlan) -> dict[str, Any]:
    """What the person gave, without defaults and derived values, so that these follow a change."""
    document: dict[str, Any] = {}
    for path, value in keys.leaves(loaded.plan):
        if loaded.origins.get(keys.dotted(path)) in ("given", "set"):
            _put(document, path, plain(value))
    return document


def resolve(
    document: dict[str, Any], problems: Problems, source: LoadedPlan, changes: Mapping[Path, Any]
) -> LoadedPlan:
    """The plan of a raw document; raises PlanErrors with all that is wrong. ``source`` says where it came from."""
    fitted = _home(fit(merge(document, changes), problems))
    plan = judge(fitted, problems, source)
    _try_sets(plan, fitted, problems, source)
    problems.raise_all()
    origins = {}
    for path, _ in keys.leaves(plan):
        key = keys.dotted(path)
        if not _has(fitted, path):
            origins[key] = "derived" if key in _DERIVED else "default"
        elif any(path[: len(change)] == change for change in changes) or source.origins.get(key) == "set":
            origins[key] = "set"
        else:
            origins[key] = "given"
    return dataclasses.replace(source, plan=plan, origins=origins)


def judge(fitted: dict[str, Any], problems: Problems, source: LoadedPlan) -> Plan:
    """A fitted document as a plan with its derived values; every fault goes to ``problems``."""
    plan = _derive(validate(fitted, problems))
    check_ranges(plan, problems)
    check_relations(plan, fitted, problems)
    Files(source.folder, problems).check(plan, source.need_weights)
    return plan


def merge(document: dict[str, Any], changes: Mapping[Path, Any]) -> dict[str, Any]:
    """A document with changes put in. Changing one quantity of the budget replaces the one that was held."""
    merged = copy.deepcopy(document)
    if any(path[0] == "budget" and len(path) > 1 for path in changes):
        merged["budget"] = {}
    for path, value in changes.items():
        _put(merged, path, copy.deepcopy(value))
    return merged


_DERIVED = ("export.kind",)


def _load_text(text: str, problems: Problems, source: LoadedPlan, overrides: Mapping[str, Any] | None) -> LoadedPlan:
    composed = compose(text, problems)
    if not isinstance(composed.value, dict):
        if not problems.found:
            what = "is empty" if composed.value is None else "holds no sections, only " + shown(composed.value)
            advice = "A plan starts with keys, like task: demo. pilot-tui init writes one."
            problems.add_text(f"{what}.", advice, 1 if composed.value is not None else None)
        problems.raise_all()
    problems.places = composed.places
    changes = _targets(overrides or {}, problems, SET, read=True)
    return resolve(composed.value, problems, source, changes)


def _targets(changes: Mapping[str, Any], problems: Problems, label: str, *, read: bool) -> dict[Path, Any]:
    """Dotted keys as paths into the document, with the place ``label`` for what is wrong with them."""
    places = dict(problems.places)
    problems.places = places
    found: dict[Path, Any] = {}
    for key, value in changes.items():
        path = keys.split(key)
        target: Path = tuple(key.split(".")) if path is None else path
        for old in [old for old in places if old[: len(target)] == target]:
            del places[old]
        places[target] = Place(label)
        if path is None:
            near = keys.nearest_dotted(key)
            advice = f"Nearest: {near}." if near else f"Known: {', '.join(keys.fields_of(Plan))}."
            problems.add(target, "unknown key.", advice, value)
        else:
            found[path] = compose_value(value, path, problems) if read and isinstance(value, str) else plain(value)
    return found


def _derive(plan: Plan) -> Plan:
    if all(value is None for value in vars(plan.budget).values()):
        plan = dataclasses.replace(plan, budget=Budget(updates=DEFAULT_UPDATES))
    if plan.export.kind is None:
        plan = dataclasses.replace(
            plan, export=Export(kind="full" if plan.model.adapter is None else "adapter", dtype=plan.export.dtype)
        )
    unit = plan.data.unit
    if isinstance(unit, Unit) and unit.field is None and (unit.prefix is not None or unit.regex is not None):
        plan = dataclasses.replace(
            plan, data=dataclasses.replace(plan.data, unit=dataclasses.replace(unit, field="id"))
        )
    return plan


def _try_sets(plan: Plan, fitted: dict[str, Any], problems: Problems, source: LoadedPlan) -> None:
    """Each variant and trial as a plan of its own: what is wrong with it alone is said in its line."""
    heads: list[tuple[Path, Mapping[str, Any]]] = [
        (("variants", number), each.set) for number, each in enumerate(plan.variants)
    ]
    heads += [(("compare", "trials", number), each.set) for number, each in enumerate(plan.compare.trials)]
    alone = Problems(problems.file)
    judge(fitted, alone, source)
    known = {(error.key, error.text) for error in [*problems.found, *alone.found]}
    for head, changes in heads:
        targets = {path: key for key in changes if (path := keys.split(key)) is not None}
        inner = Problems(problems.file)
        judge(fit(merge(fitted, {path: changes[key] for path, key in targets.items()}), inner), inner, source)
        for path, error in zip(inner.paths, inner.found, strict=True):
            if (error.key, error.text) in known:
                continue
            key = next((key for target, key in targets.items() if path[: len(target)] == target), None)
            if key is None:
                problems.add(head, f"with this change {error.key}: {error.text}", error.advice, error.value)
            elif not problems.touches((*head, "set", key)):
                rest = path[len(keys.split(key) or ()) :]
                problems.add((*head, "set", key, *rest), error.text, error.advice, error.value)


def _home(document: dict[str, Any]) -> dict[str, Any]:
    """``~`` in paths written out: a stage may run for another user's home."""
    for section, names in (("data", ("train", "validation", "test", "benchmark")), ("model", ("path",))):
        inside = document.get(section)
        for name in names:
            if isinstance(inside, dict) and isinstance(inside.get(name), str) and inside[name].startswith("~"):
                inside[name] = os.path.expanduser(inside[name])
    return document


def _put(document: dict[str, Any], path: Path, value: Any) -> None:
    for part in path[:-1]:
        inside = document.get(str(part))
        if not isinstance(inside, dict):
            inside = document[str(part)] = {}
        document = inside
    document[str(path[-1])] = value


def _has(document: Any, path: Path) -> bool:
    for part in path:
        if not isinstance(document, dict):
            return document is not None
        if part not in document:
            return False
        document = document[part]
    return True


__all__ = ["LoadedPlan", "PlanErrors", "changed", "default_demo", "load", "parse_set", "parse_value"]
