"""The Sheet room's side: what is needed and what stays free, which GPUs fit, what keeps a run off the sheet. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.sheet import blocks
from tui_pilot.text import GIB, plural, size
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line

Json = Mapping[str, Any]
SIDE = 38
MOST_GPUS = 6
MOST_PACKAGES = 3


def side(document: Json, width: int) -> list[Line]:
    """One stack for all configurations of the sheet; they are mostly one."""
    out: list[Line] = []
    configurations = list(document.get("configurations") or ())
    for item in configurations:
        name = f"{item['short']}: " if len(configurations) > 1 else ""
        out += [paint.rule(f"{name}margin", "", width), *_margin(item, width)]
        out += [paint.rule("which GPUs fit", "GiB usable" if item["fits"] else "", width), *_fits(item, width)]
        if not item["retained"]:
            out += [
                paint.rule("not retained, because", "", width, "warn"),
                *_listed(item["why_not"], "✗", "fail", width),
            ]
        overrides = [f"{each['phase']}, marked {each['mark']}: {each['note']}" for each in item["overrides"]]
        if overrides:
            out += [paint.rule("fails overridden by hand", "", width, "warn"), *_listed(overrides, "!", "warn", width)]
    out += _packages(list(document.get("packages") or ()), width)
    questions = list(document.get("open") or ())
    if questions:
        out += [paint.rule(plural(len(questions), "open question"), "", width), *_listed(questions, "?", "warn", width)]
    return out


def _margin(item: Json, width: int) -> list[Line]:
    need, phase = item["memory_need"], item["binding_phase"]
    lines: list[Line] = []
    if need is None:
        at = [
            each["allocated_peak"] for each in item["memory"] if each["phase"] == phase and each.get("allocated_peak")
        ]
        if at:
            lines.append(((f" {size(max(at))} allocated on the CPU", "text"),))
        lines += [((f" {piece}", "text"),) for piece in paint.wrap("margin of a GPU: unchecked", width - 2)]
    else:
        lines.append(((f" need {size(need['bytes'])} on each GPU", "text"),))
        if need["margin"] is None:
            lines.append(((" usable memory could not be read: NA", "warn"),))
        else:
            asked = item["memory_margin_asked"]
            short = asked is not None and need["margin"] < asked
            room = max(4, width - 22)
            bar = paint.left(paint.bar(1 - need["margin"], room), room)
            free = f"{need['margin']:.0%} free"
            lines.append(((" [", "rule"), (bar, "bar"), ("] ", "rule"), (free, "warn" if short else "text")))
            said = f" of {size(need['usable_bytes'])} usable" + (f", {asked:.0%} asked" if asked is not None else "")
            lines.append(((said, "text"),))
    lines.append(((f" set by {phase or 'nothing: not measured'}", "text"),))
    return lines


def _fits(item: Json, width: int) -> list[Line]:
    listed = item["fits"]
    if not listed:
        return [((f" {piece}", "text"),) for piece in paint.wrap(str(item["fits_note"]), width - 2)]
    need = max(each["need_bytes"] for each in listed)
    asked = max(each["margin_asked"] for each in listed)
    out: list[Line] = [((f" need {size(need)}, margin asked {asked:.0%}", "text"),)]
    shown = _telling(listed)
    for each in shown:
        sign, role = ("✓", "pass") if each["fits"] else ("✗", "fail")
        usable = each["usable_bytes"]
        short = each["need_bytes"] - usable
        said = f"short {short / GIB:.1f}" if short > 0 else f"{each['margin']:.0%} free"
        room = max(0, width - 40)
        bar = paint.left("over" if short > 0 else paint.bar(1 - each["margin"], room), room) if room >= 4 else ""
        name = paint.left(str(each["name"]), 17)
        cells: Line = ((f" {sign} ", role), (name, "text"), (f"{usable / GIB:>6.1f} ", "text"))
        if bar:
            cells = (*cells, ("[", "rule"), (bar, "bar"), ("]", "rule"))
        out.append((*cells, (paint.right(said, 10), "text")))
    if len(shown) < len(listed):
        out.append(((f" {len(listed) - len(shown)} more in the preview", "dim"),))
    out += [((f" {piece}", "dim"),) for piece in paint.wrap(str(item["fits_note"]), width - 2)]
    return out


def _telling(listed: Sequence[Json]) -> list[Json]:
    """At most ``MOST_GPUS``, around the edge of what fits: that is where the choice is."""
    by_room = sorted(listed, key=lambda each: -int(each["usable_bytes"]))
    fitting = sum(bool(each["fits"]) for each in by_room)
    first = max(0, min(fitting - MOST_GPUS // 2, len(by_room) - MOST_GPUS))
    return by_room[first : first + MOST_GPUS]


def _packages(found: Sequence[Json], width: int) -> list[Line]:
    """Hours of each package side by side, as on the sheet itself."""
    if not found:
        return []
    shown = found[:MOST_PACKAGES]
    label = max(10, width - 1 - 8 * len(shown))
    days = "".join(paint.right(f"{each['days']} days", 8) for each in shown)
    out: list[Line] = [paint.rule("packages", "", width), ((" " * (label + 1), "text"), (days, "head"))]
    for name, *cells in blocks.package_rows(shown):
        spans: Line = ((" " + paint.left(name, label), "text"),)
        for cell in cells:
            role = {"in": "pass", "out": "fail"}.get(cell, "text")
            spans = (*spans, (paint.right(cell, 8), role))
        out.append(spans)
    for each in found[0]["unpriced"]:
        out += [((f" {piece}", "warn"),) for piece in paint.wrap(f"? {each['id']}: {each['why']}", width - 2)]
    limits = "Hours hold for the machine measured, not for another GPU or provider. Prices: the plan's."
    out += [((f" {piece}", "dim"),) for piece in paint.wrap(limits, width - 2)]
    return out


def _listed(texts: Sequence[Any], sign: str, role: str, width: int) -> list[Line]:
    out: list[Line] = []
    for text in texts:
        for n, piece in enumerate(paint.wrap(str(text), width - 3)):
            out.append(((f" {sign} " if n == 0 else "   ", role), (piece, "text")))
    return out


def preview(lines: Sequence[str], words: str) -> list[Line]:
    """The file's own lines; heads stand out, and lines that the filter's words are in are marked."""
    wanted = words.casefold()
    out: list[Line] = []
    for text in lines:
        found = bool(wanted) and wanted in text.casefold()
        role = "head" if text.startswith("#") else "text"
        out.append(((text, role + ("+reverse" if found else "")),))
    return out
