"""What NVML says about the GPUs, as immutable readings; the only module that imports pynvml (of nvidia-ml-py).

Sizes are bytes, power watts, temperature degrees Celsius, utilization percent. What cannot be read is None with a
reason, never 0. Process lists and PCIe counters are never asked: they hold the driver's lock for milliseconds and stall
training.
"""

from __future__ import annotations

import importlib
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tui_pilot.devices import failures, host
from tui_pilot.devices.failures import Failure, attempt
from tui_pilot.devices.readings import Gpu, Inventory, Reading

__all__ = ["Gpu", "Inventory", "Nvml", "Reading", "module_problem"]

_THROTTLE = {  # nvmlClocksEventReasons; idle and clocks that somebody set are not slowdowns
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x200: "board limit",
    0x400: "reliability",
}
_TRY_V1 = (failures.NOT_SUPPORTED, failures.FUNCTION_NOT_FOUND, failures.WRONG_STRUCT_VERSION)
_INTEGRATED = {(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1)}  # Jetson, Thor, GB10


class Nvml:
    """The driver's library, opened once; its methods never raise. For one thread: others would only queue."""

    def __init__(self) -> None:
        self._api: Any = None
        self._handles: dict[str, Any] = {}

    def open(self) -> Inventory:
        """Load pynvml, initialise NVML and look at each GPU; a GPU that fails becomes a row with its error."""
        try:
            with warnings.catch_warnings():  # the PyPI package `pynvml` warns on import, an error under -W error
                warnings.simplefilter("ignore")
                api = importlib.import_module("pynvml")
        except Exception as error:
            return Inventory(why=f"pynvml cannot be imported ({error}): pip install nvidia-ml-py")
        problem = module_problem(getattr(api, "__file__", None))
        self._api = api
        _, failure = self._ask("nvmlInit")
        if failure:
            return Inventory(why=failure.reason, code=failure.code, problem=problem)
        driver, _ = self._ask("nvmlSystemGetDriverVersion")
        cuda, _ = self._ask("nvmlSystemGetCudaDriverVersion")
        version = None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"
        count, failure = self._ask("nvmlDeviceGetCount")
        if failure:
            return Inventory((), _str(driver), version, failure.reason, failure.code, problem)
        gpus = tuple(gpu for index in range(count) for gpu in self._look(index))
        return Inventory(gpus, _str(driver), version, None if gpus else "NVML counts no GPU", None, problem)

    def close(self) -> None:
        """Shut NVML down; later reads answer with an error."""
        if self._api is not None:
            self._ask("nvmlShutdown")
        self._handles.clear()

    def read(self, gpu: Gpu, slow: bool = False, sensors: bool = False) -> Reading:
        """Memory, always; with `sensors` also utilization and power; with `slow` everything.

        The driver averages utilization and power over up to a second: asked faster than 2 Hz they show nothing new.
        The handle from `open` is kept: after a container lost its GPUs a new initialisation would fail for good.
        """
        now, api, handle = time.monotonic(), self._api, self._handles.get(gpu.key)
        if handle is None:
            return Reading(gpu.key, now, error=gpu.error or "NVML is closed", code=gpu.code)
        used, error, code = None, gpu.error, gpu.code
        if not gpu.unified:
            memory, failure = self._memory(handle, gpu.basis)
            used, error, code = (None, failure.reason, failure.code) if failure else (memory[1], None, None)
        if code in (failures.LOST, failures.UNKNOWN) or not (slow or sensors):
            return Reading(gpu.key, now, used, error=error, code=code)
        asked: dict[str, Any] = {"utilization": lambda: int(api.nvmlDeviceGetUtilizationRates(handle).gpu)}
        asked["power_w"] = lambda: api.nvmlDeviceGetPowerUsage(handle) / 1000
        if slow:
            asked["power_limit_w"] = lambda: api.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
            asked["temperature"] = lambda: int(api.nvmlDeviceGetTemperature(handle, 0))
            asked["throttle"] = lambda: self._throttle(handle)
        answers, missing = {}, []
        for field, question in asked.items():
            answers[field], failure = attempt(question)
            if failure:
                missing.append((field, failure.reason))
        return Reading(gpu.key, now, used, error=error, code=code, missing=tuple(missing), **answers)

    def _ask(self, name: str, *arguments: object) -> tuple[Any, Failure | None]:
        """(answer, None) or (None, failure) of one pynvml function, which an old or foreign pynvml may lack."""
        return attempt(lambda: getattr(self._api, name)(*arguments))

    def _look(self, index: int) -> Iterator[Gpu]:
        """The card at an NVML index, or the MIG instances on it."""
        handle, failure = self._ask("nvmlDeviceGetHandleByIndex", index)
        if failure:
            yield Gpu(index, error=failure.reason, code=failure.code)
            return
        card = self._describe(index, handle)
        mode, _ = self._ask("nvmlDeviceGetMigMode", handle)
        partitioned = mode is not None and mode[0] == 1
        if not partitioned and card.code != failures.NO_PERMISSION:
            yield self._keep(card, handle)
            return
        # A partitioned card hides its memory from a container; what a container may use are the instances.
        most, _ = self._ask("nvmlDeviceGetMaxMigDeviceCount", handle)
        found = False
        for number in range(most or 0):
            part, failure = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            if not failure:
                found = True
                yield self._keep(self._describe(index, part, card), part)
        if not found:
            why = "MIG is on and no instance can be seen from here" if partitioned else card.error
            yield self._keep(replace(card, error=why), handle)

    def _keep(self, gpu: Gpu, handle: Any) -> Gpu:
        self._handles[gpu.key] = handle
        return gpu

    def _describe(self, index: int, handle: Any, card: Gpu | None = None) -> Gpu:
        api = self._api
        uuid, _ = self._ask("nvmlDeviceGetUUID", handle)
        name, _ = self._ask("nvmlDeviceGetName", handle)
        capability, _ = attempt(lambda: tuple(api.nvmlDeviceGetCudaComputeCapability(handle)))
        bus, _ = attempt(lambda: api.nvmlDeviceGetPciInfo(handle).busId)
        gpu = Gpu(
            index=index,
            uuid=_str(uuid),
            name=_str(name) or (card.name if card else None),
            capability=capability or (card.capability if card else None),
            bus_id=_str(bus) or (card.bus_id if card else None),
            parent=card.uuid if card else None,
        )
        basis = "v2"
        memory, failure = self._memory(handle, basis)
        if failure and failure.code in _TRY_V1:
            basis = "v1"
            memory, failure = self._memory(handle, basis)
        if failure and failure.reason == failures.UNIFIED:
            return replace(gpu, error=failure.reason, code=failure.code, unified=True)
        if failure:
            return replace(gpu, error=failure.reason, code=failure.code, basis=basis)
        total, _, reserved = memory
        if gpu.capability in _INTEGRATED and total >= 0.9 * (host.memory_total() or total * 2):
            return replace(gpu, error=failures.UNIFIED, unified=True)
        return replace(gpu, total=total, reserved_by_driver=reserved, usable=total - (reserved or 0), basis=basis)

    def _memory(self, handle: Any, basis: str | None) -> tuple[Any, Failure | None]:
        """(total, used, reserved), bytes; `reserved` None with basis v1."""
        layout = [] if basis == "v1" else [getattr(self._api, "nvmlMemory_v2", None)]
        if layout == [None]:
            return None, Failure(failures.FUNCTION_NOT_FOUND, "this pynvml is older than memory v2")
        info, failure = self._ask("nvmlDeviceGetMemoryInfo", handle, *layout)
        if failure:
            no_figure = failure.code == failures.NOT_SUPPORTED
            return None, (Failure(failure.code, failures.UNIFIED) if no_figure else failure)
        if info.total == 0:
            return None, Failure(None, failures.UNIFIED)
        return (int(info.total), int(info.used), None if basis == "v1" else int(info.reserved)), None

    def _throttle(self, handle: Any) -> tuple[str, ...]:
        """What slows the clocks down; the function was renamed with driver 535."""
        mask, failure = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if failure:
            mask = self._api.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return tuple(words for bit, words in _THROTTLE.items() if mask & bit)


def _str(value: Any) -> str | None:
    """Older bindings answer in bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def module_problem(file: str | None) -> str | None:
    """What is wrong with the `pynvml` that was imported from `file`, or None: several packages claim that name."""
    if file is None or os.path.basename(file) != "pynvml.py":
        place = file or "an unknown place"
        cure = "pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py"
        return f"pynvml comes from {place}, not from nvidia-ml-py: {cure}"
    return None
