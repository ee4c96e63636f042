"""The Sheet room's side: what is needed and what stays free, which GPUs fit, what keeps a run off the sheet. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.text import plural, size
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line

Json = Mapping[str, Any]
SIDE = 38


def side(document: Json, width: int) -> list[Line]:
    """One stack for all configurations of the sheet; they are mostly one."""
    out: list[Line] = []
    configurations = list(document.get("configurations") or ())
    for item in configurations:
        name = f"{item['short']}: " if len(configurations) > 1 else ""
        out += [paint.rule(f"{name}margin", "", width), *_margin(item, width)]
        out += [paint.rule("which GPUs fit", "", width), *_fits(item, width)]
        if not item["retained"]:
            out += [
                paint.rule("not retained, because", "", width, "warn"),
                *_listed(item["why_not"], "✗", "fail", width),
            ]
        overrides = [f"{each['phase']}, marked {each['mark']}: {each['note']}" for each in item["overrides"]]
        if overrides:
            out += [paint.rule("fails overridden by hand", "", width, "warn"), *_listed(overrides, "!", "warn", width)]
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
    out: list[Line] = []
    for each in listed:
        fits = each.get("fits")
        sign, role = ("✓", "pass") if fits else ("✗", "fail") if fits is False else ("?", "warn")
        margin = each.get("margin")
        said = f"{margin:.0%} free" if isinstance(margin, (int, float)) else "unchecked"
        name = paint.left(str(each.get("name")), max(8, width - 14))
        out.append(((f" {sign} ", role), (name, "text"), (paint.right(said, 10), "text")))
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
