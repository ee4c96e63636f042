"""The data stage: stack, examples, splits. It never touches a GPU; the kernel probe is a process of its own."""

from __future__ import annotations

from tui_pilot.gates.codes import reason
from tui_pilot.pilot import audit, split_check, stack_check
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.phase import PhaseBroken, phase, skip


def run(context: Context) -> None:
    """All three phases run, also after a fail; only what lacks its input is not run."""
    broken = False
    for name, body in (("stack", stack_check.look), ("examples", audit.look), ("splits", split_check.look)):
        if name in context.skipped:
            skip(context, name)
            continue
        if name == "splits" and (broken or context.cache.get("broken_rows")):
            skip(context, name, "not_run", reason("data_wrong", "The rows could not be read.", severity="unchecked"))
            continue
        try:
            with phase(context, name) as current, current.measure():
                body(current)
        except PhaseBroken:
            # Without a task or its rows nothing further can be looked at.
            broken = name != "stack" or "task" not in context.cache
