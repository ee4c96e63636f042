"""The Examples room: any size of audit, the mask told three ways, foreign text only text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from room_runs import (
    HOSTILE,
    RoomApp,
    cut_record,
    examples_run,
    examples_state,
    loaded,
    reason,
    record,
    settled,
    token_view,
    write_audit,
    write_tokens,
)

from tui_pilot.run_folder import RunFolder
from tui_pilot.ui import paint
from tui_pilot.ui.rooms import _tokens
from tui_pilot.ui.rooms._audit import Audit
from tui_pilot.ui.rooms._lengths import histogram
from tui_pilot.ui.rooms.examples import ExamplesRoom
from tui_pilot.ui.snapshot import Snapshot

SIZES = [(80, 21), (120, 33), (200, 47)]


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """100,000 audited rows, 1,000 of them cut."""
    return examples_run(tmp_path_factory.mktemp("big"), rows=100_000)


def app_on(folder: RunFolder | None, rows: int = 100_000, **facts: Any) -> RoomApp:
    state = examples_state(rows, **facts)
    return RoomApp(ExamplesRoom(), Snapshot(state=state, folder=folder, plan=loaded()))


@pytest.mark.parametrize("size", SIZES)
async def test_a_hundred_thousand_rows_are_paged_by_offset(big: RunFolder, size: tuple[int, int]) -> None:
    app = app_on(big)
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        assert "all rows" in app.text() and "100,000" in app.text()
        await pilot.press("tab", "G")
        await settled(app, pilot)
        assert "99999" in app.text() and "of 100,000" in app.text()
        await pilot.press("pageup")
        await settled(app, pilot)
        room = app.room
        assert isinstance(room, ExamplesRoom) and room.list is not None
        assert 99_900 < room.list.at < 99_999
        assert len(room.list._records) < 1000


async def test_a_reason_lists_its_rows_most_lost_first(big: RunFolder) -> None:
    app = app_on(big)
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        await pilot.press("down")
        await settled(app, pilot)
        shown = app.text()
        assert "1,000 rows, most lost first" in shown
        room = app.room
        assert isinstance(room, ExamplesRoom) and room.list is not None
        lost = [(room.list.read(n) or {})["lost"] for n in range(len(room.list))]
        assert len(lost) == 1000 and lost == sorted(lost, reverse=True)
        first = room.list.read(0)
        await pilot.press("right_square_bracket", "J", "left_square_bracket")
        await settled(app, pilot)
        assert room.list.at == 1 and room.list.read(room.list.at) != first


async def test_the_filter_looks_at_id_unit_split_and_reason(tmp_path: Path) -> None:
    folder = examples_run(tmp_path, rows=300)
    app = app_on(folder, 300)
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        app.room.search("C-0003")
        await settled(app, pilot)
        assert "4 rows with “C-0003”" in app.text()
        app.room.search("nothing like that")
        await settled(app, pilot)
        assert "no row: esc takes the filter away" in app.text()
        assert app.room.back()
        await settled(app, pilot)
        assert "300 rows" in app.text()


async def test_the_tokens_of_a_cut_row(tmp_path: Path) -> None:
    folder = examples_run(tmp_path, rows=300)
    app = app_on(folder, 300)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(app, pilot)
        await pilot.press("down", "enter", "enter")
        await settled(app, pilot)
        shown = app.text()
        assert "┃ Which wheel, front or rear?<|eot|>" in shown
        assert "· You answer for the repair desk" in shown
        assert "╌ cut here: max_length 120 ╌" in shown
        assert "× ␣the smallest cog" in shown
        assert "4 turns; enter unfolds" in shown
        await pilot.press("enter")
        await settled(app, pilot)
        assert "Do you have a cutter?" in app.text()
        await pilot.press("i")
        await settled(app, pilot)
        assert "Which|␣wheel,|␣front|␣or|␣rear?|<|eot|>" in app.text()
        await pilot.press("i")
        await settled(app, pilot)
        assert "1046 1047 1048" in app.text()
        assert app.room.back()
        copied = app.room.copied()
        assert copied.startswith("row 247 train: response_truncated") and "\x1b" not in copied


async def test_below_100_columns_one_pane_at_a_time(tmp_path: Path) -> None:
    app = app_on(examples_run(tmp_path, rows=300), 300)
    async with app.run_test(size=(80, 21)) as pilot:
        await settled(app, pilot)
        assert "reasons, over every row" in app.text() and "what the loss sees" not in app.text()
        await pilot.press("tab")
        assert "300 rows" in app.text() and "trained on   lost" in app.text()
        await pilot.press("tab")
        assert "what the loss sees" in app.text() and "over every row" not in app.text()
        await pilot.press("tab")
        assert "reasons, over every row" in app.text()
        await pilot.resize_terminal(40, 10)
        await settled(app, pilot)
        await pilot.resize_terminal(120, 33)
        await settled(app, pilot)
        assert "over every row" in app.text() and "what the loss sees" in app.text()


async def test_zoom_shows_one_pane_and_goes_back(tmp_path: Path) -> None:
    app = app_on(examples_run(tmp_path, rows=300), 300)
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        await pilot.press("tab", "tab", "z")
        assert "over every row" not in app.text() and "what the loss sees" in app.text()
        await pilot.press("z")
        assert "over every row" in app.text()


async def test_a_run_that_was_not_looked_at_says_what_to_type(tmp_path: Path) -> None:
    app = RoomApp(ExamplesRoom(), Snapshot(plan=loaded()))
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        assert "Not looked at yet. pilot-tui check pilot.yaml looks at every row, no GPU needed." in app.text()
        app.room.show(Snapshot(folder=RunFolder(tmp_path / "empty"), plan=loaded(demo=True)))
        await settled(app, pilot)
        assert "built-in demo: r runs it" in app.text()


async def test_foreign_text_is_only_text(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "20261201-193200-x-77c1")
    turns = (("user", HOSTILE), ("assistant", HOSTILE + "\n\tindented  twice \n"))
    write_audit(folder, [cut_record(0, 5, row=HOSTILE), record(1, unit=HOSTILE, reasons=["[bold]made_up[/bold]"])])
    for n in (0, 1):
        write_tokens(folder, {**token_view(HOSTILE, n, turns, 30), "unit": HOSTILE, "note": "\x07"})
    app = RoomApp(
        ExamplesRoom(),
        Snapshot(state=examples_state(2, [reason("response_truncated", HOSTILE)]), folder=folder, plan=loaded()),
    )
    for size in SIZES:
        async with app.run_test(size=size) as pilot:
            await settled(app, pilot)
            for keys in ([], ["down"], ["tab"], ["tab"], ["i"], ["i"], ["]"]):
                await pilot.press(*keys)
                await settled(app, pilot)
                shown = app.text()
                assert not any((ord(each) < 32 and each != "\n") or 0x7F <= ord(each) < 0xA0 for each in shown)
                assert "\u202e" not in shown
            for pane in app.room.copied().splitlines():
                assert "\x1b" not in pane
            room = app.room
            assert isinstance(room, ExamplesRoom)
            assert paint.plain(room.headline(room.snapshot) or ()).isprintable()
        app = RoomApp(ExamplesRoom(), app.first)


async def test_classes_are_a_table_with_counts(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "20261201-193200-sms-77c1")
    write_audit(folder, [record(n) for n in range(20)])
    write_tokens(folder, {**token_view(0, 0, (("", "win a prize"),)), "labels": 1, "spans": [], "supervised_text": []})
    classes = [{"id": 0, "name": "ham", "count": 4827}, {"id": 1, "name": "spam", "count": 747}]
    app = app_on(folder, 5574, classes=classes)
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        shown = app.text()
        assert "2 classes" in shown and "4,827" in shown and "747" in shown
        assert "label 1 = spam" in shown


async def test_a_row_whose_tokens_were_not_kept_says_so(big: RunFolder) -> None:
    app = app_on(big)
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        for _ in range(5):
            await pilot.press("right_square_bracket")
        await settled(app, pilot)
        assert "The tokens of this row were not kept" in app.text()


async def test_what_moves_is_redrawn_and_nothing_else(tmp_path: Path) -> None:
    folder = examples_run(tmp_path, rows=300)
    app = app_on(folder, 300)
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        before = app.text()
        app.room.show(Snapshot(state=app.first.state, folder=folder, plan=app.first.plan, now=5.0))
        await settled(app, pilot)
        assert app.text() == before


async def test_an_audit_that_is_still_written_grows_on_screen(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "20261201-193200-x-77c1")
    write_audit(folder, [record(n) for n in range(50)])
    # The index is ahead of the records, and the last record is torn.
    audit = folder.examples / "audit.jsonl"
    whole = audit.read_bytes()
    audit.write_bytes(whole[:-300])
    app = app_on(folder, 50)
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        room = app.room
        assert isinstance(room, ExamplesRoom) and room.list is not None
        assert 40 < room.list.audited < 50
        audit.write_bytes(whole)
        room.show(room.snapshot)
        await settled(app, pilot)
        assert room.list.audited == 50


def test_the_survey_counts_and_survives_text_that_looks_like_its_own_keys(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "x")
    tricky = '"reasons": ["no_rows"], "tokens": 999999, "lost": 7'
    write_audit(folder, [record(0, row=tricky, unit=tricky), cut_record(1, 9), cut_record(2, 30)])
    audit = Audit(folder.examples)
    survey = audit.survey()
    assert survey.rows == 3 and dict(survey.reasons) == {"response_truncated": 2}
    assert list(survey.lengths) == [90, 2057, 2078]
    assert list(audit.matching("response_truncated")) == [2, 1]
    assert list(audit.matching(None, "no_rows")) == [0]
    assert audit.survey(lambda: True).rows == 0


def test_a_split_name_cannot_leave_the_rows_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "x")
    write_audit(folder, [record(0, split="../../secret")])
    (tmp_path / "x" / "secret-0.json").write_text(json.dumps({"ids": [1]}))
    audit = Audit(folder.examples)
    assert audit.tokens(audit.record(0) or {}) is None


def test_a_line_never_mixes_masks_and_every_token_is_shown_once() -> None:
    view = token_view("r", 0, max_length=100)
    row = _tokens.read(view)
    for how in _tokens.VIEWS:
        for width in (40, 80, 131):
            lines = _tokens.lines(row, width, how, unfolded=True)
            for line in lines:
                assert paint.width_of(line) <= width
                roles = {role for text, role in line[3:]}
                assert len(roles) <= 1
            texts = [line[3][0] for line in lines if len(line) == 4]
            if how == "ids":
                assert " ".join(texts).split() == [str(each) for each in view["full_ids"]]
    joined = "".join(line[3][0] for line in _tokens.lines(row, 80, "text", True) if len(line) == 4)
    original = "".join(view["full_pieces"])
    undone = joined.replace("␣", " ").replace("↵", "\n").replace("→", "\t")
    assert undone == original


def test_a_cut_that_is_not_at_the_end_is_said_and_not_drawn() -> None:
    view = token_view("r", 0, max_length=50)
    view["ids"] = view["full_ids"][-50:]
    row = _tokens.read(view)
    assert row.cut_at is None and row.note is not None and "not from the end" in row.note


def test_what_is_trained_on_is_looked_up_in_the_source() -> None:
    view = token_view("r", 0, max_length=1000)
    assert _tokens.missing(_tokens.read(view)) == 0
    view["supervised_text"] = ["something the file never said"]
    assert _tokens.missing(_tokens.read(view)) == 1
    view["supervised_text"] = None
    assert _tokens.read(view).supervised_text[0] == "Which wheel, front or rear?<|eot|>"


@pytest.mark.parametrize(
    ("lengths", "limit"), [([], None), ([0], None), ([1, 2, 3], None), ([5, 50, 500], 100), ([10], 2048), ([7] * 9, 7)]
)
def test_the_histogram_counts_every_row_once(lengths: list[int], limit: int | None) -> None:
    lines = histogram(lengths, limit, 39)
    counted = [int(paint.plain(line).split()[-1].replace(",", "")) for line in lines]
    assert sum(counted) == len(lengths)
    assert all(paint.width_of(line) <= 39 for line in lines)
