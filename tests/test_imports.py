"""Run time proof of what the contracts in pyproject.toml say: no torch-free module loads torch or the screen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "tui_pilot"
TORCH_SIDE = ("pilot", "tasks", "observe", "predict")
SCREEN = ("ui",)
FORBIDDEN = ("torch", "textual", "rich", "transformers", "numpy")


def modules(*leave_out: str) -> list[str]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        if relative.parts[0] not in leave_out:
            name = ".".join(("tui_pilot", *relative.with_suffix("").parts))
            found.append(name.removesuffix(".__init__"))
    return found


def loaded_by(module: str, forbidden: tuple[str, ...], before: str = "") -> str:
    code = (
        f"import sys, importlib\n{before}\nimportlib.import_module({module!r})\n"
        f"print(*sorted(set({forbidden!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("module", modules(*TORCH_SIDE, *SCREEN))
def test_module_loads_neither_torch_nor_screen(module: str) -> None:
    assert loaded_by(module, FORBIDDEN) == ""


def test_the_screen_loads_no_torch() -> None:
    assert loaded_by("tui_pilot.ui.app", ("torch", "transformers", "numpy")) == ""


def test_the_command_line_is_light() -> None:
    heavy = ("yaml", "pydantic", "psutil", "pynvml", "textual", "torch", "asyncio")
    assert loaded_by("tui_pilot.cli", heavy) == ""


def test_the_supervisor_is_light() -> None:
    assert loaded_by("tui_pilot.launch.supervisor", ("yaml", "pydantic", "click", "textual", "torch")) == ""


def test_data_formats_need_no_torch() -> None:
    assert loaded_by("tui_pilot.tasks.formats", ("torch", "numpy", "yaml", "pydantic")) == ""


def test_pilot_side_needs_the_standard_library_and_torch_alone() -> None:
    """Everything the training interpreter may lack is made impossible to import; one process, since torch is slow."""
    pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")
    ours = [name for name in modules() if name.split(".")[1:2] in ([side] for side in TORCH_SIDE)]
    before = f"""
import torch
class Lacks:
    def find_spec(self, name, path=None, target=None):
        lacking = ("yaml", "pydantic", "psutil", "pynvml", "click", "textual", "rich", "transformers", "peft")
        if name.split(".")[0] in lacking:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Lacks())
for name in {ours!r}:
    if name != "tui_pilot.pilot.run_stage":
        importlib.import_module(name)
"""
    loaded_by("tui_pilot.pilot.run_stage", (), before)
