"""``v``: the plan's variants with what they change and whether it is the same experiment; ``r`` runs the picked one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from record_run import RECORDED, copy_all
from test_app import opened, screen, until

from tui_pilot.launch import start
from tui_pilot.run_folder import RunFolder, all_runs
from tui_pilot.ui.app import PilotApp
from tui_pilot.ui.overlays import Picking


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A finished run whose plan lists three variants; runs are prepared for real, but no supervisor is started."""
    monkeypatch.chdir(tmp_path)
    copy_all(tmp_path / "runs")
    monkeypatch.setattr(start, "start", lambda folder, **_: None)
    return RunFolder(tmp_path / "runs" / json.loads((RECORDED / "desk" / "run.json").read_text())["run"])


async def test_a_variant_is_picked_and_run_as_a_child(desk: RunFolder) -> None:
    runs = desk.path.parent
    before = {folder.id for folder in all_runs(runs)}
    app = PilotApp(runs, None, desk)
    async with app.run_test(size=(120, 36)) as pilot:
        await opened(pilot, desk)
        await until(pilot, lambda: "v variant" in screen(app), "the plan is read")
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, Picking) and "micro-8" in screen(app), "the list")
        text = screen(app)
        lines = {line.split()[0 if line[0] == " " else 1]: line for line in text.splitlines() if "→" in line[20:]}
        assert " yes " in lines["micro-8"] and "194.0 MiB" in lines["micro-8"]
        assert "batch.micro 4 → 8, batch.accumulation 2 → 1" in lines["micro-8"]
        assert " no " in lines["low-lr"] and "optimizer.lr 1.0e-3 → 5.0e-4" in lines["low-lr"]
        assert "the same experiment, run another way" in text
        assert "194.0 MiB in desk-9b08, measured" in text
        await pilot.press("down", "down")
        await until(pilot, lambda: "longer rows lose their end" in screen(app), "why it is another experiment")
        await pilot.press("up", "up", "enter")
        await until(pilot, lambda: "r run micro-8" in screen(app).splitlines()[-1], "picked")
        assert {folder.id for folder in all_runs(runs)} == before, "nothing runs before r"
        await pilot.press("r")
        await until(pilot, lambda: len(all_runs(runs)) == len(before) + 1, "the new run's folder")
        (made,) = (folder for folder in all_runs(runs) if folder.id not in before)
        await until(pilot, made.run_file.exists, "its facts")
        facts = made.read_json(made.run_file)
        assert (facts["kind"], facts["variant"], facts["parent"]) == ("variant", "micro-8", desk.id)
        assert facts["changed"]["batch.micro"] == [4, 8]
        assert made.read_json(made.plan_file)["plan"]["batch"] == {
            "micro": 8, "accumulation": 1, "drop_last": False, "tail": "step",
        }  # fmt: skip
        await until(pilot, lambda: app.picked is None, "picked once, run once")


async def test_esc_lets_a_picked_variant_go(desk: RunFolder) -> None:
    app = PilotApp(desk.path.parent, None, desk)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, desk)
        await until(pilot, lambda: app.why_not("variant") is None, "the plan is read")
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, Picking), "the list")
        await pilot.press(*"short", "enter")
        await until(pilot, lambda: "r run short" in screen(app).splitlines()[-1], "picked")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: "r run again" in screen(app).splitlines()[-1], "let go")
        await pilot.press("r")
        await until(pilot, lambda: "already finished" in screen(app), "r is of the plan itself again")


async def test_a_variant_that_the_plan_forbids_says_why_and_is_not_picked(desk: RunFolder) -> None:
    document = json.loads(desk.plan_file.read_text())
    document["plan"]["variants"][0]["set"] = {"batch.micro": 0}
    desk.plan_file.write_text(json.dumps(document))
    app = PilotApp(desk.path.parent, None, desk)
    async with app.run_test(size=(120, 36)) as pilot:
        await opened(pilot, desk)
        await until(pilot, lambda: app.why_not("variant") is None, "the plan is read")
        await pilot.press("v")
        await until(pilot, lambda: "not possible" in screen(app), "why")
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Picking) and app.picked is None
