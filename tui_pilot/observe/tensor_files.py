"""What weight files hold, read without running anything in them: safetensors by its own header, torch files safely."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tui_pilot.observe.tensors import tensor_hash

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
TORCH_ENDINGS = (".pt", ".pth", ".bin", ".ckpt", ".pkl")


@dataclass
class Weights:
    """Tensors of a folder by name: hash and element count. ``unsafe`` files were refused and never opened further."""

    hashes: dict[str, str] = field(default_factory=dict)
    elements: int = 0
    zero: list[str] = field(default_factory=list)
    unsafe: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    dtypes: set[str] = field(default_factory=set)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def add(self, name: str, tensor: torch.Tensor) -> None:
        self.hashes[name] = tensor_hash(tensor)
        self.shapes[name] = tuple(tensor.shape)
        self.elements += tensor.numel()
        self.dtypes.add(str(tensor.dtype).removeprefix("torch."))
        if tensor.numel() and not bool((tensor != 0).any()):
            self.zero.append(name)


def read_folder(folder: Path) -> Weights:
    """Every tensor of every weight file in a folder, one tensor in memory at a time where the format allows it."""
    found = Weights()
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors":
            try:
                _safetensors(path, found)
            except (ValueError, KeyError, OSError, struct.error):
                found.unread.append(name)
        elif path.suffix in TORCH_ENDINGS:
            _torch_file(path, name, found)
    return found


def _safetensors(path: Path, found: Weights) -> None:
    with path.open("rb") as stream:
        length = struct.unpack("<Q", stream.read(8))[0]
        header = json.loads(stream.read(length))
        start = 8 + length
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            stream.seek(start + begin)
            data = bytearray(stream.read(end - begin))
            if len(data) != end - begin:
                raise ValueError(f"{name} is cut off")
            dtype = _DTYPES[entry["dtype"]]
            tensor = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
            found.add(name, tensor.reshape(entry["shape"]))


def _torch_file(path: Path, name: str, found: Weights) -> None:
    try:
        value = torch.load(path, map_location="cpu", weights_only=True, mmap=False)
    except Exception:
        # The reason does not matter here: what safe loading refuses is not opened in any other way.
        found.unsafe.append(name)
        return
    for key, tensor in _tensors("", value):
        found.add(key, tensor)


def _tensors(place: str, value: Any) -> list[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        return [(place, value)]
    if isinstance(value, dict):
        return [pair for key, item in value.items() for pair in _tensors(f"{place}.{key}".lstrip("."), item)]
    if isinstance(value, (list, tuple)):
        return [pair for n, item in enumerate(value) for pair in _tensors(f"{place}[{n}]", item)]
    return []
