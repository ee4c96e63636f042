"""Makes every picture in screenshots/ from the recorded runs: ``python tests/make_screenshots.py [FOLDER] [NAME...]``.

``python tests/make_screenshots.py --all FOLDER [RUN...]`` draws every room of every recorded run at three sizes, as
PNG where rsvg-convert is there: for looking, nothing of it is kept.

Nothing is drawn by hand: the real screen opens a copy of a recorded run, gets keys, and is saved. Its clock stands
still a little after the run ended, so the same code and the same recording give the same bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from record_run import RECORDED, copy_all, recorded_id
from screen_grid import Grid, grid_of, text_of
from screen_svg import svg
from textual.pilot import Pilot

from tui_pilot.run_folder import RunFolder, drop_lock, take_lock
from tui_pilot.store import ledger
from tui_pilot.ui.app import PilotApp
from tui_pilot.ui.clock import Clock
from tui_pilot.ui.rooms.examples import ExamplesRoom
from tui_pilot.ui.rooms.runs import RunsRoom
from tui_pilot.ui.rooms.sheet import SheetRoom
from tui_pilot.ui.theme import Look

TARGET = Path(__file__).resolve().parents[1] / "screenshots"
DEMO, BROKEN = "demo", "demo-broken"
SIZES = ((80, 24), (120, 36), (200, 50))
ROOMS = ("pilot", "examples", "memory", "batch", "runs", "sheet")
AFTER_S = 180.0


@dataclass(frozen=True)
class Shot:
    """One picture: the run, the size in cells, the keys that lead to it; ``upto`` cuts the log: the run is live."""

    name: str
    run: str
    width: int = 120
    height: int = 36
    keys: tuple[str, ...] = ()
    upto: Callable[[dict[str, object]], bool] | None = None


def fifth_update(event: dict[str, object]) -> bool:
    """The moment at which the run is live: what an update ends with was just said."""
    return event.get("kind") == "progress" and event.get("phase") == "batch" and event.get("done") == 5


SHOTS = (
    Shot("pilot-120x36", DEMO),
    Shot("pilot-80x24", DEMO, 80, 24),
    Shot("pilot-200x50", DEMO, 200, 50),
    Shot("pilot-live-120x36", DEMO, upto=fifth_update),
    Shot("pilot-broken-120x36", BROKEN),
    Shot("examples-120x36", "desk-short", keys=("2", "j")),
    Shot("memory-120x36", DEMO, keys=("3",)),
    Shot("batch-120x36", DEMO, keys=("4", "right", "right", "right", "right")),
    Shot("runs-120x36", "desk", keys=("5",)),
    Shot("comparison-120x36", "rates-base", keys=("5",)),
    Shot("sheet-120x36", DEMO, keys=("6",)),
)


def moment(at: str) -> float:
    """Unix seconds of an event's clock time."""
    return datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp()


def recorded_runs() -> list[str]:
    """Names below ``tests/recorded`` that are runs; the folder of a comparison is none."""
    return [path.name for path in sorted(RECORDED.iterdir()) if (path / "run.json").exists()]


def _bytes_written(path: Path) -> int:
    """What files hold: the blocks that they take differ from disk to disk."""
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


@contextlib.contextmanager
def steady() -> Iterator[None]:
    """Nothing of this machine on the screen: no GPU of its own, no disk's block size, no settings, colours as ever."""
    changed = {"CUDA_VISIBLE_DEVICES": "", "XDG_CONFIG_HOME": os.devnull, "NO_COLOR": None}
    before = {name: os.environ.get(name) for name in changed}
    ledger.bytes_on_disk, measured = _bytes_written, ledger.bytes_on_disk
    try:
        _environment(changed)
        yield
    finally:
        ledger.bytes_on_disk = measured
        _environment(before)


def _environment(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def copied(shot: Shot, change: Callable[[RunFolder], None] | None = None) -> Iterator[tuple[RunFolder, Clock]]:
    """All recorded runs in a folder that may be written to, and the clock of the moment that is shown.

    ``change`` is called with the shot's run before the screen opens it.
    """
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch, steady():
        runs = Path(scratch) / "runs"
        copy_all(runs)
        os.chdir(scratch)
        folder = RunFolder(Path("runs") / recorded_id(RECORDED / shot.run))
        if change is not None:
            change(folder)
        events = sorted(
            (json.loads(line) for path in folder.events.glob("*.jsonl") for line in path.read_text().splitlines()),
            key=lambda event: event["mono"],
        )
        last = events[-1]
        if shot.upto is not None:
            last = next(event for event in events if shot.upto(event))
            for path in folder.events.glob("*.jsonl"):
                lines = [line for line in path.read_text().splitlines() if json.loads(line)["mono"] <= last["mono"]]
                path.write_text("".join(f"{line}\n" for line in lines))
            for path in folder.samples.glob("*.jsonl"):
                lines = [
                    line for line in path.read_text().splitlines() if json.loads(line).get("mono", 0) <= last["mono"]
                ]
                path.write_text("".join(f"{line}\n" for line in lines))
            take_lock(folder.lock_file)
        later = 0.3 if shot.upto is not None else AFTER_S
        try:
            yield folder, Clock.stopped(moment(last["at"]) + later, last["mono"] + later)
        finally:
            if shot.upto is not None:
                drop_lock(folder.lock_file)
            os.chdir(before)


def settled(app: PilotApp) -> bool:
    """Whether what workers read off the screen's own thread is there."""
    room = app.room
    if isinstance(room, RunsRoom):
        return room.listed is not None
    if isinstance(room, SheetRoom):
        return room.sheet is not None
    folder = app.snapshot.folder
    if isinstance(room, ExamplesRoom) and folder is not None and (folder.examples / "audit.jsonl").exists():
        return room.survey is not None and (room.list is None or room.list.known)
    return bool(app.snapshot.state.run) and app.snapshot.plan is not None


@contextlib.asynccontextmanager
async def session(
    shot: Shot, theme: str = "dark", change: Callable[[RunFolder], None] | None = None
) -> AsyncIterator[tuple[PilotApp, Pilot[None]]]:
    """The app on a copy of the shot's run, settled; no key is pressed yet."""
    with copied(shot, change) as (folder, clock):
        app = PilotApp(Path("runs"), None, folder, Look(theme), clock=clock)
        async with app.run_test(size=(shot.width, shot.height)) as pilot:
            await _until(app, pilot)
            yield app, pilot


async def press(app: PilotApp, pilot: Pilot[None], *keys: str) -> None:
    """Keys, and what comes of each."""
    for key in keys:
        await pilot.press(key)
        await _until(app, pilot)


async def grid(app: PilotApp, pilot: Pilot[None]) -> Grid:
    """What the screen shows once nothing moves any more."""
    before = None
    for _ in range(40):
        app._show()
        await pilot.pause()
        now = grid_of(app)
        if now == before:
            return now
        before = now
        await asyncio.sleep(0.02)
    raise RuntimeError(f"{app.room.title} never stands still")


async def resize(app: PilotApp, pilot: Pilot[None], width: int, height: int) -> None:
    """Another size of the terminal, settled."""
    await pilot.resize_terminal(width, height)
    await _until(app, pilot)


async def texts_of(shot: Shot) -> list[str]:
    """The screen as text after each key."""
    texts = []
    async with session(shot) as (app, pilot):
        for key in shot.keys:
            await press(app, pilot, key)
            texts.append(text_of(await grid(app, pilot)))
    return texts


async def svg_of(shot: Shot, theme: str = "dark") -> tuple[str, str]:
    """The picture, and the same as text."""
    async with session(shot, theme) as (app, pilot):
        await press(app, pilot, *shot.keys)
        shown = await grid(app, pilot)
        return svg(shown), text_of(shown)


async def _until(app: PilotApp, pilot: Pilot[None]) -> None:
    for _ in range(1000):
        await pilot.pause()
        if app.snapshot.plan is not None and settled(app):
            return
        await asyncio.sleep(0.02)
    raise RuntimeError(f"{app.room.title} never settled")


async def gallery(target: Path, runs: Sequence[str]) -> None:
    """Every room of these runs at three sizes: ``TARGET/RUN/ROOM-80x24.png``, and the same as text."""
    for run in runs:
        async with session(Shot("", run)) as (app, pilot):
            for width, height in SIZES:
                await resize(app, pilot, width, height)
                for number, room in enumerate(ROOMS, 1):
                    await press(app, pilot, str(number))
                    shown = await grid(app, pilot)
                    path = target / run / f"{room}-{width}x{height}.svg"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(svg(shown), "utf-8")
                    path.with_suffix(".txt").write_text(text_of(shown) + "\n", "utf-8")
                    _png(path)
                await press(app, pilot, "1")
        print(f"{run}: {len(ROOMS) * len(SIZES)} pictures in {target / run}", flush=True)


def _png(path: Path) -> None:
    """The picture as PNG beside it, and the SVG gone, where rsvg-convert is there."""
    convert = shutil.which("rsvg-convert")
    if convert is not None:
        subprocess.run([convert, "-o", str(path.with_suffix(".png")), str(path)], check=True)
        path.unlink()


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--all"]:
        asyncio.run(gallery(Path(arguments[1]).resolve(), arguments[2:] or recorded_runs()))
        return 0
    target = Path(arguments[0]).resolve() if arguments else TARGET
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("*.svg"):
        if not arguments[1:] and old.stem not in {shot.name for shot in SHOTS}:
            old.unlink()
    for shot in SHOTS:
        if arguments[1:] and shot.name not in arguments[1:]:
            continue
        picture, text = asyncio.run(svg_of(shot))
        (target / f"{shot.name}.svg").write_text(picture, "utf-8")
        if target != TARGET:
            (target / f"{shot.name}.txt").write_text(text + "\n", "utf-8")
        print(f"{shot.name}: {len(picture):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
