"""The package of tasks; ``from tui_pilot.tasks import Task`` is what a person's own task file says."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tui_pilot.tasks.base import IGNORE, Task

__all__ = ["IGNORE", "Task"]


def __getattr__(name: str) -> Any:
    """Looked up on first use: the data formats below this package are read where there is no torch."""
    if name in __all__:
        return getattr(importlib.import_module("tui_pilot.tasks.base"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
