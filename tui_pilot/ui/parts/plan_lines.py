"""The plan in a few lines: what will run, before anything ran. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui_pilot.text import plural, rate
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan
    from tui_pilot.plan.model import Plan

FIRST_START = (
    "Nothing has run here yet. This is the built-in demo: a small model, made-up chats, under 1 min, no download. "
    "r runs it. Your own data: q, then pilot-tui init --data train.jsonl --model ./model"
)


OWN_DATA = (
    ("pilot-tui init --data train.jsonl --model ./model", "looks at your data and writes a commented plan"),
    ("pilot-tui check pilot.yaml", "every row, the splits and the stack; no training, no GPU needed"),
    ("pilot-tui pilot.yaml", "this screen on your plan; r runs it"),
)


def own_data(width: int) -> list[Line]:
    """The three commands that lead from the demo to one's own data."""
    return [
        paint.rule("your own data, after q", "", width),
        *(((f" {command:<50} ", "head"), (what, "dim")) for command, what in OWN_DATA),
    ]


def welcome(loaded: LoadedPlan, width: int) -> list[Line]:
    """The sentence that says what ``r`` will do; the demo says that it is one."""
    name = loaded.file.name if loaded.file is not None else loaded.plan.name
    text = (
        FIRST_START if loaded.demo else f"{name} is ready. r runs its fifteen phases; 5 shows earlier runs; q leaves."
    )
    return [((each, "text"),) for each in paint.wrap(text, width)]


def plan_lines(loaded: LoadedPlan, width: int) -> list[Line]:
    """Name and value, one line each."""
    lines: list[Line] = []
    for name, value in facts(loaded.plan):
        wrapped = paint.wrap(value, max(10, width - 11))
        lines.append(((f"{name:<11}", "dim"), (wrapped[0], "text")))
        lines += [((f"{'':<11}{each}", "text"),) for each in wrapped[1:]]
    return lines


def facts(plan: Plan) -> list[tuple[str, str]]:
    """The settings a person checks first."""
    model = plan.model.path or ("built in" if plan.task == "demo" else "of the task")
    if plan.model.adapter is not None:
        model += f", {plan.model.adapter.kind} r{plan.model.adapter.r}"
    budget = plan.budget
    held = [
        f"{value:,g} {name[:-1] if value == 1 else name}" if isinstance(value, float) else plural(value, name[:-1])
        for name in ("updates", "epochs", "examples", "tokens")
        if (value := getattr(budget, name)) is not None
    ]
    optimizer = f"{plan.optimizer.name}, lr {rate(plan.optimizer.lr)}, {plan.optimizer.schedule}"
    if plan.optimizer.warmup:
        optimizer += f", warm-up {plan.optimizer.warmup}"
    found = [
        ("task", plan.task),
        ("model", model),
        ("data", plan.data.train or ("built in" if plan.task == "demo" else "of the task")),
        ("batch", batch_text(plan)),
        ("budget", ", ".join(held) or "of the task"),
        ("optimizer", optimizer),
        ("precision", plan.precision),
        ("device", plan.device),
    ]
    if plan.data.max_length:
        found.insert(4, ("length", f"{plan.data.max_length:,} tokens at most"))
    if plan.gates.skip:
        found.append(("skipped", ", ".join(plan.gates.skip)))
    return found


def batch_text(plan: Plan) -> str:
    """``1 micro x 2 accum x 8 gpus = 16 rows``."""
    replicas = f" x {plan.replicas} replicas" if plan.replicas > 1 else ""
    return f"{plan.batch.micro} micro x {plan.batch.accumulation} accum{replicas} = {plan.effective_batch} rows"
