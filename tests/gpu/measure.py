"""Counters, predictions and the allocator simulator against a real GPU: ``python tests/gpu/measure.py OUT.json``.

    [--device auto|cpu|cuda] [--small] [--seconds 330]

Runs pilots of several plans as ``pilot-tui run`` does, asks ``pilot-tui predict`` about the same plans, and probes
what lies outside predictions (context, workspaces, attention kernels, the allocator step by step, a refused
allocation). Writes one JSON document. What does not fit into ``--seconds`` is left out and named. On a CPU the same
way is gone: pilots and predictions of this CPU; probes of a GPU say that they need one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tui_pilot.devices.nvml import Nvml  # noqa: E402
from tui_pilot.events.schema import PHASES, PHASES_OF  # noqa: E402
from tui_pilot.version import VERSION  # noqa: E402

COUNTERS = ("allocated_peak", "reserved_peak")
LEAST_S = 20.0  # a plan is not begun with less time than this
PEAK_ONLY = [phase for phase in PHASES if phase not in PHASES_OF["peak"]]


@dataclass(frozen=True)
class Case:
    """One plan: the sized decoder, what of the plan it sets, and what it needs to be worth running."""

    name: str
    options: Mapping[str, int]
    sets: Mapping[str, Any] = field(default_factory=dict)
    gpu_only: bool = True
    env: Mapping[str, str] = field(default_factory=dict)


SMALL = {"width": 32, "layers": 2, "heads": 2, "rows": 24}
THIRTY = {"width": 512, "layers": 9, "heads": 8}
LARGE = {"width": 2048, "layers": 24, "heads": 16}
CASES = (
    Case("small-fp32", SMALL, gpu_only=False),
    Case("30m-fp32", THIRTY),
    Case("30m-bf16-amp", THIRTY, {"precision": "bf16-amp"}),
    Case("30m-bf16-checkpointing", THIRTY, {"precision": "bf16", "memory.activation_checkpointing": True}),
    Case("30m-fp32-fused", THIRTY, {"optimizer.implementation": "fused"}),
    Case("30m-fp32-loop", THIRTY, {"optimizer.implementation": "loop"}),
    Case("30m-fp32-expandable", THIRTY, env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    Case("1200m-bf16", LARGE, {"precision": "bf16"}),
)
PLAN = """\
name: {name}
task: gpu_task.py:Sized
data: {{unit: conversation_id, max_length: 512}}
batch: {{micro: 4, accumulation: 2}}
budget: {{updates: 20}}
optimizer: {{lr: 1.0e-4, warmup: 0}}
evaluate: {{rows: 8}}
pilot: {{steady: 2, timed: 2, reference: 2}}
device: {device}
gates: {{stop_on_fail: false, skip: {skip}}}
options: {options}
"""


def tui(arguments: list[str], folder: Path, left: float, env: Mapping[str, str]) -> Any:
    """One command in a process of its own; its JSON, or the words it ended with."""
    argv = [sys.executable, "-m", "tui_pilot.cli", *arguments]
    around = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), **env}
    try:
        done = subprocess.run(argv, cwd=folder, env=around, capture_output=True, text=True, timeout=left, check=False)
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"error": {"text": f"took longer than the {left:.0f} s that were left"}}
    except ValueError:
        return {"error": {"text": done.stderr[-400:]}}


def figures(phase: Mapping[str, Any]) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
    """A phase's own figures and those of its parts; of a measured phase the highest rank."""
    whole = dict(phase)
    for counter in COUNTERS:
        ranks = [each[counter] for each in phase.get("memory") or () if each.get(counter) is not None]
        whole[counter] = max(ranks, default=phase.get(counter))
    yield None, whole
    for name, part in (phase.get("parts") or {}).items():
        if isinstance(part, Mapping):
            yield name, part


def compared(measured: Mapping[str, Any], predicted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Measured beside predicted for each phase, part and counter that both have; ``error`` is above the prediction."""
    foretold = {
        (phase["phase"], part): values for phase in predicted.get("phases") or () for part, values in figures(phase)
    }
    rows = []
    for phase in measured.get("phases") or ():
        for part, values in figures(phase):
            other = foretold.get((phase["phase"], part), {})
            for counter in COUNTERS:
                real, said = values.get(counter), other.get(counter)
                if isinstance(real, int) and isinstance(said, int) and said > 0:
                    rows.append({"phase": phase["phase"], "part": part, "counter": counter, "measured": real,
                                 "predicted": said, "error": (real - said) / said})  # fmt: skip
    return rows


def run_case(case: Case, device: str, folder: Path, left: float) -> dict[str, Any]:
    """One plan measured and predicted."""
    started = time.monotonic()
    folder.mkdir()
    (folder / "gpu_task.py").write_text((HERE / "gpu_task.py").read_text("utf-8"), "utf-8")
    text = PLAN.format(name=case.name, device=device, skip=json.dumps(PEAK_ONLY), options=json.dumps(case.options))
    (folder / "pilot.yaml").write_text(text, "utf-8")
    sets = [word for key, value in case.sets.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    document = tui(["run", "pilot.yaml", *sets, "--headless", "--json"], folder, left, case.env)
    left -= time.monotonic() - started
    target = ["--cpu"] if device == "cpu" else []
    predicted = tui(["predict", "pilot.yaml", *sets, *target, "--json"], folder, max(5.0, left), {})
    rows = compared(document, predicted)
    phases = [row for row in document.get("phases") or () if row.get("memory")]
    return {
        "name": case.name,
        "options": case.options,
        "sets": case.sets,
        "env": case.env,
        "seconds": round(time.monotonic() - started, 1),
        "state": document.get("state"),
        "error": document.get("error") or predicted.get("error"),
        "fails": {row["phase"]: row["reasons"] for row in phases if row["verdict"] == "fail"},
        "memory": {row["phase"]: row["memory"] for row in phases},
        "parts": {row["phase"]: row["parts"] for row in phases},
        "assumptions": predicted.get("assumptions"),
        "not_predicted": predicted.get("not_predicted"),
        "compared": rows,
        "worst": worst(rows),
    }


def worst(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By counter: the median and the largest error, without its sign, and where that one is."""
    found = {}
    for counter in COUNTERS:
        own = [row for row in rows if row["counter"] == counter]
        if own:
            largest = max(own, key=lambda row: abs(row["error"]))
            found[counter] = {
                "median": statistics.median(abs(row["error"]) for row in own),
                "largest": abs(largest["error"]),
                "at": [largest["phase"], largest["part"]],
                "of": len(own),
            }
    return found


def probes(folder: Path, left: float) -> dict[str, Any]:
    """What ``gpu_probes.py`` found, in a process of its own: a context here would stand in the pilots' figures."""
    out = folder / "probes.json"
    argv = [sys.executable, str(HERE / "gpu_probes.py"), str(out)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=left, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"took longer than the {left:.0f} s that were left"}
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"failed": done.stderr[-400:]}
    return found


def seen_by_nvml() -> dict[str, Any]:
    """The GPUs as NVML has them: total, the driver's reserve, usable."""
    nvml = Nvml()
    inventory = nvml.open()
    nvml.close()
    keys = ("name", "total", "reserved_by_driver", "usable", "capability", "basis", "error")
    gpus = [{key: getattr(gpu, key) for key in keys} for gpu in inventory.gpus]
    return {"driver": inventory.driver, "cuda": inventory.cuda, "why": inventory.why, "gpus": gpus}


def measure(device: str, small: bool, seconds: float) -> dict[str, Any]:
    """Everything, within the time; the document that is written."""
    started = time.monotonic()
    nvml = seen_by_nvml()
    if device == "auto":
        device = "cuda" if nvml["gpus"] else "cpu"
    wanted = [case for case in CASES if not case.gpu_only or (device == "cuda" and not small)]
    pilots: list[dict[str, Any]] = []
    left_out: list[str] = []
    with tempfile.TemporaryDirectory(prefix="pilot-tui-measure-") as place:
        found = probes(Path(place), seconds / 3)
        for case in wanted:
            left = seconds - (time.monotonic() - started)
            if left < LEAST_S:
                left_out.append(case.name)
            else:
                pilots.append(run_case(case, device, Path(place) / case.name, left))
    rows = [row for pilot in pilots for row in pilot["compared"]]
    return {
        "schema": 1,
        "tool": VERSION,
        "device": device,
        "nvml": nvml,
        **found,
        "pilots": pilots,
        "left_out": left_out,
        "worst": worst(rows),
        "seconds": round(time.monotonic() - started, 1),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--small", action="store_true", help="the smallest plan alone")
    parser.add_argument("--seconds", type=float, default=330.0, help="at most; 330 by default")
    asked = parser.parse_args(arguments)
    document = measure(asked.device, asked.small, asked.seconds)
    asked.out.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    for counter, said in document["worst"].items():
        print(f"{counter}: median error {said['median']:.3%}, largest {said['largest']:.3%} at {said['at']}")
    print(f"{asked.out}: {len(document['pilots'])} plans in {document['seconds']} s; left out: {document['left_out']}")
    return 0 if all(pilot["error"] is None for pilot in document["pilots"]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
