"""The Batch room's second pane: trained tokens of every update of A and B, and what a learning rate rule would make.

Pure. The pane stands beside the settings from 160 columns; on a smaller terminal ``z`` shows it alone.
"""

from __future__ import annotations

from tui_pilot.plan import batch_sides
from tui_pilot.plan.batch import BatchAnswer
from tui_pilot.plan.batch_tokens import Spread
from tui_pilot.text import count, rate
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.rooms._batch_sides import Outcome, Sides

STEPS = "▁▂▃▄▅▆▇█"
LABEL = 9
MOST_ROWS = 15
UNCOUNTED = "the rows' tokens are not counted yet: pilot-tui check looks at every row"


def tokens(name: str, spread: Spread | None, top: int, width: int, rows: int, why: str = UNCOUNTED) -> list[Line]:
    """A column an update (or the highest of several), from 0 to the highest of both settings."""
    title = f"trained tokens of each update of {name}, one epoch"
    if spread is None or not spread.totals:
        return [paint.rule(title, "", width), ((f" {why}", "dim"),)]
    inner = max(1, width - LABEL - 1)
    totals = spread.totals
    each = max(1, -(-len(totals) // inner))
    highest = [max(totals[n : n + each]) for n in range(0, len(totals), each)]
    wide = max(1, min(2, inner // len(highest)))
    said = f"{count(each)} updates a column, the highest" if each > 1 else "a column an update"
    out: list[Line] = [paint.rule(title, said, width)]
    for n in range(rows):
        base = (rows - 1 - n) * 8
        cells = ""
        for value in highest:
            over = max(1, round(value / top * rows * 8)) - base
            cells += (" " if over <= 0 else "█" if over >= 8 else STEPS[over - 1]) * wide
        label = f"{top:,}" if n == 0 else "0" if n == rows - 1 else ""
        out.append(((f"{label:>{LABEL - 2}} {'┤' if label else '│'}", "dim"), (cells, "bar")))
    out.append(
        ((f" ~ mean {spread.mean:,.0f}, least {spread.least:,}, most {spread.most:,} of whole updates", "text"),)
    )
    return out


def learning_rate(sides: Sides, a: Outcome, b: Outcome, width: int) -> list[Line]:
    """The rules people use for another batch, with their values for B; none is applied."""
    if sides.lr is None or not isinstance(a, BatchAnswer) or not isinstance(b, BatchAnswer):
        return []
    old, new = a.effective_batch, b.effective_batch
    title = f"learning rate for {count(new)} rows an update instead of {count(old)}"
    if old == new:  # every rule leaves it as it is: what each would do with another batch
        new = 2 * old
        title = f"learning rate, were it {count(new)} rows an update instead of {count(old)}"
    out: list[Line] = [paint.rule(title, "none is applied", width)]
    for each in batch_sides.lr_options(sides.lr, old, new):
        words = {
            "none": "the plan's own",
            "linear": f"x {each['factor']:.3g}, as the batch",
            "square root": f"x {each['factor']:.3g}, the root of the batch's ratio",
        }
        out.append(((f"   {each['rule']:<13}{rate(each['lr']):>9}", "text"), (f"   {words[each['rule']]}", "dim")))
    said = "None of them is a law for your task: compare rates on it (pilot-tui compare) before a long run."
    out += [((f" {piece}", "dim"),) for piece in paint.wrap(said, width - 2)]
    return out


def pane(
    sides: Sides, a: Outcome, b: Outcome, spreads: tuple[Spread | None, Spread | None], width: int, height: int
) -> list[Line]:
    """Both settings' tokens on one scale, the rules, and of which order the tokens are."""
    rates = learning_rate(sides, a, b, width)
    note = "Order: one shuffled pass, as a run's but not its own; the batch gate counts the run's own first updates."
    notes: list[Line] = [((f" {piece}", "dim"),) for piece in paint.wrap(note, width - 2)]
    known = [each for each in spreads if each is not None]
    top = max((max(each.totals) for each in known), default=1)
    charts = 1 if sides.same else 2
    rows = max(2, min(MOST_ROWS, (height - len(rates) - len(notes)) // charts - 3))
    out: list[Line] = []
    for name, side, spread in (("A and B" if sides.same else "A", sides.a, spreads[0]), ("B", sides.b, spreads[1])):
        why = f"{name} takes {count(side.examples)} rows, more than this run counted" if known else UNCOUNTED
        if name != "B" or not sides.same:
            out += tokens(name, spread, top, width, rows, why)
    return [*out, *(notes if known else ()), *rates][:height]
