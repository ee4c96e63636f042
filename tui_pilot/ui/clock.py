"""The time the screen shows. One place, so that a recorded run can be shown as it was at its own moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """``wall`` gives Unix seconds, ``mono`` seconds of the clock that the events of this boot carry."""

    wall: Callable[[], float] = time.time
    mono: Callable[[], float] = time.monotonic

    @classmethod
    def stopped(cls, wall: float, mono: float) -> Clock:
        """A clock that stands: what a screenshot is taken with."""
        return cls(lambda: wall, lambda: mono)
