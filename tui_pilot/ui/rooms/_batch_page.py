"""The Batch room as lines: two settings, what follows from each, a picture of one update, and what it means. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tui_pilot.plan.batch import BatchAnswer, BatchQuestion
from tui_pilot.plan.batch_tokens import Spread
from tui_pilot.text import count, plural, rate, size
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.rooms import _batch_beside, _batch_memory, _batch_picture
from tui_pilot.ui.rooms import _batch_sides as sides_of
from tui_pilot.ui.rooms._batch_said import ratio_words, said_lines
from tui_pilot.ui.rooms._batch_sides import FIELDS, Field, Outcome, Sides

LABEL, A_WIDTH, B_WIDTH = 28, 13, 12
LEFT_WIDTH, LEAST_HEIGHT = 104, 27
LOW, NARROW = 18, 60
NAMES: Mapping[str, tuple[str, str]] = {
    "micro": ("microbatch, rows", "rows in one forward"),
    "accumulation": ("accumulation", "passes before an update"),
    "replicas": ("replicas", "GPUs / (tp x pp x cp)"),
    "examples": ("examples", "train rows, one pass"),
    "drop_last": ("incomplete last batch", "keep or drop its rows"),
    "tail": ("incomplete last window", "step on it or drop it"),
}
HELD = {"updates": "updates", "epochs": "epochs", "examples": "examples seen", "tokens": "tokens"}


@dataclass(frozen=True)
class Page:
    """Everything the room shows. ``typed`` is what was typed into the field under the cursor, None while nothing is.

    ``spreads`` are the trained tokens of A's and B's updates, ``predicted`` what the plan's own step would allocate, by
    phase, ``counted`` what this run's batch gate saw. ``alone``: the second pane has the whole screen.
    """

    width: int
    height: int
    sides: Sides
    field: Field
    side: str
    typed: str | None = None
    counted: str = ""
    rank: str = "gpu"
    spreads: tuple[Spread | None, Spread | None] = (None, None)
    predicted: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    alone: bool = False

    @property
    def compact(self) -> bool:
        """Settings and what follows, or the picture and what it means: not both."""
        return self.width < 100 or self.height < LEAST_HEIGHT

    @property
    def wide(self) -> bool:
        return self.width >= 160 and self.height >= LEAST_HEIGHT


def draw(page: Page) -> list[Line]:
    """The room: settings, what follows, the picture, what it means; from 160 columns the second pane beside them."""
    a, b = sides_of.solve(page.sides.a), sides_of.solve(page.sides.b)
    if page.height < LOW or page.width < NARROW:
        return _tiny(page, a, b)
    if page.compact:
        return (_picture_alone if page.alone else _figures)(page, a, b)[: page.height]
    if page.alone:
        return _batch_beside.pane(page.sides, a, b, page.spreads, page.width, page.height)
    if not page.wide:
        return _stacked(page, a, b, "z: tokens of every update")
    left = replace(page, width=LEFT_WIDTH)
    lefts = _stacked(left, a, b, "")
    right = page.width - LEFT_WIDTH - 1
    rights = _batch_beside.pane(page.sides, a, b, page.spreads, right, page.height)
    out = []
    for n in range(page.height):
        one = paint.fit(lefts[n] if n < len(lefts) else paint.EMPTY, LEFT_WIDTH)
        out.append((*one, ("┬" if n == 0 else "│", "rule"), *(rights[n] if n < len(rights) else paint.EMPTY)))
    return out[: page.height]


def _stacked(page: Page, a: Outcome, b: Outcome, legend: str) -> list[Line]:
    top = settings(page)
    follows = [paint.rule("what follows", legend, page.width), *follow_lines(page, a, b)]
    name = "A and B" if page.sides.same else "B"
    picture = _batch_picture.lines(b, page.width, page.rank, name)
    room = max(3, page.height - len(top) - len(picture) - len(follows) - 1)
    said = [
        paint.rule("what it means", "", page.width),
        *said_lines(page.sides, a, b, page.width, page.counted, height=room),
    ]
    room = page.height - len(top) - len(picture) - len(said) - len(follows)
    epoch = _batch_picture.epoch(a, b, page.sides.same, page.width)
    picture += epoch if len(epoch) <= room else []
    follows = follows[: max(3, page.height - len(top) - len(picture) - len(said))]
    return [*top, *follows, *picture, *said][: page.height]


def _tiny(page: Page, a: Outcome, b: Outcome) -> list[Line]:
    """Below 80 x 24: the field under the cursor and the answer, then as much of the rest as there is room for."""
    _, heads, *fields = settings(page)
    at = FIELDS.index(page.field)
    answer, *rest = follow_lines(page, a, b)
    said = said_lines(page.sides, a, b, page.width, short=True)
    return [heads, fields[at], answer, *said, *(each for n, each in enumerate(fields) if n != at), *rest][: page.height]


def _figures(page: Page, a: Outcome, b: Outcome) -> list[Line]:
    """A low screen's first half: every field, the figures that decide, and the one sentence."""
    top = settings(page)
    said = said_lines(page.sides, a, b, page.width, short=True)
    room = max(2, page.height - len(top) - len(said) - 1)
    follows = [paint.rule("what follows", "1 of 2, z: picture, rest", page.width), *follow_lines(page, a, b)[:room]]
    return [*top, *follows, *said]


def _picture_alone(page: Page, a: Outcome, b: Outcome) -> list[Line]:
    """A low screen's second half: what the first had no room for, the picture, what it means, the rules, the tokens."""
    sides = page.sides
    name = "A and B" if sides.same else "B"
    out = _batch_picture.lines(b, page.width, page.rank, name, "2 of 2, z: settings")
    out += [paint.rule("what it means", "", page.width), *said_lines(sides, a, b, page.width, page.counted)]
    shown = len(_figures(page, a, b)) - len(settings(page)) - len(said_lines(sides, a, b, page.width, short=True)) - 1
    rest = follow_lines(page, a, b)[max(0, shown) :]
    if rest:
        out += [paint.rule("what follows, the rest", "", page.width), *rest]
    rates = _batch_beside.learning_rate(sides, a, b, page.width)
    out += rates if len(out) + len(rates) <= page.height else ()
    spread = page.spreads[1]
    room = page.height - len(out)
    if spread is not None and room >= 5:
        out += _batch_beside.tokens(name, spread, max(spread.totals, default=1), page.width, room - 2)
    return out


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


def follow_lines(page: Page, a: Outcome, b: Outcome) -> list[Line]:
    """One line a quantity: A, B, and what the difference means."""
    sides = page.sides

    def row(
        name: str,
        read: Callable[[BatchAnswer], str | None],
        words: Callable[[], str],
        weighs: bool = True,
        always: str = "",
    ) -> Line:
        left, right = (_read(found, read) for found in (a, b))
        differs = left != right
        said = always or (words() if differs else "" if sides.same else "= same")
        mark = "! " if differs and weighs else ""
        cells: Line = (
            (paint.left(f"  {name}", LABEL), "text"),
            (paint.right(left, A_WIDTH), "text"),
            (paint.right(mark + right, B_WIDTH), "warn" if mark else "text"),
        )
        return (*cells, (f"   {said}", "dim"))

    def ratio(read: Callable[[BatchAnswer], float]) -> str:
        return ratio_words(read(a), read(b)) if isinstance(a, BatchAnswer) and isinstance(b, BatchAnswer) else ""

    lines = [
        _effective(page, a, b),
        row("updates", lambda found: count(found.updates), lambda: f"{ratio(lambda found: found.updates)} steps"),
    ]
    if sides.warmup:
        lines.append(
            row(
                "warm-up",
                lambda found: f"{min(sides.warmup, found.updates)} of {found.updates:,}",
                lambda: "another share of all",
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
    lines += _trained(page, a, b, row)
    lines += _memory(page, row)
    if sides.lr is not None:
        lines.append(row("learning rate", lambda found: rate(sides.lr), lambda: "", False, "no rule is applied"))
    # The least of them stands last: a low terminal cuts from the end.
    passes = row("microbatches, replica", lambda found: count(found.microbatches_per_epoch), lambda: "an epoch", False)
    return [*lines, passes]


def _read(found: Outcome, read: Callable[[BatchAnswer], str | None]) -> str:
    return (read(found) or "–") if isinstance(found, BatchAnswer) else "–"


def _effective(page: Page, a: Outcome, b: Outcome) -> Line:
    """The answer that people come for: bold, with the product beside it."""
    left, right = (count(x.effective_batch) if isinstance(x, BatchAnswer) else "–" for x in (a, b))
    differs = left != right
    ask = page.sides.b
    product = (
        f"= {ask.micro:,} x {ask.accumulation:,} x {ask.replicas:,}{' rows an update' if page.width >= 100 else ''}"
    )
    return (
        (paint.left("  effective batch", LABEL), "head"),
        (paint.right(left, A_WIDTH), "head"),
        (paint.right(("! " if differs else "") + right, B_WIDTH), "warn+bold" if differs else "head"),
        (f"   {'B ' if differs else ''}{product}", "text"),
    )


def _trained(page: Page, a: Outcome, b: Outcome, row: Callable[..., Line]) -> list[Line]:
    """Mean, least and most trained tokens of whole updates; the mean alone while the rows are not read."""
    trained = page.sides.trained
    by_question = dict(zip((page.sides.a, page.sides.b), page.spreads, strict=True))

    def mean(found: BatchAnswer) -> str | None:
        spread = by_question.get(found.question)
        if spread is not None:
            return f"~{spread.mean:,.0f}"
        return None if trained is None else f"~{float(trained['mean']) * found.effective_batch:,.0f}"

    def between(found: BatchAnswer) -> str | None:
        spread = by_question.get(found.question)
        if spread is None:
            return None
        exact = f"{spread.least:,}–{spread.most:,}"
        return exact if len(exact) < B_WIDTH else f"{_thousands(spread.least)}–{_thousands(spread.most)}"

    if trained is None and not any(page.spreads):
        return []
    out = [row("trained tokens, update", mean, lambda: "", False, "mean of whole updates")]
    if any(page.spreads):
        out.append(row("  least–most", between, lambda: "", False, "one shuffled pass"))
    return out


def _thousands(tokens: int) -> str:
    return f"{tokens / 1e6:.1f}M" if tokens >= 1e6 else f"{tokens / 1e3:.1f}k"


def _memory(page: Page, row: Callable[..., Line]) -> list[Line]:
    """Allocated at the peak, as far as the prediction of the plan's own microbatch can be stretched."""
    if not page.predicted:
        return []

    def held(found: BatchAnswer) -> str | None:
        peak = _batch_memory.peak(page.predicted, found.question.micro / page.sides.plan.micro)
        return None if peak is None else f"~{size(peak)}"

    return [row("allocated at the peak", held, lambda: "", False, "follows the microbatch")]
