"""Asks one Python, in a process of its own, which torch it has and whether that torch can use the GPUs.

torch is never imported here: it costs seconds and hundreds of MB, and a CUDA context would show up in the memory that
the pilot is about to measure. The probe asks for no allocation, so it makes no context either.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any

AMD_DRIVER = "/dev/kfd"
TIMEOUT_S = 120.0  # a first import of torch from a cold network disk takes a minute
_MARK = "PILOT-TUI-PROBE "

# Standard library and torch of whatever age, so plain and old Python. An empty first entry of sys.path is the working
# directory, where a folder named torch would be taken for it.
_SCRIPT = r"""
import json, sys
sys.path[:] = [place for place in sys.path if place]
seen = {"executable": sys.executable, "version": "%d.%d.%d" % sys.version_info[:3], "prefix": sys.prefix}
try:
    import torch
    seen["torch"] = str(torch.__version__)
    seen["torch_path"] = torch.__file__
    seen["cuda_build"] = torch.version.cuda
    seen["hip_build"] = getattr(torch.version, "hip", None)
    seen["devices"] = []
    try:
        if torch.cuda.is_available():
            for number in range(torch.cuda.device_count()):
                facts = torch.cuda.get_device_properties(number)
                uuid = getattr(facts, "uuid", None)
                bus = [getattr(facts, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
                seen["devices"].append({
                    "index": number,
                    "name": facts.name,
                    "uuid": None if uuid is None else str(uuid),
                    "bus_id": None if None in bus else "%08X:%02X:%02X.0" % tuple(bus),
                    "capability": [facts.major, facts.minor],
                    "total": facts.total_memory,
                })
        elif seen["cuda_build"] or seen["hip_build"]:
            torch.cuda.init()
    except Exception as error:
        seen["devices"] = []
        seen["no_cuda"] = (str(error).strip() or type(error).__name__).splitlines()[0]
except ImportError as error:
    if getattr(error, "name", None) == "torch" and "torch" not in sys.modules:
        seen["error"] = "it has no torch"
    else:
        seen["error"] = "import torch fails: %s" % error
except Exception as error:
    seen["error"] = "%s: %s" % (type(error).__name__, error)
print("MARK" + json.dumps(seen))
""".replace("MARK", _MARK)


@dataclass(frozen=True)
class CudaDevice:
    """A GPU as this torch numbers them. `uuid` has no GPU- or MIG- in front; `total` is bytes as CUDA sees them."""

    index: int
    name: str
    uuid: str | None
    bus_id: str | None
    capability: tuple[int, int]
    total: int


@dataclass(frozen=True)
class Probe:
    """What one Python answered. `error`: why there is no usable torch; `no_cuda`: why its CUDA build finds no GPU."""

    python: str
    executable: str | None = None
    version: str | None = None
    prefix: str | None = None
    torch: str | None = None
    torch_path: str | None = None
    cuda_build: str | None = None
    hip_build: str | None = None
    devices: tuple[CudaDevice, ...] = ()
    no_cuda: str | None = None
    error: str | None = None

    @property
    def cuda_usable(self) -> bool:
        """Whether this torch counts at least one GPU that it can use."""
        return self.error is None and bool(self.devices)

    @property
    def build(self) -> str:
        """What the torch was built for: `CUDA 13.0`, `ROCm 6.4`, `CPU only`."""
        if self.hip_build:
            return f"ROCm {self.hip_build}"
        return f"CUDA {self.cuda_build}" if self.cuda_build else "CPU only"


_cache: dict[str, Probe] = {}
_lock = threading.Lock()


def probe(python: str, timeout: float = TIMEOUT_S) -> Probe:
    """Ask `python`, once in the life of this process. Never raises."""
    with _lock:
        known = _cache.get(python)
    if known is None:
        known = _ask(python, timeout)
        with _lock:
            known = _cache.setdefault(python, known)
    return known


def forget() -> None:
    """Ask again from now on: an environment was changed underneath."""
    with _lock:
        _cache.clear()


def _ask(python: str, timeout: float) -> Probe:
    if not os.path.exists(python):
        return Probe(python, error="there is no such file")
    try:
        done = subprocess.run(
            [python, "-c", _SCRIPT],
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Probe(python, error=f"import torch took longer than {timeout:.0f} s")
    except OSError as error:
        return Probe(python, error=f"it cannot be started: {error.strerror}")
    for line in reversed(done.stdout.decode("utf-8", "replace").splitlines()):
        if line.startswith(_MARK):
            return _read(python, json.loads(line[len(_MARK) :]))
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()
    ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    return Probe(python, error=f"the question about torch ended it with {ended}: {words[-1] if words else 'no output'}")


def _read(python: str, seen: dict[str, Any]) -> Probe:
    devices = tuple(
        CudaDevice(**{**device, "capability": tuple(device["capability"])}) for device in seen.pop("devices", [])
    )
    return Probe(python, devices=devices, **seen)


def candidates() -> list[str]:
    """Every Python that may hold the training's torch, in order of preference, each once, only those that exist."""
    named = os.environ.get("VIRTUAL_ENV")
    environment = os.path.join(named, "bin", "python") if named else None
    places = [sys.executable, environment, shutil.which("python3"), "/venv/main/bin/python", "/opt/conda/bin/python"]
    found: dict[tuple[str, str], str] = {}
    for place in places:
        if place and os.access(place, os.X_OK):
            # A virtual environment is its folder: its python links to a Python that many environments share.
            folder, name = os.path.split(os.path.abspath(place))
            found.setdefault((os.path.realpath(folder), os.path.realpath(os.path.join(folder, name))), place)
    return list(found.values())
