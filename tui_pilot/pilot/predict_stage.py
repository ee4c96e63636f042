"""Predicts one plan in the training interpreter: ``predict_stage.py REQUEST RESULT``, both JSON files.

The request holds ``plan``, ``folder``, ``capability`` (two numbers; null: this CPU) and ``both``; the result is a
prediction, or ``error``. Run from a copy of the pilot side, like a stage.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve()


def main(request: Path, result: Path) -> int:
    """0 when a result was written."""
    from tui_pilot.errors import PilotError
    from tui_pilot.pilot.context import absolute_paths, build_task
    from tui_pilot.plan.model import from_json
    from tui_pilot.predict.passes import Target
    from tui_pilot.predict.prediction import predict_run
    from tui_pilot.tasks.base import Task

    asked = json.loads(request.read_text("utf-8"))
    folder = Path(asked["folder"])
    plan = absolute_paths(from_json(asked["plan"]), folder)
    capability = asked["capability"]
    target = Target(None if capability is None else (int(capability[0]), int(capability[1])))

    def make(changed: object) -> Task:
        return build_task(changed, folder)  # type: ignore[arg-type]

    try:
        found = predict_run(make, plan, folder, target, bool(asked.get("both", True))).as_json()
        found["assumptions"]["host_peak"] = _resident_peak()
    except PilotError as error:
        found = {"error": error.as_json()}
    result.write_text(json.dumps(found), "utf-8")
    return 0


def _resident_peak() -> int | None:
    """The most that this process held, in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.path[0] = str(HERE.parents[2])
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
