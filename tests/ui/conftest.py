"""A settings folder of its own for every test: the screen must not read or write the person's."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.delenv("PILOT_TUI_ASCII", raising=False)
