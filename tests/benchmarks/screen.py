"""The screen's budgets: bytes, first frame, processor, memory, keys: ``python tests/benchmarks/screen.py``.

Runs the real ``pilot-tui`` in a 160 x 48 pseudo-terminal on eight stand-in GPUs (``tests/nvml_stub.c``) that change,
with nvitop and nvtop beside it in the same run where they are installed. ``--markdown`` prints the table of
``README.md``, ``--json`` everything, ``--quick`` one short repeat. Nothing here trains: ``screen_runs.py`` writes what
a run writes, with the supervisor's sampler and the stages' event writer. Bytes are steady; seconds and shares of a
core need a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import screen_runs as runs  # noqa: E402
from nvml_calls import compiled  # noqa: E402
from screen_pty import HEIGHT, WIDTH, Pty  # noqa: E402

from tui_pilot.events.schema import PHASES  # noqa: E402
from tui_pilot.run_folder import RunFolder  # noqa: E402
from tui_pilot.store.view import load_state  # noqa: E402

EVENTS = 100_000
STALL_S = 10.0
SELECTED = rb"\x1b\[(?:\d+;)*7(?:;\d+)*m[^\x1b]*%s"  # reverse video, then this word
NOT_INSTALLED = "not installed"
BUDGETS = {
    "steady_bytes_s": 2048, "moving_bytes_s": 10240, "first_frame_s": 0.8, "first_frame_kb": 50, "steady_cpu": 4.0,
    "moving_cpu": 4.0, "rss_mb": 60, "ranks_key_ms": 100, "log_key_ms": 100, "open_s": 1.0,
}  # fmt: skip


@dataclass
class Bench:
    """Where everything is, and how long to look. ``said`` collects the readings of each repeat by program and name."""

    place: Path
    window: float
    repeats: int
    keys: int
    said: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def note(self, program: str, **figures: float) -> None:
        for name, value in figures.items():
            self.said.setdefault(program, {}).setdefault(name, []).append(value)

    @property
    def env(self) -> dict[str, str]:
        env = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "LD_LIBRARY_PATH": str(self.place)}
        env |= {"NVML_STUB_COUNT": str(runs.GPUS), "NVML_STUB_FILE": str(self.place / "gpus.txt")}
        env |= {"XDG_CONFIG_HOME": str(self.place / "settings"), "PYTHONPATH": str(HERE.parents[1])}
        # An installed package is compiled, a checkout not always.
        env["PYTHONPYCACHEPREFIX"] = str(self.place / "compiled")
        for name in ("COLORTERM", "NO_COLOR", "TMUX", "COLUMNS", "LINES", "PYTHONDONTWRITEBYTECODE"):
            env.pop(name, None)
        return env

    def screen(self, folder: RunFolder) -> Pty:
        beside = Path(sys.executable).with_name("pilot-tui")
        own = [str(beside)] if beside.exists() else [sys.executable, "-c", "from tui_pilot.cli import main; main()"]
        return Pty([*own, str(folder.path)], self.env, self.place)

    @contextmanager
    def going_on(self, folder: RunFolder, mode: str) -> Iterator[subprocess.Popen[str]]:
        """The run goes on as long as this is open."""
        argv = [sys.executable, str(HERE / "screen_runs.py"), str(folder.path), "--mode", mode]
        argv += ["--gpus", str(self.place / "gpus.txt"), "--events", str(EVENTS)]
        log = (self.place / "run.log").open("a")
        with subprocess.Popen(
            argv, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdout.readline()
            try:
                yield process
            finally:
                process.stdin.close()
                process.wait(10)
        log.close()


def beside_others(bench: Bench, mode: str) -> None:
    """Bytes, processor and memory of the three programs on the same GPUs at the same time; starts one after another."""
    folder = runs.prepared(bench.place / f"runs-{mode}", f"{mode}-5a5a", ago=60)
    programs = {name: found for name in ("nvitop", "nvtop") if (found := _found(name)) is not None}
    with bench.going_on(folder, mode):
        for _ in range(bench.repeats):
            shown: dict[str, Pty] = {"pilot-tui": bench.screen(folder)}
            _first(bench, "pilot-tui", shown["pilot-tui"], rb"RUNNING")
            for name, found in programs.items():
                shown[name] = Pty([found], bench.env, bench.place)
                _first(bench, name, shown[name], rb"Gi")
            time.sleep(3.0)
            begin, used = time.monotonic(), {name: pty.cpu() for name, pty in shown.items()}
            time.sleep(bench.window)
            end = time.monotonic()
            for name, pty in shown.items():
                plain, small = pty.sent(begin, end)
                share = 100 * (pty.cpu() - used[name]) / (end - begin)
                figures = {"bytes_s": plain, "deflated_s": small}
                bench.note(name, **{f"{mode}_{key}": value / (end - begin) for key, value in figures.items()})
                bench.note(name, **{f"{mode}_cpu": share}, rss_mb=pty.rss())
            for pty in shown.values():
                pty.leave()


def warmed(bench: Bench) -> None:
    """Each program once, unmeasured: what it reads from the disk and compiles the first time is then there."""
    folder = runs.prepared(bench.place / "runs-warm", "warm-5a5a", ago=60)
    with bench.going_on(folder, "steady"):
        pty = bench.screen(folder)
        pty.first_frame(rb"RUNNING")
        for key in b"234561":
            pty.send(bytes([key]))
            time.sleep(0.5)
        pty.leave()
        for name in OTHERS:
            if (found := _found(name)) is not None:
                other = Pty([found], bench.env, bench.place)
                other.first_frame(rb"Gi")
                other.leave()


def _found(name: str) -> str | None:
    return shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def _first(bench: Bench, name: str, pty: Pty, pattern: bytes) -> None:
    seconds, size = pty.first_frame(pattern)
    bench.note(name, first_frame_s=seconds, first_frame_kb=size / 1024)


def pressed(pty: Pty, count: int) -> list[float]:
    """Milliseconds from key to the paint that answers it, of ``count`` keys in all rooms."""
    rooms = ("Pilot", "Examples", "Memory", "Batch", "Runs", "Sheet")
    walk: list[tuple[bytes, bytes]] = []
    for n in (2, 4, 1, 5, 3, 0):
        walk.append((str(n + 1).encode(), f"{n + 1} {rooms[n]}]".encode()))
        if n == 0:
            walk.append((b"g", SELECTED % PHASES[0].encode()))
            walk += [(b"j", SELECTED % PHASES[place].encode()) for place in (1, 2, 3)]
    took = []
    for n in range(count):
        key, answer = walk[n % len(walk)]
        time.sleep(0.12 + n % 7 / 50)  # no beat with what the screen does by itself
        sent = pty.send(key)
        seen = pty.when(answer, sent)
        if seen is None:
            raise SystemExit(f"key {key!r} was never answered with {answer!r}")
        took.append(1000 * (seen - sent))
    return took


def keys_with_ranks(bench: Bench) -> None:
    """Key to paint while 64 ranks write 20 events a second each."""
    folder = runs.prepared(bench.place / "runs-ranks", "ranks-5a5a", ago=60)
    with bench.going_on(folder, "ranks"):
        pty = bench.screen(folder)
        pty.first_frame(rb"RUNNING")
        time.sleep(2.0)
        begin, used, before = time.monotonic(), pty.cpu(), load_state(folder)[1].read
        took = pressed(pty, bench.keys)
        span = time.monotonic() - begin
        written = (load_state(folder)[1].read - before) / span
        share = 100 * (pty.cpu() - used) / span
        bench.note("pilot-tui", ranks_key_ms=statistics.median(took), ranks_key_worst_ms=max(took))
        bench.note("pilot-tui", ranks_cpu=share, ranks_events_s=written)
        pty.leave()


def long_log(bench: Bench) -> None:
    """A live run whose log has 100,000 events: opening it, keys, and memory while as many come again."""
    for repeat in range(bench.repeats):
        folder = runs.prepared(bench.place / f"runs-log-{repeat}", "long-5a5a", ago=7200)
        runs.append(folder, EVENTS, ago=7000)
        with bench.going_on(folder, "grow") as run:
            pty = bench.screen(folder)
            if pty.when(rb"1\.4s", pty.started, 30) is None:
                raise SystemExit("the long log was never shown")
            key = pty.send(b"G")  # rows are there; the last one is not yet the selected one
            answered = pty.when(SELECTED % b"reload", key)
            whole = pty.when(rb"RUNNING", pty.started, 60)
            if answered is None or whole is None:
                raise SystemExit("the long log was never read to its end")
            bench.note("pilot-tui", open_s=answered - pty.started, open_whole_s=whole - pty.started)
            time.sleep(1.5)
            if repeat == 0:
                took = pressed(pty, bench.keys)
                bench.note("pilot-tui", log_key_ms=statistics.median(took), log_key_worst_ms=max(took))
                bench.note("pilot-tui", log_rss_mb=pty.rss())
                assert run.stdin is not None and run.stdout is not None
                run.stdin.write("grow\n")
                run.stdin.flush()
                run.stdout.readline()
                time.sleep(2.0)
                bench.note("pilot-tui", log_rss_after_mb=pty.rss())
            pty.leave()


def stalled(bench: Bench) -> None:
    """Nobody reads the terminal for ten seconds: what was written, sampled and shown then."""
    import pyte

    folder = runs.prepared(bench.place / "runs-stall", "stall-5a5a", ago=60)
    with bench.going_on(folder, "moving") as run:
        pty = bench.screen(folder)
        pty.first_frame(rb"RUNNING")
        time.sleep(1.0)
        pty.stall()
        for _ in range(40):  # a person presses keys at a dead screen
            pty.send(b"1234561jk"[_ % 9 : _ % 9 + 1])
            time.sleep(STALL_S / 40)
        pty.send(b"1g")
        assert run.stdin is not None and run.stdout is not None
        run.stdin.write("hush\n")
        run.stdin.flush()
        run.stdout.readline()
        pty.go_on()
        time.sleep(3.0)
        cells = pyte.Screen(WIDTH, HEIGHT)
        pyte.ByteStream(cells).feed(pty.raw)
        pty.leave()
        again = bench.screen(folder)
        again.first_frame(rb"RUNNING")
        again.send(b"1g")
        time.sleep(1.5)
        fresh = pyte.Screen(WIDTH, HEIGHT)
        pyte.ByteStream(fresh).feed(again.raw)
        again.leave()
    state, reader = load_state(folder)
    shown = re.findall(r"of ([\d,]+), newest last", "\n".join(cells.display))
    lines = [line for line in (folder.samples / "devices.jsonl").read_text().splitlines() if '"sample"' in line]
    times: dict[str, list[float]] = {}
    for each in map(json.loads, lines):
        times.setdefault(each["gpu"], []).append(each["mono"])
    gap = max(b - a for moments in times.values() for a, b in itertools.pairwise(moments))
    differing = [n for n in range(2, HEIGHT) if _steady(cells.display[n]) != _steady(fresh.display[n])]
    for n in differing:
        print(f"line {n + 1} | {cells.display[n].rstrip()}\n  fresh | {fresh.display[n].rstrip()}", file=sys.stderr)
    bench.note(
        "pilot-tui",
        stall_events_lost=state.feed_count - int(shown[0].replace(",", "")) if shown else -1,
        stall_broken_lines=reader.broken,
        stall_longest_sample_gap_s=gap,
        stall_lines_unlike_a_fresh_screen=len(differing),
    )


def _steady(line: str) -> str:
    """A line without what moves by itself: a GPU's bar and figures, a running clock."""
    return "" if re.match(r" \d+ +\[", line) else re.sub(r"\d+:\d\d|\d+\.\d+s|\d+ ?s\b", "", line)


def table(figures: dict[str, dict[str, float]]) -> list[tuple[str, str, list[str]]]:
    """Rows of (what, budget, one cell a program)."""

    def cells(name: str, digits: int = 0, others: bool = True) -> list[str]:
        own = [_cell(figures.get("pilot-tui", {}).get(name), digits)]
        found = [NOT_INSTALLED if each not in figures else _cell(figures[each].get(name), digits) for each in OTHERS]
        return own + (found if others else ["", ""])

    def pair(name: str, worst: str, digits: int = 0) -> list[str]:
        own = figures.get("pilot-tui", {})
        return [f"{_cell(own.get(name), digits)}, worst {_cell(own.get(worst), digits)}", "", ""]

    own = figures.get("pilot-tui", {})
    grown = f"{_cell(own.get('log_rss_mb'), 1)}, then {_cell(own.get('log_rss_after_mb'), 1)}"
    return [
        ("bytes/s, training steadily", "2,048", cells("steady_bytes_s")),
        ("the same deflated, as `ssh -C` sends it", "", cells("steady_deflated_s")),
        ("bytes/s, memory of 8 GPUs moving", "10,240", cells("moving_bytes_s")),
        ("the same deflated", "", cells("moving_deflated_s")),
        ("first whole frame, s", "0.8", cells("first_frame_s", 2)),
        ("KB to it", "50", cells("first_frame_kb", 1)),
        ("% of a core, steadily", "4", cells("steady_cpu", 1)),
        ("% of a core, memory moving", "4", cells("moving_cpu", 1)),
        ("resident memory, MB", "60", cells("rss_mb", 1)),
        ("key to paint, ms, 64 ranks at 20 Hz", "100", pair("ranks_key_ms", "ranks_key_worst_ms")),
        ("key to paint, ms, log of 100,000 events", "100", pair("log_key_ms", "log_key_worst_ms")),
        ("that log: start to the first key answered, s", "1", cells("open_s", 2, others=False)),
        ("that log: start to all of it read, s", "", cells("open_whole_s", 2, others=False)),
        ("resident memory with it, MB, and after 100,000 more", "no growth", [grown, "", ""]),
    ]


OTHERS = ("nvitop", "nvtop")


def _cell(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def stall_text(own: dict[str, float]) -> str:
    """What the stalled terminal came to, as a sentence."""
    return (
        f"Nobody read the terminal for {STALL_S:.0f} s: {own['stall_events_lost']:.0f} events lost, the longest gap "
        f"between two samples of a GPU {own['stall_longest_sample_gap_s']:.2f} s, "
        f"{own['stall_lines_unlike_a_fresh_screen']:.0f} lines unlike those of a fresh screen afterwards."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one short repeat")
    parser.add_argument("--only", choices=("steady", "moving", "ranks", "log", "stall"), action="append")
    asked = parser.parse_args()
    only = asked.only or ["steady", "moving", "ranks", "log", "stall"]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(Path(place), 4.0 if asked.quick else 10.0, 1 if asked.quick else 3, 20 if asked.quick else 60)
        compiled(bench.place)
        warmed(bench)
        parts = {"ranks": keys_with_ranks, "log": long_log, "stall": stalled}
        for name in only:
            print(f"{time.monotonic() - begin:5.0f} s  {name}", file=sys.stderr)
            parts[name](bench) if name in parts else beside_others(bench, name)
    figures = {who: {name: statistics.median(seen) for name, seen in each.items()} for who, each in bench.said.items()}
    took = time.monotonic() - begin
    if asked.json:
        print(json.dumps({"medians": figures, "readings": bench.said, "budgets": BUDGETS, "seconds": took}, indent=1))
        return 0
    rows = [("", "budget", ["pilot-tui", *OTHERS]), *table(figures)]
    if asked.markdown:
        for n, (what, budget, each) in enumerate(rows):
            print("| " + " | ".join((what, budget, *each)) + " |")
            if n == 0:
                print("|---" * 5 + "|")
    else:
        for what, budget, each in rows:
            print(f"{what:<54}{budget:>10}  " + "".join(f"{cell:>22}" for cell in each))
    if "stall_events_lost" in figures.get("pilot-tui", {}):
        print("\n" + stall_text(figures["pilot-tui"]))
    print(f"{took:.0f} s, median of {bench.repeats}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
