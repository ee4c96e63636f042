"""Chooses the Python that trains: the first whose torch can use the planned device. Says which, why, and what else is.

Never raises: a pilot without a usable torch is a finding of its first phase, with a sentence, not a crash of the tool.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tui_pilot.devices.nvml import Nvml
from tui_pilot.devices.probe import AMD_DRIVER, CudaDevice, Probe, candidates, forget, probe
from tui_pilot.devices.visible import visible

__all__ = [
    "Choice",
    "CudaDevice",
    "Probe",
    "Rejected",
    "candidates",
    "choose",
    "forget",
    "gpus_here",
    "probe",
    "probe_all",
]


@dataclass(frozen=True)
class Rejected:
    """A Python that was looked at and not taken."""

    python: str
    why: str


@dataclass(frozen=True)
class Choice:
    """The Python to train with. `python` is None where no torch was found at all.

    `problem` is set when the planned device cannot be used with it, or when `auto` falls back to the CPU beside GPUs;
    `advice` is then what to do. `device` is what the training can use: `cuda` or `cpu`, None without a torch.
    """

    python: str | None
    probe: Probe | None
    why: str
    rejected: tuple[Rejected, ...] = ()
    device: str | None = None
    problem: str | None = None
    advice: str | None = None


def gpus_here() -> int:
    """How many GPUs a training here may use, without torch: those NVML shows, else 1 if an AMD driver is loaded."""
    nvml = Nvml()
    gpus = nvml.open().gpus
    nvml.close()
    return len(visible(gpus, os.environ).gpus) if gpus else int(os.path.exists(AMD_DRIVER))


def probe_all(explicit: str | None = None) -> list[Probe]:
    """A probe of every candidate, and of `explicit` first; two at a time, since each loads a torch."""
    pythons = [*([explicit] if explicit else []), *candidates()]
    with ThreadPoolExecutor(max_workers=2) as pool:
        probes = list(pool.map(probe, dict.fromkeys(pythons)))
    seen: dict[str, Probe] = {}
    for found in probes:
        seen.setdefault(found.prefix or found.python, found)
    return list(seen.values())


def choose(planned_device: str = "auto", explicit: str | None = None, gpus: int | None = None) -> Choice:
    """The Python for `planned_device` (`auto`, `cpu`, `cuda`).

    `explicit` is the plan's launch.python: it is used whatever it can do, and another that could do more is only named.
    `gpus` is how many GPUs are here; None asks NVML. `auto` wants a torch for the GPUs where there are any.
    """
    gpus = gpus_here() if gpus is None and planned_device != "cpu" else gpus or 0
    wants_cuda = planned_device == "cuda" or (planned_device == "auto" and gpus > 0)
    if explicit is not None:
        return _explicit(probe(explicit), planned_device, wants_cuda, gpus)
    rejected: list[Rejected] = []
    second: Probe | None = None
    for python in candidates():
        found = probe(python)
        if found.error is None and (found.cuda_usable or not wants_cuda):
            return Choice(python, found, _why(found, None), tuple(rejected), _device(found, planned_device))
        rejected.append(Rejected(python, _lack(found)))
        if second is None and found.error is None:
            second = found
    if second is None:
        looked = "; ".join(f"{each.python}: {each.why}" for each in rejected)
        problem = f"no Python here has a torch that can be imported ({looked})"
        advice = "Install torch in one of them, or put one that has it in the plan, launch.python"
        return Choice(None, None, "no torch", tuple(rejected), None, problem, advice)
    others = tuple(each for each in rejected if each.python != second.python)
    problem, advice = _no_cuda(second, gpus, None)
    return Choice(second.python, second, _why(second, None), others, "cpu", problem, advice)


def _explicit(found: Probe, planned_device: str, wants_cuda: bool, gpus: int) -> Choice:
    if found.error is None and (found.cuda_usable or not wants_cuda):
        return Choice(found.python, found, _why(found, found.python), (), _device(found, planned_device))
    others = [each for each in probe_all() if each.python != found.python]
    better = next((each for each in others if each.error is None and (each.cuda_usable or not wants_cuda)), None)
    if found.error is None:
        problem, advice = _no_cuda(found, gpus, better)
        return Choice(found.python, found, _why(found, found.python), (), "cpu", problem, advice)
    problem = f"launch.python {found.python}: {found.error}"
    if better:
        advice = f"Found one with torch {better.torch}: {better.python}. Put it in the plan, launch.python"
    else:
        advice = "Install torch there, or put a Python that has it in the plan, launch.python"
    rejected = (Rejected(found.python, found.error), *(Rejected(each.python, _lack(each)) for each in others))
    return Choice(None, found, "launch.python in the plan", rejected, None, problem, advice)


def _device(found: Probe, planned_device: str) -> str:
    return "cuda" if found.cuda_usable and planned_device != "cpu" else "cpu"


def _why(found: Probe, explicit: str | None) -> str:
    first = "launch.python in the plan" if explicit else "the first found that can use the planned device"
    if explicit is None and not found.cuda_usable:
        first = "the first found with torch"
    return f"{first}: torch {found.torch} ({found.build})"


def _lack(found: Probe) -> str:
    """Why a Python was not taken."""
    if found.error is not None:
        return found.error
    if found.cuda_usable:
        return f"torch {found.torch} can use the GPUs, but another one came first"
    reason = found.no_cuda or ("it is built for the CPU only" if found.build == "CPU only" else "it counts no GPU")
    return f"torch {found.torch} cannot use the GPUs: {reason}"


def _no_cuda(found: Probe, gpus: int, better: Probe | None) -> tuple[str, str]:
    """(what is wrong, what to do) for a torch that was wanted for GPUs and can use none."""
    here = f"{gpus} GPUs are here" if gpus > 1 else "1 GPU is here"
    torch = f"{found.torch} in {found.python}"
    if gpus == 0:
        problem = f"the plan asks for cuda, but no GPU is here; torch is {torch}"
    else:
        problem = f"{here}, but this torch cannot use {'them' if gpus > 1 else 'it'}: {torch}"
    if found.no_cuda:
        problem += f" ({found.no_cuda})"
    if better:
        return problem, f"Found one that can: {better.python} ({better.torch}). Put it in the plan, launch.python"
    if gpus == 0:
        return problem, "Set device: auto or cpu in the plan, or start it where pilot-tui gpus shows GPUs"
    return problem, "Put a Python whose torch can in the plan, launch.python; pilot-tui gpus lists those found here"
