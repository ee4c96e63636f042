"""Runs for ``screen.py``: a live one whose GPUs and ranks go on, and event logs of any length.

As a program it is the run that is watched: ``python screen_runs.py FOLDER --mode steady|moving|ranks|grow``. It holds
the supervisor's lock, samples stand-in GPUs with the supervisor's own sampler and writes events with the stages' own
writer. Nothing is trained. It goes on until its standard input is
closed; ``grow`` and ``hush`` are words it takes there.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
for place in (HERE.parents[1], HERE.parent / "ui"):
    sys.path.insert(0, str(place))

import recorded  # noqa: E402

from tui_pilot.events import schema  # noqa: E402
from tui_pilot.events.writer import Writer  # noqa: E402
from tui_pilot.launch.gpu_watch import GpuWatch  # noqa: E402
from tui_pilot.run_folder import RunFolder, drop_lock, take_lock  # noqa: E402

GPUS = 8
GIB = 1 << 30
BEFORE = ("overfit", "load", "forward", "backward", "first_step", "steady_step")


def prepared(runs: Path, name: str, ago: float, open_phase: str | None = "batch") -> RunFolder:
    """A run on eight GPUs up to the phase that is open: its rows are there, its updates are not."""
    folder = recorded.folder(runs, name, demo=False)
    rec = recorded.Recording(folder, ago=ago, gpus=GPUS)
    rec.emit("supervisor", schema.RUN_STARTED, run=folder.id, run_kind="pilot", name=name[:-5], demo=False)
    stage = ""
    for phase in ("stack", "examples", "splits", *BEFORE, *((open_phase,) if open_phase else ())):
        if schema.STAGE_OF[phase] != stage:
            if stage:
                rec.stage_over(stage)
            stage = schema.STAGE_OF[phase]
            rec.stage(stage)
        rec.began(phase)
        if phase != open_phase:
            memory = recorded.cuda(GPUS, 31.4, 33.0, 34.6) if phase in BEFORE else []
            for each in memory:
                each["uuid"] = uuid(int(each["rank"]))
            rec.ended(phase, 1.4, memory)
    rec.close()
    return folder


def uuid(gpu: int) -> str:
    """What the stand-in calls its GPUs."""
    return f"GPU-{0x5700 + gpu:08x}-0000-4000-8000-{gpu:012x}"


def lines(count: int, ago: float, first: int = 0) -> Iterator[tuple[str, bytes]]:
    """``count`` events of a training stage with eight ranks, as (source, line): as the stages write them.

    Of ten events three are updates, three progress, one a part and three what a rank holds.
    """
    began, mono = time.time() - ago, time.monotonic() - ago
    drawn = random.Random(7)
    for n in range(first, first + count):
        at = n * ago / (first + count)
        update, kind, rank = n // 10 * 3 + n % 10 % 3 + 1, "live", n % GPUS
        body: dict[str, Any] = {"stage": "train", "attempt": 1, "phase": "batch"}
        if n % 10 < 3:
            kind, rank = "update", 0
            loss = 1.2 + 3 * math.exp(-update / 9000) + drawn.gauss(0, 0.08)
            body |= {"update": update, "loss": loss, "lr": 1e-4 * (1 + math.cos(update / 15000)), "items": 16384}
            body |= {"rows": 16, "seconds": 0.4127, "skipped": False}
        elif n % 10 < 6:
            kind, rank = "progress", 0
            body |= {"done": update, "total": None, "unit": "updates", "text": f"loss {1 + update % 7 / 10:.3f}"}
        elif n % 10 == 6:
            kind, rank = "part", 0
            body |= {"part": "backward", "duration_s": 0.61, "allocated_peak": 31 * GIB, "reserved_peak": 33 * GIB}
        else:
            body |= {"rank": rank, "allocated": int(drawn.uniform(15, 31) * GIB), "reserved": 33 * GIB}
        when = datetime.fromtimestamp(began + at, timezone.utc).isoformat(timespec="milliseconds")
        head = {"v": 1, "kind": kind, "at": when.replace("+00:00", "Z"), "mono": round(mono + at, 4), "n": n + 1}
        yield f"train.rank{rank}", json.dumps(head | body, separators=(",", ":")).encode() + b"\n"


def append(folder: RunFolder, count: int, ago: float, first: int = 0) -> None:
    """Write many events at once."""
    held: dict[str, list[bytes]] = {}
    for source, line in lines(count, ago, first):
        held.setdefault(source, []).append(line)
    for source, each in held.items():
        with (folder.events / f"{source}.jsonl").open("ab") as stream:
            stream.writelines(each)


def long_log(runs: Path, count: int, name: str = "long-log-5a5a") -> RunFolder:
    """An ended run of ``count`` events."""
    folder = prepared(runs, name, ago=7200)
    append(folder, count, ago=7000)
    rec = recorded.Recording(folder, ago=60, gpus=GPUS)
    rec.ended("batch", 7000.0, recorded.cuda(GPUS, 31.4, 33.0, 34.6))
    rec.stage_over("train")
    rec.emit("supervisor", schema.RUN_ENDED, state="stopped", text="by you")
    rec.close()
    return folder


class Gpus(threading.Thread):
    """Rewrites what the stand-in answers, four times a second: sensors always, memory only if it ``moves``."""

    def __init__(self, file: Path, moves: bool) -> None:
        super().__init__(daemon=True)
        self.file, self.moves = file, moves
        self.write(0)

    def write(self, turn: int) -> None:
        """One line a GPU. Steady sensors change every two seconds, moving memory with every turn."""
        drawn, rows = random.Random(turn if self.moves else turn // 8), []
        for n in range(GPUS):
            used = drawn.uniform(12, 70) if self.moves else 34.7
            rows.append(
                f"{n} name=NVIDIA_H100_80GB_HBM3 total=81559M reserved=512M used={used:.2f}G plimit=700000 sm=1980 "
                f"util={drawn.randint(95, 99)} temp={58 + n % 3 + drawn.randint(0, 1)} "
                f"power={drawn.randint(630000, 650000)}"
            )
        part = self.file.with_suffix(".part")
        part.write_text("\n".join(rows) + "\n")
        part.replace(self.file)

    def run(self) -> None:
        turn = 0
        while True:
            time.sleep(0.25)
            turn += 1
            self.write(turn)


HUSH = threading.Event()


def train(folder: RunFolder) -> None:
    """What rank 0 of a training stage writes: an update a second, and what eight ranks hold ten times a second."""
    writers = [Writer(folder.events, f"train.rank{rank}") for rank in range(GPUS)]
    for rank, writer in enumerate(writers):
        said = {"stage": "train", "attempt": 1, "rank": rank, "world": GPUS, "device": f"cuda:{rank}"}
        writer.emit(schema.RANK_STARTED, **said, uuid=uuid(rank))
    common = {"stage": "train", "attempt": 1, "phase": "batch"}
    turn = 0
    while not HUSH.is_set():
        time.sleep(0.1)
        turn += 1
        for rank, writer in enumerate(writers):
            writer.emit(schema.LIVE, **common, rank=rank, allocated=int(31.4 * GIB), reserved=33 * GIB)
        if turn % 10 == 0:
            update = turn // 10
            writers[0].emit(schema.UPDATE, **common, update=update, loss=2.0 - update / 1000, lr=1e-4, rows=16)
            writers[0].emit(schema.PROGRESS, **common, done=update, total=None, unit="updates", text="loss 2.0")


def many_ranks(folder: RunFolder, ranks: int = 64, hz: float = 20.0) -> None:
    """Ranks that say what they hold ``hz`` times a second each."""
    writers = [Writer(folder.events, f"train.rank{rank}") for rank in range(ranks)]
    for rank, writer in enumerate(writers):
        said = {"stage": "train", "attempt": 1, "rank": rank, "world": ranks, "device": f"cuda:{rank}"}
        writer.emit(schema.RANK_STARTED, **said, uuid=uuid(rank))
    common = {"stage": "train", "attempt": 1, "phase": "batch"}
    due, turn = time.monotonic(), 0
    while True:
        turn += 1
        for rank, writer in enumerate(writers):
            held = int((20 + (rank + turn) % 11) * GIB)
            writer.emit(schema.LIVE, **common, rank=rank, allocated=held, reserved=33 * GIB)
        due = max(due + 1 / hz, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mode", choices=("steady", "moving", "ranks", "grow"), required=True)
    parser.add_argument("--gpus", type=Path, required=True, help="the stand-in's file")
    parser.add_argument("--events", type=int, default=100_000, help="how far a log grows, in about ten seconds")
    asked = parser.parse_args()
    folder = RunFolder(asked.folder)
    if not take_lock(folder.lock_file):
        return 1
    Gpus(asked.gpus, asked.mode == "moving").start()
    watch = GpuWatch(folder)
    watch.phase_began("batch")
    if asked.mode in ("steady", "moving"):
        threading.Thread(target=train, args=(folder,), daemon=True).start()
    elif asked.mode == "ranks":
        threading.Thread(target=many_ranks, args=(folder,), daemon=True).start()
    print("ready", flush=True)
    for word in sys.stdin:
        if word.strip() == "grow":
            step = asked.events // 20
            for n in range(20):
                append(folder, step, ago=1.0, first=asked.events + n * step)
                time.sleep(0.3)
            print("grown", flush=True)
        elif word.strip() == "hush":
            HUSH.set()
            time.sleep(0.3)
            print("quiet", flush=True)
    watch.close()
    drop_lock(folder.lock_file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
