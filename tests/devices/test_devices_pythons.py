"""Finding the Python that trains: small scripts stand for interpreters with this or that torch."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tui_pilot.devices import probe as probing
from tui_pilot.devices import pythons, report
from tui_pilot.devices.probe import CudaDevice, Probe
from tui_pilot.devices.readings import Gpu, Inventory, Reading

Run = Callable[..., Any]
GPU = CudaDevice(0, "H100", "00005700-0000-4000-8000-000000000000", "00000000:10:00.0", (9, 0), 80 << 30)
CPU_TORCH = Probe("/usr/bin/python3", "/usr/bin/python3", "3.12.3", "/usr", "2.13.0+cpu", "/usr/lib/torch/__init__.py")
CUDA_TORCH = Probe(
    "/venv/main/bin/python", "/venv/main/bin/python", "3.12.3", "/venv/main", "2.13.0+cu130", "/v/torch/__init__.py",
    "13.0", devices=(GPU,),
)  # fmt: skip
NO_TORCH = Probe("/opt/tool/bin/python", "/opt/tool/bin/python", "3.11.9", "/opt/tool", error="it has no torch")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    pythons.forget()
    yield
    pythons.forget()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let these probes be all Pythons that are found."""

    def put(*probes: Probe) -> None:
        table = {each.python: each for each in probes}
        monkeypatch.setattr(pythons, "candidates", lambda: list(table))
        monkeypatch.setattr(pythons, "probe", lambda python: table.get(python, Probe(python, error="no such file")))

    return put


def test_auto_prefers_the_torch_that_can_use_the_gpus(here: Callable[..., None]) -> None:
    here(NO_TORCH, CPU_TORCH, CUDA_TORCH)
    choice = pythons.choose("auto", gpus=8)
    assert (choice.python, choice.device, choice.problem) == ("/venv/main/bin/python", "cuda", None)
    assert [each.python for each in choice.rejected] == ["/opt/tool/bin/python", "/usr/bin/python3"]
    assert "built for the CPU only" in choice.rejected[1].why and "2.13.0+cu130 (CUDA 13.0)" in choice.why


def test_without_gpus_auto_takes_the_first_torch(here: Callable[..., None]) -> None:
    here(NO_TORCH, CPU_TORCH, replace(CUDA_TORCH, devices=()))
    choice = pythons.choose("auto", gpus=0)
    assert (choice.python, choice.device, choice.problem) == ("/usr/bin/python3", "cpu", None)


def test_cpu_never_asks_for_gpus(here: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    here(CUDA_TORCH)
    monkeypatch.setattr(pythons, "gpus_here", lambda: pytest.fail("NVML was asked"))
    assert pythons.choose("cpu").device == "cpu"


def test_an_explicit_python_with_the_wrong_torch_names_a_better_one(here: Callable[..., None]) -> None:
    here(CPU_TORCH, CUDA_TORCH)
    choice = pythons.choose("auto", "/usr/bin/python3", gpus=8)
    assert choice.python == "/usr/bin/python3" and choice.device == "cpu"
    assert choice.problem == "8 GPUs are here, but this torch cannot use them: 2.13.0+cpu in /usr/bin/python3"
    assert choice.advice == (
        "Found one that can: /venv/main/bin/python (2.13.0+cu130). Put it in the plan, launch.python"
    )


def test_an_explicit_python_is_used_when_it_can(here: Callable[..., None]) -> None:
    here(CPU_TORCH, CUDA_TORCH)
    choice = pythons.choose("cuda", "/venv/main/bin/python", gpus=1)
    assert (choice.python, choice.device, choice.problem) == ("/venv/main/bin/python", "cuda", None)
    assert choice.why.startswith("launch.python in the plan")


def test_cuda_without_a_usable_gpu_still_names_a_python(here: Callable[..., None]) -> None:
    old = replace(CUDA_TORCH, devices=(), no_cuda="The NVIDIA driver on your system is too old")
    here(old)
    choice = pythons.choose("cuda", gpus=1)
    assert choice.python == old.python and choice.device == "cpu" and choice.problem
    assert "1 GPU is here, but this torch cannot use it" in choice.problem and "too old" in choice.problem
    assert "no GPU is here" in (pythons.choose("cuda", gpus=0).problem or "")


def test_no_torch_anywhere(here: Callable[..., None]) -> None:
    here(NO_TORCH)
    choice = pythons.choose("auto", gpus=0)
    assert choice.python is None and choice.device is None and choice.problem and choice.advice
    assert "/opt/tool/bin/python: it has no torch" in choice.problem
    explicit = pythons.choose("auto", "/nowhere/python", gpus=0)
    assert explicit.python is None and "/nowhere/python" in (explicit.problem or "")


def _python(folder: Path, body: str) -> str:
    """An executable that stands for a Python: it runs the real one with a folder of its own on the path."""
    folder.mkdir()
    (folder / "site").mkdir()
    (folder / "site" / "torch.py").write_text(body)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}/site" exec "{sys.executable}" -S "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


CUDA_BODY = """
class version: cuda, hip = "13.0", None
__version__ = "2.13.0+cu130"
print("noise on import")
class facts: name, uuid, major, minor, total_memory, pci_domain_id, pci_bus_id, pci_device_id = (
    "H100", "abc", 9, 0, 80, 0, 0x1A, 0)
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 2)
    get_device_properties = staticmethod(lambda number: facts)
"""


def test_a_probe_reads_torch_and_its_devices(tmp_path: Path) -> None:
    found = probing.probe(_python(tmp_path / "a", CUDA_BODY))
    assert (found.torch, found.build, found.cuda_usable, found.error) == ("2.13.0+cu130", "CUDA 13.0", True, None)
    assert [device.index for device in found.devices] == [0, 1]
    assert found.devices[0].bus_id == "00000000:1A:00.0" and found.devices[0].capability == (9, 0)


def test_a_probe_says_why_cuda_is_not_usable(tmp_path: Path) -> None:
    body = CUDA_BODY.replace("lambda: True", "lambda: False") + "    def init(): raise RuntimeError('driver too old')\n"
    found = probing.probe(_python(tmp_path / "a", body))
    assert found.error is None and not found.cuda_usable and found.no_cuda == "driver too old"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import no_such_library", "import torch fails"),
        ("raise RuntimeError('broken wheel')", "broken wheel"),
        ("import os; os.abort()", "signal 6"),
        ("import os; os._exit(3)", "exit code 3"),
    ],
)
def test_a_torch_that_breaks_is_named(tmp_path: Path, body: str, words: str) -> None:
    found = probing.probe(_python(tmp_path / "a", body))
    assert found.error and words in found.error and not found.cuda_usable


def test_a_python_that_hangs_or_cannot_start(tmp_path: Path) -> None:
    hung = _python(tmp_path / "a", "import time; time.sleep(600)")
    assert "took longer than" in (probing.probe(hung, timeout=1.0).error or "")
    assert probing.probe(str(tmp_path / "none")).error == "there is no such file"
    (tmp_path / "text").write_text("not a program")
    assert "cannot be started" in (probing.probe(str(tmp_path / "text")).error or "")


def test_a_folder_named_torch_in_the_working_directory_is_no_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = _python(tmp_path / "a", "")
    (tmp_path / "a" / "site" / "torch.py").unlink()
    (tmp_path / "torch.py").write_text("__version__ = 'mine'")
    monkeypatch.chdir(tmp_path)
    assert probing.probe(script).error == "it has no torch"


def test_probes_are_asked_once(tmp_path: Path) -> None:
    script = _python(tmp_path / "a", f"open({str(tmp_path / 'count')!r}, 'a').write('x')\n" + CUDA_BODY)
    assert probing.probe(script) is probing.probe(script)
    assert (tmp_path / "count").read_text() == "x"


def test_candidates_are_in_order_and_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = tmp_path / "venv" / "bin"
    environment.mkdir(parents=True)
    for name in ("python", "python3"):
        (environment / name).symlink_to(sys.executable)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    monkeypatch.setenv("PATH", str(environment))
    assert probing.candidates()[:2] == [sys.executable, str(environment / "python")]
    assert str(environment / "python3") not in probing.candidates()


NVML_GPUS = (
    Gpu(0, "GPU-11111111-0000", "L4", 1, 0, 1, (8, 9), "00000000:01:00.0"),
    Gpu(1, "GPU-00005700-0000-4000-8000-000000000000", "H100", 1, 0, 1, (9, 0), "00000000:10:00.0", basis="v2"),
)


def test_numbers_are_matched_by_uuid_and_by_address_only_without_one() -> None:
    assert report.match(GPU, NVML_GPUS) == (NVML_GPUS[1], "uuid")
    assert report.match(replace(GPU, uuid=None), NVML_GPUS) == (NVML_GPUS[1], "bus_id")
    assert report.match(replace(GPU, uuid="ffff"), NVML_GPUS) == (None, None)
    twins = tuple(replace(NVML_GPUS[1], uuid=f"MIG-{number}") for number in range(2))
    assert report.match(replace(GPU, uuid=None), twins) == (None, None)


def test_the_report_reads_as_json_and_as_lines() -> None:
    readings = [Reading(gpu.key, 0.0, 0, 5, 40, 70.0, 700.0, ("power cap",)) for gpu in NVML_GPUS]
    choice = pythons.Choice(CUDA_TORCH.python, CUDA_TORCH, "the first", device="cuda")
    seen = report.build(Inventory(NVML_GPUS, "580.1", "13.0"), readings, [NO_TORCH, CPU_TORCH, CUDA_TORCH], choice)
    assert json.loads(json.dumps(seen)) == json.loads(json.dumps(seen, allow_nan=False))
    assert seen["pythons"][2]["devices"][0]["nvml"] == 1 and seen["pythons"][2]["cuda_usable"]
    text = "\n".join(report.lines(seen))
    assert "2 GPUs, driver 580.1, CUDA up to 13.0" in text and "cuda:0 = gpu 1 of NVML" in text
    assert "torch 2.13.0+cpu (CPU only), cannot use GPUs" in text and "it has no torch" in text
    assert "slowed: power cap" in text and "\x1b" not in text


def test_the_report_without_nvml_says_why() -> None:
    choice = pythons.Choice(None, None, "no torch", problem="no Python here has a torch", advice="Install torch")
    text = "\n".join(report.lines(report.build(Inventory(why="no library\x1b[31m"), [], [], choice)))
    assert "NVML: no GPU: no library" in text and "! Install torch" in text and "\x1b" not in text


def test_the_whole_report_on_stand_in_gpus(on_stub: Run) -> None:
    script = """
from tui_pilot.devices import report, pythons, probe
found = probe.Probe(sys.executable, error="it has no torch")
probe._cache.update({python: found for python in probe.candidates()})
seen = report.report()
answer([seen, report.lines(seen)])
"""
    seen, lines = on_stub(script, gpus=2, readings="1 err=15\n")
    assert [gpu["code"] for gpu in seen["nvml"]["gpus"]] == [None, 15]
    assert any("lost" in line for line in lines) and any("no Python here has a torch" in line for line in lines)
