"""What the Batch room says of A and B: whether B is another experiment, what would keep it, which rules exist. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tui_pilot.errors import PlanError
from tui_pilot.plan import batch_sides
from tui_pilot.plan.batch import BatchAnswer
from tui_pilot.text import count, plural, rate
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.rooms import _batch_sides as sides_of
from tui_pilot.ui.rooms._batch_sides import Outcome, Sides


def ratio_words(a: float, b: float) -> str:
    """B against A in words."""
    if not a or not b or a == b:
        return ""
    if 0.995 < b / a < 1.005:
        return f"{abs(b - a):,.3g} {'more' if b > a else 'fewer'}"
    words = {2.0: "twice as many", 0.5: "half as many", 4.0: "4 times as many", 0.25: "a quarter as many"}
    few = f"1/{a / b:,.3g} as many" if b < a / 2 else f"{b / a:,.2f} x as many"
    return words.get(b / a) or few


def said_lines(
    sides: Sides, a: Outcome, b: Outcome, width: int, counted: str = "", short: bool = False, height: int = 99
) -> list[Line]:
    """What the difference means, and what would keep the question; ``short`` says only that.

    What does not fit ``height`` is left out by whole sentences, from the end.
    """
    out: list[Line] = []

    def add(sign: str, role: str, text: str) -> None:
        pieces = paint.wrap(text, width - 4)
        if out and len(out) + len(pieces) > height:
            return
        for n, piece in enumerate(pieces):
            out.append(((f" {sign if n == 0 else ' '} ", role if n == 0 else "text"), (piece, "text")))

    for name, found in (("A", a), ("B", b)):
        if isinstance(found, PlanError):
            add("✗", "fail", f"{name}: {found.text} {found.advice}")
    if isinstance(a, BatchAnswer) and isinstance(b, BatchAnswer):
        _compare(sides, a, b, add, short)
    if counted and not short:
        add(" ", "text", counted)
    return out


def _compare(sides: Sides, a: BatchAnswer, b: BatchAnswer, add: Callable[[str, str, str], None], short: bool) -> None:
    if sides.same:
        keys = (
            "←→ changes, enter types, tab: A."
            if short
            else "←→ changes the field, enter types a number, tab goes to A."
        )
        add("✓", "pass", f"B is A: nothing is changed yet. {keys}")
        if sides.lr is not None and not short:
            add(
                " ",
                "text",
                f"Learning rate {rate(sides.lr)}. For another batch people use rules (linear, square root);"
                " they are shown once B differs, and none is applied.",
            )
        return
    if a.effective_batch != b.effective_batch and short:
        add("!", "warn", f"B is another experiment than A. {_keep(sides, a)}")
    elif a.effective_batch != b.effective_batch:
        rows = ratio_words(a.effective_batch, b.effective_batch)
        steps = ratio_words(a.updates, b.updates)
        averaged = f"averages {count(b.effective_batch)} rows, {rows}" if rows else f"averages {b.effective_batch} rows"
        updates = f", and there are {count(b.updates)} updates instead of {count(a.updates)}" if steps else ""
        add("!", "warn", f"B is another experiment than A: each update {averaged}{updates}. {_keep(sides, a)}")
        add(" ", "text", _rules(sides, a, b))
    else:
        add("✓", "pass", f"The effective batch is the same: {plural(a.effective_batch, 'row')} an update.")
        if a.updates != b.updates or a.examples_seen != b.examples_seen:
            add("!", "warn", "The runs still differ: in updates or in the rows they see, as listed above.")
    if sides.a.micro != sides.b.micro and not short:
        word = "less" if sides.b.micro < sides.a.micro else "more"
        exact = "pilot-tui predict says how much"
        add(" ", "text", f"Memory follows the microbatch, not the accumulation: B needs {word} for it; {exact}.")


def _rules(sides: Sides, a: BatchAnswer, b: BatchAnswer) -> str:
    """``Rules in use for the learning rate, none applied here: linear 2.0e-4, square root 1.4e-4.``"""
    if sides.lr is None:
        return "Rules for the learning rate of another batch: linear, square root. None is applied here."
    options = batch_sides.lr_options(sides.lr, a.effective_batch, b.effective_batch)
    named = ", ".join(f"{each['rule']} {rate(each['lr'])}" for each in options if each["rule"] != "none")
    return f"Learning rate stays {rate(sides.lr)}. Rules in use for another batch, none applied: {named}."


def _keep(sides: Sides, a: BatchAnswer) -> str:
    wanted = sides_of.accumulation_to_keep(sides)
    if wanted is not None:
        return f"Keep {a.effective_batch:,}: accumulation {wanted} (key = sets it)."
    one = batch_sides.effective(replace(sides.b, accumulation=1))
    return f"No accumulation keeps {a.effective_batch:,}: one pass of B is {plural(one, 'row')}."
