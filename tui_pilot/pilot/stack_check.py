"""What the ``stack`` phase looks at: versions, one real operation per package, device, disk, kind of model files."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from tui_pilot.errors import PilotError
from tui_pilot.observe.tensor_files import kind_of
from tui_pilot.pilot import control, disk
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.loop import build_model
from tui_pilot.pilot.packages import PROBE_SECONDS, gpus_visible, try_package, wanted
from tui_pilot.pilot.phase import Phase
from tui_pilot.pilot.versions import lock, unmet, versions
from tui_pilot.plan.model import Plan

AT_ONCE = 3
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")

KERNEL = (
    "import json, torch\n"
    "for n in range(max(1, torch.cuda.device_count())):\n"
    "    out = {'device': n, 'capability': list(torch.cuda.get_device_capability(n)),"
    " 'arch_list': torch.cuda.get_arch_list(), 'name': torch.cuda.get_device_name(n), 'ran': False, 'error': None}\n"
    "    try:\n"
    "        x = torch.ones(64, 64, device=f'cuda:{n}'); out['ran'] = float((x @ x).sum()) == 262144.0\n"
    "    except Exception as error:\n"
    "        out['error'] = f'{type(error).__name__}: {error}'.splitlines()[0]\n"
    "    if not out['ran']:\n"
    "        break\n"
    "print(json.dumps(out))\n"
)


def look(current: Phase) -> None:
    """Fill the stack row: what is here, and whether it works."""
    context = current.context
    software = versions()
    current.inputs["python"] = platform.python_version()
    current.inputs["torch"] = torch.__version__
    current.seen["device"] = device(context)
    where = "cuda" if current.seen["device"]["usable"] else "cpu"
    names = wanted(context.task())
    packages: dict[str, Any] = {}
    # Most of a probe is reading files and starting up, so a few at a time; never all: each may hold a GPU context.
    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = [pool.submit(try_package, *item, context.folder, where) for item in names.items()]
        for number, (name, answer) in enumerate(zip(names, asked, strict=True)):
            current.progress(number, len(names), "packages", name)
            packages[name] = answer.result()
            if packages[name].get("version"):
                software[name] = packages[name]["version"]
    current.inputs["packages"] = {name: found.get("version") for name, found in packages.items()}
    current.seen |= {
        "packages": packages,
        "unmet": unmet(names),
        "disk": disk.planned(context),
        "notes": without_effect(context.plan),
        **model_files(context),
        **lock(context.folder, software),
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
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=gpus_visible(),
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
    pickles = [name for name in names if name != "training_args.bin" and _is_pickle(Path(path) / name)]
    safe = any(name.endswith(".safetensors") for name in names)
    return {"unsafe_files": pickles, "only_unsafe": not safe}


def _is_pickle(path: Path) -> bool:
    """By its name, or by how it begins whatever it is named."""
    try:
        return path.is_file() and (path.name.endswith(PICKLES) or kind_of(path) in ("torch", "pickle"))
    except OSError:  # a file that cannot be read is nobody's weights; the task says so when it needs it
        return False


def _names(path: Path) -> list[str]:
    try:
        return sorted(item.name for item in path.iterdir())
    except OSError:
        return []
