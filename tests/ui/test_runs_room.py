"""The Runs room: every run listed, what was changed readable, the picked side by side and told apart by the rule."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ledger_runs import COMPARED, entry_of, falling, team, write_run
from room_runs import HOSTILE, PLAN, RoomApp, loaded, settled

from tui_pilot.plan import variants
from tui_pilot.run_folder import RunFolder
from tui_pilot.store import ledger
from tui_pilot.store.ledger import Entry
from tui_pilot.ui import paint
from tui_pilot.ui.parts import curve
from tui_pilot.ui.rooms import _changes, _ledger, _picked_page, _run_detail, _runs_page
from tui_pilot.ui.rooms._ledger import Brief, Listed
from tui_pilot.ui.rooms._picked_page import LETTERS, Side
from tui_pilot.ui.rooms._runs_page import Page
from tui_pilot.ui.rooms._scan import Scan, plan_of
from tui_pilot.ui.rooms.runs import RunsRoom
from tui_pilot.ui.snapshot import Snapshot


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, RunFolder]]:
    root = tmp_path_factory.mktemp("team") / "runs"
    root.mkdir()
    return root, team(root)


Team = tuple[Path, dict[str, RunFolder]]
once = functools.cache(entry_of)


def page_of(runs: Team, selected: str, width: int, height: int, **more: object) -> Page:
    listed = _ledger.tree([_ledger.brief(once(each)) for each in runs[1].values()])
    at = next(n for n, each in enumerate(listed) if each.folder == runs[1][selected])
    documents = {COMPARED: json.loads((runs[0] / COMPARED / "comparison.json").read_text())}
    page = Page(width, height, "./runs", listed, len(listed), at, 0.0, comparisons=documents)
    page = replace(page, least=_ledger.least_need(listed))
    return replace(page, entry=once(runs[1][selected]), **more)  # type: ignore[arg-type]


def text_of(lines: Sequence[paint.Line]) -> str:
    return "\n".join(paint.plain(each).rstrip() for each in lines)


def sides_of(runs: Team, *names: str) -> tuple[Side, ...]:
    folders = [runs[1][name] for name in names]
    return tuple(Side(sign, once(each), plan_of(each)) for sign, each in zip(LETTERS, folders, strict=False))


# The list.


@pytest.mark.parametrize("size", [(80, 21), (120, 33), (200, 47), (40, 7)])
@pytest.mark.parametrize("selected", ["full", "ckpt", "one", "base0", "hot1"])
def test_every_size_is_drawn_within_its_cells(runs: Team, size: tuple[int, int], selected: str) -> None:
    for pane in ("list", "run", "comparison"):
        for alone in (False, True):
            page = page_of(runs, selected, *size, pane=pane, alone=alone, picks=[runs[1]["one"]])
            lines = _runs_page.draw(page)
            assert len(lines) == size[1]
            assert all(paint.width_of(each) <= size[0] for each in lines if paint.plain(each).startswith("──"))


def test_columns_drop_in_order_and_changes_stay_readable(runs: Team) -> None:
    wide = text_of(_runs_page.draw(page_of(runs, "one", 200, 47)))
    assert "batch.micro 1 → 2, batch.accumulation 2 → 8, launch.processes 8 → 1" in wide
    heads = [text_of(_runs_page.draw(page_of(runs, "one", width, 33))).splitlines()[1] for width in (200, 120, 80)]
    assert all(word in heads[0] for word in ("updates", "batch", "need GiB≥", "s/upd", "val loss", "changed"))
    assert "updates" in heads[1] and "val loss" in heads[1] and "batch" not in heads[1]
    assert "need GiB≥" in heads[2] and "state, verdict" in heads[2] and "updates" not in heads[2]
    assert "micro 1→2, accumulation 2→8, 1 more" in text_of(_runs_page.draw(page_of(runs, "full", 120, 33)))
    detail = text_of(_run_detail.detail(entry_of(runs[1]["one"]), 60))
    assert "batch.micro 1 → 2" in detail and "launch.processes 8 → 1" in detail


def test_changes_say_as_much_as_there_is_room_for() -> None:
    changed = {"batch.micro": [4, 8], "batch.accumulation": [2, 1], "optimizer.lr": [1e-4, 5e-5]}
    assert _changes.fitting(changed, 70) == "batch.micro 4 → 8, accumulation 2 → 1, optimizer.lr 1.0e-4 → 5.0e-5"
    assert _changes.fitting(changed, 60) == "micro 4 → 8, accumulation 2 → 1, lr 1.0e-4 → 5.0e-5"
    assert _changes.fitting(changed, 40) == "micro 4→8, accumulation 2→1, 1 more"
    assert _changes.fitting(changed, 10) == "3 changes"
    lora = {"model.adapter": [None, {"kind": "lora", "r": 16}], "content of data.train": ["a" * 64, "b" * 64]}
    assert _changes.fitting(lora, 99) == "model.adapter none → lora r16, another content of data.train"


def test_a_lost_run_has_no_verdict_and_its_failed_rows_are_said(tmp_path: Path) -> None:
    bad = [{"code": "same_rows", "severity": "fail", "text": "64 rows", "where": {}}]
    gone = write_run(tmp_path, "20261201-190000-gone-0001", state=None, reached=9, verdicts={"splits": ("fail", bad)})
    found = _ledger.brief(entry_of(gone))
    assert (found.state, found.word, found.sign) == ("lost", "– 1 FAIL", "lost")
    whole = _ledger.brief(entry_of(write_run(tmp_path, "20261201-190000-gone-0002", state=None, reached=9)))
    assert (whole.state, whole.word) == ("lost", "–")
    said = text_of(_run_detail.detail(entry_of(gone), 70))
    assert "It has no verdict" in said and "same_rows: 64 rows" in said


def test_runs_of_one_second_are_in_the_order_of_their_first_events(tmp_path: Path) -> None:
    for n, digits in enumerate(("ffff", "aaaa", "cccc")):
        write_run(tmp_path, f"20261201-190000-demo-{digits}", started=f"2026-12-01T19:00:00.{n + 1}00Z")
    write_run(tmp_path, "20261201-185959-demo-eeee", started="2026-12-01T18:59:59.900Z")
    listed = _ledger.tree([_ledger.brief(each) for each in ledger.ledger(tmp_path)])
    assert [each.folder.id[-4:] for each in listed] == ["eeee", "ffff", "aaaa", "cccc"]


def test_ten_thousand_runs_are_a_tree_of_which_only_what_is_seen_is_drawn() -> None:
    def one(n: int) -> Brief:
        folder = RunFolder(Path(f"20261201-{n:06d}-demo-{n:04x}"))
        parent = f"20261201-{n - 1:06d}-demo-{n - 1:04x}" if n % 5 else None
        return Brief(folder, "finished", "pass", parent=parent, kind="variant", born=(f"{n:06d}", "", folder.id))

    listed = _ledger.tree(map(one, range(10_000)))
    assert len(listed) == 10_000 and listed[4].branch == "      └ "

    class Counting(list[Listed]):
        asked = 0

        def __getitem__(self, place: object) -> object:  # type: ignore[override]
            found = super().__getitem__(place)  # type: ignore[index]
            Counting.asked += len(found) if isinstance(found, list) else 1
            return found

    page = Page(120, 33, "./runs", Counting(listed), len(listed), 7_000, 0.0)
    assert f"demo-{7000:04x}" in text_of(_runs_page.draw(page))
    assert Counting.asked < 2_000


def test_runs_that_name_each_other_as_parents_and_foreign_text_are_listed(tmp_path: Path) -> None:
    first = write_run(tmp_path, "20261201-190000-a-0001", parent="20261201-190001-b-0002", kind="variant")
    write_run(
        tmp_path, "20261201-190001-b-0002", parent=first.id, kind="variant", changed={HOSTILE: ["\x1b[2J", HOSTILE]}
    )
    (tmp_path / "20261201-190002-c-0003").mkdir()
    (tmp_path / "20261201-190002-c-0003" / "run.json").write_text("{broken")
    listed = _ledger.tree([_ledger.brief(each) for each in ledger.ledger(tmp_path)])
    assert len(listed) == 3
    shown = text_of(_runs_page.draw(Page(120, 33, "./runs", listed, 3, 1, 0.0, entry=entry_of(listed[1].folder))))
    assert "unreadable" in shown
    assert not any(ord(each) < 32 and each != "\n" for each in shown) and "\u202e" not in shown


# The picked side by side.


def test_what_differs_stands_side_by_side(runs: Team) -> None:
    shown = text_of(_picked_page.table(sides_of(runs, "one", "base0", "half1"), 120)).splitlines()
    line = {each[:20].strip(): each.split()[-3:] for each in shown}
    assert line["optimizer.lr"] == ["1.0e-4", "1.0e-4", "5.0e-5"]
    assert line["seed"] == ["0", "0", "1"]
    assert line["same experiment"] == ["–", "yes", "no"]
    assert any(each.startswith(" examples") and "warn response_truncated" in each for each in shown)
    assert not any(each.startswith(" splits") for each in shown)  # equal in all


def test_single_runs_are_never_told_apart(runs: Team) -> None:
    said = " ".join(_picked_page.verdicts(sides_of(runs, "base0", "half0")))
    assert "b: not told apart from a, gap +0.0210: one seed tells nothing apart." in said
    assert "Single runs are never told apart: 3 seeds of each setting are needed" in said


def test_three_seeds_of_two_settings_are_told_apart_by_the_rule_of_the_campaign(runs: Team) -> None:
    said = " ".join(_picked_page.verdicts(sides_of(runs, "base0", "base1", "base2", "half0", "half1", "half2")))
    assert "a b c: one setting, 3 seeds, spread 0.0106." in said
    assert "d e f: worse than a b c by +0.0273" in said and "never told apart" not in said
    said = " ".join(_picked_page.verdicts(sides_of(runs, "base0", "base1", "base2", "double0", "double1", "double2")))
    assert "d e f: not told apart from a b c" in said


def test_values_of_different_updates_and_of_diverged_runs_are_not_compared(runs: Team) -> None:
    said = _picked_page.verdicts(sides_of(runs, "one", "base0"))
    assert said == ["not told apart: the last validation is not at the same update (a at 5, b at 200)."]
    said = _picked_page.verdicts(sides_of(runs, "base0", "hot0"))
    assert said[0] == "b is left out of what follows: no validation value."
    assert "diverged" in text_of(_picked_page.said_lines(sides_of(runs, "base0", "hot0"), 60))


def test_runs_of_one_plan_with_other_data_are_two_settings(runs: Team) -> None:
    def revised(entry: Entry, sha: str) -> Entry:
        return replace(entry, run={**entry.run, "revisions": {"data": {"train": {"path": "a.jsonl", "sha256": sha}}}})

    one, other = sides_of(runs, "base0", "base1")
    pair = replace(one, entry=revised(one.entry, "1" * 64)), replace(other, entry=revised(other.entry, "2" * 64))
    assert "b: not told apart from a" in " ".join(_picked_page.verdicts(pair))
    assert "content of data.train" in text_of(_picked_page.table(pair, 120))


@pytest.mark.parametrize("size", [(80, 21), (120, 33), (200, 47)])
def test_six_runs_fit_and_each_has_its_letter_in_the_plot(runs: Team, size: tuple[int, int]) -> None:
    names = ("base0", "half0", "double0", "hot0", "one", "ckpt")
    page = page_of(runs, "base0", *size, sides=sides_of(runs, *names), pane="picked", alone=True)
    assert len(_runs_page.draw(page)) == size[1]
    drawn = text_of(_picked_page.plot_lines(page.sides, size[0] - 1, 14))
    assert all(sign in drawn for sign in "abcde") and any(sign in drawn for sign in "ABC")
    assert "f" not in drawn  # a lost run without an update has no curve


# Curves.


def test_a_curve_is_a_step_line_with_its_updates_and_validation_marks() -> None:
    lines = [paint.plain(each) for each in curve.chart(falling(1.2, 100, 0.0), 80, 12, marks=[(50, 1.6), (100, 1.4)])]
    assert len(lines) == 12 and all(len(each) <= 80 for each in lines)
    assert lines[0].startswith(" 2.031 ┤─") and "1.29" in lines[9]
    assert "".join(lines[:10]).count("v") == 2
    assert lines[-1].split() == ["update", "1", "26", "51", "75", "100"]
    assert not any(each in "".join(lines) for each in "▁▂▃▄▅▆▇█")


def test_words_and_a_few_huge_values_do_not_flatten_a_curve() -> None:
    points: list[tuple[int, float | str]] = [*falling(1.2, 100, 0.0), (101, 3e8), (102, "nan")]
    lines = [paint.plain(each) for each in curve.chart(points, 80, 10)]
    assert "≥2.0" in lines[0] and lines[0].rstrip().endswith("×") and "↑" in lines[0]
    assert sum("─" in each for each in lines[:8]) > 4


def test_letters_take_turns_where_curves_coincide() -> None:
    same = falling(1.2, 40)
    text = "".join(paint.plain(each) for each in curve.lettered({"a": same, "b": same}, 60, 10))
    assert abs(text.count("a") - text.count("b")) <= 12 and text.count("a") > 10
    away = curve.lettered({"a": same, "x": [(1, 2.0), (40, float("inf"))]}, 60, 10, scale_of=["a"])
    assert "x" in paint.plain(away[0]) and curve.lettered({}, 60, 10) == []


# The room.


def test_what_did_not_change_is_not_read_again(runs: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[RunFolder] = []
    whole = ledger.entry
    monkeypatch.setattr(ledger, "entry", lambda folder: (read.append(folder), whole(folder))[1])
    scan = Scan(runs[0])
    *_, (found, total) = scan.read(lambda: False)
    assert len(found) == total == len(read) == 17
    (runs[1]["one"].events / "operator-1-1.jsonl").write_text("")
    *_, (found, _) = scan.read(lambda: False)
    assert len(found) == 17 and read[17:] == [runs[1]["one"]]


async def test_pick_compare_zoom_filter_and_open(runs: Team) -> None:
    room = RunsRoom(runs[0])
    first = Snapshot(state=entry_of(runs[1]["one"]).state, folder=runs[1]["one"], plan=loaded(PLAN), now_mono=100.0)
    said: list[str] = []
    chosen: list[RunFolder] = []

    class Saying(RoomApp):
        def say(self, text: str) -> None:
            said.append(text)

        def on_runs_room_chosen(self, message: RunsRoom.Chosen) -> None:
            chosen.append(message.folder)

    app = Saying(room, first)
    async with app.run_test(size=(120, 33)) as pilot:

        async def press(*keys: str) -> str:
            for key in keys:
                await pilot.press(key)
                await settled(app, pilot)
            return app.text()

        await settled(app, pilot)
        assert "17 runs in" in app.text() and "batch.accumulation 2 → 8" in app.text()
        assert "c: space picks the runs" in (await press("c") and said[-1])
        assert "c: one run is picked" in (await press("space", "c") and said[-1])
        assert ">b✓" in await press("j", "space") and "compare 2" in str(room.hints())
        shown = await press("c")
        assert "2 runs side by side" in shown and "what can be said" in shown and room.open_pane() == "picked"
        assert "17 runs in" not in await press("z")
        assert room.back() and room.back() and room.open_pane() == "list" and not room.sides
        assert "what can be said" in await press("tab") and room.open_pane() == "comparison"
        assert "rates-comparison-aaaa" in room.copied()
        room.search("hot 2.0e-3")
        await settled(app, pilot)
        assert "3 of 17 runs with" in app.text()
        assert room.back() and room.back() and not room.picks and not room.back()
        await press("g", "enter")
        assert chosen == [runs[1]["full"]]
        await press("t")
        assert "this run has no checkpoint" in said[-1] and "full-3f9a" in said[-1]
        await press("v")
        assert "enter opens llama8b-full-3f9a" in said[-1]


def test_the_plan_of_a_trial_is_read_and_a_missing_one_is_none(runs: Team, tmp_path: Path) -> None:
    plan = plan_of(runs[1]["half1"])
    assert plan is not None and variants.differences(PLAN, plan)["optimizer.lr"] == [PLAN.optimizer.lr, 5e-5]
    assert plan_of(RunFolder(tmp_path)) is None


def test_a_curve_that_leaves_the_scale_says_so() -> None:
    calm = [(n, 5.0 - 0.1 * n) for n in range(1, 11)]
    hot = [(1, 5.0), (2, 9.0), (3, 30.0)]
    top = paint.plain(curve.lettered({"b": calm, "o": hot}, 70, 8, 10, ["b"])[0])
    assert "o↑ o leaves the scale" in top
    assert "↑" not in "".join(paint.plain(each) for each in curve.lettered({"b": calm, "o": calm}, 70, 8, 10, ["b"]))
    narrow = paint.plain(curve.lettered({"b": calm, "o": hot}, 26, 8, 10, ["b"])[0])
    assert "↑" in narrow and "leaves" not in narrow
