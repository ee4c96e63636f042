"""Panes of a page: content that is scrolled under a rule, alone or two side by side. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line


@dataclass(frozen=True)
class Pane:
    """A title, what stands at the right of its rule, and all lines; ``top`` is the first that is shown."""

    title: str
    legend: str
    lines: Sequence[Line]
    top: int = 0
    focused: bool = False

    def last(self, height: int) -> int:
        """The highest ``top`` that still fills ``height`` lines, the rule among them."""
        return max(0, len(self.lines) - max(1, height - 1))

    def drawn(self, width: int, height: int) -> list[Line]:
        """Exactly ``height`` lines: the rule, and as much of the content as there is room for."""
        if height < 1:
            return []
        room = height - 1
        top = max(0, min(self.top, self.last(height)))
        shown = list(self.lines[top : top + room])
        place = f"{top + 1}–{top + len(shown)} of {len(self.lines)}" if len(self.lines) > room > 0 else ""
        legend = "   ".join(each for each in (self.legend, place) if each)
        if place and paint.width_of(((self.title + legend, "text"),)) + 10 > width:
            legend = place
        head = paint.rule(self.title, legend, width, "running" if self.focused else "head")
        return [head, *shown, *([paint.EMPTY] * (room - len(shown)))]


def joined(lefts: Sequence[Line], rights: Sequence[Line], left: int) -> list[Line]:
    """Two drawn panes of one height side by side."""
    return [
        (*paint.fit(one, left, "rule" if n == 0 else "text"), ("┬" if n == 0 else "│", "rule"), *other)
        for n, (one, other) in enumerate(zip(lefts, rights, strict=True))
    ]
