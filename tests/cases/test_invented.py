"""Inputs of the cases' kinds that a reader of the cases invented without having seen a gate, each with its right twin.

``invented/NN/expect.json`` says the phase, the codes of which one must be there and what must be named; its ``right``
is the smallest change that makes the input right, which must then raise neither fail nor warn.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from lab import Lab

from tui_pilot.launch.start import prepare
from tui_pilot.plan.load import load
from tui_pilot.store.state import RunState

INVENTED = Path(__file__).with_name("invented")
FRESH = {"11_vocabulary_from_a_set"}
"""Stages forked from one process share what Python hashes texts with; this fault lies in that."""
OWN_STAGE = Lab.stage


def ran(lab: Lab, folder: Path, stages: list[str], right: Mapping[str, Any], fresh: bool) -> RunState:
    shutil.copytree(folder, lab.folder, dirs_exist_ok=True)
    for name, changes in right.items():
        text = (lab.folder / name).read_text("utf-8")
        for old, new in changes:
            assert text.count(old) == 1
            text = text.replace(old, new)
        (lab.folder / name).write_text(text, "utf-8")
    lab.run = prepare(load(lab.folder / "pilot.yaml"), lab.folder / "runs", argv=["test"])
    return OWN_STAGE(lab, *stages) if fresh else lab.stage(*stages)


def reasons(state: RunState, phase: str | None = None) -> list[dict[str, Any]]:
    rows = [row for row in state.rows if phase in (None, row.phase)]
    return [dict(each) for row in rows for each in row.reasons if each["severity"] in ("fail", "warn")]


@pytest.mark.parametrize("folder", sorted(INVENTED.iterdir()), ids=lambda each: each.name)
def test_the_gate_it_belongs_to_names_it(folder: Path, lab: Lab) -> None:
    expected = json.loads((folder / "expect.json").read_text())
    state = ran(lab, folder, expected["stages"], {}, folder.name in FRESH)
    found = [each for each in reasons(state, expected["phase"]) if each["code"] in expected["codes"]]
    assert found, reasons(state)
    told = json.dumps(found, ensure_ascii=False)
    assert [word for word in expected["must_name"] if word not in told] == []


@pytest.mark.parametrize("folder", sorted(INVENTED.iterdir()), ids=lambda each: each.name)
def test_its_right_twin_raises_nothing(folder: Path, lab: Lab) -> None:
    expected = json.loads((folder / "expect.json").read_text())
    state = ran(lab, folder, expected.get("right_stages", expected["stages"]), expected["right"], False)
    assert any(row.verdict for row in state.rows) and reasons(state) == []
