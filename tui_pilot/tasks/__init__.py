from tui_pilot.tasks.base import IGNORE, Task

__all__ = ["IGNORE", "Task"]
