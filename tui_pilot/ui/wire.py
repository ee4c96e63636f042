"""What goes over the wire: only the cells that differ from what the terminal shows already.

Textual paints a dirty line again from its beginning, and a whole screen when a room opens. Here every update it has
made is laid over a copy of what was sent before, and only the differing cells are sent, with as few colour changes as
they need. The copy is forgotten when the terminal's size changes, and when a person asks for everything again.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.strip import Strip

Pen = tuple[str, str, str]
"""Codes of attributes, of the colour, and of the ground; empty where a style leaves one to the terminal."""
Cell = tuple[str, Pen]
"""One cell: its character with what combines with it, empty for the second half of a wide one; and its pen."""

BARE: Pen = ("", "", "")
UNKNOWN: Cell = ("?", ("unknown", "", ""))
MANY_PENS = 1000  # a style may carry more than colours: no more of them than this are remembered
A_MOVE = 7  # bytes of a move along a line: so many unchanged bytes may as well be sent again


class Wire:
    """What one terminal shows, as far as it was told."""

    def __init__(self) -> None:
        self._lines: list[list[Cell]] = []
        self._made_of: list[dict[int, Strip]] = []
        self._pens: dict[Style | None, Pen] = {None: BARE}
        self._system: ColorSystem | None = None

    def forget(self) -> None:
        """Nothing is known of the terminal any more: the next update is sent whole."""
        self._lines, self._made_of = [], []

    def quiet(self, update: Any) -> Any:
        """The update, to be sent as what differs; anything that is no update of cells as it was."""
        return _Difference(self, update) if isinstance(update, (LayoutUpdate, ChopsUpdate)) else update

    def difference(self, update: LayoutUpdate | ChopsUpdate, console: Console) -> str:
        """The sequences that turn what the terminal shows into what the update says, and the pen at rest again."""
        self._system = console._color_system or ColorSystem.TRUECOLOR
        out: list[str] = []
        pen = BARE
        for y, x, strip in _placed(update):
            pen = self._line(y, x, strip, pen, out)
        if pen != BARE:
            out.append("\x1b[0m")
        return "".join(out)

    def _line(self, y: int, x: int, strip: Strip, pen: Pen, out: list[str]) -> Pen:
        while len(self._lines) <= y:
            self._lines.append([])
            self._made_of.append({})
        made_of, shown = self._made_of[y], self._lines[y]
        if made_of.get(x) == strip:
            return pen
        new = self._cells(strip)
        end = x + len(new)
        for place in [place for place, other in made_of.items() if place < end and place + other.cell_length > x]:
            del made_of[place]
        made_of[x] = strip
        if len(shown) < end:
            shown.extend([UNKNOWN] * (end - len(shown)))
        at = -1  # the cell where the terminal's cursor is on this line; -1: it is elsewhere
        for start, stop in _runs(shown, new, x):
            if at < 0:
                out.append(f"\x1b[{y + 1};{x + start + 1}H")
            elif start > at:
                out.append(f"\x1b[{start - at}C")
            for text, wanted in new[start:stop]:
                if wanted != pen:
                    out.append(_change(pen, wanted))
                    pen = wanted
                out.append(text)
            at = stop
        shown[x:end] = new
        return pen

    def _cells(self, strip: Strip) -> list[Cell]:
        cells: list[Cell] = []
        for text, style, control in strip:
            if not control:
                pen = self._pens.get(style)
                if pen is None:
                    if len(self._pens) > MANY_PENS:
                        self._pens = {None: BARE}
                    pen = self._pens[style] = self._pen(style)
                cells += [(each, pen) for each in (text if text.isascii() else split(text))]
        return cells

    def _pen(self, style: Style | None) -> Pen:
        if style is None or self._system is None:
            return BARE
        whole = Strip.render_ansi(style, self._system).split(";")
        fore = list(style.color.downgrade(self._system).get_ansi_codes()) if style.color else []
        back = list(style.bgcolor.downgrade(self._system).get_ansi_codes(False)) if style.bgcolor else []
        return ";".join(whole[: len(whole) - len(fore) - len(back)]), ";".join(fore), ";".join(back)


class _Difference(CompositorUpdate):
    """An update that is sent as what differs."""

    def __init__(self, wire: Wire, update: LayoutUpdate | ChopsUpdate) -> None:
        self._wire, self._update = wire, update

    def render_segments(self, console: Console) -> str:
        return self._wire.difference(self._update, console)


def _placed(update: LayoutUpdate | ChopsUpdate) -> Iterable[tuple[int, int, Strip]]:
    """The strips of an update with their line and first cell."""
    if isinstance(update, LayoutUpdate):
        for y, line in enumerate(update.strips, update.region.y):
            x = update.region.x
            for strip in line:
                yield y, x, strip
                x += strip.cell_length
        return
    for y in sorted({span[0] for span in update.spans}):
        for x, piece in update.chops[y].items():
            if piece is not None:
                yield y, x, piece


def _runs(shown: list[Cell], new: list[Cell], x: int) -> list[tuple[int, int]]:
    """Stretches of ``new``, half-open, that differ from what is shown from ``x`` on; short gaps are sent along."""
    runs: list[tuple[int, int]] = []
    for n, cell in enumerate(new):
        if cell == shown[x + n]:
            continue
        start = n - 1 if cell[0] == "" and n else n  # the second half of a wide character is drawn by its first
        if runs and (start <= runs[-1][1] or _cheap(new, runs[-1][1], start)):
            runs[-1] = (runs[-1][0], n + 1)
        else:
            runs.append((start, n + 1))
    return [(start, stop + (stop < len(new) and new[stop][0] == "")) for start, stop in runs]


def _cheap(cells: list[Cell], start: int, stop: int) -> bool:
    """Whether sending these unchanged cells again takes no more than moving past them."""
    if stop - start > A_MOVE:
        return False
    pen = cells[start - 1][1]
    return sum(len(text.encode()) + 99 * (other != pen) for text, other in cells[start:stop]) < A_MOVE


def _change(pen: Pen, wanted: Pen) -> str:
    """The shortest sequence from one pen to another."""
    if pen[0] != wanted[0] or any(had and not wants for had, wants in zip(pen, wanted, strict=True)):
        return f"\x1b[{';'.join(part for part in ('0' if pen != BARE else '', *wanted) if part)}m"
    return f"\x1b[{';'.join(wants for had, wants in zip(pen, wanted, strict=True) if had != wants)}m"


@lru_cache(4096)
def split(text: str) -> tuple[str, ...]:
    """The text as one entry a cell: what combines goes with the character before, a wide one is followed by ``""``."""
    cells: list[str] = []
    for character in text:
        size = cell_len(character)
        if size == 0 and cells:
            place = len(cells) - 1
            while place and cells[place] == "":
                place -= 1
            cells[place] += character
        elif size:
            cells += [character] + [""] * (size - 1)
    return tuple(cells)


class QuietApp(App[None]):
    """An app that sends only what differs; ``ctrl+l`` sends everything again."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+l", "redraw", show=False)]

    def __init__(self, *, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self.wire = Wire()

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        super()._display(screen, self.wire.quiet(renderable))

    def on_resize(self) -> None:
        self.wire.forget()

    def action_redraw(self) -> None:
        """Something else wrote on this terminal."""
        self.wire.forget()
        self.screen.refresh(layout=True)
