"""``pilot-tui calc``: batch arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui_pilot.commands.options import json_option, load_plan, runs_option
from tui_pilot.commands.output import write_json, write_lines
from tui_pilot.errors import EXIT_OK, PlanError

if TYPE_CHECKING:
    from tui_pilot.plan.batch import BatchQuestion
    from tui_pilot.plan.batch_tokens import Row


@click.command()
@click.option("--run", "run", metavar="RUN", help="Start from this run's plan, rows and real lengths.")
@click.option(
    "--plan", "plan", metavar="PLAN", type=click.Path(path_type=Path), help="From a plan, and an audit of its data."
)
@click.option("--micro", type=int, help="Rows in one forward and backward.")
@click.option("--accumulation", type=int, help="Microbatches before one update; 1 without a run.")
@click.option("--examples", type=int, help="Training rows, one pass.")
@click.option("--replicas", type=int, help="Processes that hold different rows.")
@click.option("--world", type=int, help="All processes; replicas = world / (tp x pp x cp).")
@click.option("--tensor-parallel", "tensor", type=int, default=1, help="Never multiplies the batch.")
@click.option("--pipeline-parallel", "pipeline", type=int, default=1, help="Never multiplies the batch.")
@click.option("--context-parallel", "context", type=int, default=1, help="Never multiplies the batch.")
@click.option("--epochs", type=float, help="Held constant; the rest follows. This is the default, with 1.")
@click.option("--updates", type=int, help="Held constant; the rest follows.")
@click.option("--examples-seen", "seen", type=int, help="Held constant; the rest follows.")
@click.option("--tokens", type=int, help="Held constant; needs --mean-tokens.")
@click.option("--mean-tokens", type=float, help="Tokens in a row, on average.")
@click.option("--drop-last", is_flag=True, default=None, help="Drop the last, incomplete microbatch.")
@click.option("--tail", type=click.Choice(["step", "drop"]), help="The last, incomplete window.")
@click.option("--against", metavar="KEY=VALUE", multiple=True, help="A second setting beside: micro=1,accumulation=16.")
@click.option("--lr", type=float, help="Show what the usual rules make of it for another batch; none is applied.")
@json_option
@runs_option
def calc(
    *,
    run: str | None,
    plan: Path | None,
    micro: int | None,
    accumulation: int | None,
    examples: int | None,
    replicas: int | None,
    world: int | None,
    tensor: int,
    pipeline: int,
    context: int,
    epochs: float | None,
    updates: int | None,
    seen: int | None,
    tokens: int | None,
    mean_tokens: float | None,
    drop_last: bool | None,
    tail: str | None,
    against: tuple[str, ...],
    lr: float | None,
    as_json: bool,
    runs: Path,
) -> int:
    """What follows from microbatch, accumulation and replicas: updates, rows seen, dropped, repeated.

    --run adds what real lengths make of it: supervised tokens of an update, padding, what packing would give.
    """
    from tui_pilot.plan import batch, batch_sides, batch_tokens

    start = _start(run, plan, runs)
    amounts = {"epochs": epochs, "updates": updates, "examples": seen, "tokens": tokens}
    given = {name: amount for name, amount in amounts.items() if amount is not None}
    if len(given) > 1:
        names = ", ".join("--examples-seen" if name == "examples" else f"--{name}" for name in given)
        raise PlanError(f"{names} cannot all be held constant.", "Give one of them; the rest follows.", file="calc")
    shared = batch.replicas_of(world, tensor, pipeline, context) if world is not None else None
    if shared is not None and replicas is not None and shared != replicas:
        raise PlanError(
            f"{world} processes make {shared} replicas, not {replicas}.", "Give --world or --replicas.", key="replicas",
            value=replicas,
        )  # fmt: skip
    known = start.question
    held, amount = next(iter(given.items()), (known.held, known.amount) if known else ("epochs", 1.0))
    micro = micro if micro is not None else known.micro if known else None
    examples = examples if examples is not None else known.examples if known and known.examples else None
    replicas = next((each for each in (shared, replicas) if each is not None), known.replicas if known else 1)
    accumulation = accumulation if accumulation is not None else known.accumulation if known else 1
    if examples is None and micro is not None and not (as_json or against or given):
        return _batch_alone(micro, accumulation, replicas)
    for name, value in (("micro", micro), ("examples", examples)):
        if value is None:
            raise PlanError(f"--{name} is needed.", "Give it, or a run that has it: --run RUN.", key=f"--{name}")
    question = batch.BatchQuestion(
        micro=micro or 0,
        accumulation=accumulation,
        examples=examples or 0,
        replicas=replicas,
        drop_last=drop_last if drop_last is not None else bool(known and known.drop_last),
        tail="drop" if (tail or (known.tail if known else "step")) == "drop" else "step",
        held=next(name for name in batch.QUANTITIES if name == held), amount=amount,
        mean_tokens=mean_tokens if mean_tokens is not None else known.mean_tokens if known else None,
    )  # fmt: skip
    lr = lr if lr is not None else start.lr
    found = batch.answer(question)
    beside = batch_sides.other(question, against) if against else None
    views = [
        batch_tokens.view(each, start.rows, start.max_length) if start.rows and each is not None else None
        for each in (question, beside)
    ]
    if as_json:
        more = batch_sides.document(question, beside, lr) if beside else {}
        if views[0] is not None:
            more["tokens"] = views[0].as_json()
        if views[1] is not None:
            more["against_tokens"] = views[1].as_json()
        write_json({**found.as_json(), **more})
        return EXIT_OK
    write_lines(batch.explain(found))
    if beside is not None:
        write_lines(["", *batch_sides.lines(found, batch.answer(beside), lr)])
    for name, view in zip("AB", views, strict=True):
        if view is not None:
            write_lines(["", *(f"{name}: {line}" if beside else line for line in batch_tokens.explain(view))])
    return EXIT_OK


def _batch_alone(micro: int, accumulation: int, replicas: int) -> int:
    """The effective batch, which needs no number of rows."""
    from tui_pilot.plan import batch

    found = batch.answer(batch.BatchQuestion(micro=micro, accumulation=accumulation, examples=1, replicas=replicas))
    write_lines([batch.explain(found)[0], "--examples N, the training rows, says how many updates that makes."])
    return EXIT_OK


@dataclass(frozen=True)
class Start:
    """What a run or a plan gives: its setting, its learning rate, and the real lengths of its rows."""

    question: BatchQuestion | None = None
    lr: float | None = None
    rows: Sequence[Row] = ()
    max_length: int | None = None


def _start(run: str | None, path: Path | None, runs: Path) -> Start:
    """From --run, or from --plan and the newest run that audited the same data for the same task."""
    from tui_pilot.campaign.jobs import rows_of
    from tui_pilot.campaign.variant_runs import plan_of
    from tui_pilot.plan.batch import question_of
    from tui_pilot.run_folder import all_runs, find_run
    from tui_pilot.store.lengths import of_audit
    from tui_pilot.store.view import snapshot

    if run is None and path is None:
        return Start()
    if run is not None:
        folder = find_run(runs, run)
        show = snapshot(folder)
        plan = plan_of(show)
    else:
        loaded, _ = load_plan(path)
        plan, folder, show = loaded.plan, None, {}
        for each in reversed(all_runs(runs)):
            other = plan_of(each.read_json(each.plan_file)) if each.plan_file.is_file() else None
            same = other is not None and (other.task, other.data, other.model.path, other.options) == (
                plan.task, plan.data, plan.model.path, plan.options)  # fmt: skip
            if same and (each.path / "examples" / "audit.jsonl").is_file():
                folder, show = each, snapshot(each)
                break
    if plan is None:
        raise PlanError("The run's plan cannot be read.", "Name another run.", key="--run", value=run)
    lengths = of_audit(folder.path / "examples") if folder is not None else []
    counted, mean = rows_of(show)
    question = question_of(plan, int(counted or len(lengths)), mean)
    return Start(question, plan.optimizer.lr, lengths, plan.data.max_length)
