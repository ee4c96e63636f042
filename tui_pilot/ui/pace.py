"""Keys that come faster than anybody types are a paste into a terminal that does not mark pastes.

Such keys move and open, as they may; what has consequences (a run, a stop, leaving) waits for a person.
"""

from __future__ import annotations

from collections import deque

MANY = 12
WITHIN_S = 0.05
ANSWER_AFTER_S = 0.15
"""So long a question stands before ``y`` answers it: nobody reads one faster, a pasted "sy" does."""


class Pace:
    """When the last keys came, in seconds of one clock."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MANY)

    def key(self, at: float) -> None:
        """A key came."""
        self._times.append(at)

    @property
    def pasted(self) -> bool:
        """Whether the newest key ended a burst that nobody types."""
        return len(self._times) == MANY and self._times[-1] - self._times[0] < WITHIN_S
