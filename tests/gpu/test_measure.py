"""``measure.py`` on its CPU path, and, where there is a GPU, the whole of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import measure
import pytest

from tui_pilot.events.schema import PHASES_OF

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")
SCRIPT = Path(measure.__file__)
MODELLED = {"load", "forward", "backward", "first_step", "steady_step", "evaluate"}


def run(out: Path, *arguments: str) -> dict[str, Any]:
    argv = [sys.executable, str(SCRIPT), str(out), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(out.read_text())
    return document


def test_the_cpu_path_measures_predicts_and_says_what_needs_a_gpu(tmp_path: Path) -> None:
    found = run(tmp_path / "measured.json", "--device", "cpu", "--small")
    (pilot,) = found["pilots"]
    assert pilot["state"] == "finished" and not pilot["fails"] and not pilot["error"], pilot["error"]
    assert set(pilot["memory"]) >= set(PHASES_OF["peak"]) and found["left_out"] == []
    whole = {row["phase"]: row for row in pilot["compared"] if row["part"] is None}
    assert set(whole) == MODELLED
    # What a pilot on a CPU counts is polled: a floor, so a short peak may lie below the prediction, never above it.
    assert all(-0.2 < row["error"] < 0.001 for row in pilot["compared"]), pilot["compared"]
    assert found["worst"]["allocated_peak"]["median"] < 0.001
    for name in ("context", "workspaces", "attention", "simulator", "refusal", "pinned"):
        assert found["probes"][name] == {"left_out": "needs a CUDA GPU"} or torch.cuda.is_available(), name
    assert found["probes"]["overhead"]["median_ratio"] > 0 and found["torch"]["torch"] == torch.__version__


def test_what_does_not_fit_into_the_time_is_named() -> None:
    found = measure.measure("cpu", small=True, seconds=1.0)
    assert found["pilots"] == [] and found["left_out"] == ["small-fp32"] and found["worst"] == {}


def test_figures_are_compared_where_both_have_them() -> None:
    memory = [{"allocated_peak": 90, "reserved_peak": 200}, {"allocated_peak": 110, "reserved_peak": None}]
    parts = {"step": {"allocated_peak": 50, "reserved_peak": None}, "odd": None}
    measured = {"phases": [{"phase": "first_step", "memory": memory, "parts": parts}, {"phase": "batch", "memory": []}]}
    predicted = {"phases": [{"phase": "first_step", "allocated_peak": 100, "reserved_peak": 0, "parts": {"step": {
        "allocated_peak": 50}}}]}  # fmt: skip
    rows = measure.compared(measured, predicted)
    assert [(row["part"], row["measured"], row["error"]) for row in rows] == [(None, 110, 0.1), ("step", 50, 0.0)]
    assert measure.worst(rows)["allocated_peak"] == {
        "median": 0.05,
        "largest": 0.1,
        "at": ["first_step", None],
        "of": 2,
    }
    assert measure.compared({"error": {"text": "no"}}, predicted) == []


@pytest.mark.gpu
@pytest.mark.timeout(420)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU that this torch can use")
def test_the_whole_of_it_on_a_gpu(tmp_path: Path) -> None:
    found = run(tmp_path / "measured.json", "--device", "cuda")
    assert len(found["pilots"]) >= 4, found["left_out"]
    for pilot in found["pilots"]:
        assert not pilot["fails"], pilot["fails"]
        for rows in pilot["memory"].values():
            assert rows[0]["known"]["allocated_peak"]["kind"] == "exact"
    assert found["worst"]["allocated_peak"]["median"] < 0.05 and found["worst"]["reserved_peak"]["median"] < 0.15
    assert found["probes"]["simulator"]["steps"] == 2_000
    assert found["probes"]["refusal"].get("told") == found["probes"]["refusal"].get("asked")
