"""Makes every picture in screenshots/ from the recorded runs: ``python tests/make_screenshots.py [FOLDER] [NAME...]``.

Nothing is drawn by hand: the real screen opens a copy of a recorded run, gets keys, and is saved. Its clock stands
still a little after the run ended, so the same code and the same recording give the same bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from record_run import RECORDED, copy_all
from rich.cells import cell_len
from textual.pilot import Pilot

from tui_pilot.run_folder import RunFolder, drop_lock, take_lock
from tui_pilot.ui.app import PilotApp
from tui_pilot.ui.clock import Clock
from tui_pilot.ui.rooms.examples import ExamplesRoom
from tui_pilot.ui.rooms.runs import RunsRoom
from tui_pilot.ui.rooms.sheet import SheetRoom
from tui_pilot.ui.theme import Look

TARGET = Path(__file__).resolve().parents[1] / "screenshots"
DEMO, BROKEN = "demo", "demo-broken"
AFTER_S = 180.0
FONT = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"


@dataclass(frozen=True)
class Shot:
    """One picture: the run, the size in cells, the keys that lead to it; ``upto`` cuts the log: the run is live."""

    name: str
    run: str
    width: int = 120
    height: int = 36
    keys: tuple[str, ...] = ()
    upto: Callable[[dict[str, object]], bool] | None = None


def _fifth_update(event: dict[str, object]) -> bool:
    return event.get("kind") == "update" and event.get("update") == 5


SHOTS = (
    Shot("pilot-120x36", DEMO),
    Shot("pilot-80x24", DEMO, 80, 24),
    Shot("pilot-200x50", DEMO, 200, 50),
    Shot("pilot-live-120x36", DEMO, upto=_fifth_update),
    Shot("pilot-broken-120x36", BROKEN),
    Shot("examples-120x36", DEMO, keys=("2",)),
    Shot("examples-cut-120x36", "desk-short", keys=("2", "j")),
    Shot("memory-120x36", DEMO, keys=("3",)),
    Shot("batch-120x36", DEMO, keys=("4", "right", "right", "right", "right")),
    Shot("runs-120x36", "desk", keys=("5", "j")),
    Shot("pilot-lost-120x36", "desk-lost"),
    Shot("sheet-120x36", DEMO, keys=("6",)),
)


def moment(at: str) -> float:
    """Unix seconds of an event's clock time."""
    return datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp()


@contextlib.contextmanager
def copied(shot: Shot) -> Iterator[tuple[RunFolder, Clock]]:
    """All recorded runs in a folder that may be written to, and the clock of the moment that is shown."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        runs = Path(scratch) / "runs"
        copy_all(runs)
        os.chdir(scratch)
        folder = RunFolder(Path("runs") / json.loads((RECORDED / shot.run / "run.json").read_text("utf-8"))["run"])
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
    if isinstance(room, ExamplesRoom):
        return room.survey is not None and (room.list is None or room.list.known)
    return bool(app.snapshot.state.run) and app.snapshot.plan is not None


@contextlib.asynccontextmanager
async def session(shot: Shot, theme: str = "dark") -> AsyncIterator[tuple[PilotApp, Pilot[None]]]:
    """The app on a copy of the shot's run, settled; no key is pressed yet."""
    with copied(shot) as (folder, clock):
        app = PilotApp(Path("runs"), None, folder, Look(theme), clock=clock)
        async with app.run_test(size=(shot.width, shot.height)) as pilot:
            await _until(app, pilot)
            yield app, pilot


async def press(app: PilotApp, pilot: Pilot[None], key: str) -> None:
    """One key, and what comes of it."""
    await pilot.press(key)
    await _until(app, pilot)


async def texts_of(shot: Shot) -> list[str]:
    """The screen as text after each key."""
    texts = []
    async with session(shot) as (app, pilot):
        for key in shot.keys:
            await press(app, pilot, key)
            app._show()
            await pilot.pause()
            texts.append(_text(app))
    return texts


def _text(app: PilotApp) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def svg_of(shot: Shot, theme: str = "dark") -> tuple[str, str]:
    """The picture, and the same as text."""
    async with session(shot, theme) as (app, pilot):
        for key in shot.keys:
            await press(app, pilot, key)
        app._show()
        await pilot.pause(0.3)
        return neutral(app.export_screenshot(title="pilot-tui")), _text(app)


async def _until(app: PilotApp, pilot: Pilot[None]) -> None:
    for _ in range(400):
        await pilot.pause()
        await asyncio.sleep(0.05)
        if app.snapshot.plan is not None and settled(app):
            return
    raise RuntimeError(f"{app.room.title} never settled")


_TEXT = re.compile(r'(<text class="[^"]*" x=")([\d.]+)(" y="[\d.]+" textLength=")([\d.]+)("[^>]*>)([^<]*)(</text>)')


def _trimmed(found: re.Match[str]) -> str:
    """A text that begins at its first letter: some viewers drop blanks at the beginning and then misplace the rest."""
    head, x, middle, length, tail, text, end = found.groups()
    plain = html.unescape(text).replace("\xa0", " ")
    kept = plain.strip(" ")
    if not kept:
        return ""
    cell = float(length) / max(1, cell_len(plain))
    start = float(x) + cell * (len(plain) - len(plain.lstrip(" ")))
    wide = cell * cell_len(kept)
    return f"{head}{start:g}{middle}{wide:g}{tail}{html.escape(kept, quote=False).replace(' ', '&#160;')}{end}"


def neutral(svg: str) -> str:
    """Fonts that are on the reader's machine, none fetched; names of this process's own kept out of the ids."""
    svg = _TEXT.sub(_trimmed, svg)
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: (?:Fira Code|arial)[^;]*;", f"font-family: {FONT};", svg)
    named = re.search(r"terminal-(\d+)", svg)
    svg = svg.replace(f"terminal-{named[1]}", "t") if named else svg
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def main(arguments: list[str]) -> int:
    os.environ.pop("NO_COLOR", None)
    os.environ["XDG_CONFIG_HOME"] = os.devnull
    target = Path(arguments[0]).resolve() if arguments else TARGET
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("*.svg"):
        if not arguments[1:] and old.stem not in {shot.name for shot in SHOTS}:
            old.unlink()
    for shot in SHOTS:
        if arguments[1:] and shot.name not in arguments[1:]:
            continue
        svg, text = asyncio.run(svg_of(shot))
        (target / f"{shot.name}.svg").write_text(svg, "utf-8")
        if target != TARGET:
            (target / f"{shot.name}.txt").write_text(text + "\n", "utf-8")
        print(f"{shot.name}: {len(svg):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
