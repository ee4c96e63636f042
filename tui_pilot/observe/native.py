"""What torch's CPU allocator holds: c10's own byte counter, and a dispatch-mode tracker where it is not to be had.

c10 keeps a running total of CPU bytes once its reporter is switched on. There is no Python binding, so the exported
flag and singleton are reached through ctypes. The layout is private: a self-test decides whether it may be used.
"""

from __future__ import annotations

import ctypes
import weakref
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_FLAG = "FLAGS_caffe2_report_cpu_memory_usage"
_REPORTER = "_ZN3c1025profiledCPUMemoryReporterEv"
_ALLOCATED_AT = 96  # a 40-byte mutex, a 56-byte map, then the running total (libstdc++)
_TEST_BYTES = 4_000_000


class Counter(Protocol):
    """Bytes that live tensors hold now."""

    name: str

    def read(self) -> int: ...


class NativeCounter:
    """c10's running total; exact for everything its allocator gave out since it was switched on."""

    name = "c10"

    def __init__(self, flag: Any, word: Any) -> None:
        self._flag = flag
        self._word = word

    def read(self) -> int:
        return int(self._word.value)


class DispatchCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the storages that operators return while the mode is on; blind to scratch inside an operator."""

    name = "dispatch"

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._live = 0
        self._seen: dict[int, int] = {}

    def read(self) -> int:
        return self._live

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
                self._note(tensor)
        return result

    def _note(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._seen or not storage.nbytes():
            return
        count = storage.nbytes()
        self._seen[key] = count
        self._live += count
        weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self._live -= self._seen.pop(key, 0)


def open_native() -> tuple[NativeCounter | None, str]:
    """Switch c10's counter on and test it; ``(None, why)`` where the layout is another one.

    Call it before the first tensor is made: what was allocated earlier is not in the total.
    """
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        flag = ctypes.c_bool.in_dll(library, _FLAG)
        reporter = getattr(library, _REPORTER)
    except (OSError, ValueError, AttributeError) as error:
        return None, f"libc10 does not export its CPU counter: {error}"
    reporter.restype = ctypes.c_void_p
    address = reporter()
    if not address:
        return None, "libc10 returned no CPU reporter"
    word = ctypes.c_size_t.from_address(address + _ALLOCATED_AT)
    flag.value = True
    counter = NativeCounter(flag, word)
    before = counter.read()
    probe = torch.empty(_TEST_BYTES, dtype=torch.uint8)
    grown = counter.read() - before
    del probe
    left = counter.read() - before
    if grown != _TEST_BYTES or left != 0:
        flag.value = False
        return None, f"self-test: {_TEST_BYTES:,} bytes read as {grown:,}, {left:,} left after the release"
    return counter, "self-test passed"
