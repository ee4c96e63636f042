"""Line 1: the rooms, brackets around the open one, the data and the box at the right. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line, Span
from tui_pilot.ui.snapshot import Snapshot


def first_line(titles: Sequence[str], opened: int, snapshot: Snapshot, width: int) -> Line:
    """``[1 Pilot]  2 Examples   3 Memory ...   support-chat   8 x H100 80GB``."""
    spans: list[Span] = []
    for n, title in enumerate(titles):
        spans.append((f"[{n + 1} {title}] ", "head") if n == opened else (f" {n + 1} {title}  ", "dim"))
    used = paint.width_of(tuple(spans))
    if used > width:
        return paint.fit(((f"[{opened + 1} {titles[opened]}]", "head"), ("  H L other rooms", "dim")), width)
    device = paint.clean(snapshot.device_text)
    right = f"{data_name(snapshot)}   {device}" if width >= 100 else device
    gap = width - used - len(right)
    if gap < 1:
        right, gap = "", width - used
    return (*spans, (" " * gap, "text"), (right, "dim"))


def data_name(snapshot: Snapshot) -> str:
    """What the run learns from, in a word."""
    plan = snapshot.plan
    if plan is None:
        return ""
    if plan.demo:
        return "built-in data"
    train = plan.plan.data.train
    return paint.clean(PurePath(train).stem if train else plan.plan.name)
