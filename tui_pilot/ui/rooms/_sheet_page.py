"""The Sheet room's side: what is needed and what stays free, which GPUs fit, what keeps a run off the sheet. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.sheet import blocks
from tui_pilot.sheet.judged import is_decided
from tui_pilot.text import GIB, plural, size
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line

Json = Mapping[str, Any]
SIDE = 38
MOST_GPUS = 6
LEAST_BAR, MOST_BAR = 6, 24
WORDS_FROM = 46
"""Cells of a line from which it has room for ``38% free`` and ``short 4.8``; below, the rule says what they are."""
MOST_PACKAGES = 3


def side(document: Json, width: int) -> list[Line]:
    """One stack for all configurations of the sheet; they are mostly one."""
    return [*fitting(document, width), *deciding(document, width)]


def fitting(document: Json, width: int, most: int = MOST_GPUS) -> list[Line]:
    """Of each configuration: how it stands, what is needed and what stays free, and which GPUs fit."""
    out: list[Line] = []
    configurations = list(document.get("configurations") or ())
    for item in configurations:
        name = f"{item['short']}: " if len(configurations) > 1 else ""
        out += [paint.rule(f"{name}decision", "", width), *_decision(item, width)]
        overrides = [f"{each['phase']}, marked {each['mark']}: {each['note']}" for each in item["overrides"]]
        if overrides:
            out += [paint.rule("fails overridden by hand", "", width, "warn"), *_listed(overrides, "!", "warn", width)]
        out += [paint.rule(f"{name}margin", "", width), *_margin(item, width)]
        legend = ("GiB, free" if width < WORDS_FROM else "GiB usable") if item["fits"] else ""
        out += [paint.rule("which GPUs fit", legend, width), *_fits(item, width, most)]
    return out


def deciding(document: Json, width: int) -> list[Line]:
    """What packages of hours hold, and the open questions."""
    out = _packages(list(document.get("packages") or ()), width)
    questions = list(document.get("open") or ())
    if questions:
        out += [paint.rule(plural(len(questions), "open question"), "", width), *_listed(questions, "?", "warn", width)]
    return out


def open_line(document: Json, width: int) -> Line:
    """The first open question in one line, and how many more there are; empty without one."""
    questions = list(document.get("open") or ())
    if not questions:
        return paint.EMPTY
    more = f"   {len(questions) - 1} more, tab" if len(questions) > 1 else ""
    said = paint.left(f"open: {questions[0]}", width - 3 - len(more)).rstrip()
    return ((" ? ", "warn"), (said, "text"), (more, "dim"))


def headline(document: Json) -> Line:
    """Whether something is retained, may be, or nothing is: a sign and words."""
    configurations = list(document["configurations"])
    allowed = [item for item in configurations if item["retained"]]
    decided = sum(is_decided(item) for item in allowed)
    found = plural(len(configurations), "configuration")
    if decided:
        return ((" ✓ ", "pass"), (f"{found}, {decided} retained", "text"))
    if allowed:
        which = f"{found}, {len(allowed)}" if len(configurations) > 1 else found
        return ((" ? ", "warn"), (f"{which} may be retained: no decision yet", "text"))
    return ((" ✗ ", "fail"), (f"{found}, 0 retained", "fail+bold"))


def _decision(item: Json, width: int) -> list[Line]:
    """What was decided, or that nothing was; what forbids it stands below."""
    found = item.get("decision") or {}
    out: list[Line] = []
    if found:
        sign, role = {"retain": ("✓", "pass"), "reject": ("✗", "fail")}.get(str(found.get("decision")), ("!", "warn"))
        out += _listed([f"{found.get('decision')}: {found.get('note')}"], sign, role, width)
    elif item["retained"]:
        out += _listed(["no decision yet: nothing forbids to retain it"], "?", "warn", width)
        out += _listed(["d retains, rejects or defers it, with a reason"], " ", "text", width)
    if not item["retained"]:
        out.append(((" not retained, because", "warn"),))
        out += _listed(item["why_not"], "✗", "fail", width)
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
            room = max(4, min(MOST_BAR, width - 22))
            bar = paint.left(paint.bar(1 - need["margin"], room), room)
            free = f"{need['margin']:.0%} free"
            lines.append(((" [", "rule"), (bar, "bar"), ("] ", "rule"), (free, "warn" if short else "text")))
            said = f" of {size(need['usable_bytes'])} usable" + (f", {asked:.0%} asked" if asked is not None else "")
            lines.append(((said, "text"),))
    lines.append(((f" set by {phase or 'nothing: not measured'}", "text"),))
    return lines


def _fits(item: Json, width: int, most: int) -> list[Line]:
    listed = item["fits"]
    if not listed:
        return [((f" {piece}", "text"),) for piece in paint.wrap(str(item["fits_note"]), width - 2)]
    need = max(each["need_bytes"] for each in listed)
    asked = max(each["margin_asked"] for each in listed)
    out: list[Line] = [((f" need {size(need)}, margin asked {asked:.0%}", "text"),)]
    shown = _telling(listed, most)
    brief = width < WORDS_FROM
    tail = 5 if brief else 11
    name_width = min(max(len(str(each["name"])) for each in shown), max(8, width - 10 - tail - LEAST_BAR))
    for each in shown:
        fits = bool(each["fits"])
        usable, short = each["usable_bytes"], each["need_bytes"] - each["usable_bytes"]
        free = f"{each['margin']:.0%}" if brief else f"{each['margin']:.0%} free"
        said = (f"-{short / GIB:.1f}" if brief else f"short {short / GIB:.1f}") if short > 0 else free
        room = max(0, min(MOST_BAR, width - name_width - 12 - tail))
        bar = paint.left("over" if short > 0 else paint.bar(1 - each["margin"], room), room)
        sign, role = ("✓", "pass") if fits else ("✗", "fail")
        cells: Line = ((f" {sign} ", role), (paint.left(str(each["name"]), name_width), "text"))
        cells = (*cells, (f"{usable / GIB:>6.1f} ", "text"))
        if room >= LEAST_BAR - 2:
            cells = (*cells, ("[", "rule"), (bar, "bar" if short <= 0 else "dim"), ("]", "rule"))
        out.append((*cells, (paint.right(said, tail), "text" if fits or short > 0 else "warn")))
    if len(shown) < len(listed):
        out.append(((f" {len(listed) - len(shown)} more in the preview", "dim"),))
    out += [((f" {piece}", "dim"),) for piece in paint.wrap(str(item["fits_note"]), width - 2)]
    return out


def _telling(listed: Sequence[Json], most: int) -> list[Json]:
    """At most ``most``, around the edge of what fits: that is where the choice is."""
    by_room = sorted(listed, key=lambda each: -int(each["usable_bytes"]))
    fitting = sum(bool(each["fits"]) for each in by_room)
    first = max(0, min(fitting - most // 2, len(by_room) - most))
    return by_room[first : first + most]


def _packages(found: Sequence[Json], width: int) -> list[Line]:
    """Hours of each package side by side, as on the sheet itself."""
    if not found:
        return []
    shown = found[:MOST_PACKAGES]
    label = max(10, width - 1 - 8 * len(shown))
    days = "".join(paint.right(f"{each['days']} days", 8) for each in shown)
    out: list[Line] = [paint.rule("packages of hours", "", width), ((" " * (label + 1), "text"), (days, "head"))]
    for name, *cells in blocks.package_rows(shown):
        spans: Line = ((" " + paint.left(name, label), "text"),)
        for cell in cells:
            role = {"in": "pass", "out": "fail"}.get(cell, "text")
            spans = (*spans, (paint.right(cell, 8), role))
        out.append(spans)
    for each in found[0]["unpriced"]:
        out += [((f" {piece}", "warn"),) for piece in paint.wrap(f"? {each['id']}: {each['why']}", width - 2)]
    if not found[0]["prices"]:
        hint = "no price is given: rental.prices in the plan, {H100 80GB: 2.40}, per hour"
        out += [((f" {piece}", "text"),) for piece in paint.wrap(hint, width - 2)]
    limits = "Hours hold for the machine measured, not for another GPU or provider. No duration imposes a training."
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
