"""What `pilot-tui gpus` says: the GPUs as NVML sees them, each Python with its torch, and which number means which GPU.

NVML counts by PCI address and CUDA by speed unless told otherwise, so GPU 0 of one need not be GPU 0 of the other. They
are matched by UUID, by PCI address where an old torch tells no UUID, and never by number.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tui_pilot.devices import host
from tui_pilot.devices.nvml import Nvml
from tui_pilot.devices.probe import AMD_DRIVER, CudaDevice, Probe
from tui_pilot.devices.pythons import Choice, choose, gpus_here, probe_all
from tui_pilot.devices.readings import Gpu, Inventory, Reading
from tui_pilot.devices.visible import NAME, visible
from tui_pilot.text import harmless, plural, size

AMD = "AMD: torch's own numbers only. NVML is NVIDIA's, and AMD's library is not asked: used memory stays unchecked"
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES")


def report(explicit: str | None = None) -> dict[str, Any]:
    """Everything, for JSON; asks NVML and starts each Python once. `explicit` is a plan's launch.python."""
    nvml = Nvml()
    inventory = nvml.open()
    readings = [nvml.read(gpu, slow=True) for gpu in inventory.gpus]
    nvml.close()
    probes = probe_all(explicit)
    return build(inventory, readings, probes, choose("auto", explicit, gpus_here()))


def build(inventory: Inventory, readings: Sequence[Reading], probes: Sequence[Probe], chosen: Choice) -> dict[str, Any]:
    """The report from its parts; pure but for the environment and the host's own figures."""
    cgroup = host.cgroup_memory()
    seen = visible(inventory.gpus, os.environ)
    return {
        "nvml": {
            "driver": inventory.driver,
            "driver_cuda": inventory.cuda,
            "why": inventory.why,
            "code": inventory.code,
            "problem": inventory.problem,
            "visible": [gpu.key for gpu in seen.gpus],
            "visible_note": seen.note,
            "gpus": [_gpu(gpu, reading) for gpu, reading in zip(inventory.gpus, readings, strict=True)],
        },
        "pythons": [_python(found, inventory.gpus) for found in probes],
        "chosen": {
            "python": chosen.python,
            "device": chosen.device,
            "why": chosen.why,
            "problem": chosen.problem,
            "advice": chosen.advice,
        },
        "amd": os.path.exists(AMD_DRIVER),
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        "host": {
            "memory_total": host.memory_total(),
            "memory_available": host.memory_available(),
            "cgroup_limit": cgroup.limit,
            "cgroup_current": cgroup.current,
        },
    }


def _gpu(gpu: Gpu, reading: Reading) -> dict[str, Any]:
    known = {"key": gpu.key, **asdict(gpu)}
    known["capability"] = None if gpu.capability is None else "{}.{}".format(*gpu.capability)
    now = {
        name: getattr(reading, name)
        for name in ("used", "utilization", "temperature", "power_w", "power_limit_w", "throttle")
    }
    return {**known, **now, "error": gpu.error or reading.error, "missing": dict(reading.missing)}


def _python(found: Probe, gpus: Sequence[Gpu]) -> dict[str, Any]:
    devices = []
    for device in found.devices:
        gpu, by = match(device, gpus)
        devices.append({**asdict(device), "nvml": gpu.index if gpu else None, "nvml_uuid": gpu.uuid if gpu else None})
        devices[-1] |= {"matched_by": by, "capability": "{}.{}".format(*device.capability)}
    return {
        "python": found.python,
        "version": found.version,
        "torch": found.torch,
        "torch_path": found.torch_path,
        "cuda_build": found.cuda_build,
        "hip_build": found.hip_build,
        "cuda_usable": found.cuda_usable,
        "no_cuda": found.no_cuda,
        "error": found.error,
        "devices": devices,
    }


def match(device: CudaDevice, gpus: Sequence[Gpu]) -> tuple[Gpu | None, str | None]:
    """The NVML GPU behind a CUDA device and what it was known by (`uuid`, `bus_id`), or (None, None)."""
    if device.uuid is not None:
        bare = device.uuid.removeprefix("GPU-").removeprefix("MIG-").lower()
        for gpu in gpus:
            if gpu.uuid and gpu.uuid.removeprefix("GPU-").removeprefix("MIG-").lower() == bare:
                return gpu, "uuid"
        return None, None
    if device.bus_id is not None:
        same = [gpu for gpu in gpus if gpu.bus_id and gpu.bus_id.upper() == device.bus_id.upper()]
        if len(same) == 1:  # MIG instances share their card's address
            return same[0], "bus_id"
    return None, None


def lines(report: dict[str, Any]) -> list[str]:
    """The same for people, at most one fact a line; foreign text is made harmless."""
    nvml = report["nvml"]
    out = []
    if nvml["gpus"]:
        cuda = f", CUDA up to {nvml['driver_cuda']}" if nvml["driver_cuda"] else ""
        out.append(f"NVML: {plural(len(nvml['gpus']), 'GPU')}, driver {nvml['driver'] or 'NA'}{cuda}")
        out += ["  " + _gpu_line(gpu) for gpu in nvml["gpus"]]
    else:
        out.append(f"NVML: no GPU: {nvml['why']}")
    if any(python["hip_build"] for python in report["pythons"]) or (not nvml["gpus"] and report["amd"]):
        out.append(f"  {AMD}")
    if nvml["problem"]:
        out.append(f"  ! {nvml['problem']}")
    if NAME in report["environment"] and nvml["gpus"]:
        numbers = [f"gpu {gpu['index']}" for key in nvml["visible"] for gpu in nvml["gpus"] if gpu["key"] == key]
        order = ", ".join(f"cuda:{n} = {each}" for n, each in enumerate(numbers)) or "no GPU"
        out.append(f"  a stage sees {order}")
    if nvml["visible_note"]:
        out.append(f"  ! {nvml['visible_note']}")
    out += ["", "Pythons, in the order they are tried:"]
    for python in report["pythons"]:
        out += ["  " + line for line in _python_lines(python, bool(nvml["gpus"]))]
    chosen = report["chosen"]
    if chosen["python"]:
        out += ["", f"Training would use {chosen['python']} on {chosen['device']} ({chosen['why']})"]
    out += [f"! {words}" for words in (chosen["problem"], chosen["advice"]) if words]
    out += [f"{name}={value}" for name, value in report["environment"].items()]
    held = report["host"]
    limit = held["cgroup_limit"]
    box = f", this container may use {size(limit)} and uses {size(held['cgroup_current'])}" if limit is not None else ""
    out += ["", f"Host memory: {size(held['memory_available'])} available of {size(held['memory_total'])}{box}"]
    return [harmless(line) for line in out]


def _gpu_line(gpu: dict[str, Any]) -> str:
    head = f"gpu {gpu['index']:>2}  {gpu['name'] or 'name unknown'}"
    if gpu["capability"]:
        head += f"  sm {gpu['capability']}"
    where = "  ".join(known for known in (gpu["bus_id"], gpu["uuid"]) if known)
    if gpu["error"]:
        return "  ".join(part for part in (head, where, gpu["error"]) if part)
    reserve = gpu["reserved_by_driver"]
    share = f", {size(reserve)} kept by the driver" if reserve is not None else ", used includes the driver's share"
    now = [f"{gpu['utilization']}%" if gpu["utilization"] is not None else "NA"]
    now.append(f"{gpu['temperature']} °C" if gpu["temperature"] is not None else "NA")
    now.append(f"{gpu['power_w']:.0f} W" if gpu["power_w"] is not None else "NA")
    slowed = f"  slowed: {', '.join(gpu['throttle'])}" if gpu["throttle"] else ""
    memory = f"{size(gpu['used'])} used of {size(gpu['usable'])} usable{share}"
    return f"{head}  {memory}  {' '.join(now)}{slowed}  {where}"


def _python_lines(python: dict[str, Any], gpus: bool) -> list[str]:
    head = python["python"]
    if python["error"]:
        return [f"{head}  {python['error']}"]
    build = f"CUDA {python['cuda_build']}" if python["cuda_build"] else "CPU only"
    build = f"ROCm {python['hip_build']}" if python["hip_build"] else build
    verdict = f"can use {plural(len(python['devices']), 'GPU')}" if python["cuda_usable"] else "cannot use GPUs"
    if not python["cuda_usable"] and python["no_cuda"]:
        verdict += f": {python['no_cuda']}"
    out = [f"{head}  Python {python['version']}, torch {python['torch']} ({build}), {verdict}"]
    out.append(f"  {python['torch_path']}")
    for device in python["devices"]:
        if device["nvml"] is not None:
            other = f"gpu {device['nvml']} of NVML"
        else:
            other = "not found in NVML" if gpus else "no NVML to compare with"
        out.append(f"  cuda:{device['index']} = {other}  {device['name']}  {size(device['total'])}")
    return out
