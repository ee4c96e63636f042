"""Real stages in processes forked from one that has torch and transformers already; one thread each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from lab import ONE_THREAD, Lab, warm_process

from tui_pilot.devices.pythons import Choice
from tui_pilot.launch import start as starting

TESTS = Path(__file__).resolve().parents[1]
HUGGING_FACE = (
    "transformers",
    "transformers.models.llama.modeling_llama",
    "transformers.models.auto.tokenization_auto",
)

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
    with warm_process(*HUGGING_FACE) as process:
        yield process


@pytest.fixture
def lab(lab: Lab, warm: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The laboratory for single stages, with stages forked from a process that has torch and transformers already."""
    monkeypatch.setattr(lab, "stage", partial(lab.warm_stage, warm))
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
