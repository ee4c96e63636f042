"""The Memory room and the bars: peaks of ended phases, what a running one holds, and what each figure is of."""

from __future__ import annotations

import json
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
from tui_pilot.ui import paint
from tui_pilot.ui.gpu_readings import SampleTail, with_history
from tui_pilot.ui.live_readings import LivePeaks, gpus_of, with_ranks
from tui_pilot.ui.parts import gpu, oom, pilot_page
from tui_pilot.ui.rooms import _memory_page, _memory_readings
from tui_pilot.ui.rooms._memory_page import Page
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
    return "\n".join(paint.plain(each).rstrip() for each in _memory_readings.draw(page))


def test_a_running_phase_shows_what_its_ranks_hold(tmp_path: Path) -> None:
    snapshot = shown(live_run(tmp_path, (0, 31.6, 33.1), (0, 15.6, 33.1), (3, 30.0, 32.0)))
    text = room(snapshot)
    steady = next(line for line in text.splitlines() if "steady_step" in line and line.startswith(">"))
    assert "31.6" in steady and steady.endswith("live")
    assert "steady_step, rank 0 on cuda:0: live" in text
    allocated = next(line for line in text.splitlines() if "allocated: tensors" in line)
    assert "31.6 GiB   31.6 GiB  live, 10 looks a second: a floor" in allocated
    assert "rank 3 on cuda:3" in room(snapshot, rank=3) and "has said nothing yet" in room(snapshot, rank=5)


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
    assert "20.0 GiB" in room(snapshot)


def test_predictions_stand_beside_what_was_measured(tmp_path: Path) -> None:
    snapshot = shown(recorded.out_of_memory(tmp_path), live=False)
    held = {"parameters": 15 * GIB, "optimizer_state": 30 * GIB, "gradients": 0}
    foretold = {"allocated_peak": int(76.0 * GIB), "reserved_peak": 80 * GIB, "at_peak": held}
    predicted = {"first_step": foretold, "steady_step": foretold}
    text = room(snapshot, 160, 50, predicted=predicted)
    line = next(line for line in text.splitlines() if "first_step" in line)
    assert "~76.0" in line and "+1.1%" in line and "pred   error" in text
    assert "pred   error" not in room(snapshot, 160, predicted=predicted, counter="host_peak")
    below = text[text.index("~ at the peak of steady_step, GiB") :]
    assert "optimizer state" in below and "30.0" in below and "gradients" not in below


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
    text = " ".join(room(snapshot, 160, 44).split())
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
    line = next(
        line for line in room(shown(folder, live=False), 160).splitlines() if "backward" in line and "  " in line
    )
    part = next(line for line in room(shown(folder, live=False), 160).splitlines() if line.startswith("     backward"))
    assert line and part.split()[1:4] == ["30.0", "29.0", "28.0"]


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
        await pilot.press("enter")
        await settled(app, pilot)
        if height < 27:
            assert "every reading" not in before and "every reading" in app.text()
            assert "Need: " in app.text() and "host: resident memory" in app.text()
            await pilot.press("escape") if app.room.back() else None
        else:
            assert "every reading" in before and app.text() == before


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
    assert (
        text[0] == "held at that moment, GiB" and text[1].split()[0] == "30.0" and text[1].endswith("optimizer state")
    )
    assert not any("gradients" in line for line in text)
    assert "  a fits ~61.0 GiB: optimizer.implementation: fused, same" in "\n".join(text)
    assert "does not fit ~92.0 GiB: memory.activation_checkpointing: on" in " ".join(" ".join(text).split())
    assert "c data.max_length: 1024, changes the examples" in " ".join(text)
    assert oom.lines(None, 60) == [] and oom.lines({"rows": [1]}, 60) == []
