"""Every stage in a training interpreter that holds torch and what torch itself needs, and nothing of ours."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from lab import pilot_tui

SMALL = Path(__file__).resolve().parents[1] / "mutations" / "small_task.py"
PLAN = """
name: torch-alone
task: small_task.py:Small
data: {unit: conversation_id, max_length: 512}
batch: {micro: 2, accumulation: 2}
budget: {updates: 8}
optimizer: {lr: 3.0e-3, warmup: 2}
evaluate: {rows: 8}
pilot: {steady: 2, timed: 2, reference: 2}
gates: {overfit: {rows: 2, lr: 1.0e-2}}
"""
ABSENT = ("numpy", "yaml", "pydantic", "psutil", "pynvml", "safetensors", "textual", "click", "tui_pilot")


def closure(name: str, seen: set[str]) -> set[str]:
    """A distribution and everything it needs here, without extras."""
    if name in seen:
        return seen
    try:
        needed = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return seen
    seen.add(name)
    for requirement in needed:
        if "extra ==" not in requirement:
            closure(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower(), seen)
    return seen


@pytest.fixture(scope="module")
def torch_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment made of links to torch's own files: nothing is downloaded, nothing else can be imported."""
    folder = tmp_path_factory.mktemp("torch-alone") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in closure("torch", set()):
        for file in metadata.files(name) or []:
            top = file.parts[0]
            if top in ("..", "__pycache__", "bin") or (site / top).exists():
                continue
            source = Path(str(file.locate())).resolve()
            for _ in file.parts[1:]:
                source = source.parent
            (site / top).symlink_to(source)
    return folder / "bin" / "python"


def test_the_environment_really_lacks_the_rest(torch_alone: Path) -> None:
    code = f"import importlib.util as u; print([n for n in {ABSENT!r} if u.find_spec(n)]); import torch"
    done = subprocess.run([torch_alone, "-c", code], capture_output=True, text=True, cwd="/", check=True)
    assert done.stdout.strip() == "[]"


def test_all_six_stages_run_there(torch_alone: Path, tmp_path: Path) -> None:
    (tmp_path / "small_task.py").write_text(SMALL.read_text())
    (tmp_path / "pilot.yaml").write_text(PLAN)
    done = pilot_tui(["run", "--headless", "--json", "--set", f"launch.python={torch_alone}"], tmp_path)
    document = json.loads(done.stdout)
    assert done.returncode == 0, (done.stderr, [row["reasons"] for row in document["phases"] if row["reasons"]])
    assert {row["verdict"] for row in document["phases"]} == {"pass"}
    log = tmp_path / "runs" / document["run"] / "events" / "train.rank0.jsonl"
    assert json.loads(log.read_text().splitlines()[0])["python"] == str(torch_alone)
