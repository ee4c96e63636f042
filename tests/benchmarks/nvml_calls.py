"""How often the supervisor asks the driver, and what of a core that takes: ``python tests/benchmarks/nvml_calls.py``.

Compiles ``tests/nvml_stub.c`` and runs the real sampler on the real binding over 1, 8 and 64 stand-in GPUs, at the
rate of a running phase and at the rate between phases; opening the driver is not counted. The stand-in reads its file
at every call, so the share of a core is an upper bound of what binding and sampler take; a real driver adds its own
time. Prints one JSON document.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STUB = HERE.parent / "nvml_stub.c"
GPUS = (1, 8, 64)
SECONDS, SHORT = 5.0, 1.0
SCRIPT = """
import json, sys, time
from tui_pilot.devices.nvml import Nvml
from tui_pilot.devices.sampler import Sampler
hz, seconds, sink = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
with Sampler(Nvml(), hz=hz, sink=sink) as sampler:
    sampler.mark("begins")
    before = time.process_time()
    time.sleep(seconds)
    used = time.process_time() - before
    rows = sampler.mark("ends")
print(json.dumps({"cpu": used / seconds, "hz": min(row["hz"] for row in rows.values())}))
"""


def compiled(folder: Path) -> None:
    """The stand-in, for LD_LIBRARY_PATH."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise SystemExit("no C compiler here")
    flags = ["-O1", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *flags, "-o", str(folder / "libnvidia-ml.so.1"), str(STUB), "-lpthread"], check=True)


def sampled(folder: Path, gpus: int, hz: float) -> dict[str, Any]:
    """Calls a second, the rate that was reached, and the share of a core; what a long run has more than a short one."""
    said, long = _run(folder, gpus, hz, SECONDS)
    _, short = _run(folder, gpus, hz, SHORT)
    more = {name: count - short.get(name, 0) for name, count in long.items()}
    span = SECONDS - SHORT
    return {
        "gpus": gpus,
        "hz_asked": hz,
        **said,
        "memory_calls_per_s": round(more.get("nvmlDeviceGetMemoryInfo_v2", 0) / span, 1),
        "all_calls_per_s": round(sum(more.values()) / span, 1),
        "processes_or_pcie": sum(count for name, count in long.items() if "Process" in name or "Pcie" in name),
    }


def _run(folder: Path, gpus: int, hz: float, seconds: float) -> tuple[dict[str, float], dict[str, int]]:
    """What the script said, and how often each entry point of a device was called."""
    trace = folder / f"calls-{gpus}-{hz:g}-{seconds:g}"
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "NVML_STUB_COUNT": str(gpus),
        "NVML_STUB_TRACE": str(trace),
        "PYTHONPATH": str(HERE.parents[1]),
    }
    argv = [sys.executable, "-c", SCRIPT, str(hz), str(seconds), str(folder / f"{trace.name}.jsonl")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    calls = {name: int(count) for count, name in (line.split() for line in trace.read_text().splitlines())}
    return json.loads(done.stdout), {name: count for name, count in calls.items() if name.startswith("nvmlDeviceGet")}


def main() -> int:
    sys.path.insert(0, str(HERE.parents[1]))
    from tui_pilot.launch.gpu_watch import IDLE_HZ, full_hz

    with tempfile.TemporaryDirectory() as place:
        compiled(Path(place))
        rows = [sampled(Path(place), gpus, hz) for gpus in GPUS for hz in (full_hz(gpus), IDLE_HZ)]
    print(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
