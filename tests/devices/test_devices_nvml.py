"""NVML through the real pynvml: what is read, and what is said where it cannot be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tui_pilot.devices import failures
from tui_pilot.devices.host import memory_total
from tui_pilot.devices.nvml import Gpu, Nvml, module_problem

GIB = 1 << 30
LOOK = """
from tui_pilot.devices.nvml import Nvml
nvml = Nvml()
seen = nvml.open()
answer({"seen": asdict(seen), "readings": [asdict(nvml.read(gpu, slow=True)) for gpu in seen.gpus]})
"""
Run = Callable[..., Any]


def test_one_gpu_is_read_whole(on_stub: Run) -> None:
    facts = "0 total=80G reserved=512M used=30G util=97 temp=61 power=690500 plimit=700000 throttle=0x44 name=H100_80GB"
    found = on_stub(LOOK, readings=facts)
    gpu, reading = found["seen"]["gpus"][0], found["readings"][0]
    assert (gpu["name"], gpu["basis"], gpu["capability"], gpu["error"]) == ("H100 80GB", "v2", [9, 0], None)
    assert gpu["usable"] == gpu["total"] - gpu["reserved_by_driver"] == 80 * GIB - (512 << 20)
    assert reading["uuid"] == gpu["uuid"] and reading["used"] == 30 * GIB
    assert (reading["utilization"], reading["temperature"], reading["power_w"]) == (97, 61, 690.5)
    assert reading["throttle"] == ["power cap", "hardware thermal"]
    assert found["seen"]["driver"] == "999.00.stub" and found["seen"]["cuda"] == "13.0"
    assert found["seen"]["why"] is None and found["seen"]["problem"] is None


def test_a_fast_reading_asks_for_memory_alone(on_stub: Run, tmp_path: Path) -> None:
    trace = tmp_path / "calls"
    script = LOOK.replace("slow=True", "") + "before = 1\nfor _ in range(50): nvml.read(seen.gpus[0])\n"
    on_stub(script, NVML_STUB_TRACE=str(trace))
    calls = {name: int(count) for count, name in (line.split() for line in trace.read_text().splitlines())}
    assert calls["nvmlDeviceGetMemoryInfo_v2"] >= 51
    assert "nvmlDeviceGetUtilizationRates" not in calls and "nvmlDeviceGetTemperature" not in calls
    assert not [name for name in calls if "Process" in name or "Pcie" in name]


def test_no_reading_ever_asks_for_processes_or_pcie(on_stub: Run, tmp_path: Path) -> None:
    trace = tmp_path / "calls"
    on_stub(LOOK, gpus=8, NVML_STUB_TRACE=str(trace))
    assert "Process" not in trace.read_text() and "Pcie" not in trace.read_text()


def test_eight_gpus_have_uuids_of_their_own(on_stub: Run) -> None:
    found = on_stub(LOOK, gpus=8)
    assert [gpu["index"] for gpu in found["seen"]["gpus"]] == list(range(8))
    assert len({gpu["uuid"] for gpu in found["seen"]["gpus"]}) == 8


@pytest.mark.parametrize(("code", "word"), [(15, "lost"), (4, "no permission"), (16, "reset"), (999, "restart")])
def test_a_failing_gpu_is_a_row_and_the_others_go_on(on_stub: Run, code: int, word: str) -> None:
    found = on_stub(LOOK, gpus=3, readings=f"1 err={code}\n")
    gpus, readings = found["seen"]["gpus"], found["readings"]
    assert gpus[1]["code"] == readings[1]["code"] == code
    assert word in gpus[1]["error"] and f"NVML {code}" in gpus[1]["error"]
    assert gpus[1]["total"] is None and readings[1]["used"] is None
    assert [gpus[index]["error"] for index in (0, 2)] == [None, None]
    assert readings[2]["used"] is not None


def test_an_old_driver_has_memory_v1_and_says_so(on_stub: Run) -> None:
    found = on_stub(LOOK, readings="0 total=24G reserved=300M used=1G\n", NVML_STUB_NO_V2="1")
    gpu = found["seen"]["gpus"][0]
    assert (gpu["basis"], gpu["reserved_by_driver"], gpu["usable"]) == ("v1", None, 24 * GIB)
    assert found["readings"][0]["used"] == GIB + (300 << 20)


@pytest.mark.parametrize("mode", ["na", "zero"])
def test_unified_memory_is_unknown_and_never_zero(on_stub: Run, mode: str) -> None:
    found = on_stub(LOOK, readings=f"0 mem={mode} util=12\n")
    gpu, reading = found["seen"]["gpus"][0], found["readings"][0]
    assert gpu["unified"] and gpu["total"] is None and gpu["usable"] is None and reading["used"] is None
    assert "unified memory" in gpu["error"] and "unified memory" in reading["error"]
    assert reading["utilization"] == 12


def test_unified_memory_that_answers_with_the_systems_total(on_stub: Run) -> None:
    total = memory_total()
    assert total
    gpu = on_stub(LOOK, readings=f"0 total={total} used=1G cc=12.1\n")["seen"]["gpus"][0]
    assert gpu["unified"] and gpu["total"] is None
    # A card of its own with as much memory as the host stays a card.
    assert on_stub(LOOK, readings=f"0 total={total} used=1G cc=9.0\n")["seen"]["gpus"][0]["total"] == total


def test_a_sensor_that_does_not_answer_is_named(on_stub: Run) -> None:
    reading = on_stub(LOOK, readings="0 util=na temp=na power=na\n")["readings"][0]
    assert reading["utilization"] is reading["temperature"] is reading["power_w"] is None
    assert {name for name, _ in reading["missing"]} == {"utilization", "temperature", "power_w"}
    assert all("not supported" in why for _, why in reading["missing"])
    assert reading["error"] is None and reading["used"] == 0


def test_mig_instances_stand_for_their_card(on_stub: Run) -> None:
    found = on_stub(LOOK, gpus=2, readings="1 mig=2 total=80G used=8G\n")
    card, one, two = found["seen"]["gpus"]
    assert card["parent"] is None and one["parent"] == two["parent"] and one["parent"].startswith("GPU-")
    assert one["uuid"].startswith("MIG-") and one["uuid"] != two["uuid"] and one["total"] == 40 * GIB
    assert found["readings"][1]["used"] == 4 * GIB and found["readings"][1]["utilization"] is None


@pytest.mark.parametrize(
    ("code", "word"), [(9, "not loaded"), (18, "versions differ"), (999, "containers"), (4, "perm")]
)
def test_nvml_that_does_not_start(on_stub: Run, code: int, word: str) -> None:
    seen = on_stub(LOOK, NVML_STUB_INIT_ERR=str(code))["seen"]
    assert seen["gpus"] == [] and seen["code"] == code
    assert word in seen["why"] and f"NVML {code}" in seen["why"]


def test_no_gpu_at_all(on_stub: Run) -> None:
    assert on_stub(LOOK, gpus=0)["seen"]["why"] == "NVML counts no GPU"


def test_no_library(on_stub: Run, tmp_path: Path) -> None:
    seen = on_stub("import ctypes\n" + LOOK, LD_LIBRARY_PATH=str(tmp_path))["seen"]
    if seen["gpus"]:
        pytest.skip("a real NVIDIA driver is installed here")
    assert "no libnvidia-ml.so.1 here" in seen["why"] or seen["code"] in (9, 18, 999)


def test_a_driver_that_dies_keeps_the_old_handle(on_stub: Run) -> None:
    script = """
from tui_pilot.devices.nvml import Nvml
nvml = Nvml()
seen = nvml.open()
first = [asdict(nvml.read(gpu)) for gpu in seen.gpus]
readings("0 err=999\\n1 err=15\\n")
dead = [asdict(nvml.read(gpu, slow=True)) for gpu in seen.gpus]
readings("0 used=2G\\n1 err=15\\n")
back = [asdict(nvml.read(gpu)) for gpu in seen.gpus]
nvml.close()
closed = asdict(nvml.read(seen.gpus[0]))
answer([first, dead, back, closed])
"""
    first, dead, back, closed = on_stub(script, gpus=2, readings="0 used=1G\n1 used=1G\n")
    assert [reading["used"] for reading in first] == [GIB, GIB]
    assert [(reading["used"], reading["code"]) for reading in dead] == [(None, 999), (None, 15)]
    assert [(reading["used"], reading["code"]) for reading in back] == [(2 * GIB, None), (None, 15)]
    assert closed["used"] is None and closed["error"] == "NVML is closed"


def test_a_library_mismatch_is_no_nvml_error_and_still_explained() -> None:
    pynvml = pytest.importorskip("pynvml")
    mismatch = pynvml.NVMLLibraryMismatchError("unversioned function")
    assert not isinstance(mismatch, pynvml.NVMLError)
    assert "too old" in failures.explain(mismatch).reason
    assert failures.explain(AttributeError("nvmlX")).code == failures.FUNCTION_NOT_FOUND
    assert failures.explain(RuntimeError("odd")).reason == "RuntimeError: odd"


def test_a_shadowed_pynvml_is_named(on_stub: Run, tmp_path: Path) -> None:
    assert module_problem("/x/site-packages/pynvml.py") is None
    (tmp_path / "pynvml").mkdir()
    (tmp_path / "pynvml" / "__init__.py").write_text("import missing_part\n")
    shadow = f"sys.path.insert(0, {str(tmp_path)!r})\n"
    assert "cannot be imported" in on_stub(shadow + LOOK)["seen"]["why"]
    (tmp_path / "pynvml" / "__init__.py").write_text("def nvmlInit(): pass\ndef nvmlDeviceGetCount(): return 1\n")
    seen = on_stub(shadow + LOOK)["seen"]
    assert "not from nvidia-ml-py" in seen["problem"]
    assert "lacks the function" in seen["gpus"][0]["error"]


def test_reading_before_open_answers() -> None:
    assert Nvml().read(Gpu(0, "GPU-x")).error == "NVML is closed"


def test_devices_load_neither_torch_nor_the_screen() -> None:
    code = (
        "import sys, pkgutil, importlib, tui_pilot.devices as d\n"
        "for m in pkgutil.iter_modules(d.__path__): importlib.import_module('tui_pilot.devices.' + m.name)\n"
        "print(*{'torch', 'textual', 'rich', 'click', 'pynvml', 'pydantic', 'psutil'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stdout.strip(), done.stdout + done.stderr


def test_the_training_side_needs_the_standard_library_alone() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import host; host.process_memory(); host.cgroup_memory()"
    folder = Path(failures.__file__).parent
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, str(folder)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
