"""Predicts one plan in the training interpreter: ``predict_stage.py REQUEST RESULT``, both JSON files.

The request holds ``plan``, ``folder``, ``capability`` (two numbers; null: this CPU) and ``both``; the result is a
prediction, or ``error``. ``instead``, where it is not empty, are plans to predict in place of ``plan``: the result is
then ``{"instead": [...]}``, with ``{}`` where nothing is predicted. Run from a copy of the pilot side, like a stage.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

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
    capability = asked["capability"]
    target = Target(None if capability is None else (int(capability[0]), int(capability[1])))

    def make(changed: object) -> Task:
        return build_task(changed, folder)  # type: ignore[arg-type]

    def one(document: dict[str, Any]) -> dict[str, Any]:
        plan = absolute_paths(from_json(document), folder)
        return predict_run(make, plan, folder, target, bool(asked.get("both", True))).as_json()

    if asked.get("instead"):
        found: dict[str, Any] = {"instead": []}
        for each in asked["instead"]:
            try:
                found["instead"].append(one(each))
            except Exception:
                traceback.print_exc()  # the log says why; the others are still worth knowing
                found["instead"].append({})
    else:
        try:
            found = one(asked["plan"])
            found["assumptions"]["host_peak"] = _resident_peak()
        except PilotError as error:
            found = {"error": error.as_json()}
    written = result.with_name(f"{result.name}.part")
    written.write_text(json.dumps(found), "utf-8")
    written.replace(result)
    return 0


def _resident_peak() -> int | None:
    """The most that this process held, in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.path[0] = str(HERE.parents[2])
    if "PILOT_TUI_SUPERVISOR" in os.environ:
        from tui_pilot.pilot.run_stage import die_with_parent

        die_with_parent()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
