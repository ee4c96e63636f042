"""The Pilot page and its lines, without a terminal: what a person reads for each state of a run."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import recorded
from rich.color import Color

from tui_pilot.events.reader import Reader
from tui_pilot.plan.load import default_demo
from tui_pilot.run_folder import RunFolder
from tui_pilot.store.fold import fold
from tui_pilot.store.state import Row
from tui_pilot.store.view import as_seen
from tui_pilot.ui import actions, paint
from tui_pilot.ui.parts import checklist, curve, gpu, happenings
from tui_pilot.ui.parts.headline import headline
from tui_pilot.ui.parts.pilot_page import Page, draw, pane_lines
from tui_pilot.ui.rooms.pilot import PilotRoom, followed
from tui_pilot.ui.snapshot import GpuView, Snapshot
from tui_pilot.ui.theme import PALETTES, THEMES, Look

GIB = 1 << 30


def shown(folder: RunFolder, live: bool = False) -> Snapshot:
    state = fold(Reader(folder.events).poll())
    lost = not live and state.state == "running"
    return Snapshot(
        as_seen(state, live), folder, default_demo(), live, lost, now_mono=time.monotonic(), now=time.time()
    )


def page_text(snapshot: Snapshot, width: int, height: int) -> list[str]:
    return [paint.plain(each) for each in draw(Page(snapshot, followed(snapshot), True, width, height))]


def test_every_state_has_its_headline(tmp_path: Path) -> None:
    def text(snapshot: Snapshot, width: int = 120) -> str:
        return paint.plain(headline(snapshot, width))

    assert "· READY     built-in data, not yours; 15 phases, under 1 min" in text(Snapshot(plan=default_demo()))
    assert text(Snapshot(plan=default_demo())).rstrip().endswith("r runs it")
    running = shown(recorded.running(tmp_path / "a"), live=True)
    assert "► RUNNING   9/15 steady_step, update 3 of 5" in text(running)
    assert "no event for 44 s, process alive" in text(replace(running, now_mono=running.state.last_mono + 44))
    other = text(replace(running, read_only=True, keys_pid=4121))
    assert "READ-ONLY, another screen has the keys (pid 4121)" in other
    assert "! FINISHED warn   14 pass, 1 warn" in text(shown(recorded.finished_demo(tmp_path / "b")))
    failed = text(shown(recorded.out_of_memory(tmp_path / "c")))
    assert "✗ FAILED at first_step: out of memory" in failed
    assert "6 pass, 1 warn, 1 fail, 7 not run" in failed
    lost = text(shown(recorded.running(tmp_path / "d", live=False)))
    assert "? LOST in steady_step: no sign of life since" in lost
    assert "8 rows are kept" in lost


@pytest.mark.parametrize(("width", "height"), [(80, 21), (99, 40), (100, 27), (120, 33), (160, 47), (200, 47), (40, 7)])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, width: int, height: int) -> None:
    for number, make in enumerate((recorded.finished_demo, recorded.out_of_memory, recorded.running)):
        snapshot = shown(make(tmp_path / f"{number}"), live=make is recorded.running)
        lines = draw(Page(snapshot, followed(snapshot), True, width, height))
        assert len(lines) <= height
        assert all(paint.width_of(paint.fit(each, width)) == width for each in lines)


def test_all_fifteen_phases_stand_in_order_at_80x24(tmp_path: Path) -> None:
    lines = page_text(shown(recorded.finished_demo(tmp_path)), 80, 21)
    assert [each[3:].split()[0] for each in lines[1:16]] == list(recorded.PHASES)
    assert "no accelerator: GPU memory" in " ".join(lines)
    assert any("response_truncated" in each for each in lines[16:])


def test_a_fail_is_loud_and_its_detail_is_there(tmp_path: Path) -> None:
    snapshot = shown(recorded.out_of_memory(tmp_path))
    lines = page_text(snapshot, 120, 33)
    row = next(each for each in lines if each.startswith(">✗ first_step"))
    assert "FAIL" in row and "76.8  77.4  79.0" in row and "oom" in row
    text = "\n".join(lines)
    assert "asked 112.0 MiB" in text and "at the peak of first_step, frozen" in text
    assert " · steady_step not run" in text


def test_detail_names_how_each_number_is_known(tmp_path: Path) -> None:
    snapshot = shown(recorded.finished_demo(tmp_path))
    page = Page(snapshot, recorded.PHASES.index("steady_step"), False, 100, 40)
    text = "\n".join(paint.plain(each) for each in pane_lines(page, "detail"))
    assert "sampled 1000 Hz, 812 readings: a floor" in text
    assert "reserved unchecked: no accelerator" in text
    assert "backward 0.14s, 72.8 MiB" in text


def test_bars_nest_and_never_lie() -> None:
    view = GpuView("a", 0, usable=100 * GIB, peak=60 * GIB, allocated=40 * GIB, reserved=50 * GIB, run_peak=80 * GIB)
    assert gpu.bar_text(view, 10) == "[▆▆▆▆▄▂ ┃  ]"
    before = replace(view, allocated=None, reserved=None, run_peak=60 * GIB)
    assert gpu.bar_text(before, 10) == "[▂▂▂▂▂┃    ]"
    assert "lost" in gpu.bar_text(replace(view, error="GPU is lost"), 20)


def test_alike_gpus_fold_and_outliers_stay() -> None:
    views = tuple(GpuView(str(n), n, usable=80 * GIB, peak=34 * GIB) for n in range(64))
    views = (*views[:10], replace(views[10], peak=50 * GIB), *views[11:])
    lines = gpu.folded(views, all_shown=False)
    assert [(view.index, more) for view, more in lines] == [(0, 9), (10, 0), (11, 52)]
    assert len(gpu.folded(views, all_shown=True)) == 64


def test_charts_are_one_style_and_survive_odd_values() -> None:
    points = [(1, 2.0), (2, "nan"), (3, 1.0)]
    lines = curve.chart(points, 40, 6)
    assert all(len({role for _, role in each}) <= 2 for each in lines)
    assert curve.chart([(1, "nan")], 40, 6) == []
    assert curve.spark([1.0, 1.0], 10) == "▄▄"


HOSTILE = "[/x][bold]\x1b[31mred\x1b]0;title\x07 [INST] \u202eabc\r\n\x00"


def test_foreign_text_stays_text(tmp_path: Path) -> None:
    reason = {"code": "crash", "severity": "fail", "text": HOSTILE, "where": {"row": HOSTILE}, "advice": HOSTILE}
    row = Row("load", "fail", reasons=(reason,), inputs={"text": HOSTILE}, attempt=1)
    event = {"kind": "notice", "at": "2026-12-01T19:32:00Z", "level": "error", "text": HOSTILE}
    snapshot = shown(recorded.finished_demo(tmp_path))
    rows = tuple(row if each.phase == "load" else each for each in snapshot.state.rows)
    snapshot = replace(snapshot, state=replace(snapshot.state, rows=rows, feed=(event,)))
    for width, height in ((80, 21), (120, 33), (200, 47)):
        lines = draw(Page(snapshot, recorded.PHASES.index("load"), False, width, height))
        text = "\n".join(paint.plain(paint.fit(each, width)) for each in lines)
        assert "[/x][bold]␛[31mred␛]0;title␇" in text
        assert not any(ord(each) < 0x20 and each != "\n" for each in text)
        assert "\u202e" not in text


def test_keys_that_cannot_work_say_why(tmp_path: Path) -> None:
    ready = Snapshot(plan=default_demo())
    assert actions.why_not("run", ready, None, False, True) is None
    assert actions.why_not("stop", ready, None, False, True) == "the run shown is not live; room 5 lists those that are"
    running = shown(recorded.running(tmp_path), live=True)
    assert actions.why_not("resume_test", running, None, False, True) == "no checkpoint yet, it comes in phase 12"
    assert "a run is live" in str(actions.why_not("run", running, None, False, True))
    assert "no verdict yet" in str(actions.why_not("mark('pass')", running, "batch", False, True))
    reading = replace(running, read_only=True, keys_pid=77)
    assert "pid 77" in str(actions.why_not("stop", reading, None, False, True))


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_keys_line_fits_and_always_names_help_and_leave(tmp_path: Path, width: int) -> None:
    snapshot = shown(recorded.out_of_memory(tmp_path))
    can = [each.name for each in actions.ACTIONS if not actions.why_not(each.name, snapshot, "first_step", False, True)]
    text = paint.plain(actions.keys_line(actions.hints(snapshot, [("enter", "detail")], can), width))
    assert len(text) <= width
    assert text.endswith("? help  q leave")


def _luminance(number: int) -> float:
    def linear(value: int) -> float:
        share = value / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = Color.from_ansi(number).get_truecolor()
    return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)


def _contrast(one: int, other: int) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", list(PALETTES))
def test_colours_can_be_read(theme: str) -> None:
    palette = PALETTES[theme]
    ground = palette["ground"]
    assert isinstance(ground, int)
    for role, value in palette.items():
        if role == "ground":
            continue
        colour, back = value if isinstance(value, tuple) else (value, ground)
        assert _contrast(colour, back) >= (3.0 if role == "bar" else 4.5), role


@pytest.mark.parametrize("theme", THEMES)
def test_every_role_has_a_style_in_every_theme(theme: str) -> None:
    look = Look(theme)
    roles = {*paint.ROLE_OF.values(), "text", "dim", "bar", "head", "rule", "text+reverse", "fail+bold"}
    assert all(look.style(role) is not None for role in roles)


def test_ascii_has_a_twin_for_every_glyph_the_page_uses(tmp_path: Path) -> None:
    look = Look(ascii=True)
    for number, make in enumerate((recorded.finished_demo, recorded.out_of_memory, recorded.running)):
        snapshot = shown(make(tmp_path / f"{number}"), live=make is recorded.running)
        for width, height in ((80, 21), (120, 33), (200, 47)):
            for each in draw(Page(snapshot, followed(snapshot), True, width, height)):
                assert look.glyphs(paint.plain(each)).isascii()


def test_clean_ends_of_stages_do_not_fill_the_feed(tmp_path: Path) -> None:
    snapshot = shown(recorded.out_of_memory(tmp_path))
    text = "\n".join(paint.plain(happenings.feed_line(each)) for each in happenings.worth(snapshot.state.feed))
    assert "stage data ended" not in text
    assert "stage peak ended, exit 1" in text
    assert text.count("started") == 1  # of the run: each phase's beginning is covered by its end


def test_reasons_count_what_is_behind_the_first(tmp_path: Path) -> None:
    two = ({"code": "a", "severity": "fail"}, {"code": "b", "severity": "warn"}, {"code": "c", "severity": "note"})
    assert checklist.reasons(Row("load", "fail", reasons=two)) == "a +1"


def test_a_passed_row_says_what_it_saw_in_whole_words(tmp_path: Path) -> None:
    assert checklist.gist("351 rows, the longest 416 of 512 tokens, trained on assistant", 24) == "351 rows"
    assert checklist.gist("6 updates of 8 rows counted, as planned", 24) == "6 updates of 8 rows"
    assert checklist.gist("3 updates of 4 x 416 tokens", 16) == "3 updates of 4"
    assert checklist.gist("", 24) == ""
    rows = page_text(shown(recorded.finished_demo(tmp_path)), 200, 50)
    assert not [row for row in rows[1:16] if row[:60].endswith("…")]


def test_marks_of_a_bar_stand_at_the_highest_of_phase_and_run() -> None:
    one = GpuView("GPU-a", 0, usable=100 * GIB, used=20 * GIB, peak=20 * GIB, phase_peak=40 * GIB, run_peak=80 * GIB)
    text = gpu.bar_text(one, 100)
    assert (text.index("┊"), text.index("┃")) == (40, 80)
    assert "┊" not in gpu.bar_text(replace(one, run_peak=40 * GIB), 100)


def test_figures_of_two_clocks_that_do_not_nest_are_marked_and_never_clamped() -> None:
    one = GpuView("GPU-a", 0, usable=80 * GIB, used=30 * GIB, peak=30 * GIB, allocated=29 * GIB, reserved=31 * GIB)
    assert "~-1.0" in paint.plain(gpu.wide_line(one, 58))
    assert "~30.0" in paint.plain(gpu.compact_line(one, 38))
    assert "~" not in paint.plain(gpu.wide_line(replace(one, reserved=30 * GIB), 58))


def test_a_slowed_gpu_is_named_and_a_power_cap_is_no_fault() -> None:
    calm = GpuView("GPU-a", 0, throttle=("power cap",))
    hot = GpuView("GPU-b", 3, throttle=("power cap", "hardware thermal"))
    assert gpu.slowed([calm]) == []
    assert gpu.slowed([calm, hot, replace(hot, index=5)]) == ["gpu 3, 5 slowed: hardware thermal"]


def test_z_shows_every_gpu_where_alike_ones_are_folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PilotRoom, "keys_changed", lambda self: None)
    room = PilotRoom()
    room.snapshot = shown(recorded.running(tmp_path), live=True)
    for number, pane in ((8, "detail"), (64, "gpus")):
        views = tuple(GpuView(str(n), n, usable=80 * GIB, used=34 * GIB, peak=34 * GIB) for n in range(number))
        room.snapshot = replace(room.snapshot, gpus=views)
        room.action_zoom()
        assert room.pane == pane
        room.action_zoom()
        assert room.pane is None
