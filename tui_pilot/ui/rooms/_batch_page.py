"""The Batch room as lines: two settings, what follows from each, a picture of one update, and what it means. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from tui_pilot.errors import PlanError
from tui_pilot.plan import batch_sides
from tui_pilot.plan.batch import BatchAnswer, BatchQuestion, windows
from tui_pilot.text import count, plural
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.rooms import _batch_sides as sides_of
from tui_pilot.ui.rooms._batch_sides import FIELDS, Field, Sides

LABEL, A_WIDTH, B_WIDTH = 28, 13, 12
SHOWN_GPUS = 4
NAMES: Mapping[str, tuple[str, str]] = {
    "micro": ("microbatch, rows", "rows in one forward"),
    "accumulation": ("accumulation", "passes before an update"),
    "replicas": ("replicas", "world / (tp x pp x cp)"),
    "examples": ("examples", "train rows, one pass"),
    "drop_last": ("incomplete last batch", "keep or drop its rows"),
    "tail": ("incomplete last window", "step on it or drop it"),
}
HELD = {"updates": "updates", "epochs": "epochs", "examples": "examples seen", "tokens": "tokens"}


@dataclass(frozen=True)
class Page:
    """Everything the room shows. ``typed`` is what was typed into the field under the cursor, None while nothing is."""

    width: int
    height: int
    sides: Sides
    field: Field
    side: str
    typed: str | None = None
    counted: str = ""
    rank: str = "gpu"


def draw(page: Page) -> list[Line]:
    """The room; where it is low, the picture and what is not about the batch itself are left out."""
    a, b = sides_of.solve(page.sides.a), sides_of.solve(page.sides.b)
    top = settings(page)
    follows = [paint.rule("what follows", "", page.width), *follow_lines(page, a, b)]
    picture = picture_lines(page, b)
    said = [paint.rule("", "", page.width), *said_lines(page, a, b)]
    if len(top) + len(follows) + len(said) > page.height:
        said = [said[0], *said_lines(page, a, b, short=True)]
    room = page.height - len(top) - len(said)
    if len(follows) - 1 + len(picture) > room:
        picture = []
    else:
        follows = follows[: room - len(picture)]
    return [*top, *follows[: max(3, room)], *picture, *said][: page.height]


def settings(page: Page) -> list[Line]:
    """The fields of both sides; the one under the cursor is in reverse, or holds a text cursor."""
    sides = page.sides
    heads = ("A this plan" if sides.a_is_plan else "A changed", "B as A" if sides.same else "B try")
    rows_known = "" if sides.rows_known else "rows not counted yet: a guess"
    out = [
        paint.rule("settings", rows_known, page.width, "head", "warn"),
        (
            (" " * LABEL, "text"),
            (paint.right(heads[0], A_WIDTH), "running" if page.side == "a" else "head"),
            (paint.right(heads[1], B_WIDTH), "running" if page.side == "b" else "head"),
        ),
    ]
    for field in FIELDS:
        chosen = field == page.field
        name, comment = NAMES.get(field) or (HELD[sides.a.held], "held; space: another")
        label = paint.left(f"{'>' if chosen else ' '} {name}", LABEL)
        values = [_shown(side, field) for side in (sides.a, sides.b)]
        cells = _cells(page, values[0], values[1], field if chosen else None)
        out.append(((label, "text"), *cells, (f"   {comment}", "dim")))
    return out


def _cells(page: Page, a: str, b: str, chosen: Field | None) -> Line:
    both = chosen == "amount"
    out: list[paint.Span] = []
    for name, known, width in (("a", a, A_WIDTH), ("b", b, B_WIDTH)):
        here = chosen is not None and (name == page.side or both)
        value = page.typed + "_" if here and page.typed is not None else known
        text = paint.right(value, width)
        blank = len(text) - len(text.lstrip())
        role = ("running" if page.typed is not None else "text") + "+reverse" if here else "text"
        out += [(text[:blank], "text"), (text[blank:], role)]
    return tuple(out)


def _shown(question: BatchQuestion, field: Field) -> str:
    if field == "drop_last":
        return "drop" if question.drop_last else "keep"
    if field == "tail":
        return question.tail
    value = question.amount if field == "amount" else getattr(question, field)
    return f"{value:,.0f}" if value == int(value) else f"{value:,g}"


Outcome = BatchAnswer | PlanError


def follow_lines(page: Page, a: Outcome, b: Outcome) -> list[Line]:
    """One line a quantity: A, B, and what the difference means."""
    sides = page.sides

    def row(
        name: str, read: Callable[[BatchAnswer], str | None], words: Callable[[], str], weighs: bool = True
    ) -> Line:
        left, right = (_read(found, read) for found in (a, b))
        differs = left != right
        said = words() if differs else "" if sides.same else "= same"
        mark = "! " if differs and weighs else ""
        cells: Line = (
            (paint.left(f"  {name}", LABEL), "text"),
            (paint.right(left, A_WIDTH), "text"),
            (paint.right(mark + right, B_WIDTH), "warn" if mark else "text"),
        )
        return (*cells, (f"   {said}", "dim"))

    def ratio(read: Callable[[BatchAnswer], float]) -> str:
        return _ratio(read(a), read(b)) if isinstance(a, BatchAnswer) and isinstance(b, BatchAnswer) else ""

    lines = [
        row("effective batch", lambda found: count(found.effective_batch), lambda: "micro x accumulation x replicas"),
        row("updates", lambda found: count(found.updates), lambda: f"{ratio(lambda found: found.updates)} steps"),
    ]
    if sides.warmup:
        lines.append(
            row(
                "warm-up",
                lambda found: f"{min(sides.warmup, found.updates)} of {found.updates:,}",
                lambda: "another share of the schedule",
            )
        )
    if sides.a.held != "epochs":
        lines.append(row("epochs", lambda found: f"{found.epochs:,g}", lambda: ratio(lambda found: found.epochs)))
    lines += [
        row(
            "examples seen", lambda found: count(found.examples_seen), lambda: ratio(lambda found: found.examples_seen)
        ),
        row(
            "repeated, dropped",
            lambda found: f"{found.examples_repeated:,}, {found.examples_dropped:,}",
            lambda: "rows at the ends of epochs",
        ),
        row("last update", lambda found: plural(found.last_update.examples, "row"), lambda: "rows in it", False),
    ]
    if sides.trained:
        lines.append(_trained(sides, sides.trained, row))
    # The least of them stands last: a low terminal cuts from the end.
    passes = row("microbatches, replica", lambda found: count(found.microbatches_per_epoch), lambda: "an epoch", False)
    return [*lines, passes]


def _read(found: Outcome, read: Callable[[BatchAnswer], str | None]) -> str:
    return (read(found) or "–") if isinstance(found, BatchAnswer) else "–"


def _trained(sides: Sides, trained: Mapping[str, Any], row: Callable[..., Line]) -> Line:
    mean = float(trained["mean"])

    def tokens(found: BatchAnswer) -> str | None:
        question = found.question
        # A budget in tokens has its own mean; this line only wants tokens of one update.
        asked = replace(question, mean_tokens=mean) if question.held != "tokens" else question
        solved = sides_of.solve(asked)
        per_update = solved.tokens_per_update if isinstance(solved, BatchAnswer) else None
        return None if per_update is None else f"~{per_update:,.0f}"

    spread = f"a row {count(trained.get('min'))} to {count(trained.get('max'))}"
    return row("trained tokens, update", tokens, lambda: f"mean; {spread}", False)


def _ratio(a: float, b: float) -> str:
    """B against A in words."""
    if not a or not b or a == b:
        return ""
    words = {2.0: "twice as many", 0.5: "half as many", 4.0: "4 times as many", 0.25: "a quarter as many"}
    return words.get(b / a) or f"{b / a:,.2f} x as many"


def picture_lines(page: Page, found: Outcome) -> list[Line]:
    """One update of B: a box a microbatch with the rows in it, one line a replica."""
    if not isinstance(found, BatchAnswer):
        return []
    sizes = next(islice(windows(found.question), 1), [])
    replicas = found.question.replicas
    boxes = _boxes(sizes, max(12, page.width // 2 - 14))
    gpus = [0] if replicas == 1 else [0, 1] if replicas == 2 else [0, 1, replicas - 1]
    rows: list[tuple[str, str]] = [(f"{page.rank} {gpu}", boxes) for gpu in gpus]
    if replicas == SHOWN_GPUS:
        rows.insert(2, (f"{page.rank} 2", boxes))
    elif replicas > SHOWN_GPUS:
        rows.insert(2, (" ...", f"{replicas - 3} more alike"))
    total = sum(sizes) * replicas
    each = f"{len(sizes)} x {sizes[0]} rows" if len(set(sizes)) == 1 else plural(sum(sizes), "row")
    on = "" if replicas == 1 else f" on each of {replicas}"
    said = f" {each}{on} = {plural(total, 'row')} ─► update 1 of {found.updates:,}"
    width = max(len(box) for _, box in rows)
    middle = len(rows) // 2
    legend = "[ ] a microbatch of so many rows"
    out = [paint.rule("one update of B", legend, page.width)]
    for n, (name, box) in enumerate(rows):
        joint = " ──" if len(rows) == 1 else " ┐ " if n == 0 else " ┘ " if n == len(rows) - 1 else " ┤ "
        if n == middle and len(rows) > 1:
            joint = " ├─" if n < len(rows) - 1 else " ┴─"
        tail = said if n == middle else ""
        out.append(((f" {name:<7}", "dim"), (box.ljust(width), "text"), (joint, "rule"), (tail, "text")))
    return out


def _boxes(sizes: list[int], room: int) -> str:
    whole = "".join(f"[{size}]" for size in sizes)
    if len(whole) <= room:
        return whole
    return f"[{sizes[0]}][{sizes[0]}] ... [{sizes[-1]}] {len(sizes)} of them"


def said_lines(page: Page, a: Outcome, b: Outcome, short: bool = False) -> list[Line]:
    """What the difference means, and what would keep the question; ``short`` says only that."""
    out: list[Line] = []

    def add(sign: str, role: str, text: str) -> None:
        for n, piece in enumerate(paint.wrap(text, page.width - 4)):
            out.append(((f" {sign if n == 0 else ' '} ", role if n == 0 else "text"), (piece, "text")))

    for name, found in (("A", a), ("B", b)):
        if isinstance(found, PlanError):
            add("✗", "fail", f"{name}: {found.text} {found.advice}")
    if isinstance(a, BatchAnswer) and isinstance(b, BatchAnswer):
        _compare(page.sides, a, b, add, short)
    if page.counted and not short:
        add(" ", "text", page.counted)
    return out


def _compare(sides: Sides, a: BatchAnswer, b: BatchAnswer, add: Callable[[str, str, str], None], short: bool) -> None:
    if sides.same:
        add("✓", "pass", "B is A: nothing is changed yet. ←→ changes the field, enter types a number, tab goes to A.")
        return
    if a.effective_batch != b.effective_batch and short:
        add("!", "warn", f"B is another experiment than A. {_keep(sides, a)}")
    elif a.effective_batch != b.effective_batch:
        rows = _ratio(a.effective_batch, b.effective_batch)
        steps = _ratio(a.updates, b.updates)
        averaged = f"averages {count(b.effective_batch)} rows, {rows}" if rows else f"averages {b.effective_batch} rows"
        updates = f", and there are {count(b.updates)} updates instead of {count(a.updates)}" if steps else ""
        add("!", "warn", f"B is another experiment than A: each update {averaged}{updates}. {_keep(sides, a)}")
        add(" ", "text", "A learning rate rule for another batch is your choice; none is applied here.")
    else:
        add("✓", "pass", f"The effective batch is the same: {plural(a.effective_batch, 'row')} an update.")
        if a.updates != b.updates or a.examples_seen != b.examples_seen:
            add("!", "warn", "The runs still differ: in updates or in the rows they see, as listed above.")
    if sides.a.micro != sides.b.micro and not short:
        word = "less" if sides.b.micro < sides.a.micro else "more"
        add(" ", "text", f"Memory follows the microbatch, not the accumulation: B needs {word} for it than A.")


def _keep(sides: Sides, a: BatchAnswer) -> str:
    wanted = sides_of.accumulation_to_keep(sides)
    if wanted is not None:
        return f"Keep {a.effective_batch:,}: accumulation {wanted} (key = sets it)."
    one = batch_sides.effective(replace(sides.b, accumulation=1))
    return f"No accumulation keeps {a.effective_batch:,}: one pass of B is {plural(one, 'row')}."
