"""The Memory room and the bars: peaks of ended phases, what a running one holds, and what each figure is of."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import recorded
from recorded import GIB, USABLE, Recording
from room_runs import RoomApp, settled

from tui_pilot.events import schema
from tui_pilot.events.reader import Reader
from tui_pilot.plan.load import default_demo
from tui_pilot.run_folder import RunFolder
from tui_pilot.store.fold import fold
from tui_pilot.store.state import Row
from tui_pilot.ui import paint
from tui_pilot.ui.gpu_readings import SampleTail, with_history
from tui_pilot.ui.live_readings import LivePeaks, gpus_of, with_ranks
from tui_pilot.ui.parts import gpu, oom, pilot_page
from tui_pilot.ui.rooms import _memory_chart, _memory_draw, _memory_page, _memory_table
from tui_pilot.ui.rooms._memory_history import History, HistoryReader, Thinned
from tui_pilot.ui.rooms._memory_page import PANES, Page
from tui_pilot.ui.rooms.memory import MemoryRoom
from tui_pilot.ui.snapshot import Snapshot

STEADY = schema.PHASES.index("steady_step")


def live_run(runs: Path, *lines: tuple[int, float, float | None], device: str = "cuda", **facts: Any) -> RunFolder:
    """LoRA on eight GPUs in the steady step, with live lines of its ranks: (rank, allocated, reserved), GiB."""
    made = recorded.running(runs, live=False)
    rec = Recording(made, ago=1.0)
    for rank in sorted({rank for rank, _, _ in lines}):
        named = f"{device}:{rank}" if device == "cuda" else device
        rec.emit(
            f"peak.rank{rank}", schema.RANK_STARTED, stage="peak", attempt=1, rank=rank, world=8, pid=1, pid_start=1,
            device=named, uuid=f"GPU-{rank}" if device == "cuda" else None, **facts,
        )  # fmt: skip
    for rank, allocated, reserved in lines:
        held = None if reserved is None else int(reserved * GIB)
        rec.wait(0.1)
        rec.emit(
            f"peak.rank{rank}", schema.LIVE, stage="peak", phase="steady_step", attempt=1, rank=rank,
            allocated=int(allocated * GIB), reserved=held,
        )  # fmt: skip
    rec.close()
    return made


def shown(folder: RunFolder, live: bool = True) -> Snapshot:
    events = Reader(folder.events).poll()
    state, peaks = fold(events), LivePeaks()
    peaks.take(events)
    samples = SampleTail(folder.samples)
    samples.poll()
    ranks = peaks.views_and_reset(state) if live else ()
    views = with_history(samples.views_and_reset() or gpus_of(state), state)
    return Snapshot(state, folder, default_demo(), live=live, gpus=with_ranks(views, ranks), ranks=ranks)


def room(snapshot: Snapshot, width: int = 120, height: int = 33, rank: int = 0, **more: Any) -> str:
    page = Page(width, height, snapshot, more.pop("counter", "allocated_peak"), STEADY, rank, **more)
    lines = _memory_draw.draw(page)
    assert page.tiny or page.one_pane or len(_memory_table.table(page, width, 99)) == _memory_table.tall(page)
    assert len(lines) <= height and all(paint.width_of(each) <= width for each in lines)
    return "\n".join(paint.plain(each).rstrip() for each in lines)


def test_a_running_phase_shows_what_its_ranks_hold(tmp_path: Path) -> None:
    snapshot = shown(live_run(tmp_path, (0, 31.6, 33.1), (0, 15.6, 33.1), (3, 30.0, 32.0)))
    text = room(snapshot, pane=PANES[3])
    steady = next(line for line in text.splitlines() if "steady_step" in line and line.startswith(">"))
    assert "31.6" in steady and "set by" not in text.splitlines()[0]
    assert "steady_step, rank 0 on cuda:0: live" in text
    allocated = next(line for line in text.splitlines() if "allocated: tensors" in line)
    assert "31.6 GiB   31.6 GiB  live, 10 looks a second: a floor" in allocated
    assert "rank 3 on cuda:3" in room(snapshot, rank=3, pane=PANES[3])
    assert "has said nothing yet" in room(snapshot, rank=5, pane=PANES[3])


def test_bars_are_the_highest_since_the_last_paint(tmp_path: Path) -> None:
    folder = live_run(tmp_path, (0, 31.6, 33.1), (0, 15.6, 33.1))
    events = Reader(folder.events).poll()
    state, peaks = fold(events), LivePeaks()
    peaks.take(events)
    first, second = peaks.views_and_reset(state), peaks.views_and_reset(state)
    assert first[0].allocated == int(31.6 * GIB) and second[0].allocated == int(15.6 * GIB)
    assert first[0].allocated_highest == second[0].allocated_highest == int(31.6 * GIB)
    snapshot = shown(folder)
    view = snapshot.gpus[0]
    assert view.allocated == int(31.6 * GIB) and view.reserved == int(33.1 * GIB) and snapshot.gpus[1].allocated is None
    bar = gpu.bar_text(view, 58)
    assert bar.count("▆") == round(31.6 / 79.1 * 58) and "▄" in bar and bar.count("┃") == 1
    page = pilot_page.draw(pilot_page.Page(snapshot, STEADY, True, 120, 33))
    text = "\n".join(paint.plain(each) for each in page)
    assert "GPU memory, live" in text and "torch's counters come" not in text
    assert "running " in text and "31.6  33.1" in text


def test_what_is_said_after_a_phase_ended_is_not_of_it(tmp_path: Path) -> None:
    folder = live_run(tmp_path, (0, 31.6, 33.1))
    rec = Recording(folder, ago=0.5)
    rec.ended("steady_step", 0.1, recorded.cuda(8, 31.6, 33.1, 34.7))
    rec.emit("peak.rank0", schema.LIVE, phase="steady_step", attempt=1, rank=0, allocated=1, reserved=1)
    rec.emit("peak.rank0", schema.LIVE, phase="no_phase", attempt=1, rank=0, allocated=1, reserved=1)
    rec.close()
    snapshot = shown(folder)
    assert not snapshot.state.live and snapshot.state.row("steady_step").memory[0]["allocated_peak"] > GIB


def test_amd_gpus_have_torchs_numbers_alone_and_it_is_said(tmp_path: Path) -> None:
    folder = live_run(tmp_path, (0, 20.0, 24.0), device_name="AMD Instinct MI300X", amd=True)
    for path in folder.samples.iterdir():
        path.unlink()  # nobody reads NVML there
    snapshot = replace(shown(folder), gpus_why="AMD: torch's own numbers only, NVML is NVIDIA's")
    assert [view.name for view in snapshot.gpus] == ["AMD Instinct MI300X"] and snapshot.gpus[0].used is None
    for width, height in ((120, 33), (80, 21)):
        page = pilot_page.draw(pilot_page.Page(snapshot, STEADY, True, width, height))
        text = " ".join(" ".join(paint.plain(each).split()) for each in page)
        assert "AMD: torch's own numbers only" in text and "no accelerator" not in text
    assert "20.0 GiB" in room(snapshot, pane=PANES[3])


def test_predictions_stand_beside_what_was_measured(tmp_path: Path) -> None:
    snapshot = shown(recorded.out_of_memory(tmp_path), live=False)
    held = {"parameters": 15 * GIB, "optimizer_state": 30 * GIB, "gradients": 0}
    foretold = {"allocated_peak": int(76.0 * GIB), "reserved_peak": 80 * GIB, "at_peak": held}
    predicted = {"first_step": foretold, "steady_step": foretold}
    text = room(snapshot, 160, 50, predicted=predicted)
    line = next(line for line in text.splitlines() if "first_step" in line)
    assert "~76.0" in line and "+1.1%" in line and "pred  error" in text
    assert "pred  error" not in room(snapshot, 160, predicted=predicted, counter="host_peak")
    assert "│ steady_step, gpu 0, GiB" in text and "gradients" not in text
    kinds = next(line for line in text.splitlines() if "optimizer state" in line)
    assert "│  ~30.0 ▆▆" in kinds, "a predicted kind says that it is predicted"


def test_need_host_and_saves_are_said_below(tmp_path: Path) -> None:
    folder = recorded.running(tmp_path, live=False)
    rec = Recording(folder, ago=0.5, gpus=8)
    limited = [
        {
            **one,
            "host_peak": 12 * GIB,
            "host_limit": 64 * GIB,
            "pinned_peak": GIB,
            "known": {"host_limit": {"source": "cgroup limit"}},
        }
        for one in recorded.cuda(8, 31.6, 33.1, 34.7)
    ]
    rec.ended("steady_step", 0.1, limited)
    parts = {
        "first": {"duration_s": 3.1, "allocated_before": 15 * GIB, "allocated_after": 15 * GIB, "allocated_peak": 1},
        "second": {"duration_s": 1.2, "allocated_before": 15 * GIB, "allocated_after": 16 * GIB, "allocated_peak": 1},
    }
    rec.began("checkpoint")
    rec.ended("checkpoint", 4.3, recorded.cuda(8, 15.6, 33.1, 34.7), parts=parts)
    rec.close()
    snapshot = shown(folder, live=False)
    text = " ".join(room(snapshot, 120, 44).split())
    assert "Need: reserved 33.1 + outside torch 1.6 = 34.7 GiB" in text and "79.1 usable, 56% free" in text
    assert "Host: peak 96.0 GiB over 8 ranks in steady_step of 64.0 GiB (cgroup limit), 8.0 GiB pinned." in text
    assert "Save: first 3.1s, second 1.2s, 1.0 GiB left over after." in text
    assert "needs 34.7 of 79.1 GiB, 56% free" in _memory_page.need_text(snapshot.state)
    assert USABLE < 80 * GIB, "margins are of usable memory"


def test_parts_have_a_figure_of_each_rank(tmp_path: Path) -> None:
    folder = recorded.running(tmp_path, live=False)
    rec = Recording(folder, ago=0.5)
    ranks = [{"rank": n, "allocated_peak": int((30 - n) * GIB)} for n in range(8)]
    parts = {"backward": {"duration_s": 0.1, "allocated_peak": 30 * GIB, "ranks": ranks}}
    rec.ended("steady_step", 0.1, recorded.cuda(8, 31.6, 33.1, 34.7), parts=parts)
    rec.close()
    part = next(line for line in room(shown(folder, live=False), 160).splitlines() if line.startswith("     backward"))
    assert part.split()[1:4] == ["30.0", "29.0", "28.0"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 36)])
async def test_enter_shows_the_readings_on_a_low_screen(tmp_path: Path, width: int, height: int) -> None:
    folder = recorded.out_of_memory(tmp_path)
    (folder.path / "prediction.json").write_text(
        json.dumps({"phases": [{"phase": "load", "allocated_peak": int(29.8 * GIB), "reserved_peak": 30 * GIB}]})
    )
    app = RoomApp(MemoryRoom(), shown(folder, live=False))
    async with app.run_test(size=(width, height)) as pilot:
        await settled(app, pilot)
        before = app.text()
        assert "~29.8" in before, "the prediction is read from the run's folder"
        assert "every reading" not in before
        await pilot.press("enter")
        await settled(app, pilot)
        assert "every reading" in app.text() and "host: resident memory" in app.text()
        assert (">✗ first_step" in app.text()) == (width >= 100), "a small terminal shows one pane at a time"
        assert app.room.back()
        await settled(app, pilot)
        assert app.text() == before
        seen = []
        for _ in range(4):
            await pilot.press("tab")
            await settled(app, pilot)
            seen.append(app.text().splitlines()[0])
        if width < 100:
            assert [f"{n} of 4, tab: " in head for n, head in zip((2, 3, 4, 1), seen, strict=True)] == [True] * 4
            assert app.room.why_no_zoom()
        else:
            await pilot.press("tab", "z")
            await settled(app, pilot)
            assert "over the run" in app.text().splitlines()[0] and "phase   " not in app.text()
        assert "Need: " in app.text()


def test_out_of_memory_is_unfolded() -> None:
    where = {
        "largest": {"optimizer state": 30 * GIB, "parameters": 15 * GIB, "gradients": 0},
        "variants": [
            {"set": {"optimizer.implementation": "fused"}, "same_experiment": True, "changes": "nothing",
             "predicted": {"need_bytes": 61 * GIB, "fits": True}},
            {"set": {"memory.activation_checkpointing": True}, "same_experiment": True, "changes": "time",
             "predicted": {"need_bytes": 92 * GIB, "fits": False}},
            {"set": {"data.max_length": 1024}, "same_experiment": False, "changes": "the examples", "predicted": None},
        ],
    }  # fmt: skip
    text = [paint.plain(each).rstrip() for each in oom.lines(where, 60)]
    assert text[0] == "ways out, with the predicted need", "what can be done comes first"
    held = text[text.index("held at that moment, GiB") + 1]
    assert held.split()[0] == "30.0" and held.endswith("optimizer state")
    assert not any("gradients" in line for line in text)
    assert "  a fits ~61.0 GiB: optimizer.implementation: fused, same" in "\n".join(text)
    assert "does not fit ~92.0 GiB: memory.activation_checkpointing: on" in " ".join(" ".join(text).split())
    assert "c data.max_length: 1024, changes the examples" in " ".join(text)
    assert oom.lines(None, 60) == [] and oom.lines({"rows": [1]}, 60) == []


def lora(runs: Path, ranks: int = 8) -> RunFolder:
    """A whole LoRA run on GPUs with a reading of each four times a second; rank 2 of many holds less."""
    made = recorded.folder(runs, "llama8b-lora-77c1", demo=False)
    rec = Recording(made, ago=300, gpus=ranks)
    rec.emit("supervisor", schema.RUN_STARTED, run=made.id, run_kind="pilot", name="lora", pid=1, pid_start=1)
    spans = []
    for phase, seconds, count, allocated, reserved, used in (
        ("overfit", 41.7, 1, 31.9, 33.4, 34.0), ("load", 9.4, ranks, 15.1, 15.3, 16.9),
        ("steady_step", 26.5, ranks, 31.6, 33.1, 34.7), ("resume", 30.0, ranks, 31.6, 33.2, 34.8),
        ("reload", 14.0, 1, 15.4, 15.9, 16.5),
    ):  # fmt: skip
        rec.wait(5)
        began = rec.mono
        rec.began(phase)
        memory = recorded.cuda(count, allocated, reserved, used)
        for n, one in enumerate(memory):
            one["allocated_peak"] = int((allocated - (n == 2) * 5) * GIB)
        rec.ended(phase, seconds, memory)
        spans.append((began, rec.mono, count, used))
    rec.emit("supervisor", schema.RUN_ENDED, state="finished", text="")
    rec.close()
    lines = [
        {"kind": "gpu", "gpu": f"GPU-{n}", "index": n, "name": "H100", "total": 80 * GIB, "usable": USABLE}
        for n in range(ranks)
    ]
    for at in range(int(spans[0][0]), int(spans[-1][1])):
        held = next((span for span in spans if span[0] <= at <= span[1]), None)
        for n in range(ranks):
            used = held[3] if held and n < held[2] else 0.5
            lines.append({"kind": "sample", "gpu": f"GPU-{n}", "mono": at, "time": 1.0, "used": int(used * GIB)})
    (made.samples / "devices.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return made


def test_a_finished_run_on_eight_gpus_stands_on_one_screen(tmp_path: Path) -> None:
    folder = lora(tmp_path)
    snapshot = shown(folder, live=False)
    history = HistoryReader(folder).poll()
    page = Page(120, 33, snapshot, "allocated_peak", schema.PHASES.index("resume"), 2, history=history)
    text = "\n".join(paint.plain(each).rstrip() for each in _memory_draw.draw(page))
    assert "gpu 0    1    2    3    4    5    6    7   max resvd used≥" in text
    assert re.search(r"> *· overfit|✓ overfit +31\.9( +–){7} +31\.9 +33\.4 +34\.0", text)
    assert "26.6" in text and "resume, gpu 2, GiB" in text
    assert "used on gpu 2 over the run, GiB, all history" in text and "│resume" in text and " 40 ┤" in text
    said = " ".join(text.split())
    assert "Need: reserved 33.2 + outside torch 1.6 = 34.8 GiB, set by resume; steady_step is 0.1 below" in said
    assert "overfit and reload ran on gpu 0 alone, so the other cells are – and not 0." in said
    for rung in ("26.6 allocated, exact", "6.6 cached by torch", "33.2 reserved, exact", "34.8 used, sampled", "79.1"):
        assert rung in said, rung
    table = _memory_table.tsv(page).splitlines()
    assert table[0].split("\t")[:4] == ["phase", "rank", "device", "allocated_peak"]
    assert f"resume\t2\tcuda:2\t{int(26.6 * GIB)}" in "\n".join(table) and len(table) == 1 + 1 + 8 * 3 + 1


def test_ranks_alike_fold_and_an_outlier_keeps_its_column(tmp_path: Path) -> None:
    snapshot = shown(lora(tmp_path, 64), live=False)
    page = Page(120, 33, snapshot, "allocated_peak", schema.PHASES.index("resume"), 0)
    assert _memory_table.groups(page) == [(0, 0), (1, 1), (2, 2), (3, 63)], "rank 0 alone ran overfit"
    assert re.search(r"gpu 0 +1 +2 +3-63", room(snapshot, 80, 21))
    assert [_memory_table.step(page, 1), _memory_table.step(Page(120, 33, snapshot, "allocated_peak", 0, 2), 1)] == [
        1,
        3,
    ]
    alone = Page(120, 33, snapshot, "allocated_peak", 0, 60, alone=True)
    assert len(_memory_table.groups(alone, True)) == 64
    assert " 60" in paint.plain(_memory_draw.draw(alone)[1]) and "gpu 0" not in paint.plain(_memory_draw.draw(alone)[1])


def chart(
    points: list[tuple[float, int]], spans: list[_memory_chart.Span], width: int = 46, rows: int = 4
) -> list[str]:
    made = _memory_chart.chart(tuple(points), spans, width, rows)
    return [paint.plain(each)[_memory_chart.LABEL :] for each in made.lines]


def test_columns_keep_the_highest_and_gaps_stay_gaps() -> None:
    spans = [_memory_chart.Span("load", 0, 20), _memory_chart.Span("resume", 30, 40)]
    points = [(float(n), GIB) for n in range(20)] + [(10.2, 4 * GIB)] + [(float(n), 2 * GIB) for n in range(30, 41)]
    lines = chart(sorted(points), spans)
    assert lines[0].count("█") == 1 and lines[0].index("█") == 10, "one reading is enough for its column"
    assert lines[3][:20] == "█" * 20 and lines[3][24:29] == "     " and lines[3][30:40] == "█" * 10
    assert lines[4].startswith("│load") and lines[4][30:37] == "│resume"


def test_the_selected_phase_is_named_however_short_it_was() -> None:
    spans = [
        _memory_chart.Span("load", 0, 20), _memory_chart.Span("forward", 20, 20.3),
        _memory_chart.Span("backward", 20.3, 21), _memory_chart.Span("steady_step", 21, 40),
    ]  # fmt: skip
    points = tuple((float(n), GIB) for n in range(40))
    named = [paint.plain(_memory_chart.chart(points, spans, 46, 4, phase).lines[-1]) for phase in ("forward", "load")]
    assert "│forward" in named[0] and "│forward" not in named[1] and "steady_step" in named[1]


def test_a_resume_test_hours_later_does_not_press_the_run_flat() -> None:
    spans = [_memory_chart.Span("load", 0, 20), _memory_chart.Span("resume", 9_000, 9_020)]
    points = [(float(n), GIB) for n in range(20)] + [(float(n), GIB) for n in range(9_000, 9_020)]
    lines = chart(points, spans, 60)
    assert "╌╌╌" in lines[3] and lines[3].count("█") > 40 and "+2h29" in lines[4] and "resume" in lines[4]


def test_a_rank_says_the_highest_since_its_line_before(tmp_path: Path) -> None:
    spans = [_memory_chart.Span("load", 0, 20), _memory_chart.Span("forward", 20, 30)]
    made = _memory_chart.chart(((19.0, GIB), (29.0, 2 * GIB)), spans, 36, 4, back=True)
    last = paint.plain(made.lines[3])[_memory_chart.LABEL :]
    assert last[:30] == "█" * 30


@pytest.mark.parametrize("count", [1, 700, 100_000])
def test_a_long_history_stays_small_and_keeps_its_highest(count: int) -> None:
    kept = Thinned(limit=512)
    for n in range(count):
        kept.add(n * 0.05, 7 * GIB if n == count // 3 else GIB)
    points = kept.points()
    assert len(points) <= 512 and max(value for _, value in points) == 7 * GIB
    assert points == tuple(sorted(points))


def test_the_reader_goes_on_where_it_stopped_and_takes_whole_lines_only(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.samples.mkdir(parents=True)
    path = folder.samples / "devices.jsonl"
    path.write_text('{"kind":"sample","gpu":"GPU-0","mono":1.0,"time":1.0,"used":5}\nnonsense\n{"kind":"sample","gpu"')
    reader = HistoryReader(folder)
    assert reader.poll().tracks == {"GPU-0": ((1.0, 5),)}
    with path.open("a") as stream:
        stream.write(':"GPU-0","mono":9.0,"time":9.0,"used":8}\n')
        stream.write('{"kind":"sample","gpu":"GPU-0","mono":10.0,"time":9.0,"used":null,"error":"lost"}\n')
    assert reader.poll().tracks == {"GPU-0": ((1.0, 5), (9.0, 8))}
    assert HistoryReader(RunFolder(tmp_path / "nothing")).poll() == History("allocated_peak", {}, True)


def test_a_run_on_the_cpu_shows_what_its_rank_said(tmp_path: Path) -> None:
    folder = live_run(tmp_path, (0, 4.0, None), (0, 6.0, None), device="cpu")
    for path in folder.samples.iterdir():
        path.unlink()
    history = HistoryReader(folder).poll()
    assert history.counter == "allocated_peak" and list(history.tracks) == ["rank 0"]
    text = room(shown(folder), pane=PANES[1], history=history)
    assert "allocated on rank 0 over the run, GiB, live" in text
    assert "Nothing was sampled yet." in room(shown(folder), history=History(read=True))


def test_the_rank_that_holds_most_is_looked_at() -> None:
    held = [{"rank": 0, "allocated_peak": 116}, {"rank": 1, "allocated_peak": 121}, {"rank": 2, "allocated_peak": 121}]
    assert _memory_table.highest_rank(Row("batch", memory=tuple(held)), "allocated_peak") == 1
    assert _memory_table.highest_rank(Row("batch", memory=tuple(held)), "reserved_peak") == 0
    assert _memory_table.highest_rank(Row("batch"), "allocated_peak") == 0
