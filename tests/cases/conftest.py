"""Real stages in processes forked from one that has torch and transformers already; one thread each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tui_pilot.devices.pythons import Choice
from tui_pilot.launch import start as starting
from tui_pilot.store.state import RunState

if TYPE_CHECKING:
    from lab import Lab

TESTS = Path(__file__).resolve().parents[1]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
WARM = """
import importlib, importlib.util, runpy, sys
for name in ("transformers", "transformers.models.llama.modeling_llama", "transformers.models.auto.tokenization_auto"):
    if importlib.util.find_spec(name.partition(".")[0]):
        importlib.import_module(name)
runpy.run_path(sys.argv[1], run_name="__main__")
"""

sys.path.append(str(TESTS / "tasks"))  # the tiny model folder is written by a module there


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")
    for name, value in ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    choice = Choice(sys.executable, None, "the test's own", device="cpu")
    monkeypatch.setattr(starting, "choose", lambda planned="auto", explicit=None: choice)


@pytest.fixture(scope="session")
def warm() -> Iterator[subprocess.Popen[str]]:
    """The process that stages are forked from."""
    argv = [sys.executable, "-c", WARM, str(TESTS / "faults" / "warm.py")]
    env = {**os.environ, **ONE_THREAD, "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def lab(lab: Lab, warm: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The laboratory for single stages, seconds sooner: the same files, command line and exits."""

    def stage(*names: str, env: Mapping[str, str] | None = None, attempt: int = 1) -> RunState:
        assert lab.run is not None and warm.stdin is not None and warm.stdout is not None
        out = lab.folder / "out.txt"
        for name in names:
            argv = [str(lab.run.code / "run_stage.py"), str(lab.run.path), name, "--attempt", str(attempt)]
            around = {**os.environ, "PILOT_TUI_SUPERVISOR": "", "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
            request = {"argv": argv, "cwd": str(lab.folder), "env": around, "out": str(out)}
            warm.stdin.write(json.dumps(request) + "\n")
            warm.stdin.flush()
            code = int(warm.stdout.readline())
            lab.code = subprocess.CompletedProcess(argv, code, b"", out.read_bytes())
        return lab.state()

    monkeypatch.setattr(lab, "stage", stage)
    return lab


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny model folders by what their tokenizer and template do about a beginning; ``bare`` has no template."""
    pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[pilot]'")
    import tiny_llm as tiny

    folder = tmp_path_factory.mktemp("models")
    tokenizers = {
        "chat": tiny.tokenizer(),
        "bare": tiny.tokenizer(None),
        "bos": tiny.tokenizer(tiny.NO_BOS, "<s>", writes_bos=True),
        "none": tiny.tokenizer(tiny.NO_BOS, None),
        "twice": tiny.tokenizer(tiny.BOS_FIRST, "<s>", writes_bos=True),
    }
    return {name: tiny.write_model(folder / name, each) for name, each in tokenizers.items()}
