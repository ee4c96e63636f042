"""What the Memory room shows, as one value, and the questions that its panes ask of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tui_pilot.events.schema import PHASES_OF
from tui_pilot.sheet import measured
from tui_pilot.store.memory import binding_phase
from tui_pilot.store.state import Row, RunState
from tui_pilot.text import size
from tui_pilot.ui.parts import units
from tui_pilot.ui.rooms._memory_history import History
from tui_pilot.ui.snapshot import Snapshot

NAMES = {
    "allocated_peak": "allocated",
    "reserved_peak": "reserved",
    "device_used_peak": "used",
    "outside_torch": "outside torch",
    "host_peak": "host",
}
PANES = ("phases", "over the run", "at the peak", "readings")
EMPTY = "Nothing measured yet: memory is read at the edges of each phase."
LEAST_HEIGHT = 27


@dataclass(frozen=True)
class Page:
    """What is drawn: the counter that the table shows, the selected phase and rank, the pane that the keys go to.

    ``alone``: that pane has the whole screen, as it always has on a small one. ``predicted`` is by phase, as
    ``predict --json`` has it; empty where nothing was predicted of this run.
    """

    width: int
    height: int
    snapshot: Snapshot
    counter: str
    selected: int
    rank: int
    pane: str = PANES[0]
    alone: bool = False
    predicted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    history: History = field(default_factory=History)

    @property
    def state(self) -> RunState:
        return self.snapshot.state

    @property
    def row(self) -> Row:
        return self.state.rows[self.selected]

    @property
    def compact(self) -> bool:
        """One pane at a time: the terminal is below 100 columns or 30 rows."""
        return self.width < 100 or self.height < LEAST_HEIGHT

    @property
    def wide(self) -> bool:
        return self.width >= 160 and self.height >= 40

    @property
    def tiny(self) -> bool:
        return self.height < 12 or self.width < 60

    @property
    def one_pane(self) -> bool:
        return self.alone or self.compact


def counters(state: RunState) -> list[str]:
    """The counters that anything is known of, in nesting order."""
    live = {"allocated_peak"} if state.live else set()
    if any(each.reserved is not None for each in state.live.values()):
        live.add("reserved_peak")
    found = [name for name in NAMES if name in live or any(units.peak(row, name) is not None for row in state.rows)]
    return found or ["allocated_peak"]


def ranks(state: RunState) -> int:
    """How many ranks the widest phase had."""
    return max((*(len(row.memory) for row in state.rows), *(rank + 1 for rank in state.live)), default=0)


def shown_rows(page: Page) -> list[int]:
    """Numbers of the phases in the table: those that look at data hold no model, so only their host memory is shown.

    While one of them runs it stands there, and so does one that was chosen in another room.
    """
    of_data = PHASES_OF["data"]
    return [
        n
        for n, row in enumerate(page.state.rows)
        if row.phase not in of_data or page.counter == "host_peak" or row.running or n == page.selected
    ]


def entries(state: RunState) -> list[dict[str, Any]]:
    """One entry a phase and rank, with its phase beside."""
    return [{**each, "phase": row.phase} for row in state.rows for each in row.memory]


def rank_of(page: Page, row: Row) -> Mapping[str, Any]:
    """The selected rank's memory in a phase; of a phase that ran on fewer ranks its last; empty where none measured."""
    return row.memory[min(page.rank, len(row.memory) - 1)] if row.memory else {}


def device_word(state: RunState) -> str:
    """``gpu`` or ``rank``: what the columns are numbers of."""
    return "gpu" if units.on_gpu(state.rows) else "rank"


def need_text(state: RunState) -> str:
    """``needs 34.8 of 79.1 GiB, 56% free, set by resume``; on a CPU what was allocated at most."""
    binding = binding_phase(state.rows)
    if binding is None:
        return "nothing measured yet"
    need = measured.need(entries(state))
    if need is not None and need["usable_bytes"]:
        unit = units.unit_for([need["usable_bytes"]])
        free = f"{max(0.0, need['margin']):.0%} free"
        of = f"{unit.show(need['bytes'])} of {unit.show(need['usable_bytes'])} {unit.name}"
        return f"needs {of}, {free}, set by {need['phase']}"
    if need is not None:
        return f"needs {size(need['bytes'])}, usable memory unknown, set by {need['phase']}"
    most = max((units.peak(row, "allocated_peak") or 0 for row in state.rows), default=0)
    return f"{size(most)} allocated at most, set by {binding}"


def value_of(page: Page, row: Row, counter: str, rank: int | None = None) -> int | None:
    """A counter's peak over all ranks or of one; while the phase runs the highest so far."""
    if row.running and page.snapshot.live:
        if rank is None:
            return units.so_far(page.snapshot, row, counter)
        live = page.state.live.get(rank)
        found = getattr(live, f"{counter.removesuffix('_peak')}_highest", None)
    elif rank is None:
        return units.peak(row, counter)
    else:
        found = row.memory[rank].get(counter) if rank < len(row.memory) else None
    return found if isinstance(found, int) else None


def binding(page: Page) -> str | None:
    """The phase that sets the need: of a GPU its used memory, on a CPU what was allocated."""
    need = measured.need(entries(page.state))
    return str(need["phase"]) if need is not None else binding_phase(page.state.rows)
