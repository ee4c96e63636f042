"""Every plan in ``configs/`` is valid, and every file it names is beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tui_pilot.plan.load import load

CONFIGS = Path(__file__).parents[1] / "configs"
PLANS = sorted(CONFIGS.glob("*.yaml"))


def test_there_are_plans() -> None:
    assert {"classification.yaml", "own-task.yaml"} <= {plan.name for plan in PLANS}


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
def test_a_plan_loads(plan: Path, tmp_path: Path) -> None:
    """A model that the person fetches is stood in for by a config; everything else must be in ``configs/``."""
    folder = tmp_path / "configs"
    shutil.copytree(CONFIGS, folder)
    model = (yaml.safe_load(plan.read_text("utf-8")).get("model") or {}).get("path")
    if model is not None and not (folder / model).exists():
        (folder / model).mkdir()
        (folder / model / "config.json").write_text('{"model_type": "llama"}', "utf-8")
    loaded = load(folder / plan.name, need_weights=False)
    assert loaded.plan.name
    assert loaded.origins["name"] == "given"


def test_the_desk_letters_are_distinct_and_no_reader_shares_a_phrase_with_another() -> None:
    """The example's splits are clean: no text twice, no run of eight words that two readers have in common."""
    from tui_pilot.tasks.formats import read

    owners: dict[tuple[str, ...], str] = {}
    texts = set()
    records = read(CONFIGS / "data" / "desk.csv").records
    assert len(records) >= 200
    for record in records:
        words = str(record["text"]).lower().split()
        texts.add(" ".join(words))
        for start in range(len(words) - 7):
            phrase = tuple(words[start : start + 8])
            assert owners.setdefault(phrase, record["reader"]) == record["reader"], phrase
    assert len(texts) == len(records)
