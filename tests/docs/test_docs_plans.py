"""Every plan and every task that a document shows works as it stands there."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import DOCUMENTS, ROOT, blocks, text

from tui_pilot.plan.load import load
from tui_pilot.plan.model import Plan

PLANS = [
    (f"{path.relative_to(ROOT)}-{number}", block)
    for path in DOCUMENTS
    for number, block in enumerate(blocks("yaml", text(path)), 1)
]


def stand_ins(plan: dict[str, Any], folder: Path) -> None:
    """Files that the plan names: one row each, and a model folder with its config alone."""
    data = plan.get("data") or {}
    for name in ("train", "validation", "test", "benchmark"):
        if isinstance(data.get(name), str):
            (folder / data[name]).write_text('{"question": "a", "answer": "b"}\n', "utf-8")
    model = (plan.get("model") or {}).get("path")
    if model is not None:
        (folder / model).mkdir()
        (folder / model / "config.json").write_text('{"model_type": "llama"}', "utf-8")
    if ".py:" in plan.get("task", ""):
        (folder / plan["task"].split(":")[0]).write_text(blocks("python")[0], "utf-8")


def test_there_are_plans() -> None:
    assert len(PLANS) >= 4


@pytest.mark.parametrize("block", [block for _, block in PLANS], ids=[name for name, _ in PLANS])
def test_a_plan_loads(block: str, tmp_path: Path) -> None:
    document = yaml.safe_load(block)
    stand_ins(document, tmp_path)
    file = tmp_path / "pilot.yaml"
    file.write_text(block, "utf-8")
    loaded = load(file, need_weights=False)
    for key in document:
        assert loaded.origins.get(key, "given") == "given"


def test_the_shown_task_runs_its_loop(tmp_path: Path) -> None:
    """The four methods that are needed, called as the loop calls them."""
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")
    from tui_pilot.tasks.base import encode

    file = tmp_path / "own_task.py"
    file.write_text(blocks("python")[0], "utf-8")
    spec = importlib.util.spec_from_file_location("own_task_of_the_readme", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    task = module.Backwards(Plan())
    batch = task.collate([encode(task, record) for record in task.records("train")[:4]])
    assert task.count(batch) > 0
    assert list(task.records("test")) == []
    torch.manual_seed(0)
    model = task.build_model()
    loss = task.loss(model, batch)
    loss.backward()
    assert float(loss.detach()) > 0
    assert all(parameter.grad is not None for parameter in model.parameters())
