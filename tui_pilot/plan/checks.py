"""Checks of what belongs together in a plan: one budget, a unit with one rule, an export that fits the adapter.

Pure; files are looked at in ``files``, single values in ``ranges``.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

from tui_pilot.events.schema import PHASES
from tui_pilot.plan import keys
from tui_pilot.plan.keys import Path
from tui_pilot.plan.model import Plan, Unit
from tui_pilot.plan.problems import Problems, shown
from tui_pilot.plan.variants import HOLDABLE

DTYPES = ("fp32", "bf16", "fp16")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}\Z")


def check_relations(plan: Plan, given: dict[str, Any], problems: Problems) -> None:
    """Everything that takes more than one value to judge; ``given`` is the document without defaults."""
    relations = _Relations(plan, given, problems)
    relations.task()
    relations.budget()
    relations.unit()
    relations.export()
    relations.launch()
    relations.gates()
    relations.commands()
    relations.ids("variants", [each.id for each in plan.variants])
    relations.ids("trials", [each.id for each in plan.compare.trials])
    relations.compare()


@dataclass
class _Relations:
    plan: Plan
    given: dict[str, Any]
    problems: Problems

    def add(self, path: Path, text: str, advice: str, value: Any = None, near: Path | None = None) -> None:
        if not self.problems.touches(path):
            self.problems.add(path, text, advice, value, near=near)

    def task(self) -> None:
        plan, task = self.plan, ("task",)
        if plan.task == "sft" and plan.model.path is None:
            self.add(("model", "path"), "missing: task sft trains a model.", "Name its folder: ./my-model", near=task)
        if plan.task in ("sft", "classification") and plan.data.train is None:
            text = f"missing: task {plan.task} needs rows to train on."
            self.add(("data", "train"), text, "Name a file: train.jsonl", near=task)

    def budget(self) -> None:
        held = [name for name, value in vars(self.plan.budget).items() if value is not None]
        if len(held) > 1:
            text = f"{' and '.join(held)} are both given; only one quantity is held constant."
            path = ("budget", self._later(held))
            self.add(path, text, "Keep one; pilot-tui calc shows what follows.", getattr(self.plan.budget, path[1]))

    def _later(self, names: list[str]) -> str:
        order = list(self.given.get("budget") or {})
        return max(names, key=lambda name: order.index(name) if name in order else -1)

    def unit(self) -> None:
        unit, path = self.plan.data.unit, ("data", "unit")
        if isinstance(unit, str) and not unit.strip():
            self.add(path, '"" is not allowed.', "Allowed: the name of a field, or leave data.unit out.", unit)
        if not isinstance(unit, Unit):
            return
        rules = [name for name in ("prefix", "regex", "root_of", "time") if getattr(unit, name) is not None]
        written = (self.given.get("data") or {}).get("unit")
        if len(rules) > 1 or (not rules and unit.field is None):
            said = " and ".join(rules) + " are given" if rules else "no rule is given"
            self.add(path, f"{said}.", "Allowed: one of field, prefix, regex, root_of, time.", written)
        elif unit.field is not None and rules in (["root_of"], ["time"]):
            text = f"field does not go with {rules[0]}, which names its own."
            self.add((*path, "field"), text, "Leave it out.", unit.field)
        if unit.prefix == "":
            advice = 'Allowed: the text before whose last occurrence the unit stands, like "_".'
            self.add((*path, "prefix"), '"" is not allowed.', advice, unit.prefix)
        if unit.regex is not None:
            self.regex((*path, "regex"), unit.regex)

    def regex(self, path: Path, value: str) -> None:
        advice = "Allowed: a regular expression with one group, like ^(.*)_"
        try:
            groups = re.compile(value).groups
        except (re.error, RecursionError, OverflowError) as error:
            self.add(path, f"{shown(value)} is no regular expression: {error}.", advice, value)
            return
        if groups != 1:
            self.add(path, f"{shown(value)} has {groups} groups.", advice, value)

    def export(self) -> None:
        kind, adapter, path = self.plan.export.kind, self.plan.model.adapter, ("export", "kind")
        if kind in ("adapter", "merged") and adapter is None:
            advice = "Allowed without one: full. Or add model.adapter: {kind: lora}"
            self.add(path, f"{kind} needs model.adapter, and there is none.", advice, kind)
        if kind == "full" and adapter is not None:
            advice = "Allowed with one: adapter, merged."
            self.add(path, "full does not go with model.adapter: its base is not trained.", advice, kind)
        dtype = self.plan.export.dtype
        if dtype is not None and dtype not in DTYPES:
            self.add(("export", "dtype"), f"{shown(dtype)} is not allowed.", _allowed(dtype, DTYPES), dtype)

    def launch(self) -> None:
        launch = self.plan.launch
        if min(launch.processes, launch.nodes, launch.tensor_parallel) < 1:
            return
        world = launch.processes * launch.nodes
        if world > 1 and launch.strategy == "none":
            text = f"none is not allowed with {world} processes: each would train a model of its own."
            advice = "Write launch.strategy: ddp (a whole model on each GPU) or fsdp (one model in shards)."
            near: Path = ("launch", "processes" if launch.processes > 1 else "nodes")
            self.add(("launch", "strategy"), text, advice, launch.strategy, near)
        if world % launch.tensor_parallel:
            text = f"{launch.tensor_parallel} does not divide {world} processes."
            divisors = ", ".join(str(each) for each in range(1, world + 1) if world % each == 0 and world <= 4096)
            advice = f"Allowed here: {divisors}." if divisors else "It must divide processes x nodes."
            self.add(("launch", "tensor_parallel"), text, advice, launch.tensor_parallel)

    def gates(self) -> None:
        for number, phase in enumerate(self.plan.gates.skip):
            if phase not in PHASES:
                path = ("gates", "skip", number)
                self.add(path, f"{shown(phase)} is no phase.", _allowed(phase, PHASES), phase)

    def commands(self) -> None:
        plan = self.plan
        for key in ("command", "resume_command"):
            value = getattr(plan, key)
            if value is None:
                continue
            if plan.task != "command":
                text = f"goes with task: command only; the task is {plan.task}."
                self.add((key,), text, "Write task: command, or leave it out.", value)
            try:
                words = shlex.split(value) if isinstance(value, str) else list(value)
            except ValueError as error:
                self.add((key,), f"{shown(value)} is no command: {str(error).lower()}.", "Close the quotation.", value)
                continue
            if not words or not words[0].strip():
                self.add((key,), "is empty.", "Write the program and its arguments.", value)
        if plan.task == "command" and plan.command is None:
            text = "missing: task command runs it."
            self.add(("command",), text, "Write command: python train.py", near=("task",))
        if plan.artifact is not None and plan.task != "command":
            text = f"goes with task: command only; the task is {plan.task}."
            self.add(("artifact",), text, "Leave it out.", plan.artifact)

    def ids(self, section: str, ids: list[str]) -> None:
        head: Path = ("variants",) if section == "variants" else ("compare", "trials")
        for number, each in enumerate(ids):
            path = (*head, number, "id")
            if each in ids[:number]:
                text = f"{shown(each)} is taken by {keys.dotted((*head, ids.index(each)))}."
                self.add(path, text, "Give each its own.", each)
            elif not _ID.match(each):
                allowed = "Allowed: letters, digits, - _ . and at most 40 of them; it becomes part of a folder's name."
                self.add(path, f"{shown(each)} is not allowed.", allowed, each)

    def compare(self) -> None:
        compare = self.plan.compare
        for number, name in enumerate(compare.hold):
            if name not in HOLDABLE:
                text = f"{shown(name)} cannot be held."
                self.add(("compare", "hold", number), text, _allowed(name, tuple(HOLDABLE)), name)
        if not compare.seeds:
            self.add(("compare", "seeds"), "is empty.", "Give at least one seed.", [])
        for number, seed in enumerate(compare.seeds):
            if seed in compare.seeds[:number]:
                self.add(("compare", "seeds", number), f"{seed} is given twice.", "Give each seed once.", seed)


def _allowed(value: str, names: tuple[str, ...]) -> str:
    near = keys.nearest(value, names)
    return f"Allowed: {', '.join(names)}." + (f" Nearest: {near}." if near else "")
