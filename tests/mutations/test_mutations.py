"""Every eighth of the planted faults, each caught by its own gate and no other, and nothing planted raises nothing.

``mutate.py`` runs them all.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import warm_process

sys.path.append(str(Path(__file__).resolve().parent))

from mutate import NOTHING, Found, planted
from plants import PLANTS, Plant

pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")


@pytest.fixture(scope="module")
def warm() -> Iterator[subprocess.Popen[str]]:
    with warm_process() as process:
        yield process


@pytest.mark.parametrize("plant", [*PLANTS[::8], NOTHING], ids=lambda each: each.name.replace(" ", "-"))
def test_the_gate_it_belongs_to_catches_it(plant: Plant, tmp_path: Path, warm: subprocess.Popen[str]) -> None:
    found: Found = planted(plant, tmp_path, warm)
    assert not found.wrong, found.line()
