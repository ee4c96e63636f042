"""The pilot side as it runs: copied into ``<run>/code/``; stages import that frozen copy and nothing else of ours.

Only this folder is put on the training interpreter's path: our own site-packages would replace the image's packages.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from importlib.util import cache_from_source
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
FILES = (
    "__init__.py",
    "version.py",
    "errors.py",
    "text.py",
    "run_folder.py",
    "plan/__init__.py",
    "plan/model.py",
    "plan/batch*.py",
    "devices/__init__.py",
    "devices/host.py",
)
FOLDERS = ("pilot", "tasks", "observe", "predict", "gates", "events")
STARTER = "pilot/run_stage.py"
CACHE = "__pycache__"


def copy_pilot_side(target: Path, source: Path | None = None) -> str:
    """Copy the pilot side to ``target``; returns the sha256 over every name and content.

    ``source``: a folder with a ``run_stage.py`` of its own, taken whole instead. Compiled modules come along where
    they are there: six stages would compile the same files six times. Python takes one only for the very source it was
    made from, told by time and size, so times are kept; of another Python's it takes none.
    """
    if source is not None:
        shutil.copytree(source, target)
        return hash_tree(target)
    package = target / "tui_pilot"
    for path in (path for pattern in FILES for path in sorted(PACKAGE.glob(pattern))):
        place = package / path.relative_to(PACKAGE)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)
        compiled = Path(cache_from_source(str(path)))
        if path.suffix == ".py" and compiled.is_file():
            (place.parent / CACHE).mkdir(exist_ok=True)
            shutil.copy2(compiled, place.parent / CACHE)
    for name in FOLDERS:
        if (PACKAGE / name).is_dir():
            shutil.copytree(PACKAGE / name, package / name, ignore=_other_compiled)
    shutil.copyfile(PACKAGE / STARTER, target / "run_stage.py")
    return hash_tree(target)


def _other_compiled(folder: str, names: list[str]) -> list[str]:
    """What of a folder of compiled modules another Python than this one made, or a test framework for itself."""
    if Path(folder).name != CACHE:
        return [name for name in names if name.endswith(".pyc")]
    return [name for name in names if not name.endswith(f".{sys.implementation.cache_tag}.pyc")]


def hash_tree(folder: Path) -> str:
    """sha256 over relative names and contents of every file below, in name order; compiled modules are no source."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.parent.name != CACHE:
            total.update(path.relative_to(folder).as_posix().encode() + b"\0")
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()
