"""What is refused because reading it runs code, however it is called or wrapped; and what only looks like it."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import tarfile
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import pytest
from archives import safetensors

from tui_pilot.archive.pickles import why_refused


class Runs:
    """Unpickled, it calls a function."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def zipped(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, data)
    return out.getvalue()


def tarred(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def array_of_objects() -> bytes:
    head = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + pickle.dumps([1])


def torch_file(table: bytes, more: Mapping[str, bytes] | None = None) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", table)
        archive.writestr("archive/data/0", b"\x80\x04raw tensor bytes")
        archive.writestr("archive/version", b"3\n")
        for name, data in (more or {}).items():
            archive.writestr(name, data)
    return out.getvalue()


STATE = OrderedDict(a=1, b=2.0)
REFUSED = {
    **{f"protocol {number}": ("model.bin", pickle.dumps(Runs(), number)) for number in range(6)},
    "a name alone": ("weights.joblib", b"anything"),
    "a harmless pickle": ("weights.txt", pickle.dumps({"a": 1}, 2)),
    "torch, a function in its table": ("weights.pt", torch_file(pickle.dumps(Runs(), 2))),
    "torch, a class from the stack": ("weights.pt", torch_file(pickle.dumps(STATE, 4))),
    "torch, with a script": ("weights.pt", torch_file(pickle.dumps(STATE, 2), {"archive/code/x.py": b""})),
    "a packed pickle": ("more.tar.gz", tarred("inner.dat", pickle.dumps(Runs()))),
    "a pickle in a zip": ("more.zip", zipped("inner", pickle.dumps(Runs()))),
    "a zip in a zip": ("more.zip", zipped("inner", zipped("inner", pickle.dumps(Runs())))),
    "an array of objects": ("rows.npy", array_of_objects()),
    "an array of objects in a zip": ("rows.npz", zipped("rows", array_of_objects())),
    "a damaged zip": ("weights.pt", zipped("a", b"x" * 100)[:60]),
}
ALLOWED = {
    "safetensors": ("weights.safetensors", safetensors()),
    "safetensors that begin like a pickle": ("weights.safetensors", safetensors(0x0280)),
    "torch, tensors and numbers": ("weights.pt", torch_file(pickle.dumps(STATE, 2))),
    "json": ("plan.json", json.dumps({"a": "os.system."}).encode()),
    "a sentence": ("README.md", b"I am.\nSo are you."),
    "code": ("task.py", b"import os\n\n\ndef build():\n    return 1.\n"),
    "nothing": ("empty.log", b""),
    "packed text": ("log.gz", gzip.compress(b"words")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_runs_code_is_refused(case: str, tmp_path: Path) -> None:
    name, data = REFUSED[case]
    (tmp_path / name).write_bytes(data)
    assert why_refused(tmp_path / name)


@pytest.mark.parametrize("case", ALLOWED)
def test_what_holds_numbers_and_text_is_not(case: str, tmp_path: Path) -> None:
    name, data = ALLOWED[case]
    (tmp_path / name).write_bytes(data)
    assert why_refused(tmp_path / name) is None


def test_the_function_is_named(tmp_path: Path) -> None:
    for name, data in (("a.bin", pickle.dumps(Runs())), ("b.pt", torch_file(pickle.dumps(Runs(), 2)))):
        (tmp_path / name).write_bytes(data)
        assert "posix.system" in str(why_refused(tmp_path / name))
