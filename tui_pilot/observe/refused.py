"""The allocator at the moment it refused: what was asked, what was free, its counters and its segments.

By the time an out-of-memory reaches the phase as an exception, the tensors of the frames between are on their way out.
torch calls an observer at the refusal itself, before anything is unwound. There is none on a CPU.
"""

from __future__ import annotations

import contextlib
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

NO_SNAPSHOT = "none: a CPU has no caching allocator to take one of"


@dataclass(frozen=True)
class Refusal:
    """One allocation that the device had no room for. Bytes."""

    asked: int
    free: int
    allocated: int | None
    reserved: int | None
    snapshot: Any = None


class Refusals:
    """Keeps the last refusal of a device. ``last`` is None until one happened, and again after ``forget``."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.last: Refusal | None = None
        self.why: str | None = None
        attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
        if device.type != "cuda" or attach is None:
            self.why = NO_SNAPSHOT if device.type != "cuda" else "this torch tells nobody of a refused allocation"
            return
        try:
            attach(self._refused)
        except RuntimeError as error:  # another allocator: cudaMallocAsync has no observer
            self.why = str(error).split("\n")[0]

    def forget(self) -> None:
        """A new phase: what was refused before it is not its own."""
        self.last = None

    def _refused(self, device: int, asked: int, total: int, free: int) -> None:
        if device != (self.device.index or 0):
            return
        try:
            stats = torch.cuda.memory_stats(device)
            held = (stats.get("allocated_bytes.all.current"), stats.get("reserved_bytes.all.current"))
            self.last = Refusal(asked, free, *held, snapshot=torch.cuda.memory._snapshot(device))
        except Exception as error:  # an observer that raises would hide the out-of-memory itself
            self.last = Refusal(asked, free, None, None)
            self.why = f"{type(error).__name__}: {error}"


def keep_snapshot(refusal: Refusal | None, path: Path) -> str | None:
    """Write the allocator's segments for torch's memory viewer (pytorch.org/memory_viz); returns what went wrong."""
    if refusal is None or refusal.snapshot is None:
        return "the allocator was not seen to refuse"
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as stream:
            pickle.dump(refusal.snapshot, stream)
    except OSError as error:
        with contextlib.suppress(OSError):  # half of a snapshot shows nothing
            path.unlink(missing_ok=True)
        return f"it could not be written: {error.strerror}"
    return None
