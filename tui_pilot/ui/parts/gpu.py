"""One line per GPU: a nested bar (allocated in reserved in used) and the numbers, which are the truth. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tui_pilot.store.memory import bare
from tui_pilot.store.state import Row
from tui_pilot.text import GIB
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line, Span
from tui_pilot.ui.parts import units
from tui_pilot.ui.snapshot import GpuView, Snapshot

LEGEND = "▆ allocated  ▄ reserved  ▂ outside torch  ┊┃ highest of phase, run"
QUIET = ("power cap",)  # what a GPU at full load says of itself: no fault
NO_ACCELERATOR = "no accelerator: every phase runs on the CPU; GPU memory stays unchecked."
NO_ACCELERATOR_SHORT = "no accelerator: GPU memory stays unchecked"
MAX_BAR = 58
MANY = 8


@dataclass(frozen=True)
class Scene:
    """What the bars stand for: the GPUs with their figures, and ``live`` or ``frozen ...`` for the rule."""

    gpus: tuple[GpuView, ...]
    title: str
    frozen: bool


def why_none(snapshot: Snapshot, short: bool = False) -> str:
    """Why no bar stands here: no accelerator at all, or none that this phase was measured on."""
    if snapshot.gpus_why:
        return snapshot.gpus_why
    rows = snapshot.state.rows
    if units.on_gpu(rows):
        return "this phase was measured on no GPU"
    return NO_ACCELERATOR_SHORT if short else NO_ACCELERATOR


def note(shown: Scene, snapshot: Snapshot) -> str:
    """What the bars lack, for the rule above them; empty where all three counters are there."""
    if snapshot.gpus_why and all(each.used is None for each in shown.gpus):
        return snapshot.gpus_why
    if shown.frozen or not snapshot.live or any(each.allocated is not None for each in shown.gpus):
        return ""
    return "torch's counters come at the phase's end"


def scene(snapshot: Snapshot, row: Row) -> Scene:
    """The bars of the selected phase: its own peaks once it ended, the newest readings while it runs."""
    if row.memory or row.devices:
        views = tuple(_of_row(gpu, row) for gpu in snapshot.gpus) or _views_of(row)
        return Scene(views, f"GPU memory at the peak of {row.phase}, frozen", True)
    return Scene(snapshot.gpus, f"GPU memory, {'live' if snapshot.live else 'no run is live'}", False)


def _of_row(gpu: GpuView, row: Row) -> GpuView:
    memory = _find(row.memory, gpu)
    device = _find(row.devices, gpu)
    used = max(
        (v for v in (memory.get("device_used_peak"), device.get("used_peak")) if isinstance(v, int)), default=None
    )
    return replace(
        gpu,
        peak=used,
        phase_peak=None,
        allocated=memory.get("allocated_peak"),
        reserved=memory.get("reserved_peak"),
        usable=gpu.usable or memory.get("device_usable") or device.get("usable"),
    )


def _find(items: Sequence[Any], gpu: GpuView) -> dict[str, Any]:
    key = bare(gpu.key)
    return next((dict(item) for item in items if key is not None and bare(item.get("uuid")) == key), {})


def _views_of(row: Row) -> tuple[GpuView, ...]:
    """GPUs known from a row alone: a run that was looked at on another machine."""
    views = []
    for n, memory in enumerate(each for each in row.memory if str(each.get("device", "")).startswith("cuda")):
        bare = GpuView(str(memory.get("uuid") or n), n, usable=memory.get("device_usable"))
        views.append(_of_row(bare, row))
    return tuple(views)


def bar_text(gpu: GpuView, width: int) -> str:
    """``[▆▆▆▄▂┃   ]`` to the nearest cell; only ``▂`` before torch's own counters exist."""
    if gpu.error:
        return f"[{paint.left(gpu.error, width)}]"
    usable = gpu.usable
    if not usable:
        return f"[{' ' * width}]"

    def cells(value: int | None) -> int:
        return 0 if value is None else max(0, min(width, round(value / usable * width)))

    used = gpu.peak if gpu.peak is not None else gpu.used
    allocated, reserved, whole = cells(gpu.allocated), cells(gpu.reserved), cells(used)
    text = "▆" * allocated
    text += "▄" * max(0, reserved - len(text))
    text += "▂" * max(0, whole - len(text))
    text = text.ljust(width)
    of_phase = gpu.phase_peak or 0
    for sign, highest in (("┊", of_phase), ("┃", max(gpu.run_peak or 0, of_phase, used or 0))):
        if highest > 0:
            place = max(0, cells(highest) - 1)
            text = text[:place] + sign + text[place + 1 :]
    return f"[{text}]"


def slowed(gpus: Sequence[GpuView]) -> list[str]:
    """``gpu 3, 5 slowed: hardware thermal``, a line for each set of reasons; nothing where all is as it should be."""
    found: dict[str, list[str]] = {}
    for gpu in gpus:
        words = ", ".join(word for word in gpu.throttle if word not in QUIET)
        if words:
            found.setdefault(words, []).append(str(gpu.index))
    return [f"gpu {', '.join(names)} slowed: {words}" for words, names in found.items()]


def _outside(gpu: GpuView, used: int | None) -> str:
    """Used less reserved. The two come from two clocks: where they do not nest, ``~`` says so."""
    if used is None or gpu.reserved is None:
        return "–"
    return f"{_unnested(gpu, used)}{_gib(used - gpu.reserved)}"


def _unnested(gpu: GpuView, used: int | None) -> str:
    return "~" if used is not None and gpu.reserved is not None and used < gpu.reserved else ""


def compact_head(scene: Scene, width: int) -> Line:
    """The head of the short bars, with the size they are of."""
    usable = next((gpu.usable for gpu in scene.gpus if gpu.usable), None)
    of = f"gpu of {usable / GIB:.1f} GiB usable" if usable else "gpu, usable memory unknown"
    return ((f"{paint.left(of, width - 13)}used util °C", "dim"),)


def compact_line(gpu: GpuView, width: int) -> Line:
    """``0   [▆▆▆▆▄┃   ]  34.7  97% 61``."""
    bar = bar_text(gpu, max(6, width - 21))
    used = gpu.peak if gpu.peak is not None else gpu.used
    return (
        (f"{gpu.index:<3} ", "text"),
        (bar, "bar"),
        (f"{_unnested(gpu, used) + _gib(used):>6}{_percent(gpu):>5}{_degrees(gpu):>3}", "text"),
    )


def wide_head(scene: Scene, bar: int) -> Line:
    usable = {gpu.usable for gpu in scene.gpus}
    size = next(iter(usable - {None}), None)
    of = f"of {size / GIB:.1f} GiB usable" if size and len(usable) == 1 else "of each one's own usable memory"
    left = paint.left(f" gpu  0                    {of}", 5 + bar)
    right = f"{size / GIB:.1f}" if size and len(usable) == 1 else ""
    text = f"{left} {right:>4}  alloc resvd used≥ outside    now  util  °C    W"
    return ((text, "dim"),)


def wide_line(gpu: GpuView, bar: int) -> Line:
    """The bar and ``alloc resvd used outside now util temperature power``."""
    used = gpu.peak if gpu.peak is not None else gpu.used
    power = "NA" if gpu.power_w is None else f"{gpu.power_w:.0f}"
    numbers = (
        f"{_gib(gpu.allocated, '–'):>6}{_gib(gpu.reserved, '–'):>6}{_gib(used):>6}{_outside(gpu, used):>8}"
        f"{_gib(gpu.used):>7}{_percent(gpu):>6}{_degrees(gpu):>4}{power:>5}"
    )
    return ((f" {gpu.index:<3} ", "text"), (bar_text(gpu, bar), "bar"), (numbers, "text"))


def bar_width(width: int) -> int:
    """Cells between the brackets of the wide lines; up to 58."""
    return max(8, min(MAX_BAR, width - 62))


def folded(gpus: tuple[GpuView, ...], all_shown: bool) -> list[tuple[GpuView, int]]:
    """Each GPU with how many alike follow it; above eight alike ones fold, outliers keep their line."""
    if all_shown or len(gpus) <= MANY:
        return [(gpu, 0) for gpu in gpus]
    out: list[tuple[GpuView, int]] = []
    for gpu in gpus:
        if out and _alike(out[-1][0], gpu):
            out[-1] = (out[-1][0], out[-1][1] + 1)
        else:
            out.append((gpu, 0))
    return out


def _alike(one: GpuView, other: GpuView) -> bool:
    if one.error or other.error or not one.usable or one.usable != other.usable:
        return False
    a, b = one.peak or one.used, other.peak or other.used
    return a is not None and b is not None and abs(a - b) <= one.usable * 0.01


def fold_note(gpu: GpuView, more: int) -> Span:
    return (f"  {gpu.index}-{gpu.index + more}  {more + 1} alike, z shows all", "dim")


def _gib(value: int | None, unknown: str = "NA") -> str:
    return unknown if value is None else f"{value / GIB:,.1f}"


def _percent(gpu: GpuView) -> str:
    return "NA" if gpu.utilization is None else f"{gpu.utilization}%"


def _degrees(gpu: GpuView) -> str:
    return "NA" if gpu.temperature is None else f"{gpu.temperature}"
