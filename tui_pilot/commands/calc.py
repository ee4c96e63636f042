"""``pilot-tui calc``: batch arithmetic."""

from __future__ import annotations

import click

from tui_pilot.commands.options import json_option
from tui_pilot.commands.output import write_json, write_lines
from tui_pilot.errors import EXIT_OK, PlanError


@click.command()
@click.option("--micro", type=int, required=True, help="Rows in one forward and backward.")
@click.option("--accumulation", type=int, default=1, show_default=True, help="Microbatches before one update.")
@click.option("--examples", type=int, required=True, help="Training rows, one pass.")
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
@click.option("--drop-last", is_flag=True, help="Drop the last, incomplete microbatch.")
@click.option("--tail", type=click.Choice(["step", "drop"]), default="step", help="The last, incomplete window.")
@json_option
def calc(
    *,
    micro: int,
    accumulation: int,
    examples: int,
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
    drop_last: bool,
    tail: str,
    as_json: bool,
) -> int:
    """What follows from microbatch, accumulation and replicas: updates, rows seen, dropped, repeated."""
    from tui_pilot.plan import batch

    amounts = {"epochs": epochs, "updates": updates, "examples": seen, "tokens": tokens}
    given = {name: amount for name, amount in amounts.items() if amount is not None}
    if len(given) > 1:
        names = ", ".join("--examples-seen" if name == "examples" else f"--{name}" for name in given)
        raise PlanError(f"{names} cannot all be held constant.", "Give one of them; the rest follows.", file="calc")
    held, amount = next(iter(given.items()), ("epochs", 1.0))
    shared = batch.replicas_of(world, tensor, pipeline, context) if world is not None else None
    if shared is not None and replicas is not None and shared != replicas:
        raise PlanError(
            f"{world} processes make {shared} replicas, not {replicas}.", "Give --world or --replicas.", key="replicas",
            value=replicas,
        )  # fmt: skip
    question = batch.BatchQuestion(
        micro=micro, accumulation=accumulation, examples=examples, replicas=shared or replicas or 1,
        drop_last=drop_last, tail="drop" if tail == "drop" else "step",
        held=next(name for name in batch.QUANTITIES if name == held), amount=amount, mean_tokens=mean_tokens,
    )  # fmt: skip
    found = batch.answer(question)
    if as_json:
        write_json(found.as_json())
    else:
        write_lines(batch.explain(found))
    return EXIT_OK
