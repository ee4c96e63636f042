"""What the ``stack`` phase looks at: versions, one real operation per package, device, disk, kind of model files."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from tui_pilot.errors import PilotError
from tui_pilot.pilot import control, disk
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.loop import build_model
from tui_pilot.pilot.phase import Phase
from tui_pilot.plan.model import Plan

PROBE_SECONDS = 180
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")

# One tiny operation each, so that a package whose import succeeds and whose library does not work is found.
OPERATIONS = {
    "torch": "import torch; assert float((torch.ones(3, 3) @ torch.ones(3, 3)).sum()) == 27.0",
    "transformers": "import transformers; transformers.PretrainedConfig()",
    "peft": "import peft; peft.LoraConfig(r=2)",
    "safetensors": "import torch, safetensors.torch as s; s.load(s.save({'a': torch.ones(2)}))",
    "tokenizers": "from tokenizers import Tokenizer, models; Tokenizer(models.BPE())",
    "numpy": "import numpy; assert (numpy.ones(3) + 1).sum() == 6",
    "bitsandbytes": "import bitsandbytes.functional as f, torch; f.quantize_blockwise(torch.ones(64))",
    "flash_attn": "import flash_attn; from flash_attn import flash_attn_func",
}

KERNEL = (
    "import json, torch\n"
    "out = {'capability': list(torch.cuda.get_device_capability(0)), 'arch_list': torch.cuda.get_arch_list(),"
    " 'name': torch.cuda.get_device_name(0), 'ran': False, 'error': None}\n"
    "try:\n"
    "    x = torch.ones(64, 64, device='cuda'); out['ran'] = float((x @ x).sum()) == 262144.0\n"
    "except Exception as error:\n"
    "    out['error'] = f'{type(error).__name__}: {error}'.splitlines()[0]\n"
    "print(json.dumps(out))\n"
)


def look(current: Phase) -> None:
    """Fill the stack row: what is here, and whether it works."""
    context = current.context
    software = versions()
    current.inputs["python"] = platform.python_version()
    current.inputs["torch"] = torch.__version__
    task = context.task()
    names = list(dict.fromkeys(["torch", *task.packages()]))
    packages: dict[str, Any] = {}
    for number, name in enumerate(names):
        current.progress(number, len(names), "packages", name)
        packages[name] = try_package(name, context.folder)
        if packages[name].get("version"):
            software[name] = packages[name]["version"]
    current.inputs["packages"] = {name: found.get("version") for name, found in packages.items()}
    current.seen |= {
        "device": device(context),
        "packages": packages,
        "disk": disk.planned(context),
        "notes": without_effect(context.plan),
        **model_files(context),
        **lock(context, software),
    }
    if current.seen["device"].get("usable"):
        current.seen["kernels"] = kernel_probe()
        current.inputs["gpu"] = (current.seen["kernels"] or {}).get("name")
    current.inputs["device"] = current.seen["device"]["word"]
    disk_seen = current.seen["disk"]
    current.inputs["disk_free_bytes"], current.inputs["disk_need_bytes"] = disk_seen["free"], disk_seen["need"]
    context.facts("software", software)
    if (context.run.path / "control" / "lock").exists():
        current.progress(len(names), len(names), "control", "asking the model for the control rows")
        found = control.control_loss(context, build_model(context))
        current.inputs["control_loss"] = found["value"]
        context.facts("control_loss", found)


def without_effect(plan: Plan) -> list[str]:
    """Values that are read and change nothing yet: said in the stack row as notes."""
    found = []
    if plan.data.workers:
        found.append(f"data.workers {plan.data.workers}: rows are encoded in the training process itself.")
    if not plan.keep.artifact:
        found.append("keep.artifact false: the artifact stays until pilot-tui clean RUN.")
    return found


def versions() -> dict[str, Any]:
    """What a lock compares: interpreter, torch and its CUDA, driver where the kernel shows it."""
    found: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    for line in _lines(Path("/proc/driver/nvidia/version"))[:1]:
        words = [word for word in line.split() if word[:1].isdigit() and "." in word]
        found["driver"] = words[0] if words else line
    return found


def try_package(name: str, folder: Path) -> dict[str, Any]:
    """Import a package in a process of its own and run one tiny operation."""
    code = OPERATIONS.get(name, f"import {name}")
    version = None
    try:
        version = metadata.version(name.replace("_", "-"))
    except metadata.PackageNotFoundError:
        found = metadata.packages_distributions().get(name)
        version = metadata.version(found[0]) if found else None
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"version": version, "ok": False, "error": f"no answer in {PROBE_SECONDS} s"}
    if done.returncode == 0:
        return {"version": version, "ok": True}
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]
    missing = f"No module named '{name}'" in last
    return {"version": version, "ok": False, "missing": missing, "error": last}


def device(context: Context) -> dict[str, Any]:
    """The planned device and whether the training interpreter can use it; asked in a process that may see GPUs."""
    wanted = context.plan.device
    present = bool(_names(Path("/proc/driver/nvidia/gpus"))) or Path("/dev/nvidia0").exists()
    usable, why = False, ""
    if wanted != "cpu":
        code = "import json, torch; print(json.dumps([torch.cuda.is_available(), torch.cuda.device_count()]))"
        answer = _ask(code)
        usable = bool(answer and answer[0])
        why = f"{torch.__version__} in {sys.executable}" + ("" if torch.version.cuda else ", a build without CUDA")
    choice = _choice(context)
    if present and not usable and choice.get("problem"):
        why = f"{why}. {choice['problem']}"
    word = "cuda" if usable else "cpu, no accelerator" if not present else "cpu"
    return {
        "wanted": wanted,
        "usable": usable,
        "present": present,
        "why": why,
        "word": word,
        "advice": choice.get("advice"),
    }


def _choice(context: Context) -> dict[str, Any]:
    """Why this interpreter was chosen, as the run's own file tells it."""
    try:
        found = context.run.read_json(context.run.run_file).get("python_choice")
    except PilotError:
        return {}
    return found if isinstance(found, dict) else {}


def kernel_probe() -> dict[str, Any] | None:
    """One real kernel on the GPU, in its own process."""
    found = _ask(KERNEL)
    if found is None:
        return {"ran": False, "error": "the probe process gave no answer", "capability": None, "arch_list": []}
    answer: dict[str, Any] = found
    return answer


def _ask(code: str) -> Any:
    environment = dict(os.environ)
    # The data stage hides GPUs from itself; the supervisor keeps what was visible before.
    visible = environment.pop("PILOT_TUI_CUDA_VISIBLE_DEVICES", None)
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return None


def model_files(context: Context) -> dict[str, Any]:
    """Pickled weights in the model folder, and whether a safe file stands beside them."""
    path = context.plan.model.path
    if path is None or not Path(path).is_dir():
        return {}
    names = _names(Path(path))
    pickles = [name for name in names if name.endswith(PICKLES) and name != "training_args.bin"]
    safe = any(name.endswith(".safetensors") for name in names)
    return {"unsafe_files": pickles, "only_unsafe": not safe}


def lock(context: Context, software: dict[str, Any]) -> dict[str, Any]:
    """Differences from ``pilot.lock.json`` beside the plan, if there is one."""
    path = context.folder / "pilot.lock.json"
    if not path.is_file():
        return {}
    try:
        locked = json.loads(path.read_text("utf-8")).get("versions") or {}
    except (OSError, ValueError, AttributeError):
        return {}
    changed = {name: (version, software.get(name)) for name, version in locked.items() if software.get(name) != version}
    return {"changed": changed, "lock_file": str(path)}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _names(path: Path) -> list[str]:
    try:
        return sorted(item.name for item in path.iterdir())
    except OSError:
        return []
