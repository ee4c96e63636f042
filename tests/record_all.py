"""Makes all of ``tests/recorded`` from real runs: ``python tests/record_all.py [--keep FOLDER] [NAME...]``.

Each recipe is real runs of the command line in an empty folder, one after another, on the CPU: about fifteen minutes
on two free cores. Without a name all recipes run. The four hex digits at the end of an id are fixed, so that tests may
name a run; dates are of the day.

- ``out-of-memory``: torch's own allocator is refused memory by a limit on the process's data (``ulimit -d``), in the
  optimizer's first step of a decoder of 50 million parameters. No error is raised by hand.
- ``eight-stub-gpus``: the supervisor samples the NVML stand-in of ``nvml_stub.c`` while the demo trains on the CPU. The
  GPUs are called ``NVML stub 80GB`` and their figures follow ``STUB_USED``: they measure nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from record_run import RECORDED, record

from tui_pilot.launch import control, start
from tui_pilot.plan import variants
from tui_pilot.plan.load import load
from tui_pilot.run_folder import RunFolder, all_runs, is_live, read_lock
from tui_pilot.store.view import load_state

ROOT = Path(__file__).resolve().parents[1]
PILOT_TUI = str(Path(sys.executable).with_name("pilot-tui"))

DESK = """\
name: {name}
task: demo
data: {{unit: conversation_id, max_length: 512}}
batch: {{micro: 4, accumulation: 2}}
budget: {{epochs: 1}}
optimizer: {{lr: 1.0e-3, schedule: cosine, warmup: 2}}
evaluate: {{rows: 32}}
"""
VARIANTS = """\
variants:
  - {id: micro-8, set: {batch.micro: 8, batch.accumulation: 1}}
  - {id: low-lr, set: {optimizer.lr: 5.0e-4}}
  - {id: short, set: {data.max_length: 160}}
"""
TWO_RANKS = "device: cpu\nlaunch: {processes: 2, strategy: ddp}\n"
BIG_TASK = '''\
from tui_pilot.tasks.demo import DemoTask, TinyDecoder


class Big(DemoTask):
    """The demo's chats on a decoder of about 50 million parameters."""

    def build_model(self):
        return TinyDecoder(width=1024, heads=8)
'''
BIG = """\
name: desk-big
task: big.py:Big
device: cpu
data: {unit: conversation_id, max_length: 512}
batch: {micro: 1, accumulation: 8}
budget: {epochs: 1}
optimizer: {lr: 1.0e-4, schedule: cosine, warmup: 2}
evaluate: {rows: 8}
gates: {skip: [overfit]}
"""
BIG_LIMIT = 1000 << 20
RATES = (
    "name=demo-rates", "budget.updates=24", "optimizer.warmup=3", "evaluate.every=6", "evaluate.rows=12",
    "compare.seeds=[0]",
)  # fmt: skip
STUB_USED = {
    "load": 16.9, "forward": 32.6, "backward": 34.6, "first_step": 34.6, "steady_step": 34.7, "evaluate": 21.4,
    "batch": 34.7, "checkpoint": 34.8, "export": 20.1, "resume": 34.7, "reload": 17.2, "overfit": 34.0,
}  # fmt: skip
"""GiB that the stand-in says are used on each GPU while a phase is open; 0.5 otherwise."""


class Desk:
    """A folder where a person works: plans in it, runs below it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ids: dict[str, str] = {}

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def tui(self, *arguments: str, env: Mapping[str, str] | None = None, limit: int | None = None) -> None:
        """A command of the product to its end; ``limit``: bytes of data that any of its processes may have."""
        self._start(arguments, env, limit).wait()

    def variant(self, id: str, parent: RunFolder, keep_going: bool = False) -> RunFolder:
        """Start a variant of the folder's plan below a run; ``keep_going``: as ``R`` runs a failed variant again."""
        os.chdir(self.folder)
        run = start.prepare(
            variants.variant(load(Path("pilot.yaml")), id), Path("runs"), argv=["pilot-tui", "attach", parent.id],
            kind="pilot" if keep_going else "variant", variant=None if keep_going else id, parent=parent.id,
            keep_going=keep_going,
        )  # fmt: skip
        start.start(run)
        print("$ pilot-tui attach, variant", id, run.id, flush=True)
        return run

    def until(self, run: RunFolder, phase: str) -> None:
        """Wait until a phase runs."""
        control.wait(run, until=lambda state: state.running_row is not None and state.running_row.phase == phase)

    def runs(self) -> list[RunFolder]:
        return list(all_runs(self.folder / "runs"))

    def newest(self) -> RunFolder:
        return max(self.runs(), key=lambda each: each.run_file.stat().st_mtime_ns)

    def name(self, run: str, digits: str) -> None:
        """What the run is called in the recording."""
        self.ids[run] = run[:-4] + digits

    def keep(self, run: Path, name: str, light: bool = False) -> None:
        left = record(run, name, light=light, ids=self.ids)
        if left:
            raise RuntimeError(f"words of this machine are left in {left}")
        size = sum(path.stat().st_size for path in (RECORDED / name).rglob("*") if path.is_file())
        print(f"{name}: {size:,} bytes", flush=True)

    def _start(
        self, arguments: tuple[str, ...], env: Mapping[str, str] | None = None, limit: int | None = None
    ) -> subprocess.Popen[bytes]:
        around = {**os.environ, **(env or {})}

        limited = ["sh", "-c", 'ulimit -d "$0"; exec "$@"', str(limit >> 10)] if limit is not None else []
        print("$ pilot-tui", *arguments, flush=True)
        return subprocess.Popen([*limited, PILOT_TUI, *arguments], cwd=self.folder, env=around)


def demo(desk: Desk) -> None:
    desk.tui("run", "--headless")
    run = desk.newest()
    desk.name(run.id, "b6db")
    desk.tui("verdict", run.id, "batch", "pass", "--note", "the last update averages 5 rows")
    desk.tui("resume-test", run.id)
    desk.tui("note", run.id, "loading took twice as long the second time", "--phase", "resume")
    desk.keep(run.path, "demo")


def demo_broken(desk: Desk) -> None:
    for name in ("demo-broken.yaml", "broken_task.py"):
        desk.write(f"configs/{name}", (ROOT / "configs" / name).read_text("utf-8"))
    desk.tui("run", "configs/demo-broken.yaml", "--headless")
    desk.name(desk.newest().id, "caea")
    desk.keep(desk.newest().path, "demo-broken")


def family(desk: Desk) -> None:
    """A pilot and its variants, as the screen's key ``v`` starts them: finished, stopped, failed; and one lost."""
    desk.write("pilot.yaml", DESK.format(name="desk") + VARIANTS)
    desk.tui("run", "--headless")
    parent = desk.newest()
    finished = desk.variant("micro-8", parent)
    control.wait(finished)
    stopped = desk.variant("low-lr", parent)
    desk.until(stopped, "overfit")
    control.request_stop(stopped)
    control.wait(stopped)
    failed = desk.variant("short", parent)
    control.wait(failed)
    lost = desk.variant("short", failed, keep_going=True)
    desk.until(lost, "overfit")
    holder = read_lock(lost.lock_file)
    assert holder is not None
    os.kill(holder.pid, signal.SIGKILL)
    while is_live(lost):
        time.sleep(0.2)
    runs = {
        "desk": (parent, "ebbd"), "desk-micro-8": (finished, "9b08"), "desk-low-lr": (stopped, "8b5c"),
        "desk-short": (failed, "5303"), "desk-lost": (lost, "8cbd"),
    }  # fmt: skip
    for run, digits in runs.values():
        desk.name(run.id, digits)
    for name, (run, _) in runs.items():
        desk.keep(run.path, name, light=name != "desk-short")


def two_ranks(desk: Desk) -> None:
    desk.write("pilot.yaml", DESK.format(name="desk-two-ranks") + TWO_RANKS)
    desk.tui("run", "--headless")
    desk.name(desk.newest().id, "2a71")
    desk.keep(desk.newest().path, "two-ranks", light=True)


def out_of_memory(desk: Desk) -> None:
    desk.write("big.py", BIG_TASK)
    desk.write("pilot.yaml", BIG)
    desk.tui("run", "--headless", limit=BIG_LIMIT)
    desk.name(desk.newest().id, "00d1")
    desk.keep(desk.newest().path, "out-of-memory", light=True)


def eight_stub_gpus(desk: Desk) -> None:
    library = desk.folder / "stub" / "libnvidia-ml.so.1"
    library.parent.mkdir()
    compiler = shutil.which("cc") or shutil.which("gcc") or "clang"
    flags = ["-O1", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *flags, "-o", str(library), str(ROOT / "tests" / "nvml_stub.c"), "-lpthread"], check=True)
    readings = desk.folder / "stub" / "gpus.txt"
    _stub(readings, None)
    desk.write("pilot.yaml", DESK.format(name="desk-stub-gpus") + "device: cpu\n")
    over = threading.Event()
    follower = threading.Thread(target=_follow, args=(desk, readings, over))
    follower.start()
    try:
        stub = {"LD_LIBRARY_PATH": str(library.parent), "NVML_STUB_COUNT": "8", "NVML_STUB_FILE": str(readings)}
        desk.tui("run", "--headless", env=stub)
    finally:
        over.set()
        follower.join()
    desk.name(desk.newest().id, "8e8e")
    desk.keep(desk.newest().path, "eight-stub-gpus", light=True)


def _follow(desk: Desk, readings: Path, over: threading.Event) -> None:
    """Let the stand-in say what ``STUB_USED`` has for the phase that runs."""
    shown: str | None = None
    while not over.wait(0.1):
        run = next(iter(desk.runs()), None)
        row = load_state(run)[0].running_row if run is not None else None
        phase = row.phase if row is not None else None
        if phase != shown:
            shown = phase
            _stub(readings, phase)


def _stub(readings: Path, phase: str | None) -> None:
    """One line a GPU: replicas alike, GPU 3 a little hotter and slowed down, GPU 0 with the evaluation alone."""
    lines = []
    for n in range(8):
        used = STUB_USED.get(phase or "", 0.5) if n == 0 or phase not in ("export", "reload", "overfit") else 0.5
        busy = used > 1
        throttle = "0x20" if n == 3 and busy else "0"
        facts = {
            "name": "NVML_stub_80GB", "uuid": f"GPU-stub-{n}", "total": 85520809984, "reserved": "512M",
            "used": int((used - (n % 3) * 0.05) * (1 << 30)), "util": 96 + n % 3 if busy else 0,
            "temp": 57 + n + 14 * (n == 3) if busy else 38 + n, "power": (640 - 3 * n) * 1000 if busy else 71000,
            "plimit": 700000, "throttle": throttle,
        }  # fmt: skip
        lines.append(f"{n} " + " ".join(f"{key}={value}" for key, value in facts.items()))
    temporary = readings.with_suffix(".new")
    temporary.write_text("\n".join(lines) + "\n")
    temporary.replace(readings)


def rates(desk: Desk) -> None:
    """A comparison of four rates at one seed, one of which diverges."""
    desk.write("rates.yaml", (ROOT / "configs" / "three-rates.yaml").read_text("utf-8"))
    desk.tui("compare", "rates.yaml", *(word for each in RATES for word in ("--set", each)))
    digits = {"base": "ba5e", "half": "4a1f", "double": "d0b1", "hot": "0407", "comparison": "c0de"}
    found: dict[str, Path] = {}
    for path in sorted((desk.folder / "runs").iterdir()):
        trial = next(each for each in digits if f"-{each}-" in path.name)
        found[trial] = path
        desk.name(path.name, digits[trial])
    for trial, path in found.items():
        desk.keep(path, f"rates-{trial}", light=True)


RECIPES: dict[str, Callable[[Desk], None]] = {
    "demo": demo,
    "demo-broken": demo_broken,
    "desk": family,
    "two-ranks": two_ranks,
    "out-of-memory": out_of_memory,
    "eight-stub-gpus": eight_stub_gpus,
    "rates": rates,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RECIPES)}; none: all")
    parser.add_argument("--keep", type=Path, help="make the runs below this folder and leave them there")
    asked = parser.parse_args(arguments)
    unknown = set(asked.names) - set(RECIPES)
    if unknown:
        parser.error(f"no recipe is called {', '.join(sorted(unknown))}; there are {', '.join(RECIPES)}")
    # One thread: the recordings are made while other programs run, and a second thread would wait for a core.
    os.environ |= {"OMP_NUM_THREADS": "1", "PILOT_TUI_PREDICT": "1"}
    for name, recipe in RECIPES.items():
        if asked.names and name not in asked.names:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = (asked.keep / name if asked.keep else Path(scratch)).resolve() / "desk"
            folder.mkdir(parents=True)
            recipe(Desk(folder))
            os.chdir(ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
