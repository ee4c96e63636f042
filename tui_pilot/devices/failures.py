"""What an NVML failure means, in words a person can act on. Pure: knows exceptions by their shape, imports no binding.

`NVMLLibraryMismatchError` of nvidia-ml-py is no `NVMLError`, old bindings raise AttributeError for what they lack, and
a shadowing package raises anything: so `attempt` catches Exception and lets `explain` name it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 3, 4, 6, 12, 13
LOST, WRONG_STRUCT_VERSION, UNKNOWN = 15, 25, 999

UNIFIED = "unified memory: this GPU shares the system's memory, so NVML has no figure of its own"

_WORDS = {
    1: "NVML was not initialised",
    NOT_SUPPORTED: "not supported by this GPU or driver",
    NO_PERMISSION: "no permission: this user or container may not read this GPU",
    9: "the NVIDIA driver is not loaded: on the host, load the kernel module (modprobe nvidia) or reboot",
    10: "the driver did not answer in time",
    LIBRARY_NOT_FOUND: "no libnvidia-ml.so.1 here: no NVIDIA driver, or a container without its GPUs (--gpus all)",
    FUNCTION_NOT_FOUND: "this driver is too old for that question",
    LOST: "lost: the GPU no longer answers on the bus until a reset; the host's dmesg says why (Xid)",
    16: "the GPU needs a reset before it can be used",
    18: "driver and library versions differ: the driver was updated underneath; reboot, or restart the container",
    UNKNOWN: "unknown error: containers lose their GPUs so when the host reloads systemd; restart the container",
}


@dataclass(frozen=True)
class Failure:
    """One failed question: the NVML code if there was one, and a reason in words that ends with it."""

    code: int | None
    reason: str


def explain(error: BaseException) -> Failure:
    """The failure behind any exception a binding may raise."""
    code = getattr(error, "value", None)
    if isinstance(code, int):
        return Failure(code, f"{_WORDS.get(code, str(error) or type(error).__name__)} (NVML {code})")
    if type(error).__name__ == "NVMLLibraryMismatchError":
        return Failure(FUNCTION_NOT_FOUND, f"{_WORDS[FUNCTION_NOT_FOUND]} (NVML library mismatch)")
    if isinstance(error, AttributeError):
        return Failure(FUNCTION_NOT_FOUND, f"this pynvml lacks the function: {error}")
    return Failure(None, f"{type(error).__name__}: {error}")


def attempt(question: Callable[..., Any], *arguments: object) -> tuple[Any, Failure | None]:
    """(answer, None) or (None, failure). Catches everything: a failed reading must never end a run."""
    try:
        return question(*arguments), None
    except Exception as error:
        return None, explain(error)
