"""The one widget that shows text: a stack of lines of which only those that changed are made again.

Textual repaints a dirty widget whole. ``Lines`` keeps what it showed last and marks only the changed lines dirty, so
frozen values cost nothing; which of their cells are sent is the business of ``wire.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.theme import Look, look_of


class Lines(Widget):
    """Any number of lines, shown from ``top``. Lines longer than the widget are cut with ``…``, never wrapped."""

    DEFAULT_CSS = "Lines { width: 1fr; height: 1fr; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.content: tuple[Line, ...] = ()
        self.top = 0
        self._shown: dict[int, Line] = {}

    def write(self, content: Sequence[Line], top: int | None = None) -> None:
        """Show these lines; ``top`` is the number of the first line to show (None: as it was, kept in range)."""
        self.content = tuple(content)
        height, width = self.size.height, self.size.width
        wanted = self.top if top is None else top
        self.top = max(0, min(wanted, len(self.content) - max(1, height)))
        dirty: list[Region] = []
        for y in range(height):
            new = self._line(y)
            if new != self._shown.get(y):
                dirty.append(Region(0, y, width, 1))
        if dirty:
            self.refresh(*dirty)

    def keep_in_view(self, number: int) -> None:
        """Scroll by as little as possible so that this line is visible."""
        height = max(1, self.size.height)
        if number < self.top:
            self.write(self.content, number)
        elif number >= self.top + height:
            self.write(self.content, number - height + 1)

    def repaint(self) -> None:
        """Send everything again: the theme changed."""
        self._shown.clear()
        self.refresh()

    def text(self) -> str:
        """All lines as plain text, what ``y`` copies."""
        return "\n".join(paint.plain(each).rstrip() for each in self.content)

    def _line(self, y: int) -> Line:
        number = self.top + y
        return self.content[number] if number < len(self.content) else paint.EMPTY

    def render_line(self, y: int) -> Strip:
        content = self._line(y)
        self._shown[y] = content
        width = self.size.width
        look: Look = look_of(self.app)
        segments: list[Segment] = []
        for text, role in paint.fit(content, width):
            style = look.style(role)
            if segments and segments[-1].style == style:  # one run of cells, one colour sequence
                segments[-1] = Segment(segments[-1].text + look.glyphs(text), style)
            elif text:
                segments.append(Segment(look.glyphs(text), style))
        return Strip(segments).adjust_cell_length(width, look.style("text"))

    def on_resize(self) -> None:
        self._shown.clear()
        self.write(self.content)
