"""GPUs that are not there: a stand-in for libnvidia-ml.so.1, driven through the real pynvml in other processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parent.parent / "nvml_stub.c"
REPOSITORY = SOURCE.parent.parent


@pytest.fixture(scope="session")
def stub_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in, for LD_LIBRARY_PATH."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler here to build the NVML stand-in")
    folder = tmp_path_factory.mktemp("nvml")
    library = folder / "libnvidia-ml.so.1"
    flags = ["-O1", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    done = subprocess.run(
        [compiler, *flags, "-o", str(library), str(SOURCE), "-lpthread"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"the NVML stand-in does not compile here: {done.stderr[-300:]}")
    return folder


Run = Callable[..., Any]


@pytest.fixture
def on_stub(stub_folder: Path, tmp_path: Path) -> Run:
    """Run a script in its own process on `gpus` stand-in GPUs; what it hands to `answer(...)` comes back."""

    def run(script: str, gpus: int = 1, readings: str = "", **environment: str) -> Any:
        file = tmp_path / "gpus.txt"
        file.write_text(readings)
        variables = {
            **os.environ,
            "LD_LIBRARY_PATH": str(stub_folder),
            "NVML_STUB_COUNT": str(gpus),
            "NVML_STUB_FILE": str(file),
            "PYTHONPATH": str(REPOSITORY),
            **environment,
        }
        head = (
            "import json, os, sys\nfrom dataclasses import asdict\nfrom pathlib import Path\n"
            "def answer(value): print('ANSWER ' + json.dumps(value))\n"
            f"def readings(text): Path({str(file)!r}).write_text(text)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", head + script],
            env=variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(next(line[7:] for line in done.stdout.splitlines() if line.startswith("ANSWER ")))

    return run
