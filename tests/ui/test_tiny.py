"""Below 80x24 every room is still of use: line 2, what is selected, the keys; and no size ends the screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from record_run import RECORDED, copy_all
from test_app import opened, screen, until

from tui_pilot.run_folder import RunFolder
from tui_pilot.ui.app import PilotApp
from tui_pilot.ui.lines import Lines

SELECTED = {"pilot": ">", "examples": ">", "memory": ">", "batch": ">", "runs": ">", "sheet": "# Selection sheet"}


async def test_every_room_at_every_small_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    copy_all(tmp_path / "runs")
    folder = RunFolder(tmp_path / "runs" / json.loads((RECORDED / "demo" / "run.json").read_text("utf-8"))["run"])
    app = PilotApp(tmp_path / "runs", None, folder)
    async with app.run_test(size=(60, 15)) as pilot:
        await opened(pilot, folder)
        for number, room in enumerate(app.rooms, 1):
            await pilot.press(str(number))
            for width, height in ((60, 15), (40, 10), (79, 23), (20, 5), (1, 1), (60, 15)):
                await pilot.resize_terminal(width, height)
                await until(pilot, lambda w=width: app.query_one("#top", Lines).size.width == w, "resized")
                if width < 40:
                    continue
                mark = SELECTED[room.room]
                await until(pilot, lambda m=mark: any(each.startswith(m) for each in lines(app)[2:]), "the selection")
                shown = lines(app)
                assert shown[1].strip(), f"{room.title} at {width}x{height}: line 2"
                assert "q leave" in shown[-1], f"{room.title} at {width}x{height}: the keys"
            await pilot.press("j", "k", "G", "g", "tab", "z", "enter", "escape", "escape", "escape")
            for key, closing in (("question_mark", "escape"), ("colon", "escape")):
                await pilot.press(key)
                await pilot.press("down", "down")
                await pilot.press(closing)


def lines(app: PilotApp) -> list[str]:
    return screen(app).split("\n")


async def test_z_and_tab_work_or_say_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    copy_all(tmp_path / "runs")
    folder = RunFolder(tmp_path / "runs" / json.loads((RECORDED / "demo" / "run.json").read_text("utf-8"))["run"])
    app = PilotApp(tmp_path / "runs", None, folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, folder)
        for number, room in enumerate(app.rooms, 1):
            await pilot.press(str(number))
            await until(pilot, lambda n=number, r=room: f"[{n} {r.title}]" in screen(app), room.title)
            await pilot.pause(0.3)
            why = room.why_no_zoom()
            offered = "z zoom" in screen(app).splitlines()[-1]
            before = screen(app)
            await pilot.press("z")
            await until(pilot, lambda b=before: screen(app) != b, f"z in {room.title}")
            assert (f"z: {why}"[:40] in screen(app)) == (why is not None) and not (offered and why is not None)
            await pilot.press("escape", "escape")


async def test_a_toast_goes_with_the_next_key_or_room_and_an_error_stays_until_one(tmp_path: Path) -> None:
    copy_all(tmp_path / "runs")
    folder = RunFolder(tmp_path / "runs" / json.loads((RECORDED / "demo" / "run.json").read_text("utf-8"))["run"])
    app = PilotApp(tmp_path / "runs", None, folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, folder)
        for key in ("j", "3"):
            await pilot.press("s")
            await until(pilot, lambda: "s: the run shown is not live" in screen(app), "said")
            await pilot.press("x")
            assert "s: the run shown is not live" in app.prompt.said, "a key that does nothing"
            await pilot.press(key)
            await until(pilot, lambda: "s: the run shown is not live" not in screen(app), f"gone with {key}")
        app.say("disk full", "fail")
        assert app.prompt._timer is None and app.prompt.said == "disk full"
        await pilot.press("1")
        await until(pilot, lambda: app.prompt.said == "", "gone")

        # What is said behind a list that covers everything waits for it.
        await pilot.press("question_mark")
        app.say("written: somewhere")
        assert app.prompt.said == ""
        await pilot.press("escape")
        await until(pilot, lambda: "written: somewhere" in screen(app), "said afterwards")
