"""The Batch room: the same arithmetic as ``calc``, two settings side by side, nothing saved."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from room_runs import PLAN, RoomApp, examples_run, examples_state, loaded, settled

from tui_pilot.plan.batch import BatchQuestion, answer, question_of
from tui_pilot.plan.batch_tokens import Row, spread, view
from tui_pilot.plan.model import Batch, Budget, Launch, Plan
from tui_pilot.store.fold import fold
from tui_pilot.store.state import RunState
from tui_pilot.ui import paint
from tui_pilot.ui.rooms import _batch_memory, _batch_page, _batch_picture, _batch_sides
from tui_pilot.ui.rooms.batch import BatchRoom
from tui_pilot.ui.snapshot import Snapshot

TRAINED = {"mean": 144.4, "min": 5, "max": 501}


def counted(rows: int = 3200) -> RunState:
    return examples_state(rows, train_rows=rows, supervised_tokens=TRAINED)


def app_on(plan: Plan = PLAN, state: RunState | None = None) -> RoomApp:
    return RoomApp(BatchRoom(), Snapshot(state=state or counted(), plan=loaded(plan)))


def figures(app: RoomApp, name: str) -> str:
    line = next(line for line in app.text().splitlines() if name in line)
    return " ".join(line.split())


async def test_with_nothing_changed_b_equals_a() -> None:
    app = app_on()
    async with app.run_test(size=(100, 27)) as pilot:
        await settled(app, pilot)
        assert figures(app, "effective batch") == "effective batch 16 16 = 2 x 8 x 1 rows an update"
        assert figures(app, "updates") == "updates 200 200"
        assert "B is A: nothing is changed yet." in app.text()
        assert "!" not in app.text()


async def test_a_changed_batch_is_another_experiment_and_can_be_kept() -> None:
    app = app_on()
    async with app.run_test(size=(100, 27)) as pilot:
        await settled(app, pilot)
        await pilot.press("left", "down", "enter", "4", "enter", "down", "enter", "8", "enter")
        await settled(app, pilot)
        shown = app.text()
        assert figures(app, "effective batch").startswith("effective batch 16 ! 32")
        assert figures(app, "updates").startswith("updates 200 ! 100 half as many steps")
        assert "! B is another experiment than A" in shown
        assert "Keep 16: accumulation 2 (key = sets it)." in shown
        assert "[1][1][1][1]" in shown and "4 x 1 rows on each of 8 = 32 rows" in shown
        head = app.room.headline(app.first)
        assert head is not None and "effective batch differs: A 16, B 32" in paint.plain(head)
        assert "held constant: epochs 1" in paint.plain(head)
        await pilot.press("equals_sign")
        await settled(app, pilot)
        assert figures(app, "effective batch") == "effective batch 16 16 = 1 x 2 x 8 rows an update"
        assert "The effective batch is the same: 16 rows an update." in app.text()


async def test_80_columns_lose_no_figure() -> None:
    app = app_on()
    async with app.run_test(size=(80, 21)) as pilot:
        await settled(app, pilot)
        await pilot.press("down", "enter", "4", "enter")
        await settled(app, pilot)
        shown = app.text()
        for name in ("effective batch", "updates", "warm-up", "examples seen", "last update", "trained tokens"):
            assert name in shown, name
        assert "! B is another experiment than A. Keep 16: accumulation 8 (key = sets it)." in shown


async def test_three_times_seven_on_two_gpus() -> None:
    app = app_on(dataclasses.replace(PLAN, batch=Batch(3, 7), launch=Launch(processes=2)))
    async with app.run_test(size=(80, 21)) as pilot:
        await settled(app, pilot)
        assert figures(app, "effective batch") == "effective batch 42 42 = 3 x 7 x 2"
        head = app.room.headline(app.first)
        assert head is not None and "effective batch 42 = 3 x 7 x 2 in both" in paint.plain(head)


async def test_a_batch_that_no_accumulation_keeps_is_said() -> None:
    app = app_on()
    async with app.run_test(size=(100, 27)) as pilot:
        await settled(app, pilot)
        await pilot.press("right")
        await settled(app, pilot)
        assert "No accumulation keeps 16: one pass of B is 3 rows." in app.text()
        before = app.text()
        await pilot.press("equals_sign")
        await settled(app, pilot)
        assert app.text() == before


async def test_holding_another_quantity_keeps_a_as_it_is() -> None:
    app = app_on()
    async with app.run_test(size=(120, 33)) as pilot:
        await settled(app, pilot)
        seen = []
        for _ in range(4):
            await pilot.press("space")
            await settled(app, pilot)
            room = app.room
            assert isinstance(room, BatchRoom) and room.sides is not None
            seen.append(room.sides.a.held)
            assert room.sides.a.held == room.sides.b.held and room.sides.a.amount == room.sides.b.amount
            assert figures(app, "effective batch").startswith("effective batch 16 16 = 2 x 8 x 1")
            assert figures(app, "updates ").startswith("updates 200 200") or room.sides.a.held == "updates"
        assert seen == ["examples", "tokens", "updates", "epochs"]


async def test_tab_edits_a_and_says_that_it_is_no_longer_the_plan() -> None:
    app = app_on()
    async with app.run_test(size=(100, 27)) as pilot:
        await settled(app, pilot)
        assert "A this plan" in app.text()
        await pilot.press("tab", "right")
        await settled(app, pilot)
        assert "A changed" in app.text()
        assert figures(app, "microbatch, rows").startswith("> microbatch, rows 3 2")


async def test_digits_are_digits_only_while_a_field_is_typed_into() -> None:
    app = app_on()
    async with app.run_test(size=(100, 27)) as pilot:
        await settled(app, pilot)
        await pilot.press("enter", "1", "2", "q", "x", "backspace", "escape")
        await settled(app, pilot)
        assert figures(app, "microbatch, rows").startswith("> microbatch, rows 2 2")
        await pilot.press("enter", "1", "2", "q", "enter")
        await settled(app, pilot)
        assert figures(app, "microbatch, rows").startswith("> microbatch, rows 2 12")
        await pilot.press("enter", "0", "enter", "enter", "enter")
        await settled(app, pilot)
        assert figures(app, "microbatch, rows").startswith("> microbatch, rows 2 12")


async def test_zero_updates_is_a_sentence_and_not_a_crash() -> None:
    app = app_on()
    async with app.run_test(size=(100, 27)) as pilot:
        await settled(app, pilot)
        await pilot.press("G", "right", "up", "up", "up", "enter", "3", "enter")
        await settled(app, pilot)
        shown = app.text()
        assert "✗ B: 0 updates: 3 rows make 2 microbatches, an update needs 8" in shown
        head = app.room.headline(app.first)
        assert head is not None and "no run follows" in paint.plain(head)


async def test_rows_that_nobody_counted_are_called_a_guess() -> None:
    app = app_on(state=RunState())
    async with app.run_test(size=(100, 27)) as pilot:
        await settled(app, pilot)
        assert "rows not counted yet: a guess" in app.text()
        assert "trained tokens" not in app.text()
        app.room.show(Snapshot(state=counted(100), plan=loaded()))
        await settled(app, pilot)
        assert "a guess" not in app.text() and "trained tokens" in app.text()
        assert figures(app, "updates").startswith("updates 7 7")


async def test_what_is_tried_stays_while_the_run_goes_on() -> None:
    app = app_on()
    async with app.run_test(size=(100, 27)) as pilot:
        await settled(app, pilot)
        await pilot.press("right", "right")
        state = fold([{"kind": "update", "update": 1, "loss": 2.0, "lr": 0.1}], counted())
        app.room.show(Snapshot(state=state, plan=loaded(), now=9.0))
        await settled(app, pilot)
        assert figures(app, "microbatch, rows").startswith("> microbatch, rows 2 4")


async def test_a_budget_in_tokens_of_unknown_rows_can_be_left() -> None:
    app = app_on(dataclasses.replace(PLAN, budget=Budget(tokens=100_000)), RunState())
    async with app.run_test(size=(100, 27)) as pilot:
        await settled(app, pilot)
        assert "✗ A: A budget in tokens needs the mean number of tokens in a row." in app.text()
        await pilot.press("space")
        await settled(app, pilot)
        assert figures(app, "effective batch").startswith("effective batch 16 16 = 2 x 8 x 1")


async def test_without_a_plan_it_says_what_to_type() -> None:
    app = RoomApp(BatchRoom(), Snapshot())
    async with app.run_test(size=(80, 21)) as pilot:
        await settled(app, pilot)
        assert "pilot-tui init writes one" in app.text()
        await pilot.press("down", "right", "enter", "tab", "space", "equals_sign", "G", "pageup")
        await settled(app, pilot)


@pytest.mark.parametrize("size", [(80, 21), (100, 27), (200, 47), (40, 7)])
async def test_every_size_is_drawn_within_its_cells(size: tuple[int, int]) -> None:
    app = app_on(dataclasses.replace(PLAN, launch=Launch(processes=64)))
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        await pilot.press("down", "enter", *"4096", "enter", "pageup", "pagedown", "up", "pageup")
        await settled(app, pilot)
        lines = app.text().splitlines()
        assert len(lines) <= size[1] and max(map(len, lines)) <= size[0]
        assert "effective batch" in app.text() or size[1] < 10


def test_all_arithmetic_is_that_of_the_plan_module() -> None:
    sides = _batch_sides.from_plan(PLAN, counted().facts)
    assert _batch_sides.solve(sides.a) == answer(question_of(PLAN, 3200, 144.4))
    for field in _batch_sides.FIELDS:
        changed = _batch_sides.change(_batch_sides.change(sides, "b", field, 1), "b", field, -1)
        assert changed == sides, field


@pytest.mark.parametrize(
    ("micro", "accumulation", "replicas", "drop_last", "tail"),
    [(4, 2, 1, False, "step"), (3, 7, 2, False, "step"), (5, 2, 3, True, "drop"), (4, 4, 8, False, "drop")],
)
def test_tokens_of_updates_are_those_of_the_token_view(
    micro: int, accumulation: int, replicas: int, drop_last: bool, tail: str
) -> None:
    supervised = [7 + n * 37 % 211 for n in range(325)]
    question = BatchQuestion(micro, accumulation, 325, replicas, drop_last, tail)  # type: ignore[arg-type]
    found, known = spread(question, supervised), view(question, [Row(n, n) for n in supervised])
    assert found is not None and len(found.totals) == known.updates
    assert (round(found.mean, 6), found.least, found.most) == (round(known.mean, 6), known.least, known.most)


def test_tokens_of_no_rows_or_no_update_are_unknown() -> None:
    assert spread(BatchQuestion(2, 2, 9), []) is None
    assert spread(BatchQuestion(2, 8, 9, tail="drop"), [1] * 9) is None


def page(width: int = 200, height: int = 47, **more: object) -> _batch_page.Page:
    sides = _batch_sides.from_plan(PLAN, counted().facts)
    changed = _batch_sides.enter(sides, "b", "micro", 4)
    rows = [20 + n * 31 % 500 for n in range(3200)]
    both = (spread(changed.a, rows), spread(changed.b, rows))
    made = _batch_page.Page(width, height, changed, "micro", "b", spreads=both)
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def text_of(shown: _batch_page.Page) -> str:
    lines = _batch_page.draw(shown)
    assert len(lines) <= shown.height
    return "\n".join(paint.plain(paint.fit(each, shown.width)).rstrip() for each in lines)


def test_a_wide_terminal_shows_tokens_of_every_update_and_the_rules() -> None:
    text = text_of(page())
    assert "trained tokens of each update of A, one epoch" in text and "of each update of B" in text
    assert "learning rate for 32 rows an update instead of 16" in text and "none is applied" in text
    lr = PLAN.optimizer.lr
    assert f"linear {2 * lr:.1e}".replace("e-0", "e-") in " ".join(text.split())
    assert "square root" in text and "x 1.41" in text and "Order: one shuffled pass" in text
    spreads = page().spreads
    assert spreads[0] is not None and f"least {spreads[0].least:,}" in text
    assert "z: tokens" not in text, "nothing is left for z to show"
    epochs = [line[:104] for line in text.splitlines() if re.match(r" [AB] +\d+ updates", line)]
    assert [line.split()[1] for line in epochs] == ["200", "100"] and "█" in epochs[1]
    more = text_of(dataclasses.replace(page(), spreads=(page().spreads[0], None)))
    assert "B takes 3,200 rows, more than this run counted" in more


@pytest.mark.parametrize("size", [(80, 21), (120, 33)])
def test_z_shows_what_a_smaller_terminal_has_no_room_for(size: tuple[int, int]) -> None:
    first, second = text_of(page(*size)), text_of(page(*size, alone=True))
    both = first + second
    for words in ("effective batch", "microbatches, replica", "[4][4]", "B is another experiment", "least–most"):
        assert words in both, words
    assert "square root" in second and "z: " in first
    assert ("one update of B" in first) == (size[0] >= 100)


def test_the_last_window_is_drawn_where_it_is_smaller() -> None:
    def drawn(question: BatchQuestion) -> str:
        lines = _batch_picture.lines(answer(question), 100, "gpu", "B")
        return "\n".join(paint.plain(each) for each in lines)

    last = drawn(BatchQuestion(4, 2, 325, 1)).splitlines()[-1]
    assert " last   [4][1] ── 5 rows ─► update 41, incomplete ─► the epoch ends" in last
    shared = drawn(BatchQuestion(3, 7, 100, 2))
    assert "7 x 3 rows on each of 2 = 42 rows ─► update 1 of 3" in shared
    assert "last   [3][3][2]             ── 8 rows on each of 2 = 16 rows ─► update 3, incomplete" in shared
    assert "incomplete" not in drawn(BatchQuestion(4, 2, 320, 1)) and "40 make an epoch" in drawn(
        BatchQuestion(4, 2, 320, 1)
    )


def test_memory_follows_the_microbatch_where_it_was_predicted() -> None:
    held = {"parameters": 10, "gradients": 10, "optimizer_state": 20, "activations": 60, "temporary": 4}
    step = {"parameters": 10, "gradients": 10, "optimizer_state": 20, "activations": 0, "temporary": 70}
    predicted = {"steady_step": {"at_peak": held, "parts": {"step": {"at_peak": step}}}, "evaluate": {"at_peak": held}}
    assert _batch_memory.peak(predicted, 1.0) == 110 and _batch_memory.peak(predicted, 2.0) == 168
    assert _batch_memory.peak(predicted, 0.5) == 110, "an optimizer's step does not shrink with the rows"
    assert _batch_memory.peak({}, 2.0) is None and _batch_memory.peak({"load": {"at_peak": None}}, 2.0) is None
    text = text_of(page(120, 33, predicted={"steady_step": {"at_peak": {"activations": 3 << 30}}}))
    line = next(line for line in text.splitlines() if "allocated at the peak" in line)
    assert line.split()[4:8] == ["~3.0", "GiB", "~6.0", "GiB"]


async def test_tokens_come_from_the_rows_of_the_run(tmp_path: Path) -> None:
    folder = examples_run(tmp_path, 300)
    foretold = [{"phase": "forward", "at_peak": {"activations": 1 << 30, "temporary": 0}}]
    (folder.path / "prediction.json").write_text(json.dumps({"phases": foretold}))
    snapshot = Snapshot(state=examples_state(300, train_rows=300), plan=loaded(), folder=folder)
    app = RoomApp(BatchRoom(), snapshot)
    async with app.run_test(size=(120, 36)) as pilot:
        for _ in range(3):
            await settled(app, pilot)
        assert "least–most" in app.text() and "~1.0 GiB" in app.text()
        await pilot.press("z")
        await settled(app, pilot)
        assert "trained tokens of each update of A and B" in app.text()
        assert app.room.back()
        await settled(app, pilot)
        assert "what follows" in app.text()
