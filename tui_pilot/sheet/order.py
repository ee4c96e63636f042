"""An order file: a task for SkyPilot that runs the campaign of a retained configuration on rented GPUs. Pure.

It is a managed job: after a pre-emption SkyPilot starts it again elsewhere, on the same bucket, and the command goes on
from what lies there. The pilot runs on the rented machine first: what was measured here holds for here alone.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from tui_pilot.errors import EXIT_PLAN_WRONG, PilotError
from tui_pilot.plan.model import Plan
from tui_pilot.text import GIB, harmless, size

Json = Mapping[str, Any]

#: The catalogue's names as SkyPilot calls them; another one is its name without the memory.
NAMES = {
    "A100 80GB": "A100-80GB",
    "A100 40GB": "A100",
    "H100 80GB": "H100",
    "H100 NVL 94GB": "H100-NVL",
    "RTX PRO 6000 96GB": "RTXPRO6000",
    "RTX 6000 Ada 48GB": "RTX6000-Ada",
    "V100 32GB": "V100-32GB",
}
ENGINES = ("skypilot",)
KEPT = "/checkpoints"
HOME = "~/campaign"


def skypilot(item: Json, plan: Plan, folder: str, plan_file: str) -> str:
    """The YAML text. ``folder`` is where the plan's relative paths start, ``plan_file`` the resolved plan of the run.

    Raises a PilotError for a configuration that is not retained: nobody should rent for it.
    """
    import yaml

    if not item["retained"]:
        raise PilotError(
            f"{item['short']} is not retained: {item['why_not'][0]}.",
            "Mend it, or override the fail with a mark and a note; then order.",
            code="not_retained", title="No order was written", exit_code=EXIT_PLAN_WRONG,
        )  # fmt: skip
    task = {
        "name": name(item["name"]),
        "resources": resources(item, plan),
        "num_nodes": max(1, plan.launch.nodes),
        "envs": {"PILOT_TUI": "pilot-tui[pilot,hf]", "PILOT_TUI_RUNS": f"{KEPT}/runs"},
        "file_mounts": mounts(item, plan, folder, plan_file),
        "setup": 'pip install "$PILOT_TUI"\n',
        "run": command(plan),
    }
    body = yaml.dump(task, Dumper=_dumper(yaml), sort_keys=False, width=100, allow_unicode=False)
    return "".join(f"# {harmless(line)}\n" for line in head(item, plan)) + body


def _dumper(yaml: Any) -> Any:
    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        """Scripts of several lines as blocks, as people write them."""

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return Dumper


def head(item: Json, plan: Plan) -> list[str]:
    """What a reader must know before it costs money."""
    said = [
        f"Order of {item['short']}, by pilot-tui. Start it as a managed job: sky jobs launch FILE",
        "SkyPilot rents and bills; pilot-tui starts and stops no machine. Look at every line first.",
    ]
    need = item["memory_need"]
    if need is not None:
        margin = f", {item['memory_margin_asked']:.0%} to stay free" if item["memory_margin_asked"] else ""
        said.append(f"Memory: {size(need['bytes'])} measured on each GPU, set by {need['phase']}{margin}.")
    elif item["fits"]:
        said.append(f"Memory: {size(item['fits'][0]['need_bytes'])} predicted on each GPU, not measured.")
    else:
        said.append(f"No GPU is asked for: {item['fits_note']}.")
    if not plan.compare.trials and plan.command is None:
        said.append(
            "The plan has neither trials nor a command: this runs the pilot alone. Put your training in its place."
        )
    said += [f"Open: {question}" for question in item["open"]]
    return said


def name(text: str) -> str:
    """A name that SkyPilot takes: letters, digits and dashes, a letter first."""
    safe = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:50]
    return safe if safe[:1].isalpha() else f"campaign-{safe}".rstrip("-")


def resources(item: Json, plan: Plan) -> dict[str, Any]:
    """GPUs that hold the need, any of them; without a need what the CPU run took, and no GPU."""
    disk = (item["sizes"]["checkpoint_bytes"] or 0) * (plan.checkpoint.keep + 1) + (
        item["sizes"]["artifact_bytes"] or 0
    )
    found: dict[str, Any] = {
        "use_spot": True,
        "job_recovery": {"strategy": "EAGER_NEXT_REGION", "max_restarts_on_errors": 0},
        "disk_size": max(100, 50 + -(-disk // GIB)),
    }
    host = max((entry.get("host_peak") or 0 for entry in item["memory"]), default=0)
    if host:
        found["memory"] = f"{max(4, -(-2 * host // GIB))}+"
    gpus = [each["name"] for each in item["fits"] if each["fits"]]
    if gpus:
        count = max(1, plan.launch.processes)
        found["accelerators"] = {sky_name(each): count for each in gpus}
    elif item["fits"]:
        raise PilotError(
            f"No GPU of those asked holds {item['short']}: it needs {size(item['fits'][0]['need_bytes'])} on each.",
            "Name others in rental.gpus, or take a variant that needs less.",
            code="nothing_fits", title="No order was written", exit_code=EXIT_PLAN_WRONG,
        )  # fmt: skip
    else:
        found["cpus"] = "4+"
    return found


def sky_name(gpu: str) -> str:
    """A GPU of the catalogue as SkyPilot calls it: ``L40S``, ``RTX4090``, ``A100-80GB``."""
    return NAMES.get(gpu) or "".join(word for word in gpu.split() if not word.endswith("GB"))


def mounts(item: Json, plan: Plan, folder: str, plan_file: str) -> dict[str, Any]:
    """The plan, its data, model and task where the plan expects them, and a bucket for checkpoints and runs."""
    found: dict[str, Any] = {f"{HOME}/pilot.yaml": plan_file}
    data = plan.data
    validation = data.validation if isinstance(data.validation, str) else None
    own = [data.train, validation, data.test, data.benchmark, plan.model.path]
    if ".py:" in plan.task:
        own.append(plan.task.partition(":")[0])
    for path in own:
        if path is not None:
            place = path if os.path.isabs(path) else os.path.normpath(os.path.join(HOME, path))
            found[place] = os.path.normpath(os.path.join(folder, path))
    found[KEPT] = {
        "name": name(f"{item['name']}-{str(item['run'])[-4:]}-checkpoints"),
        "mode": "MOUNT",
        "persistent": True,
    }
    return found


def command(plan: Plan) -> str:
    """The shell script: the pilot on this machine once, then the campaign, which goes on after a pre-emption."""
    lines = [
        "set -e",
        f"cd {HOME}",
        f"mkdir -p {KEPT}/runs",
        "# Once on this kind of machine: exit code 0 or 4 (something unchecked) goes on.",
        f"if [ ! -e {KEPT}/pilot-passed ]; then",
        "  pilot-tui run pilot.yaml --headless || [ $? -eq 4 ]",
        f"  touch {KEPT}/pilot-passed",
        "fi",
    ]
    if plan.compare.trials:
        lines += [
            "# A comparison that was stopped goes on: no trial is lost, none runs twice.",
            "pilot-tui compare pilot.yaml",
        ]
    elif plan.command is not None:
        first, again = _words(plan.command), _words(plan.resume_command or plan.command)
        lines += [
            f"if [ -e {KEPT}/started ]; then",
            f"  {again}",
            "else",
            f"  touch {KEPT}/started",
            f"  {first}",
            "fi",
        ]
    return "\n".join(lines) + "\n"


def _words(given: str | tuple[str, ...]) -> str:
    return given if isinstance(given, str) else shlex.join(given)
