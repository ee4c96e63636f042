"""Versions that are here, those a lock names, and those that packages were built for."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

LOCK_FILE = "pilot.lock.json"
_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;()]*)\)?\s*(?:;\s*(.*))?$")
_CLAUSE = re.compile(r"^(===|==|!=|<=|>=|~=|<|>)\s*(.+)$")


def versions() -> dict[str, Any]:
    """What a lock compares besides packages: interpreter, torch, its CUDA and NCCL, the driver where the kernel shows
    it, and what torch itself was built with, such as triton."""
    found: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
        with suppress(AttributeError, RuntimeError, TypeError):
            found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]
    with suppress(OSError, IndexError):
        line = Path("/proc/driver/nvidia/version").read_text(errors="replace").splitlines()[0]
        found["driver"] = next((word for word in line.split() if word[:1].isdigit() and "." in word), line)
    for name in requirements("torch"):
        if (
            not name.startswith("nvidia-")
            and (version := version_of(name))
            and any("==" in each for each in requirements("torch")[name])
        ):
            found.setdefault(name, version)
    return found


def version_of(name: str) -> str | None:
    """The installed version of an import name or a distribution; None where there is none."""
    try:
        return metadata.version(name.replace("_", "-"))
    except metadata.PackageNotFoundError:
        found = metadata.packages_distributions().get(name)
        return metadata.version(found[0]) if found else None


def requirements(name: str) -> dict[str, list[str]]:
    """What a distribution requires, extras aside: normalised name to the specifiers of each line that names it."""
    try:
        lines = metadata.requires(name.replace("_", "-")) or []
    except metadata.PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {}
    for line in lines:
        parts = _REQUIREMENT.match(line)
        if parts and "extra" not in (parts[3] or ""):
            found.setdefault(re.sub(r"[-_.]+", "-", parts[1]).lower(), []).append(parts[2].strip())
    return found


def unmet(names: Iterable[str]) -> list[dict[str, Any]]:
    """Installed packages of a version that a named package was not made for. Lines for other platforms name the same
    package with other versions: one of them that is met is enough."""
    found = []
    for name in names:
        for other, specifiers in requirements(name).items():
            here = version_of(other)
            if here is None or any(meets(here, each) for each in specifiers):
                continue
            pinned = all(each.startswith("==") for each in specifiers) and not other.startswith("nvidia-")
            found.append({"package": name, "needs": other, "specifier": specifiers[0], "here": here, "pinned": pinned})
    return found


def meets(version: str, specifier: str) -> bool:
    """Whether a version satisfies ``>=1.0,<2``. What cannot be told (a pre-release, a name) counts as satisfied."""
    return all(_meets_one(version, clause.strip()) for clause in specifier.split(",") if clause.strip())


def _meets_one(version: str, clause: str) -> bool:
    parts = _CLAUSE.match(clause)
    if parts is None:
        return True
    sign, wanted = parts[1], parts[2].strip()
    local = "+" in wanted
    here = version if local else version.partition("+")[0]
    if sign in ("==", "==="):
        if wanted.endswith(".*"):
            return f"{here}.".startswith(wanted[:-1])
        left, right = _release(here), _release(wanted)
        return here == wanted or (left is not None and right is not None and not local and left == right)
    left, right = _release(here), _release(wanted.removesuffix(".*"))
    if left is None or right is None:
        return True
    if sign == "~=":
        keep = len(wanted.split(".")) - 1
        return left >= right and left[:keep] == right[:keep]
    return {"!=": left != right, "<=": left <= right, ">=": left >= right, "<": left < right, ">": left > right}[sign]


def _release(version: str) -> tuple[int, ...] | None:
    """A plain release as numbers, padded so that 1.0 equals 1.0.0; None for anything else."""
    if not re.fullmatch(r"\d+(\.\d+)*", version):
        return None
    numbers = [int(part) for part in version.split(".")]
    return tuple(numbers + [0] * (6 - len(numbers)))


def lock(folder: Path, software: dict[str, Any]) -> dict[str, Any]:
    """Differences from the lock beside the plan, if there is one: ``changed``, or why it could not be read."""
    path = folder / LOCK_FILE
    if not path.is_file():
        return {}
    try:
        locked = json.loads(path.read_text("utf-8"))["versions"]
        pairs = dict(locked.items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        return {"lock_unread": f"{path} cannot be read ({type(error).__name__})", "lock_file": str(path)}
    here = {name: software[name] if name in software else version_of(name) for name in pairs}
    return {
        "changed": {name: (version, here[name]) for name, version in pairs.items() if here[name] != version},
        "lock_file": str(path),
    }
