"""The one widget that shows text: a stack of lines of which only the cells that changed are sent again.

Textual repaints a dirty widget whole; over a slow link that costs more than all else. ``Lines`` keeps what it showed
last and marks only the changed stretch of each line dirty, so frozen values cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
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
            old = self._shown.get(y)
            if new != old:
                start, end = (0, width) if old is None else _changed(old, new, width)
                if end > start:
                    dirty.append(Region(start, y, end - start, 1))
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


def _changed(old: Line, new: Line, width: int) -> tuple[int, int]:
    """The stretch of cells from the first to the last difference, half-open.

    One stretch a line: Textual sends a line from its beginning for every dirty stretch in it, so two cost twice.
    """
    one, other = _cells(paint.fit(old, width)), _cells(paint.fit(new, width))
    if len(one) != len(other) or any(cell_len(text) != 1 for text, _ in (*one, *other)):
        return 0, width
    differing = [n for n, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    return (differing[0], differing[-1] + 1) if differing else (0, 0)


def _cells(content: Line) -> list[tuple[str, str]]:
    cells: list[tuple[str, str]] = []
    for text, role in content:
        for character in text:
            size = cell_len(character)
            if size == 0 and cells:
                cells[-1] = (cells[-1][0] + character, role)
            cells.extend([(character, role)] * size)
    return cells
