"""The Memory room: phases against GPUs or ranks, one counter at a time, and what is known of the selected cell."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui_pilot.events.schema import PHASES
from tui_pilot.store.memory import binding_phase
from tui_pilot.store.state import Row
from tui_pilot.text import size
from tui_pilot.ui import paint
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import detail, units
from tui_pilot.ui.room import Hint, Room
from tui_pilot.ui.snapshot import Snapshot

NAMES = {
    "allocated_peak": "allocated peak",
    "reserved_peak": "reserved peak",
    "device_used_peak": "used by the whole device, peak",
    "outside_torch": "outside torch",
    "host_peak": "host memory, peak",
}
EMPTY = "Nothing measured yet: memory is read at the edges of each phase."


class MemoryRoom(Room):
    room: ClassVar[str] = "memory"
    title: ClassVar[str] = "Memory"
    help_text: ClassVar[str] = (
        "One counter for every phase and rank; c changes the counter.\n"
        "allocated: tensors, exact. reserved: what torch took from the driver. used: the whole device, sampled.\n"
        "They are nested, never summed. – does not apply, NA could not be read (the reason is in the detail), never 0."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "counter", "counter", show=False)]

    def __init__(self) -> None:
        super().__init__()
        self.selected = 0
        self.counter = "allocated_peak"
        self.rank = 0
        self._moved = False

    def compose(self) -> ComposeResult:
        yield Lines(id="memory-page")

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.folder != self.snapshot.folder or not self._moved:
            binding = binding_phase(snapshot.state.rows)
            self.selected = PHASES.index(binding) if binding in PHASES else self.selected
        super().show(snapshot)
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def hints(self) -> list[Hint]:
        return [("c", "counter"), ("←→", "rank")]

    def selected_phase(self) -> str | None:
        return PHASES[self.selected]

    def headline(self, snapshot: Snapshot) -> Line | None:
        return None

    def copied(self) -> str:
        return "\n".join(paint.plain(each).rstrip() for each in self._table(self.size.width))

    def action_move(self, across: int, down: int) -> None:
        self._moved = True
        self.selected = max(0, min(len(PHASES) - 1, self.selected + down))
        self.rank = max(0, min(max(0, self._ranks() - 1), self.rank + across))
        self._draw()

    def action_jump(self, end: int) -> None:
        self._moved = True
        self.selected = 0 if end < 0 else len(PHASES) - 1
        self._draw()

    def action_page(self, down: int) -> None:
        self.action_move(0, 5 * down)

    def action_counter(self) -> None:
        known = self._counters()
        place = known.index(self.counter) if self.counter in known else -1
        self.counter = known[(place + 1) % len(known)]
        self._draw()

    def _counters(self) -> list[str]:
        rows = self.snapshot.state.rows
        return [name for name in NAMES if any(units.peak(row, name) is not None for row in rows)] or ["allocated_peak"]

    def _ranks(self) -> int:
        return max((len(row.memory) for row in self.snapshot.state.rows), default=0)

    def _draw(self) -> None:
        width, height = self.size.width, self.size.height
        if not self.is_mounted or width < 1:
            return
        page = self.query_one("#memory-page", Lines)
        rows = self.snapshot.state.rows
        if not any(row.memory for row in rows):
            page.write([paint.rule("memory", "", width), ((EMPTY, "text"),)])
            return
        if self.counter not in self._counters():
            self.counter = self._counters()[0]
        lines = self._table(width)
        below = self._detail(rows[self.selected], width)
        page.write((lines + below)[: max(1, height)], 0)

    def _table(self, width: int) -> list[Line]:
        rows = self.snapshot.state.rows
        ranks = self._ranks()
        unit = units.unit_for(units.peak(row, self.counter) for row in rows)
        fits = max(1, min(ranks, (width - 46) // 8))
        floor = "≥" if units.is_sampled(rows, self.counter) else ""
        legend = f"c: {', '.join(NAMES[name].split(',')[0] for name in self._counters() if name != self.counter)}"
        lines: list[Line] = [paint.rule(f"{NAMES[self.counter]}{floor}, {unit.name}", legend, width)]
        device = "gpu" if units.on_gpu(rows) else "rank"
        heads = "".join(f"{f'{device} {n}' if n == 0 else n:>8}" for n in range(fits))
        hidden = f"  {ranks - fits} more ranks in the detail" if ranks > fits else ""
        lines.append(((f"   phase       {heads}{'highest':>10}  set by{hidden}", "dim"),))
        binding = binding_phase(rows)
        for n, row in enumerate(rows):
            sign, role = paint.glyph(row.verdict)
            cells = ""
            for rank in range(fits):
                value = row.memory[rank].get(self.counter) if rank < len(row.memory) else None
                cells += f"{unit.show(value, self._unknown(row, rank)):>8}"
            highest = units.peak(row, self.counter)
            quiet = not row.memory
            main = "dim" if quiet else "text"
            note = "  sets the run's peak" if row.phase == binding else ""
            spans: Line = (
                (">" if n == self.selected else " ", "head"),
                (sign, role),
                (f" {row.phase:<12}{cells}{unit.show(highest):>10}{note}", main),
            )
            lines.append(paint.chosen(paint.fit(spans, width)) if n == self.selected else spans)
        return lines

    def _unknown(self, row: Row, rank: int) -> str:
        return "NA" if rank < len(row.memory) and self.counter in row.memory[rank] else "–"

    def _detail(self, row: Row, width: int) -> list[Line]:
        lines: list[Line] = [paint.rule(f"{row.phase}, every reading", "", width)]
        if not row.memory:
            return [*lines, ((f"{row.phase} has not been measured", "dim"),)]
        rank = row.memory[min(self.rank, len(row.memory) - 1)]
        where = f"rank {rank.get('rank', 0)} on {rank.get('device', 'unknown device')}"
        said = [f"{NAMES[name].split(',')[0]} {_exact(rank, name)}" for name in NAMES if name in rank]
        lines += [((text, "text"),) for text in paint.wrap(f"{where}: " + "   ".join(said), width)]
        for name, said_name in NAMES.items():
            if rank.get(name) is not None or name in (rank.get("known") or {}):
                lines.append(((f" {said_name:<32}", "dim"), (units.how_known(rank, name), "text")))
        return lines + detail.parts(row, width)


def _exact(rank: Any, counter: str) -> str:
    value = rank.get(counter)
    return f"{size(value)} ({value:,} B)" if isinstance(value, int) else "NA"
