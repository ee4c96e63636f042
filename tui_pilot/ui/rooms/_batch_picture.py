"""The Batch room's picture: microbatches make a window, a window of every replica an update, updates an epoch. Pure."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from tui_pilot.plan.batch import BatchAnswer, windows
from tui_pilot.text import count, plural
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.rooms import _batch_sides as sides_of
from tui_pilot.ui.rooms._batch_sides import Outcome

SHOWN_GPUS = 4
STEPS = "▁▂▃▄▅▆▇█"


def lines(found: Outcome, width: int, rank: str, name: str, legend: str = "") -> list[Line]:
    """One update: a box a microbatch with the rows in it, a line a replica; then the last, incomplete one."""
    if not isinstance(found, BatchAnswer):
        return []
    ask = found.question
    epoch = sides_of.solve(replace(ask, held="epochs", amount=1))
    last = _last(epoch) if isinstance(epoch, BatchAnswer) else []
    sizes = next(islice(windows(ask), 1), [])
    if found.updates_per_epoch == 1 and last:
        sizes, last = last, []  # the only window of an epoch
    room = max(12, width // 2 - 14)
    boxes = _boxes(sizes, room)
    replicas = ask.replicas
    gpus = [0] if replicas == 1 else [0, 1] if replicas == 2 else [0, 1, replicas - 1]
    rows: list[tuple[str, str]] = [(f"{rank} {gpu}", boxes) for gpu in gpus]
    if replicas == SHOWN_GPUS:
        rows.insert(2, (f"{rank} 2", boxes))
    elif replicas > SHOWN_GPUS:
        rows.insert(2, (" ...", f"{replicas - 3} more alike"))
    elif replicas == 3:
        rows = [(f"{rank} {gpu}", boxes) for gpu in range(3)]
    said = f" {_sum(sizes, replicas)} ─► update 1 of {found.updates:,}"
    if not last:
        said += f" ─► ... ─► {count(found.updates_per_epoch)} make an epoch"
    wide = max(len(box) for _, box in [*rows, ("", _boxes(last, room))])
    middle = len(rows) // 2
    out = [
        paint.rule(f"one update of {name}", legend or f"[{sizes[0]}] a microbatch of {plural(sizes[0], 'row')}", width)
    ]
    for n, (label, box) in enumerate(rows):
        joint = " ──" if len(rows) == 1 else " ┐ " if n == 0 else " ┘ " if n == len(rows) - 1 else " ┤ "
        if n == middle and len(rows) > 1:
            joint = " ├─" if n < len(rows) - 1 else " ┴─"
        tail = said if n == middle else ""
        out.append(((f" {label:<7}", "dim"), (box.ljust(wide), "text"), (joint, "rule"), (tail, "text")))
    if last:
        text = f" {_sum(last, replicas)} ─► update {count(found.updates_per_epoch)}, incomplete ─► the epoch ends"
        out.append(
            ((f" {'last':<7}", "dim"), (_boxes(last, room).ljust(wide), "text"), (" ──", "rule"), (text, "text"))
        )
    return out


def epoch(a: Outcome, b: Outcome, same: bool, width: int) -> list[Line]:
    """One epoch of A and of B: a column an update (or several), its height the rows in it."""
    sides = [("A and B", a)] if same else [("A", a), ("B", b)]
    known = [(name, found) for name, found in sides if isinstance(found, BatchAnswer)]
    if not known:
        return []
    top = max(found.effective_batch for _, found in known)
    room = width - 34
    out: list[Line] = [paint.rule("one epoch, a column an update, its height the rows in it", "", width)]
    for name, found in known:
        updates = found.updates_per_epoch
        shown = min(updates, room)
        whole = STEPS[max(0, min(7, round(found.effective_batch / top * 8) - 1))]
        solved = sides_of.solve(replace(found.question, held="epochs", amount=1))
        last = solved.last_update.examples if isinstance(solved, BatchAnswer) else found.effective_batch
        end = STEPS[max(0, min(7, round(last / top * 8) - 1))]
        label = f" {name:<8} {plural(updates, 'update'):<14}"
        each = f" {-(-updates // room):,} a column" if updates > room else ""
        out.append(((label, "text"), (whole * (shown - 1) + end, "bar"), (each, "dim")))
    return out


def _last(epoch: BatchAnswer) -> list[int]:
    """Microbatch sizes of each replica in the epoch's last window; empty where it is as whole as the others."""
    last, micro, replicas = epoch.last_update, epoch.question.micro, epoch.question.replicas
    if last.examples == epoch.effective_batch:
        return []
    full, rest = divmod(last.examples // replicas, micro)
    return [micro] * full + ([rest] if rest else [])


def _sum(sizes: list[int], replicas: int) -> str:
    total = sum(sizes) * replicas
    if replicas == 1 and len(set(sizes)) > 1:
        return plural(total, "row")
    each = f"{len(sizes)} x {sizes[0]} rows" if len(set(sizes)) == 1 else plural(sum(sizes), "row")
    on = "" if replicas == 1 else f" on each of {replicas}"
    return f"{each}{on} = {plural(total, 'row')}"


def _boxes(sizes: list[int], room: int) -> str:
    whole = "".join(f"[{size}]" for size in sizes)
    if len(whole) <= room:
        return whole
    return f"[{sizes[0]}][{sizes[0]}] ... [{sizes[-1]}] {len(sizes)} of them"
