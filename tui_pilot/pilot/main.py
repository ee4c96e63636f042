"""Runs one stage from its first event to its exit."""

from __future__ import annotations

import importlib
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from tui_pilot.pilot.context import Context, open_context
from tui_pilot.pilot.phase import PhaseBroken

MODULES = {
    "data": "tui_pilot.pilot.data_stage",
    "overfit": "tui_pilot.pilot.overfit_stage",
    "peak": "tui_pilot.pilot.peak_stage",
    "trial": "tui_pilot.pilot.trial_stage",
    "train": "tui_pilot.pilot.train_stage",
    "resume": "tui_pilot.pilot.resume_stage",
    "reload": "tui_pilot.pilot.reload_stage",
}
RANK_TIMEOUT = timedelta(minutes=10)


def run(folder: Path, stage: str, attempt: int) -> int:
    """The stage's exit code: 0 when it ran to its end, whatever the verdicts; 1 when a phase broke on several ranks."""
    context = open_context(folder, stage, attempt)
    try:
        if context.world > 1:
            backend = "nccl" if context.device.type == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=RANK_TIMEOUT)
        try:
            importlib.import_module(MODULES[stage]).run(context)
        except PhaseBroken:
            # One rank's fault leaves the others waiting for it: end this rank, torchrun ends the rest.
            if context.world > 1:
                return 1
        return 0
    finally:
        context.writer.close()
        if context.world > 1 and dist.is_initialized() and sys.exc_info()[0] is None:
            dist.destroy_process_group()


def environment(context: Context) -> dict[str, object]:
    """What bit-equality depends on: threads, build, and the processor's capability as ATen uses it."""
    found: dict[str, object] = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "mkl": torch.backends.mkl.is_available(),  # type: ignore[no-untyped-call]
        "device": context.device.type,
        "omp": os.environ.get("OMP_NUM_THREADS"),
    }
    if context.device.type == "cuda":
        found["gpu"] = torch.cuda.get_device_name(context.device)
    return found
