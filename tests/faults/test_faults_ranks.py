"""Two processes through torchrun: a whole run, a rank that is killed, a rank that runs out of memory or crashes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from fault_runs import TINY, alive, describe, ended, finish, held, plan, prepare, row, until, verdicts
from lab import codes, reason_of

from tui_pilot.events.schema import PHASES_OF
from tui_pilot.launch import start as starting
from tui_pilot.run_folder import RunFolder, is_live
from tui_pilot.store.fold import fold
from tui_pilot.store.view import load_state, snapshot

OOM = {"code": "oom", "severity": "fail", "text": "Out of memory."}
CRASH = {"code": "crash", "severity": "fail", "text": "Connection closed by peer."}
TWO = "launch: {processes: 2, strategy: ddp}\n"
ODD = TINY.replace("rows[:18]", "rows[:17]").replace("rows[18:]", "rows[17:]")


def pids_of(folder: RunFolder, stage: str) -> dict[int, int]:
    ranks = load_state(folder)[0].ranks
    return {rank: int(facts["pid"]) for rank, facts in ranks.items() if facts["stage"] == stage}


def both_ranks(folder: RunFolder, stage: str) -> dict[int, int]:
    until(lambda: len(pids_of(folder, stage)) == 2, "both ranks")
    return pids_of(folder, stage)


def test_two_ranks_pass_all_fifteen_phases(work: Path) -> None:
    folder = prepare(work, plan(more=TWO), {"tiny.py": ODD})
    state = finish(folder)
    assert state.state == "finished" and set(verdicts(state).values()) <= {"pass", "warn"}, describe(folder)
    for phase in (*PHASES_OF["peak"], *PHASES_OF["train"], "resume"):
        memory = row(state, phase).memory
        assert [one["rank"] for one in memory] == [0, 1], phase
        # The artifact is written by rank 0 alone: the other rank has nothing to measure there.
        assert all(one["allocated_peak"] > 0 for one in memory[: 1 if phase == "export" else 2]), phase
    for phase in (*PHASES_OF["data"], "overfit", "reload"):
        assert [one["rank"] for one in row(state, phase).memory] == [0], phase
    for name in ("forward", "backward", "step"):
        part = row(state, "steady_step").parts[name]
        peaks = [one["allocated_peak"] for one in part["ranks"]]
        assert [one["rank"] for one in part["ranks"]] == [0, 1] and part["allocated_peak"] == max(peaks) > 0
    batch = snapshot(folder)["batch"]
    assert batch["planned"]["effective_batch"] == 8 and batch["counted"]["rows_per_update"] == [8, 8]
    assert row(state, "batch").inputs["effective_batch"] == 8
    resume = row(state, "resume")
    assert resume.inputs["bit_equal"] is True and resume.inputs["tolerance"] == 0.0


def test_rank_killed_by_signal_9_is_named(work: Path) -> None:
    rank = 1
    hold = {"stage": "train", "method": "loss", "call": 8, "do": "hold", "rank": rank}
    folder = prepare(work, plan(hold, more=TWO, only=("train",)))
    starting.start(folder)
    pid = held(work, "train", rank)
    pids = both_ranks(folder, "train")
    assert pids[rank] == pid
    os.kill(pid, signal.SIGKILL)
    state = ended(folder)
    killed = reason_of(row(state, "batch"), "killed")
    assert row(state, "batch").verdict == "fail" and "SIGKILL" in killed["text"]
    assert killed["where"]["rank"] == rank and f"rank {rank} of stage train" in killed["text"], killed
    assert killed == row(state, "batch").reasons[0], "what it led to on other ranks stands behind"
    assert state.state == "failed" and snapshot(folder)["exit_code"] == 1
    assert {verdicts(state)[phase] for phase in ("checkpoint", "export")} == {"not_run"}
    assert not any(alive(each) for each in pids.values()) and not is_live(folder)


def test_fault_of_one_rank_is_what_the_row_says(work: Path) -> None:
    fault = {"stage": "peak", "method": "loss", "call": 3, "do": "oom", "rank": 1}
    folder = prepare(work, plan(fault, more=TWO, only=("peak",)))
    state = finish(folder)
    found = row(state, "steady_step")
    first = found.reasons[0]
    assert found.verdict == "fail" and codes(found) == ["oom"] and first["where"]["rank"] == 1, describe(folder)
    assert len(first["where"]["rows"]) == 2 and first["where"]["asked_bytes"] == 2 << 30
    assert {verdicts(state)[phase] for phase in ("load", "forward", "backward", "first_step")} == {"pass"}
    assert verdicts(state)["evaluate"] == "not_run" and state.state == "failed"


def test_supervisor_killed_takes_every_rank_along(work: Path) -> None:
    hold = {"stage": "peak", "method": "step", "call": 1, "do": "hold", "rank": 1}
    folder = prepare(work, plan(hold, more=TWO, only=("peak",)))
    holder = starting.start(folder)
    held(work, "peak", 1)
    pids = both_ranks(folder, "peak")
    os.kill(holder.pid, signal.SIGKILL)
    for pid in pids.values():
        until(lambda pid=pid: not alive(pid), "a rank's end")
    until(lambda: not is_live(folder), "the lock's death")
    shown = snapshot(folder)
    rows = {each["phase"]: each for each in shown["phases"]}
    assert shown["state"] == "lost" and rows["first_step"]["verdict"] == "unchecked"
    assert rows["backward"]["verdict"] == "pass" and codes(row(load_state(folder)[0], "load")) == []


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (1, 0, 2)])
def test_ranks_reach_a_phase_in_any_order_and_the_fault_stays(order: tuple[int, ...]) -> None:
    head = {"phase": "steady_step", "attempt": 1, "at": "2026-01-01T00:00:00.000Z", "mono": 1.0}
    events = [
        {"kind": "phase_started", "rank": 0, **head},
        {"kind": "phase_started", "rank": 1, **head},
        {"kind": "phase_ended", "rank": 1, "verdict": "fail", "reasons": [OOM], "memory": [{"rank": 1}], **head},
    ]
    found = row(fold([events[place] for place in order]), "steady_step")
    assert found.verdict == "fail" and codes(found) == ["oom"]
    echo = {"kind": "phase_ended", "rank": 0, "verdict": "fail", "reasons": [CRASH], "memory": [{"rank": 0}], **head}
    both = row(fold([*(events[place] for place in order), echo]), "steady_step")
    assert codes(both) == ["oom", "crash"] and [one["rank"] for one in both.memory] == [0, 1]
