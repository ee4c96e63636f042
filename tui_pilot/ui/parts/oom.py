"""An out-of-memory below its sentence: what filled the memory, and lettered ways out with what each changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_lowercase
from typing import Any

from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import units

MOST_BAR = 14
OWN_KEYS = ("largest", "variants", "snapshot")
"""Keys of the reason's place that are shown here and not in its line."""


def lines(where: Any, width: int) -> list[Line]:
    """Both tables, what can be done first: the sentence above names what filled it. Nothing where there is neither."""
    if not isinstance(where, Mapping):
        return []
    return [*_ways(where.get("variants"), width), *_held(where.get("largest"), width)]


def has_ways(where: Any) -> bool:
    """Whether the reason lists changes, which then stand in place of its advice."""
    return isinstance(where, Mapping) and bool(where.get("variants"))


def _held(largest: Any, width: int) -> list[Line]:
    if not isinstance(largest, Mapping):
        return []
    held = {str(name): count for name, count in largest.items() if isinstance(count, int) and count > 0}
    if not held:
        return []
    unit = units.unit_for(held.values())
    top = max(held.values())
    out: list[Line] = [((f"held at that moment, {unit.name}", "dim"),)]
    for name, count in held.items():
        bar = paint.bar(count / top, max(4, min(MOST_BAR, width - 36)))
        out.append(((f"{unit.show(count):>8} ", "text"), (f"{bar:<{MOST_BAR}} ", "bar"), (name, "text")))
    return out


def _ways(ways: Any, width: int) -> list[Line]:
    if not isinstance(ways, (list, tuple)) or not ways:
        return []
    known = [way for way in ways if isinstance(way, Mapping)]
    foretold = any(isinstance(way.get("predicted"), Mapping) for way in known)
    out: list[Line] = [(("ways out" + (", with the predicted need" if foretold else ""), "dim"),)]
    for letter, way in zip(ascii_lowercase, known, strict=False):
        change = ", ".join(f"{key}: {_value(value)}" for key, value in dict(way.get("set") or {}).items())
        said = "same experiment" if way.get("same_experiment") else f"changes {way.get('changes', 'the experiment')}"
        text = f"{_predicted(way.get('predicted'))}{change}, {said}"
        for n, row in enumerate(paint.wrap(text, max(10, width - 4))):
            out.append(((f"  {letter} " if n == 0 else "    ", "head"), (row, "text")))
    return out


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return " ".join(str(item) for item in value.values())
    return str(value)


def _predicted(said: Any) -> str:
    """``fits ~34.8 GiB: `` in front of a way that somebody predicted."""
    if not isinstance(said, Mapping) or not isinstance(said.get("need_bytes"), int):
        return ""
    need = said["need_bytes"]
    unit = units.unit_for([need])
    verdict = {True: "fits ", False: "does not fit "}.get(said.get("fits"), "")  # type: ignore[arg-type]
    return f"{verdict}~{unit.show(need)} {unit.name}: "
