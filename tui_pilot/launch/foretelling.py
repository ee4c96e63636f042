"""A run's own prediction, made beside its first stages, and what its ways out of an out-of-memory would need.

Each is a process of its own from the run's copy of the pilot side, on idle cores and without a GPU: a pilot measures
as if nobody foretold it. What a prediction cannot say is left out; it never holds a run up and never fails one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui_pilot.devices.readings import Gpu as SeenGpu
from tui_pilot.launch.stage_process import environment
from tui_pilot.plan.model import as_json, from_json
from tui_pilot.plan.variants import with_set
from tui_pilot.run_folder import RunFolder, write_json
from tui_pilot.store.earlier import PREDICTION_FILE, documents
from tui_pilot.store.state import RunState

if TYPE_CHECKING:
    from tui_pilot.predict.residuals import Residuals

SWITCH = "PILOT_TUI_PREDICT"
"""``0`` in the environment: no run predicts itself."""
STAGE = Path("tui_pilot") / "pilot" / "predict_stage.py"
SHOWN = ("allocated_peak", "reserved_peak")
WAYS_SECONDS = 120.0
"""How long the end of a run waits at most for what its ways out would need."""


class Foretelling:
    """At most one prediction of a run at a time. ``gpus``: those it may use; none: it runs on the CPU."""

    def __init__(self, folder: RunFolder, run: Mapping[str, Any], plan: Mapping[str, Any], gpus: Sequence[SeenGpu]):
        self.folder = folder
        self.python = run.get("python")
        self.cwd = str(plan["folder"])
        self.plan: dict[str, Any] = plan["plan"]
        on_gpu = (run.get("python_choice") or {}).get("device") == "cuda"
        measured = [gpu for gpu in gpus if gpu.usable] if on_gpu else []
        self.gpu = min(measured, key=lambda gpu: gpu.usable or 0, default=None)
        self.wanted = run.get("kind") in ("pilot", "variant") and os.environ.get(SWITCH) != "0"
        self.wanted = self.wanted and (folder.code / STAGE).is_file() and (self.gpu is not None or not on_gpu)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def busy(self) -> bool:
        """Whether a prediction is being made."""
        return self._process is not None

    def begin(self, ways: Sequence[Mapping[str, Any]] = ()) -> None:
        """Start predicting the run's own plan or, where ``ways`` are given, the plan with each of their changes."""
        if not self.wanted or self.python is None or self.busy:
            return
        capability = self.gpu.capability if self.gpu is not None else None
        if self.gpu is not None and capability is None:
            return
        request = {
            "plan": self.plan,
            "folder": self.cwd,
            "capability": capability,
            "both": False,
            "instead": [as_json(with_set(from_json(self.plan), way["set"])) for way in ways],
        }
        try:
            write_json(self._request, request)
            with (self.folder.logs / "predict.log").open("ab") as log:
                self._process = subprocess.Popen(
                    [str(self.python), str(self.folder.code / STAGE), str(self._request), str(self._result)],
                    cwd=self.cwd,
                    env={**environment("data"), "OMP_NUM_THREADS": "1"},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError:
            return
        with contextlib.suppress(OSError, AttributeError):
            # Only what no stage wants: threads of a stage that wait for one another wait for the slowest.
            os.sched_setscheduler(self._process.pid, os.SCHED_IDLE, os.sched_param(0))

    def taken(self) -> dict[str, Any] | None:
        """The result, once, when it is there."""
        if self._process is None or self._process.poll() is None:
            return None
        self._process = None
        found = None
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._result.read_text("utf-8"))
        self._forget()
        return found if isinstance(found, dict) and "error" not in found else None

    def keep(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Put the run's own prediction into its folder; what a row is held against, by phase."""
        with contextlib.suppress(OSError):
            write_json(self.folder.path / PREDICTION_FILE, found)
        return {row["phase"]: {key: row[key] for key in SHOWN} for row in found["phases"]}

    def weighed(self, ways: Sequence[Mapping[str, Any]], found: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Each way out with ``need_bytes``, the ``phase`` that sets it, and whether it ``fits`` (null: on a CPU)."""
        made = found.get("instead") or [{}] * len(ways)
        known = self._known()
        return [{**way, "predicted": self._need(each, known)} for way, each in zip(ways, made, strict=False)]

    def _known(self) -> Residuals | None:
        """What earlier runs taught of the GPU; None on a CPU."""
        if self.gpu is None:
            return None
        from tui_pilot.predict import catalogue, residuals

        name = catalogue.class_of(self.gpu.name) or "this GPU"
        return residuals.learn(documents(self.folder.path.parent), name, catalogue.class_of)

    def _need(self, found: Mapping[str, Any], known: Residuals | None) -> dict[str, Any] | None:
        rows = found.get("phases") or []
        if not rows or any(row["phase"] in ("forward", "backward", "first_step") for row in found["not_predicted"]):
            return None
        if self.gpu is None or known is None:
            most = max(rows, key=lambda row: int(row["allocated_peak"]))
            return {"need_bytes": most["allocated_peak"], "phase": most["phase"], "fits": None}
        from tui_pilot.predict import catalogue

        seen = catalogue.given(self.gpu.usable or 0, known.gpu)
        (fit,) = catalogue.fits(rows, [seen], {known.gpu: known}) or (None,)
        if fit is None:
            return None
        return {"need_bytes": fit.need_bytes, "phase": fit.binding_phase, "fits": fit.fits}

    def end(self) -> None:
        """Nothing is predicted any more."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            self._forget()

    @property
    def _request(self) -> Path:
        return self.folder.path / "predict-request.json"

    @property
    def _result(self) -> Path:
        return self.folder.path / "predict-result.json"

    def _forget(self) -> None:
        for path in (self._request, self._result):
            with contextlib.suppress(OSError):
                path.unlink()


def out_of_memory(state: RunState) -> dict[str, list[dict[str, Any]]]:
    """The ways out that rows without enough memory name, by phase."""
    found = {}
    for row in state.rows:
        for reason in row.reasons:
            ways = (reason.get("where") or {}).get("variants") if reason.get("code") == "oom" else None
            if ways:
                found[row.phase] = [dict(way) for way in ways]
    return found
