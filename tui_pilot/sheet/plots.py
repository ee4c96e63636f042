"""Plots of the sheet as SVG that stands inside a page: no file, no font, no colour of text of its own.

The only module that uses matplotlib, and only when it draws. Text and lines of the axes take the page's colour, so that
a plot is readable on a light and on a dark page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.errors import PilotError
from tui_pilot.text import GIB, MIB, harmless

Json = Mapping[str, Any]

INK = "#010203"
"""Stands for the page's own colour, and is replaced by it."""
COLOURS = ("#3b82c4", "#d97706", "#2f9e6e", "#b5538f", "#8b7bd8", "#7a8a1f", "#c2554d", "#3aa6a6")
SETTINGS = {
    "svg.fonttype": "none", "svg.hashsalt": "pilot-tui", "text.parse_math": False, "font.size": 9.0,
    "font.family": "sans-serif", "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK,
    "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
}  # fmt: skip
WIDTH = 4.7


def available() -> None:
    """Raise a PilotError that says what to install where matplotlib is not there."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise PilotError(
            "The HTML sheet draws its plots with matplotlib, which is not installed here.",
            "pip install 'pilot-tui[report]', or another format: md, json, yaml, csv.",
            code="report_missing", title="Nothing was written", exit_code=2,
        ) from error  # fmt: skip


def losses(named: Sequence[tuple[str, Json]]) -> str:
    """Training loss of every run over updates, validation as dots; a run that diverged ends in a cross.

    One that diverged does not set the scale where others did not: its cross then stands at the upper edge.
    """
    sound = [
        value
        for _, curve in named
        if not curve["diverged"]
        for _, value in (*curve["loss"], *curve["validation"])
        if value is not None
    ]
    top = max(sound) + 0.15 * (max(sound) - min(sound) or 1.0) if sound else None

    def draw(axes: Any) -> None:
        for n, (name, curve) in enumerate(named):
            colour = COLOURS[n % len(COLOURS)]
            points = [point for point in curve["loss"] if point[1] is not None]
            label = _short(name) + (f" (diverged at {curve['last_update']})" if curve["diverged"] else "")
            axes.plot([x for x, _ in points], [y for _, y in points], color=colour, label=label, linewidth=1.4)
            held = [point for point in curve["validation"] if point[1] is not None]
            axes.plot([x for x, _ in held], [y for _, y in held], "o", color=colour, markersize=4)
            if curve["diverged"] and points:
                height = points[-1][1] if top is None else min(points[-1][1], top)
                axes.plot(
                    [curve["last_update"]], [height], "x", clip_on=False, color=colour, markersize=9, markeredgewidth=2
                )
        if top is not None:
            axes.set_ylim(top=top)
        axes.set_xlabel("update")
        axes.set_ylabel("loss")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncol=1 if len(named) < 4 else 2)

    return _svg(draw, 2.6 + 0.17 * len(named))


def memory(item: Json) -> str:
    """The highest peak of each phase, nested: device used, reserved, allocated; a line where the GPU ends."""
    phases: dict[str, dict[str, int]] = {}
    keys = ("device_used_peak", "reserved_peak", "allocated_peak")
    for entry in item["memory"]:
        for key in keys:
            if entry.get(key) is not None:
                had = phases.setdefault(str(entry["phase"]), {})
                had[key] = max(had.get(key, 0), entry[key])
    most = max((value for found in phases.values() for value in found.values()), default=0)
    unit, name = (GIB, "GiB") if most >= GIB else (MIB, "MiB")
    need = item["memory_need"]

    def draw(axes: Any) -> None:
        places = list(range(len(phases)))
        for n, key in enumerate(keys):
            widths = [found.get(key, 0) / unit for found in phases.values()]
            if any(widths):
                label = {"device_used_peak": "device used"}.get(key, key.removesuffix("_peak"))
                axes.barh(places, widths, height=0.8 - 0.2 * n, color=COLOURS[(1, 4, 0)[n]], label=label)
        if need and need["usable_bytes"]:
            axes.axvline(need["usable_bytes"] / unit, color=INK, linestyle="--", linewidth=1.2, label="usable")
        axes.set_yticks(places, list(phases))
        axes.invert_yaxis()
        axes.set_xlabel(name)
        if not most:
            return
        axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.14), ncol=4, columnspacing=1.0, handlelength=1.4)

    return _svg(draw, 1.2 + 0.24 * max(1, len(phases)))


def packages(found: Sequence[Json]) -> str:
    """Hours of each package: kept first, then jobs, then unused."""

    def draw(axes: Any) -> None:
        for row, each in enumerate(found):
            jobs = sum(entry["hours"] for entry in each["packed"])
            kept = [(name, hours) for name, hours in each["kept"].items()]
            left = 0.0
            for n, (name, hours) in enumerate([*kept, ("jobs", jobs), ("unused", each["unused"])]):
                colour = {"jobs": COLOURS[0], "unused": "#9aa0a688"}.get(name, COLOURS[1 + n])
                share = hours / each["hours"]
                axes.barh(row, share, left=left, color=colour, height=0.6, label=name if row == 0 else None)
                left += share
        axes.set_yticks(range(len(found)), [f"{each['days']} d, {each['hours']:.0f} h" for each in found])
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the hours")
        axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.34), ncol=3, columnspacing=1.0, handlelength=1.4)

    return _svg(draw, 1.5 + 0.34 * len(found))


def _short(name: str) -> str:
    plain = harmless(name)
    return plain if len(plain) <= 40 else plain[:39] + "…"


def _svg(draw: Any, height: float) -> str:
    available()
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):  # type: ignore[arg-type]
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        figure.patch.set_alpha(0.0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0.0)
        draw(axes)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r' id="[a-zA-Z]+[0-9a-z]*_[0-9]+"', "", text)
    # Sizes are the page's: the picture grows and shrinks with its column.
    return re.sub(r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", text, count=1).replace(' height="', ' data-height="', 1)
