"""Area 10, the software below: packages that import and do not work, kernels, locked versions, the control batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from area_8 import SMALL, plan
from lab import Lab, codes, reason_of

from tui_pilot.gates.judge import judge
from tui_pilot.gates.stack import covers
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.store.state import Row, RunState

FAKE = '''
"""A torch for probes: ``CAPABILITY`` and ``ARCHES`` of a GPU that is not here, kernels where these match."""

import json, os

GPU = json.loads(os.environ.get("FAKE_GPU", "null"))

class Tensor:
    def __init__(self, rows, columns, device):
        if device != "cpu" and not GPU["runs"]:
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
        self.rows, self.columns = rows, columns
    def __matmul__(self, other):
        return self
    def sum(self):
        return float(self.rows * self.columns * self.columns)

def ones(rows, columns=1, device="cpu", dtype=None):
    return Tensor(rows, columns, device)

class cuda:
    is_available = staticmethod(lambda: GPU is not None)
    device_count = staticmethod(lambda: 0 if GPU is None else 1)
    get_device_capability = staticmethod(lambda number: tuple(GPU["capability"]))
    get_arch_list = staticmethod(lambda: GPU["arches"])
    get_device_name = staticmethod(lambda number: "Some GPU")
'''


def found(phase: str, seen: dict[str, Any]) -> dict[str, Reason]:
    return {reason.code: reason for reason in judge(phase, seen, Plan()).reasons}


def stack(
    lab: Lab,
    packages: Any = (),
    files: Mapping[str, str] | None = None,
    *,
    gpu: Mapping[str, Any] | None = None,
    device: str = "auto",
) -> Row:
    """The ``stack`` row of a task that names these packages. Probes meet the stand-in torch, which imports at once."""
    code = f"from small import *\nclass Own(Small):\n    def packages(self):\n        return {packages!r}\n"
    text = plan("Own", skip="examples, splits").replace("device: cpu", f"device: {device}")
    lab.prepare(text, {"small.py": SMALL, "own.py": code, "fake/torch.py": FAKE, **(files or {})})
    return lab.stage("data", env=environment(lab, gpu)).row("stack")


def environment(lab: Lab, gpu: Mapping[str, Any] | None = None) -> dict[str, str]:
    return {"PYTHONPATH": str(lab.folder / "fake"), **({} if gpu is None else {"FAKE_GPU": json.dumps(gpu)})}


def installed(name: str, version: str, *requires: str) -> dict[str, str]:
    """What a package manager leaves of a distribution, beside the plan, where the stage finds it first."""
    lines = "".join(f"Requires-Dist: {each}\n" for each in requires)
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    return {f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}"}


# -- 10.02 -----------------------------------------------------------------------------------------------------------
FAST = """
import warnings
warnings.warn("The installed version of fast was compiled without GPU support.")

def add(left, right):
    {body}
"""
BROKEN = FAST.format(body='raise RuntimeError("libfast.so: undefined symbol: cadd")')
WORKS = FAST.format(body="return left + right")
ONCE = {"fast": "assert fast.add(1, 2) == 3"}
H200 = {"capability": [9, 0], "arches": ["sm_80", "sm_90"], "runs": True}


def test_10_02_module_that_imports_with_a_warning_and_fails_at_its_first_call(lab: Lab) -> None:
    row = stack(lab, ONCE, {"fast.py": BROKEN})
    reason = reason_of(row, "extension_broken")
    assert reason["severity"] == "fail" and reason["where"] == {"package": "fast"}
    assert (
        "fast imports, but its first operation failed" in reason["text"] and "undefined symbol: cadd" in reason["text"]
    )
    assert "without GPU support" in reason_of(row, "extension_falls_back")["text"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return 4", "AssertionError"),
        ("import os; os.kill(os.getpid(), 11)", "the process died by SIGSEGV"),
        ("import os; os._exit(0)", "ended early, exit code 0"),
    ],
)
def test_10_02_operations_that_end_otherwise(lab: Lab, body: str, words: str) -> None:
    reason = reason_of(stack(lab, ONCE, {"fast.py": FAST.format(body=body)}), "extension_broken")
    assert "imports, but its first operation failed" in reason["text"] and words in reason["text"]


def test_10_02_module_that_does_not_import_and_one_that_is_not_there(lab: Lab) -> None:
    row = stack(lab, ["fast", "nowhere_at_all"], {"fast.py": "import ctypes\nctypes.CDLL('libnowhere.so.9')\n"})
    reason = reason_of(row, "extension_broken")
    assert "fast cannot be imported" in reason["text"] and "libnowhere.so.9" in reason["text"]
    assert reason_of(row, "package_missing")["where"] == {"package": "nowhere_at_all"}


@pytest.mark.parametrize(("gpu", "severity", "verdict"), [(None, "note", "pass"), (H200, "warn", "warn")])
def test_10_02_a_fall_back_matters_where_a_gpu_is_in_use(lab: Lab, gpu: Any, severity: str, verdict: str) -> None:
    row = stack(lab, ONCE, {"fast.py": WORKS}, gpu=gpu)
    reason = reason_of(row, "extension_falls_back")
    assert (reason["severity"], row.verdict) == (severity, verdict), row.reasons
    assert "fast works, and says" in reason["text"]


def test_10_02_quiet_packages_and_other_warnings_pass(lab: Lab) -> None:
    files = {
        "fast.py": "import warnings\nwarnings.warn('add is deprecated, use plus', DeprecationWarning)\nadd = sum\n",
        "plain.py": "",
    }
    row = stack(lab, {"fast": "fast.add([1])", "plain": ""}, files, gpu=H200)
    assert (row.verdict, codes(row)) == ("pass", []), row.reasons


def test_10_02_the_operation_runs_where_the_plan_trains(lab: Lab) -> None:
    code = "def here(device):\n    assert device == 'cuda', device\n"
    packages = {"fast": "fast.here('{device}')"}
    assert stack(lab, packages, {"fast.py": code}, gpu=H200).verdict == "pass"
    assert "AssertionError: cpu" in reason_of(stack(lab, packages, {"fast.py": code}), "extension_broken")["text"]


# -- 10.03 -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("capability", "arches", "runs", "severity", "words"),
    [
        ([12, 0], ["sm_80", "sm_90"], False, "fail", "capability [12, 0]: it was built for sm_80, sm_90"),
        ([12, 0], ["sm_80", "sm_90", "compute_90"], True, "warn", "JIT: sm_80, sm_90, compute_90"),
        ([8, 0], ["sm_86", "sm_90"], False, "fail", "capability [8, 0]"),
        ([9, 0], ["sm_90"], False, "fail", "no kernel image is available"),
    ],
)
def test_10_03_kernels_for_another_gpu(
    lab: Lab, capability: list[int], arches: list[str], runs: bool, severity: str, words: str
) -> None:
    row = stack(lab, gpu={"capability": capability, "arches": arches, "runs": runs})
    reason = reason_of(row, "no_kernel_for_gpu")
    assert (reason["severity"], row.verdict) == (severity, severity)
    assert words in reason["text"] and reason["where"] == {"device": "cuda:0"}


def test_10_03_kernels_for_this_gpu_pass(lab: Lab) -> None:
    row = stack(lab, gpu={"capability": [8, 6], "arches": ["sm_80", "compute_80"], "runs": True})
    assert (row.verdict, codes(row)) == ("pass", []) and row.inputs["gpu"] == "Some GPU"


@pytest.mark.parametrize(
    ("capability", "arches", "word"),
    [
        ([9, 0], ["sm_90a"], "yes"),
        ([10, 3], ["sm_100a"], "no"),
        ([10, 3], ["sm_100f", "sm_90"], "yes"),
        ([12, 1], ["sm_120"], "yes"),
        ([10, 0], ["sm_90", "compute_90a"], "no"),
        ([10, 0], ["sm_90", "compute_90"], "jit"),
        ([9, 0], ["gfx90a"], "no"),
        ([9, 0], [], "unknown"),
    ],
)
def test_10_03_what_a_build_runs_on(capability: list[int], arches: list[str], word: str) -> None:
    assert covers(capability, arches) == word


def test_10_03_without_an_answer_it_is_unchecked_and_without_the_planned_gpu_a_fail(lab: Lab) -> None:
    seen = {"ran": False, "error": None, "capability": None, "arch_list": []}
    assert judge("stack", {"device": {"wanted": "cuda", "usable": True}, "kernels": seen}, Plan()).word == "unchecked"
    reason = reason_of(stack(lab, device="cuda"), "device_not_used")
    assert reason["severity"] == "fail" and "device: cuda is planned" in reason["text"]


# -- 10.05 -----------------------------------------------------------------------------------------------------------
def locked(versions: Mapping[str, Any], control: Any = None) -> str:
    return json.dumps({"schema": 1, "versions": versions, "control_loss": control})


def test_10_05_version_that_differs_from_the_lock(lab: Lab) -> None:
    files = {"trl.py": "", **installed("trl", "0.19.1"), "pilot.lock.json": locked({"trl": "0.19.0"})}
    row = stack(lab, ["trl"], files)
    reason = reason_of(row, "version_changed")
    assert row.verdict == "warn" and reason["where"] == {"package": "trl", "file": str(lab.folder / "pilot.lock.json")}
    assert "trl: locked 0.19.0, here 0.19.1" in reason["text"]


def test_10_05_same_versions_pass_named_by_the_task_or_not(lab: Lab) -> None:
    versions = {"trl": "0.19.0", "some-kernels": "1.0"}
    files = {"trl.py": "", **installed("trl", "0.19.0"), **installed("some-kernels", "1.0")}
    row = stack(lab, ["trl"], {**files, "pilot.lock.json": locked(versions)})
    assert (row.verdict, codes(row)) == ("pass", []), row.reasons


def test_10_05_every_difference_is_named(lab: Lab) -> None:
    versions = {"trl": "0.19.0", "triton": "3.4.0", "python": "2.7.18"}
    row = stack(lab, ["trl"], {"trl.py": "", **installed("trl", "0.19.1"), "pilot.lock.json": locked(versions)})
    named = {reason["where"]["package"]: reason["text"] for reason in row.reasons}
    assert set(named) == {"trl", "triton", "python"} and "here not installed" in named["triton"]


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_10_05_lock_that_cannot_be_read_is_unchecked(lab: Lab, text: str) -> None:
    row = stack(lab, files={"pilot.lock.json": text})
    assert row.verdict == "unchecked" and "versions were not compared" in reason_of(row, "not_observed")["text"]


TRITON = 'triton==3.4.0; platform_system == "Linux"'


def test_10_05_triton_that_this_torch_was_not_built_for(lab: Lab) -> None:
    row = stack(lab, files={**installed("torch", "9.8.0", TRITON), **installed("triton", "3.3.1")})
    reason = reason_of(row, "requirement_unmet")
    assert (row.verdict, reason["severity"], reason["where"]) == ("fail", "fail", {"package": "triton"})
    assert "torch was made for triton ==3.4.0, here is 3.3.1" in reason["text"]


@pytest.mark.parametrize(
    ("requires", "here", "severity"),
    [
        ((TRITON,), "3.4.0", None),
        ((TRITON,), "3.4.0+git1", None),
        (("triton==3.3.1; python_version < '3'", TRITON), "3.4.0", None),
        (("triton==3.4.*",), "3.4.7", None),
        (("triton>=3.0,<3.4",), "3.4.0", "warn"),
        (("triton>=3.0,<4",), "3.4.0", None),
        (("triton==9; extra == 'all'",), "3.4.0", None),
        (("absent==1.0",), "3.4.0", None),
        (("triton~=3.3",), "3.4.0", None),
        (("triton~=3.3.0",), "3.4.0", "warn"),
    ],
)
def test_10_05_what_a_package_requires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requires: tuple[str, ...], here: str, severity: str | None
) -> None:
    from tui_pilot.pilot.versions import unmet

    for name, text in {**installed("other", "1.0", *requires), **installed("triton", here)}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    reasons = found("stack", {"unmet": unmet(["other"])})
    assert [each.severity for each in reasons.values()] == ([severity] if severity else [])


# -- 10.06 -----------------------------------------------------------------------------------------------------------
UPGRADED = """
from small import *
import library

class Own(Small):
    def build_model(self):
        torch.manual_seed(1)
        return Net()

    def loss(self, model, batch):
        return library.loss(super().loss(model, batch), model)

    def encode(self, record):
        found = super().encode(record)
        return {**found, "labels": library.labels(found["labels"])}
"""
LIBRARY = """
def loss(value, model):
    return {loss}

def labels(given):
    return {labels}
"""
PEAK = "stack, evaluate, steady_step"


def pilot(lab: Lab, loss: str = "value", labels: str = "given", more: str = "") -> None:
    library = LIBRARY.format(loss=loss, labels=labels)
    lab.prepare(plan("Own", skip=PEAK, more=more), {"small.py": SMALL, "own.py": UPGRADED, "library.py": library})


@pytest.fixture
def with_lock(lab: Lab) -> dict[str, Any]:
    """What ``check --lock`` keeps of the control batch, written beside the plan."""
    text = plan("Own", skip="examples, splits")
    (lab.folder / "fake").mkdir()
    (lab.folder / "fake" / "torch.py").write_text(FAKE)
    library = LIBRARY.format(loss="value", labels="given")
    run = lab.prepare(text, {"small.py": SMALL, "own.py": UPGRADED, "library.py": library})
    (run.path / "control").mkdir(exist_ok=True)
    (run.path / "control" / "lock").touch()
    state: RunState = lab.stage("data", env=environment(lab))
    control: dict[str, Any] = dict(state.facts["control_loss"])
    (lab.folder / "pilot.lock.json").write_text(locked({}, control))
    return control


def test_10_06_nothing_changed(lab: Lab, with_lock: dict[str, Any]) -> None:
    pilot(lab)
    row = lab.stage("peak").row("forward")
    assert (row.verdict, codes(row)) == ("pass", []), row.reasons
    assert with_lock["items"] == 16 and with_lock["gradient_norm"] > 0
    assert row.inputs["control_loss"] == row.inputs["control_loss_locked"] == with_lock["value"]


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("value * 4", "(x4); expected within 1e-04"),
        ("value * 1.001", "(x1); expected within 1e-04"),
        ("value * float('nan')", "now no number"),
        ("value.detach() + 3 * (value - value.detach())", "gradient norm was"),
    ],
)
def test_10_06_an_upgrade_moves_the_control_batch(lab: Lab, with_lock: dict[str, Any], loss: str, words: str) -> None:
    pilot(lab, loss)
    row = lab.stage("peak").row("forward")
    reason = reason_of(row, "control_loss_moved")
    assert reason["severity"] == "fail" and words in reason["text"], reason
    stored = f"gradient norm was {with_lock['gradient_norm']:.4g}" if "norm" in words else f"{with_lock['value']:.4f}"
    assert stored in reason["text"] and "when it was locked" in reason["text"]


def test_10_06_an_upgrade_masks_other_tokens(lab: Lab, with_lock: dict[str, Any]) -> None:
    pilot(lab, labels="[*given[:3], IGNORE, IGNORE]".replace("IGNORE", "-100"))
    reason = reason_of(lab.stage("peak").row("forward"), "control_loss_moved")
    assert "other ids than when it was locked: 8 supervised items, was 16" in reason["text"]


def test_10_06_arithmetic_alone_and_another_precision_pass(lab: Lab, with_lock: dict[str, Any]) -> None:
    pilot(lab, "value * 1.00005")
    assert lab.stage("peak").row("forward").verdict == "pass"
    pilot(lab, more="precision: bf16-amp\n")
    row = lab.stage("peak").row("forward")
    assert "control_loss_moved" not in codes(row) and row.verdict == "pass", row.reasons


def test_10_06_another_plan_than_the_locked_one_is_unchecked(lab: Lab, with_lock: dict[str, Any]) -> None:
    pilot(lab, "value * 4", more="options: {other: 1}\n")
    row = lab.stage("peak").row("forward")
    assert row.verdict == "unchecked" and "changed since the lock" in reason_of(row, "not_observed")["text"]


def test_10_06_the_numbers_of_the_report() -> None:
    reason = found("forward", {"control": {"stored": 3.6816, "now": 14.7}})["control_loss_moved"]
    assert reason.severity == "fail" and "was 3.6816 when it was locked, now 14.7000 (x4)" in reason.text
    assert found("forward", {"control": {"stored": 3.6816, "now": 3.6817}}) == {}
    elsewhere = {"stored": 3.6816, "now": 3.69, "same": {"device": False}, "of": "cpu, fp32"}
    assert found("forward", {"control": elsewhere}) == {}
    moved = found("forward", {"control": {**elsewhere, "now": 14.7}})["control_loss_moved"]
    assert "(locked on cpu, fp32)" in moved.text
