"""Asks the training interpreter for a prediction, in a process of its own, from a copy of the pilot side."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui_pilot.devices.pythons import Choice, choose
from tui_pilot.errors import EXIT_UNCHECKED, PilotError
from tui_pilot.launch import not_yet
from tui_pilot.launch.asking import Died, ask
from tui_pilot.launch.code import copy_pilot_side
from tui_pilot.plan.model import as_json

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan

DEFAULT_CAPABILITY = (8, 0)
"""Where no GPU is named and none is here."""
TIMEOUT_S = 1800.0


def predict(
    loaded: LoadedPlan, capability: tuple[int, int] | None = None, *, cpu: bool = False, both: bool = False
) -> dict[str, Any]:
    """The prediction of a plan as ``predict --json`` has it, without ``gpus``.

    ``capability`` None: that of the GPU here, else DEFAULT_CAPABILITY. ``cpu``: for this CPU itself. ``both``: also
    with activation checkpointing turned the other way. Raises PilotError where nothing could be asked.
    """
    plan = loaded.plan
    not_yet.refuse(plan, str(loaded.file) if loaded.file else None, run=False)
    # Fake tensors need no GPU: any Python whose torch imports will do, the plan's first.
    choice = choose("cpu" if cpu else plan.device, plan.launch.python)
    python = choice.python
    if python is None:
        raise PilotError(
            f"{choice.problem or 'no Python here has a torch'}.",
            choice.advice or "",
            code="no_torch",
            title="Nothing can be predicted",
        )
    wanted = None if cpu else capability or _here(choice) or DEFAULT_CAPABILITY
    with tempfile.TemporaryDirectory(prefix="pilot-tui-predict-") as place:
        code = Path(place) / "code"
        copy_pilot_side(code)
        request = {"plan": as_json(plan), "folder": str(loaded.folder), "capability": wanted, "both": both}
        try:
            return ask(python, code, "predict_stage.py", request, loaded.folder, TIMEOUT_S)
        except Died as died:
            raise PilotError(
                f"The prediction ended with exit {died.exit_code} and no answer.{died.words}",
                "A task that puts tensors on a device by itself cannot be predicted; the loop moves model and batch.",
                code="not_predicted",
                title="Nothing was predicted",
                exit_code=EXIT_UNCHECKED,
            ) from died


def _here(choice: Choice) -> tuple[int, int] | None:
    devices = choice.probe.devices if choice.probe is not None else ()
    return devices[0].capability if devices else None
