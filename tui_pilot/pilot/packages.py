"""Whether a package works, in a process of its own: imported, one tiny operation run, and what it says meanwhile."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tui_pilot.pilot.versions import version_of
from tui_pilot.tasks.base import Task

PROBE_SECONDS = 180

# A package whose import succeeds and whose library does not work is found by one operation. {device}: cpu or cuda.
OPERATIONS = {
    "torch": "import torch; assert float((torch.ones(3, 3) @ torch.ones(3, 3)).sum()) == 27.0",
    "transformers": "import transformers; transformers.PretrainedConfig()",
    "peft": "import peft; peft.LoraConfig(r=2)",
    "safetensors": "import torch, safetensors.torch as s; s.load(s.save({'a': torch.ones(2)}))",
    "tokenizers": "from tokenizers import Tokenizer, models; Tokenizer(models.BPE())",
    "numpy": "import numpy; assert (numpy.ones(3) + 1).sum() == 6",
    "pyarrow": "import pyarrow; assert len(pyarrow.array([1, None, 3])) == 3",
    "bitsandbytes": (
        "import bitsandbytes.functional as f, torch; f.quantize_blockwise(torch.ones(64, device='{device}'))"
    ),
    "flash_attn": (
        "import torch; from flash_attn import flash_attn_func as f; "
        "q = torch.ones(1, 8, 2, 32, device='{device}', dtype=torch.float16); f(q, q, q) if q.is_cuda else None"
    ),
    "xformers": (
        "import torch; from xformers.ops import memory_efficient_attention as f; "
        "q = torch.ones(1, 8, 2, 32, device='{device}', dtype=torch.float16); f(q, q, q) if q.is_cuda else None"
    ),
    "triton": "import triton, triton.language",
}
IMPORTED, WORKED = "PILOT-TUI-IMPORTED", "PILOT-TUI-WORKED"
_FALLS_BACK = re.compile(
    r"without (?:gpu|cuda)|cpu[- ](?:only|build|version)|_cpu\.so|fall(?:s|ing)? back|fallback|"
    r"no (?:gpu|cuda) support|no libcudart|not (?:compiled|built) with",
    re.IGNORECASE,
)


def wanted(task: Task) -> dict[str, str]:
    """What the task needs, torch first: import name to one line that uses it; a task's own line comes first."""
    named = task.packages()
    own: Mapping[str, str] = named if isinstance(named, Mapping) else dict.fromkeys(named, "")
    return {name: own.get(name) or OPERATIONS.get(name, "") for name in dict.fromkeys(["torch", *own])}


def gpus_visible() -> dict[str, str]:
    """The environment of a probe that may see GPUs: the data stage hides them from itself alone."""
    environment = dict(os.environ)
    visible = environment.pop("PILOT_TUI_CUDA_VISIBLE_DEVICES", None)
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    return environment


def try_package(name: str, operation: str, folder: Path, device: str) -> dict[str, Any]:
    """``version``, ``ok``, and where it does not work: ``missing``, ``imported`` and ``error``; ``warned`` besides."""
    found: dict[str, Any] = {"version": version_of(name), "ok": False}
    lines = (f"import {name.replace('-', '_')}", f"print('{IMPORTED}', flush=True)")
    code = "\n".join((*lines, operation.replace("{device}", device), f"print('{WORKED}', flush=True)"))
    environment = {**(gpus_visible() if device != "cpu" else os.environ), "PYTHONWARNINGS": "default"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {**found, "error": f"no answer in {PROBE_SECONDS} s"}
    said = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
    warned = next((line for line in said if _FALLS_BACK.search(line) and "Error" not in line.partition(":")[0]), None)
    if warned:
        found["warned"] = warned[:300]
    if WORKED in done.stdout and done.returncode == 0:
        return {**found, "ok": True}
    last = (done.stderr.strip().splitlines() or [""])[-1].strip()[:300]
    # Only a Python that ended by an exception has its reason in the last line.
    found["error"] = last if last and done.returncode > 0 else _ended(done.returncode)
    found["imported"] = IMPORTED in done.stdout
    found["missing"] = not found["imported"] and f"No module named '{name}'" in last
    return found


def _ended(code: int) -> str:
    if code >= 0:
        return f"the process ended early, exit code {code}"
    try:
        return f"the process died by {signal.Signals(-code).name}"
    except ValueError:
        return f"the process died by signal {-code}"
