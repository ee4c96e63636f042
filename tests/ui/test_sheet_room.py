"""The Sheet room: what it shows is what is written, and what it does not know it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from room_runs import HOSTILE, RoomApp, loaded, reason, settled, whole_run

from tui_pilot.run_folder import RunFolder
from tui_pilot.sheet import judged
from tui_pilot.sheet.build import document
from tui_pilot.sheet.write import write
from tui_pilot.store.fold import fold
from tui_pilot.store.view import see
from tui_pilot.ui import paint
from tui_pilot.ui.app import PilotApp
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.rooms import _sheet_page
from tui_pilot.ui.rooms.sheet import SheetRoom
from tui_pilot.ui.snapshot import Snapshot


def app_on(folder: RunFolder) -> RoomApp:
    return RoomApp(SheetRoom(), Snapshot(state=see(folder)[0], folder=folder, plan=loaded(), now_mono=100.0))


async def test_the_preview_is_the_file_line_by_line(tmp_path: Path) -> None:
    folder = whole_run(tmp_path)
    app = app_on(folder)
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        room = app.room
        assert isinstance(room, SheetRoom)
        written = write([folder], tmp_path / "out").read_text()
        assert room.copied() == written.rstrip("\n")
        shown = [line.split("│")[0].rstrip() for line in app.text().splitlines()[1:-1]]
        assert shown == written.splitlines()[: len(shown)]
        seen = set(shown)
        for _ in range(10):
            await pilot.press("pagedown")
            await settled(app, pilot)
            seen |= {line.split("│")[0].rstrip() for line in app.text().splitlines()[1:-1]}
        assert set(written.splitlines()) <= seen


async def test_left_and_right_go_to_json_and_back(tmp_path: Path) -> None:
    folder = whole_run(tmp_path)
    app = app_on(folder)
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        await pilot.press("right")
        await settled(app, pilot)
        assert "preview, JSON" in app.text()
        assert json.loads(app.room.copied())["configurations"][0]["run"] == folder.id
        await pilot.press("left")
        await settled(app, pilot)
        assert "# Selection sheet" in app.text()


async def test_a_cpu_run_says_that_no_gpu_was_measured(tmp_path: Path) -> None:
    app = app_on(whole_run(tmp_path))
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        shown = app.text()
        assert "margin of a GPU: unchecked" in shown
        assert "measured on CPU: says nothing about" in shown
        head = paint.plain(app.room.headline(app.first) or ())
        assert "? 1 configuration may be retained: no decision yet" in head and "sheet-llama8b-lora.md" in head


async def test_a_gpu_run_shows_need_and_margin(tmp_path: Path) -> None:
    app = app_on(whole_run(tmp_path, device="cuda"))
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        shown = app.text()
        assert "need 35.0 GiB on each GPU" in shown and "56% free" in shown and "15% asked" in shown


async def test_a_fail_keeps_it_off_the_sheet_until_it_is_overridden(tmp_path: Path) -> None:
    oom = {"first_step": ("fail", [reason("oom", "gpu 3 asked 112.0 MiB, 74.0 MiB were free", "fail")])}
    app = app_on(whole_run(tmp_path / "a", verdicts=oom))
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        assert "Nothing is retained: first_step is FAIL" in app.text()
        assert "not retained, because" in app.text()
        assert "0 retained" in paint.plain(app.room.headline(app.first) or ())
    app = app_on(whole_run(tmp_path / "b", verdicts=oom, marks=[("first_step", "warn", "another process was there")]))
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        assert "fails overridden by hand" in app.text()
        assert "1 configuration: it may be retained, nobody has decided yet." in app.text()


async def test_a_new_mark_is_gathered_again_and_the_place_is_kept(tmp_path: Path) -> None:
    folder = whole_run(tmp_path)
    app = app_on(folder)
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        await pilot.press("down", "down", "down")
        mark = {"v": 1, "kind": "mark", "at": "2026-12-01T19:40:00.000Z", "mono": 500.0, "n": 0}
        mark |= {"phase": "splits", "verdict": "warn", "note": "one thread twice"}
        (folder.events / "operator-2-2.jsonl").write_text(json.dumps(mark) + "\n")
        state = fold([mark], app.first.state)
        app.room.show(Snapshot(state=state, folder=folder, plan=loaded(), now_mono=101.0))
        await settled(app, pilot)
        assert "one thread twice" in app.room.copied()
        assert "4–34 of" in app.text()


async def test_below_112_columns_one_pane_at_a_time(tmp_path: Path) -> None:
    app = app_on(whole_run(tmp_path))
    async with app.run_test(size=(80, 21)) as pilot:
        await settled(app, pilot)
        assert "preview, markdown" in app.text() and "which GPUs fit ──" not in app.text()
        assert all(len(line) <= 80 and "…" not in line for line in app.text().splitlines())
        await pilot.press("tab")
        await settled(app, pilot)
        assert "what decides" in app.text() and "which GPUs fit" in app.text()
        assert app.room.back()
        await settled(app, pilot)
        assert "preview, markdown" in app.text()


async def test_words_are_found_and_enter_goes_on(tmp_path: Path) -> None:
    app = app_on(whole_run(tmp_path))
    async with app.run_test(size=(80, 21)) as pilot:
        await settled(app, pilot)
        app.room.search("STEADY_step")
        await settled(app, pilot)
        first = app.text().splitlines()[1]
        assert "steady_step" in first
        await pilot.press("enter")
        await settled(app, pilot)
        second = app.text().splitlines()[1]
        assert "steady_step" in second and second != first


async def test_empty_broken_and_hostile_runs(tmp_path: Path) -> None:
    app = RoomApp(SheetRoom(), Snapshot())
    async with app.run_test(size=(80, 21)) as pilot:
        await settled(app, pilot)
        assert "Nothing has run here yet" in app.text()
        broken = RunFolder(tmp_path / "20261201-190000-broken-0000")
        broken.events.mkdir(parents=True)
        app.room.show(Snapshot(folder=broken, now_mono=1.0))
        await settled(app, pilot)
        assert "run.json does not exist" in " ".join(app.text().split())
    told = {"splits": ("unchecked", [reason("unit_unknown", HOSTILE, "unchecked")])}
    app = app_on(whole_run(tmp_path / "h", verdicts=told, marks=[("splits", "pass", HOSTILE)]))
    for size in ((80, 21), (120, 33)):
        async with app.run_test(size=size) as pilot:
            await settled(app, pilot)
            for key in ("pagedown", "tab", "z", "right"):
                await pilot.press(key)
                await settled(app, pilot)
                shown = app.text() + app.room.copied()
                assert not any((ord(each) < 32 and each != "\n") or 0x7F <= ord(each) < 0xA0 for each in shown)
                assert "\u202e" not in shown
        app = RoomApp(SheetRoom(), app.first)


@pytest.mark.parametrize("size", [(80, 21), (120, 33), (200, 47), (40, 7)])
async def test_every_size_is_drawn_within_its_cells(tmp_path: Path, size: tuple[int, int]) -> None:
    app = app_on(whole_run(tmp_path, device="cuda"))
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        await pilot.press("G", "tab", "G", "g", "z")
        await settled(app, pilot)
        assert max(map(len, app.text().splitlines())) <= size[0]


@pytest.mark.parametrize("width", [36, 38, 60, 80])
def test_the_side_shows_bars_free_and_short_at_any_width(tmp_path: Path, width: int) -> None:
    found = document([whole_run(tmp_path, device="cuda")])
    shown = [paint.plain(each) for each in _sheet_page.side(found, width)]
    assert max(map(len, shown)) <= width
    fits = next(each for each in shown if each.startswith(" ✓"))
    lacks = next(each for each in shown if each.startswith(" ✗") and "[over" in each)
    assert "48GB" in fits and "[▆" in fits and "%" in fits
    assert ("short" in lacks) is (width >= 46)
    assert any("no price is given" in each for each in shown)
    assert "open: " in paint.plain(_sheet_page.open_line(found, width))


async def test_d_decides_with_a_reason_and_the_sheet_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = whole_run(tmp_path / "runs")
    app = PilotApp(tmp_path / "runs", None, folder)
    async with app.run_test(size=(120, 36)) as pilot:

        async def seen(words: str) -> None:
            for _ in range(200):
                await pilot.pause(0.02)
                page = app.screen.query(Lines)
                if any(words in paint.plain(line) for lines in page for line in lines.content):
                    return
            raise AssertionError(words)

        await seen("FINISHED")
        await pilot.press("6")
        await seen("may be retained, no decision yet")
        await pilot.press("d")
        await seen("decide on llama8b-lora-77c1")
        await pilot.press("enter")
        await seen("retain, why")
        await pilot.press("enter")
        await seen("a decision needs its reason")
        await pilot.press("d", "enter")
        await seen("retain, why")
        await pilot.press(*"enough", "enter")
        await seen("run llama8b-lora-77c1: retained")
        await seen("✓ retain: enough")
    decided = see(folder)[0].decision
    assert decided is not None and (decided["decision"], decided["note"]) == ("retain", "enough")
    found = document([folder])["configurations"][0]
    assert found["retained"] and judged.standing(found) == "retained"


async def test_which_gpus_fit_and_what_fits_into_a_package(tmp_path: Path) -> None:
    app = app_on(whole_run(tmp_path, device="cuda"))
    async with app.run_test(size=(120, 60)) as pilot:
        await settled(app, pilot)
        shown = app.text()
        assert "need 35.0 GiB, margin asked 15%" in shown
        assert "✓ L40S 48GB" in shown or "✓ A40 48GB" in shown
        assert "✗ A100 40GB" in shown and "more in the preview" in shown
        assert "packages" in shown and "= for jobs" in shown
        assert "55.2" in shown and "136.8" in shown and "606.0" in shown
