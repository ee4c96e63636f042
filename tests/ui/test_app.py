"""The screen driven by its keys, on recorded runs, without a terminal."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import recorded

from tui_pilot.events import schema
from tui_pilot.events.writer import Writer
from tui_pilot.plan.load import default_demo
from tui_pilot.run_folder import RunFolder, drop_lock, take_lock, write_json
from tui_pilot.store.view import load_state
from tui_pilot.ui.app import PilotApp, farewell
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.overlays import Picking, Reading
from tui_pilot.ui.rooms.pilot import PilotRoom
from tui_pilot.ui.snapshot import Snapshot
from tui_pilot.ui.theme import Look


def screen(app: PilotApp) -> str:
    """What the terminal would show, as text."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def until(pilot, true: Callable[[], bool], what: str) -> None:
    """Wait for something to be so; a minute is never reached."""
    for _ in range(1200):
        if true():
            return
        await pilot.pause()
        await asyncio.sleep(0.05)
    raise AssertionError(f"never: {what}\n{screen(pilot.app)}")


async def opened(pilot, folder: RunFolder) -> PilotApp:
    app = pilot.app
    await until(pilot, lambda: app.snapshot.folder == folder and bool(app.snapshot.state.run), "the run is read")
    await until(pilot, lambda: "Pilot" in screen(app), "the first paint")
    return app


async def test_first_start_says_what_r_does(tmp_path: Path) -> None:
    app = PilotApp(tmp_path / "runs", default_demo())
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: "READY" in screen(app), "ready")
        text = screen(app)
        assert "Nothing has run here yet" in text and "pilot-tui init --data" in text
        assert "r run" in text.splitlines()[-1]
        await pilot.press("s")
        await until(pilot, lambda: "s: the run shown is not live" in screen(app), "why s cannot work")


async def test_rooms_open_by_digit_and_letter(tmp_path: Path) -> None:
    folder = recorded.finished_demo(tmp_path / "runs")
    app = PilotApp(tmp_path / "runs", None, folder)
    async with app.run_test(size=(120, 36)) as pilot:
        await opened(pilot, folder)
        for number, title in enumerate(("Pilot", "Examples", "Memory", "Batch", "Runs", "Sheet"), 1):
            await pilot.press(str(number))
            await until(pilot, lambda name=f"[{number} {title}]": name in screen(app), title)
            assert "FINISHED" in screen(app).splitlines()[1] or title != "Pilot"
        await pilot.press("L")
        await until(pilot, lambda: "[1 Pilot]" in screen(app), "L goes round")
        await pilot.press("H")
        await until(pilot, lambda: "[6 Sheet]" in screen(app), "H goes back")


async def test_selection_follows_until_moved_and_esc_follows_again(tmp_path: Path) -> None:
    folder = recorded.running(tmp_path / "runs")
    app = PilotApp(tmp_path / "runs", None, folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, folder)
        await until(pilot, lambda: ">► steady_step running" in screen(app), "follows")
        assert "following the run" in screen(app)
        await pilot.press("k")
        await until(pilot, lambda: ">✓ first_step" in screen(app), "moved")
        assert "your row, esc follows the run" in screen(app)
        await pilot.press("g", "j")
        await until(pilot, lambda: ">! examples" in screen(app), "first, down")
        await pilot.press("escape")
        await until(pilot, lambda: ">► steady_step" in screen(app), "follows again")
    drop_lock(folder.lock_file)


async def test_new_events_arrive_by_themselves(tmp_path: Path) -> None:
    folder = recorded.running(tmp_path / "runs")
    app = PilotApp(tmp_path / "runs", None, folder)
    async with app.run_test(size=(120, 36)) as pilot:
        await opened(pilot, folder)
        writer = Writer(folder.events, "peak.rank0")
        memory = recorded.cuda(8, 31.6, 33.1, 34.7)
        writer.emit(schema.PHASE_ENDED, phase="steady_step", attempt=1, verdict="pass", duration_s=6.5, memory=memory)
        await until(pilot, lambda: "✓ steady_step pass" in screen(app), "the phase ended")
        writer.emit(schema.RUN_ENDED, state="stopped", text="by you in evaluate")
        writer.close()
        drop_lock(folder.lock_file)
        await until(pilot, lambda: "STOPPED by you in evaluate" in screen(app), "the run ended")
        assert "not run" in screen(app)


async def test_a_dead_supervisor_is_a_lost_run(tmp_path: Path) -> None:
    folder = recorded.running(tmp_path / "runs")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    app = PilotApp(tmp_path / "runs", None, folder)
    try:
        from tui_pilot.devices.host import boot_id, process_start

        holder = {"pid": child.pid, "start": process_start(child.pid), "boot": boot_id(), "host": os.uname().nodename}
        write_json(folder.lock_file, holder)
        async with app.run_test(size=(120, 36)) as pilot:
            await opened(pilot, folder)
            await until(pilot, lambda: "RUNNING" in screen(app), "live")
            child.kill()
            child.wait()
            await until(pilot, lambda: "LOST in steady_step" in screen(app), "lost")
            assert "8 rows are kept" in screen(app)
    finally:
        child.kill()
        child.wait()


async def test_a_mark_needs_a_note_over_a_fail_and_is_taken_back(tmp_path: Path) -> None:
    folder = recorded.out_of_memory(tmp_path / "runs")
    app = PilotApp(tmp_path / "runs", None, folder)

    def mark() -> str | None:
        return load_state(folder)[0].row("first_step").mark

    async with app.run_test(size=(120, 36)) as pilot:
        await opened(pilot, folder)
        await until(pilot, lambda: ">✗ first_step" in screen(app), "the fail is selected")
        await pilot.press("p")
        await until(pilot, lambda: "needed over a FAIL" in screen(app), "asks why")
        await pilot.press("enter")
        await until(pilot, lambda: "nothing was marked" in screen(app), "refused")
        assert mark() is None
        await pilot.press("escape", "p", *"seen q 1", "enter")
        await until(pilot, lambda: mark() == "pass", "marked")
        row = load_state(folder)[0].row("first_step")
        assert row.note == "seen q 1" and row.verdict == "fail"
        await until(pilot, lambda: "FAIL      p" in screen(app), "the letter stands beside the verdict")
        await pilot.press("p")
        await until(pilot, lambda: mark() is None, "taken back")


async def test_notes_and_the_sheet_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = recorded.finished_demo(tmp_path / "runs")
    app = PilotApp(tmp_path / "runs", None, folder)
    async with app.run_test(size=(120, 36)) as pilot:
        await opened(pilot, folder)
        await pilot.press("n", *"fine so far", "enter")
        await until(pilot, lambda: bool(load_state(folder)[0].notes), "the note")
        assert load_state(folder)[0].notes[0]["text"] == "fine so far"
        await pilot.press("escape", "e")
        await until(pilot, lambda: "fetch it: scp" in screen(app), "the sheet's place")
        await pilot.press("escape", "e")
        await until(pilot, lambda: len(list(tmp_path.glob("sheet-*.md"))) == 2, "a second sheet, under a new name")


async def test_questions_are_answered_by_y_or_esc_never_enter(tmp_path: Path) -> None:
    folder = recorded.running(tmp_path / "runs")
    app = PilotApp(tmp_path / "runs", None, folder)

    def asked() -> bool:
        return any(request["what"] == "stop" for request in load_state(folder)[0].requests)

    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, folder)
        await pilot.press("s")
        await until(pilot, lambda: "Stop llama8b-lora-77c1?" in screen(app), "asks")
        await pilot.press("enter", "j", "2", "s")
        await pilot.pause()
        assert "Stop llama8b-lora-77c1?" in screen(app) and "[1 Pilot]" in screen(app) and not asked()
        await pilot.press("escape")
        await until(pilot, lambda: "Stop llama8b" not in screen(app), "closed")
        assert not asked()
        await pilot.press("s")
        await until(pilot, lambda: "Stop llama8b-lora-77c1?" in screen(app), "asks again")
        await pilot.pause(0.2)
        await pilot.press("y")
        await until(pilot, asked, "asked the supervisor")
    drop_lock(folder.lock_file)


async def test_a_second_screen_only_reads(tmp_path: Path) -> None:
    folder = recorded.running(tmp_path / "runs")
    code = (
        "import sys, time; from pathlib import Path; from tui_pilot.run_folder import take_lock\n"
        "print(take_lock(Path(sys.argv[1])), flush=True); time.sleep(600)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(folder.control_file)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline().strip() == "True"
    app = PilotApp(tmp_path / "runs", None, folder)
    try:
        async with app.run_test(size=(140, 36)) as pilot:
            await opened(pilot, folder)
            await until(
                pilot, lambda: f"READ-ONLY, another screen has the keys (pid {other.pid})" in screen(app), "says so"
            )
            await pilot.press("s")
            await until(pilot, lambda: "this one reads only" in screen(app), "why")
            assert "Stop llama8b" not in screen(app)
            other.kill()
            other.wait()
            await until(pilot, lambda: "READ-ONLY" not in screen(app), "the keys are free")
    finally:
        other.kill()
        other.wait()
        drop_lock(folder.lock_file)


async def test_keys_are_given_back_on_leaving(tmp_path: Path) -> None:
    folder = recorded.running(tmp_path / "runs")
    app = PilotApp(tmp_path / "runs", None, folder)
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, folder)
        await until(pilot, folder.control_file.exists, "taken")
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "q leaves and the pilot goes on, s stops it" in screen(app), "the hint")
        await pilot.press("q")
    assert not folder.control_file.exists()
    assert farewell(app.snapshot) == [
        "The pilot goes on: 77c1, phase 9 of 15.",
        "Back: pilot-tui attach 77c1   Stop: pilot-tui stop 77c1",
    ]
    drop_lock(folder.lock_file)


async def test_palette_help_zoom_and_theme(tmp_path: Path) -> None:
    folder = recorded.finished_demo(tmp_path / "runs")
    app = PilotApp(tmp_path / "runs", None, folder)
    async with app.run_test(size=(120, 36)) as pilot:
        await opened(pilot, folder)
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, Reading) and "Fifteen phases" in screen(app), "help")
        await pilot.press("escape", "colon")
        await until(
            pilot, lambda: isinstance(app.screen, Picking) and "the run shown is not live" in screen(app), "palette"
        )
        await pilot.press(*"theme light", "enter")
        await until(pilot, lambda: app.look == Look("light"), "the theme")
        await until(pilot, lambda: "theme light, kept" in screen(app), "says so")
        await pilot.press("escape", "z")
        await until(pilot, lambda: "all detail" in screen(app), "zoom")
        await pilot.press("tab", "tab", "tab")
        await until(pilot, lambda: "── events" in screen(app), "the next panes")
        await pilot.press("slash", *"reload", "enter")
        await until(pilot, lambda: "events with “reload”" in screen(app), "filter")
        await pilot.press("escape", "escape", "escape")
        await until(pilot, lambda: "── events" in screen(app) and "memory of the CPU run" in screen(app), "back")


async def test_copy_keeps_the_text_beside_the_run(tmp_path: Path) -> None:
    folder = recorded.finished_demo(tmp_path / "runs")
    app = PilotApp(tmp_path / "runs", None, folder)
    async with app.run_test(size=(120, 36)) as pilot:
        await opened(pilot, folder)
        await pilot.press("y")
        await until(pilot, (folder.path / "copied.txt").exists, "copied")
        assert "response_truncated" in (folder.path / "copied.txt").read_text()
        await until(pilot, lambda: "bytes sent to your terminal" in screen(app), "says so")


async def test_torn_broken_and_unknown_lines_are_counted_and_shown(tmp_path: Path) -> None:
    folder = recorded.running(tmp_path / "runs")
    with (folder.events / "train.rank0.jsonl").open("ab") as stream:
        stream.write(b'garbage\n{"kind": "from_the_future", "at": "x", "mono": 1}\n{"kind": "note", "text": "to')
    app = PilotApp(tmp_path / "runs", None, folder)
    async with app.run_test(size=(120, 36)) as pilot:
        await opened(pilot, folder)
        await until(pilot, lambda: "1 broken lines in the log, 1 of unknown kind" in screen(app), "counted")
        with (folder.events / "train.rank0.jsonl").open("ab") as stream:
            stream.write(b'rn and whole", "at": "2099-01-01T00:00:00.000Z", "mono": 99999999}\n')
        await until(pilot, lambda: "torn and whole" in screen(app), "the torn line became whole")
    drop_lock(folder.lock_file)


async def test_sizes_from_tiny_to_wide_and_back(tmp_path: Path) -> None:
    folder = recorded.running(tmp_path / "runs")
    app = PilotApp(tmp_path / "runs", None, folder)
    async with app.run_test(size=(120, 36)) as pilot:
        await opened(pilot, folder)
        for width, height in ((40, 10), (20, 4), (200, 50), (80, 24), (40, 10), (120, 36)):
            await pilot.resize_terminal(width, height)
            await until(pilot, lambda w=width: app.query_one("#top", Lines).size.width == w, "resized")
            await until(pilot, lambda: "►" in screen(app), "line 2 and the row")
        await until(pilot, lambda: "GPU memory, live" in screen(app), "the whole page again")
    drop_lock(folder.lock_file)


async def test_runs_room_opens_another_run(tmp_path: Path) -> None:
    first = recorded.finished_demo(tmp_path / "runs", "demo-1111")
    second = recorded.out_of_memory(tmp_path / "runs", "llama8b-full-3f9a")
    app = PilotApp(tmp_path / "runs", None, second)
    async with app.run_test(size=(120, 36)) as pilot:
        await opened(pilot, second)
        await pilot.press("5")
        await until(pilot, lambda: "demo-1111" in screen(app), "the list")
        await pilot.press("g", "enter")
        await opened(pilot, first)
        await until(pilot, lambda: "demo-1111" in screen(app) and "FINISHED" in screen(app), "opened")
        assert isinstance(app.room, PilotRoom)


async def test_an_unchanged_page_sends_nothing(tmp_path: Path) -> None:
    folder = recorded.finished_demo(tmp_path / "runs")
    app = PilotApp(tmp_path / "runs", None, folder)
    async with app.run_test(size=(120, 36)) as pilot:
        await opened(pilot, folder)
        await until(pilot, lambda: "FINISHED" in screen(app), "painted")
        page = app.query_one("#pilot-page", Lines)
        calls: list[object] = []
        original = page.refresh
        page.refresh = lambda *regions, **how: calls.append(regions) or original(*regions, **how)  # type: ignore[method-assign]
        app._show()
        app._show()
        assert calls == []
        await pilot.press("j")
        assert len(calls) == 1


def test_a_control_lock_of_this_process_can_be_taken_again(tmp_path: Path) -> None:
    assert take_lock(tmp_path / "control.lock") and take_lock(tmp_path / "control.lock")


def test_leaving_while_a_run_is_being_made_says_that_it_goes_on() -> None:
    idle = Snapshot()
    assert farewell(idle) == []
    assert "goes on" in farewell(idle, starting=True)[0] and "attach latest" in farewell(idle, starting=True)[1]
