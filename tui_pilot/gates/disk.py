"""Disk: what checkpoints and export will take, against what is free. Arithmetic and words; nothing is read here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import size

WIDTH = {"fp32": 4, "bf16": 2, "fp16": 2}
ADAPTER_SHARE = 0.05
"""No adapter that is called one is larger than this share of its base."""


def needs(plan: Plan, elements: int, trained: int | None = None, moments: int | None = None) -> dict[str, int]:
    """Bytes of the checkpoints kept and of the export, by what they are.

    ``elements`` of the whole model; ``trained`` of those that train, unknown: all of them, or what an adapter may be at
    most. ``moments``: optimizer tensors per trained one, by default the plan's optimizer's. One checkpoint more than
    ``checkpoint.keep`` is on disk while the next is written.
    """
    width = WIDTH["bf16"] if plan.precision == "bf16" else WIDTH["fp32"]
    adapter = plan.model.adapter is not None
    count = trained if trained is not None else int(elements * ADAPTER_SHARE) if adapter else elements
    each = 2 if plan.optimizer.name == "adamw" else 0
    checkpoint = count * width * (1 + (each if moments is None else moments))
    kept = plan.checkpoint.keep + 1
    out = WIDTH.get(plan.export.dtype or "", width)
    kind = plan.export.kind or ("adapter" if adapter else "full")
    return {
        f"{kept} checkpoints": checkpoint * kept,
        f"{kind} export": (count if kind == "adapter" else elements) * out,
    }


def judge(disk: Mapping[str, Any] | None) -> list[Reason]:
    """``disk``: path, bytes free, bytes needed with their parts, and whether a stop loses what is there."""
    if not disk:
        return []
    free, need = disk.get("free"), disk.get("need")
    if free is None:
        return [reason("disk_unknown", f"Free space below {disk.get('path')} could not be read.")]
    reasons = []
    if need is not None and need > free:
        parts = ", ".join(f"{name} {size(part)}" for name, part in (disk.get("parts") or {}).items())
        text = f"The campaign needs {size(need)} of disk ({parts}), {size(free)} are free in {disk.get('path')}."
        where = {"need_bytes": need, "free_bytes": free, "file": disk.get("path")}
        reasons.append(reason("disk_too_small", text, where))
    if disk.get("overlay"):
        reasons.append(reason("lost_on_stop", f"{disk.get('path')} is on the container's own disk, lost on a stop."))
    return reasons
