"""What weight files hold, read without running anything in them: safetensors by its own header, torch files safely."""

from __future__ import annotations

import json
import pickle
import pickletools
import re
import struct
import zipfile
from dataclasses import dataclass, field
from itertools import islice
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
TORCH_ENDINGS = (".pt", ".pth", ".bin", ".ckpt")
PICKLE_ENDINGS = (".pkl", ".pickle", ".joblib", ".dill")
MOST_OPCODES = 100_000
_REFUSED = re.compile(r"GLOBAL ([\w.]+)")
_ARRAY_OF_OBJECTS = re.compile(rb"'descr': *'[|<>=]?O")
_TEXT = (".json", ".jsonl", ".txt", ".md", ".jinja", ".yaml", ".yml", ".py", ".toml", ".csv", ".html")


@dataclass
class Weights:
    """Tensors of a folder by name: hash, shape, element count.

    ``unsafe`` files hold objects that only unsafe loading could read; they were refused and not opened further, and
    ``refused`` says which object. ``unread`` weight files are cut off or damaged; ``foreign`` ones, ``foreign_bytes``
    long, are of a kind that is not read here. ``hollow`` tensors have a name and no element.
    """

    hashes: dict[str, str] = field(default_factory=dict)
    elements: int = 0
    zero: list[str] = field(default_factory=list)
    hollow: list[str] = field(default_factory=list)
    unsafe: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    foreign_bytes: int = 0
    dtypes: set[str] = field(default_factory=set)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def add(self, name: str, tensor: torch.Tensor) -> None:
        self.hashes[name] = tensor_hash(tensor)
        self.shapes[name] = tuple(tensor.shape)
        self.elements += tensor.numel()
        self.dtypes.add(str(tensor.dtype).removeprefix("torch."))
        if not tensor.numel():
            self.hollow.append(name)
        elif not bool((tensor != 0).any()):
            self.zero.append(name)


def read_folder(folder: Path) -> Weights:
    """Every tensor of every weight file in a folder, one tensor in memory at a time where the format allows it."""
    found = Weights()
    for path in _files(folder):
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors":
            try:
                _safetensors(path, found)
            except (ValueError, KeyError, OSError, struct.error):
                found.unread.append(name)
            continue
        kind = kind_of(path)
        if kind == "torch":
            _torch_file(path, name, found)
        elif kind == "pickle":
            _refuse(name, found, _first_object(path))
        elif kind == "other":
            found.foreign.append(name)
            found.foreign_bytes += path.stat().st_size
    return found


def unsafe_files(folder: Path) -> dict[str, str]:
    """Files of a folder that only unsafe loading could read, each with the object that safe loading refuses."""
    found = Weights()
    for path in _files(folder):
        name, kind = str(path.relative_to(folder)), kind_of(path)
        if kind == "torch":
            _torch_file(path, name, found, keep=False)
        elif kind == "pickle":
            _refuse(name, found, _first_object(path))
    return {name: found.refused.get(name, "") for name in found.unsafe}


def kind_of(path: Path) -> str:
    """``torch``, ``pickle`` (a plain one, or an array of objects), ``text``, ``empty`` or ``other``: by what is in the
    file, because a name promises nothing."""
    with path.open("rb") as stream:
        head = stream.read(256)
    if not head:
        return "empty"
    if path.suffix == ".safetensors":
        return "other"
    if head.startswith(b"PK\x03\x04"):
        kind = _archive(path)
        return "torch" if kind == "other" and path.suffix in TORCH_ENDINGS else kind
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        # torch's own old format is several pickles one after the other; the first is a fixed number of ten bytes.
        return "torch" if head[2:4] == b"\x8a\x0a" else "pickle"
    if path.suffix in PICKLE_ENDINGS:
        return "pickle"
    if path.suffix in TORCH_ENDINGS:
        return "torch"
    if head.startswith(b"\x93NUMPY"):
        return "pickle" if _ARRAY_OF_OBJECTS.search(head) else "other"
    return "text" if path.suffix in _TEXT or _is_text(head) else "other"


def _archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if any(name.endswith("data.pkl") for name in names):
                return "torch"
            for name in names:
                if name.endswith(".npy"):
                    with archive.open(name) as stream:
                        if _ARRAY_OF_OBJECTS.search(stream.read(256)):
                            return "pickle"
    except (zipfile.BadZipFile, OSError):
        return "other"
    return "other"


def _is_text(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 3 and b"\0" not in head
    return b"\0" not in head


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


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


def _torch_file(path: Path, name: str, found: Weights, keep: bool = True) -> None:
    """Loaded with ``weights_only``; what that refuses is not opened in any other way."""
    try:
        value = torch.load(path, map_location="cpu", weights_only=True, mmap=False)
    except pickle.UnpicklingError as error:
        what = _REFUSED.search(str(error))
        _refuse(name, found, what[1].rstrip(".") if what else "")
        return
    except Exception:  # a cut or damaged file raises whatever its reader meets first
        found.unread.append(name)
        return
    for key, tensor in _tensors("", value) if keep else ():
        found.add(key, tensor)


def _refuse(name: str, found: Weights, what: str) -> None:
    found.unsafe.append(name)
    if what:
        found.refused[name] = what


def _first_object(path: Path) -> str:
    """The first class or function that a plain pickle names; its opcodes are listed, none is carried out."""
    words: list[str] = []
    with path.open("rb") as stream:
        try:
            for code, argument, _ in islice(pickletools.genops(stream), MOST_OPCODES):
                if code.name in ("GLOBAL", "INST"):
                    return str(argument).replace(" ", ".")
                if code.name == "STACK_GLOBAL":
                    return ".".join(words[-2:])
                if isinstance(argument, str) and "UNICODE" in code.name:
                    words.append(argument)
        except (ValueError, UnicodeDecodeError):
            return ""
    return ""


def _tensors(place: str, value: Any) -> list[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        return [(place, value)]
    if isinstance(value, dict):
        return [pair for key, item in value.items() for pair in _tensors(f"{place}.{key}".lstrip("."), item)]
    if isinstance(value, (list, tuple)):
        return [pair for n, item in enumerate(value) for pair in _tensors(f"{place}[{n}]", item)]
    return []
