"""What a pass allocated and freed, in order, and to which phase each event belongs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mark:
    """Everything from event ``index`` on belongs to this phase and part, up to the next mark."""

    index: int
    phase: str
    part: str | None


@dataclass
class Trace:
    """``events``: (block id, +bytes) for an allocation, (block id, -bytes) for a free; bytes are not rounded."""

    events: list[tuple[int, int]] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
