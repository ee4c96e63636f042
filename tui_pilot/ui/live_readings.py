"""What the ranks of a live run hold inside the phase that runs: the highest since the last paint, from their events.

An instant once a second is chance, so between two paints the highest of all lines counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tui_pilot.events import schema
from tui_pilot.store.memory import bare
from tui_pilot.store.state import RunState
from tui_pilot.ui.snapshot import GpuView, RankView

COUNTERS = ("allocated", "reserved")


class LivePeaks:
    """Takes the ranks' live lines between two paints; the state has the newest and the highest of the phase."""

    def __init__(self) -> None:
        self._phase: Any = None
        self._since: dict[int, dict[str, int]] = {}

    def take(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Note the highest of each rank; lines of another phase than before begin anew."""
        for event in events:
            if event.get("kind") != schema.LIVE:
                continue
            phase = (event.get("phase"), event.get("attempt"))
            if phase != self._phase:
                self._phase, self._since = phase, {}
            held = self._since.setdefault(int(event.get("rank") or 0), {})
            for name in COUNTERS:
                value = event.get(name)
                if isinstance(value, int):
                    held[name] = max(held.get(name, 0), value)

    def views_and_reset(self, state: RunState) -> tuple[RankView, ...]:
        """The ranks that said something of the running phase; the next peak starts at what they hold now."""
        views = []
        for rank, live in sorted(state.live.items()):
            facts = state.ranks.get(rank, {})
            since = self._since.get(rank, {})
            views.append(
                RankView(
                    rank,
                    str(facts.get("device") or ""),
                    facts.get("uuid"),
                    since.get("allocated", live.allocated),
                    since.get("reserved", live.reserved),
                    live.allocated_highest,
                    live.reserved_highest,
                )
            )
        self._since = {
            rank: {name: value for name in COUNTERS if isinstance(value := getattr(live, name), int)}
            for rank, live in state.live.items()
        }
        return tuple(views)


def with_ranks(views: Iterable[GpuView], ranks: Iterable[RankView]) -> tuple[GpuView, ...]:
    """The GPUs with what torch holds on them now, found by UUID; several ranks on one GPU are added."""
    held: dict[str, list[RankView]] = {}
    for rank in ranks:
        key = bare(rank.uuid)
        if key is not None:
            held.setdefault(key, []).append(rank)
    return tuple(_with(view, held.get(bare(view.key) or "", [])) for view in views)


def _with(view: GpuView, ranks: list[RankView]) -> GpuView:
    allocated = [rank.allocated for rank in ranks if rank.allocated is not None]
    reserved = [rank.reserved for rank in ranks if rank.reserved is not None]
    if not allocated:
        return view
    return replace(view, allocated=sum(allocated), reserved=sum(reserved) if reserved else None)


def gpus_of(state: RunState) -> tuple[GpuView, ...]:
    """The GPUs as the ranks themselves named them: where NVML says nothing, as on AMD, torch's numbers are all."""
    usable: dict[Any, int] = {}
    for row in state.rows:
        for item in row.memory:
            if isinstance(value := item.get("device_usable"), int):
                usable[item.get("device")] = value
    views: dict[str, GpuView] = {}
    for rank, facts in sorted(state.ranks.items()):
        device = str(facts.get("device") or "")
        if device.startswith("cuda"):
            index = device.rpartition(":")[2]
            view = GpuView(
                str(facts.get("uuid") or device),
                int(index) if index.isdigit() else rank,
                name=facts.get("device_name"),
                usable=usable.get(device),
            )
            views.setdefault(view.key, view)
    return tuple(sorted(views.values(), key=lambda view: view.index))


def is_amd(state: RunState) -> bool:
    """Whether a rank of this run trains on an AMD GPU."""
    return any(facts.get("amd") for facts in state.ranks.values())
