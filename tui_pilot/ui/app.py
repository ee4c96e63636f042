"""The screen: two lines above, a room, one line of keys below. It only reads a run; what changes it goes to files.

The run is another process and does not know that a screen exists: leaving, crashing or losing the connection ends
nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from tui_pilot.events.schema import PHASES
from tui_pilot.run_folder import RunFolder, short_id
from tui_pilot.ui import actions, operate, paint
from tui_pilot.ui.feed import Feed
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.overlays import Picking, Reading
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts.headline import headline
from tui_pilot.ui.parts.top import first_line
from tui_pilot.ui.prompt import Prompt
from tui_pilot.ui.room import Room
from tui_pilot.ui.rooms.batch import BatchRoom
from tui_pilot.ui.rooms.examples import ExamplesRoom
from tui_pilot.ui.rooms.memory import MemoryRoom
from tui_pilot.ui.rooms.pilot import PilotRoom
from tui_pilot.ui.rooms.runs import RunsRoom
from tui_pilot.ui.rooms.sheet import SheetRoom
from tui_pilot.ui.settings import save_theme, saved_theme
from tui_pilot.ui.snapshot import Snapshot
from tui_pilot.ui.terminal import ascii_reason
from tui_pilot.ui.theme import THEMES, Look, textual_themes

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan

HINT_QUIT = "q leaves and the pilot goes on, s stops it"


class PilotApp(App[None]):
    """One screen on one run at a time."""

    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n + 1), f"room({n})", show=False) for n in range(6)),
        Binding("H", "turn(-1)", show=False),
        Binding("L", "turn(1)", show=False),
        Binding("escape", "back", show=False),
        Binding("r", "run", show=False),
        Binding("R", "run_past_fails", show=False),
        Binding("s", "stop", show=False),
        Binding("t", "resume_test", show=False),
        Binding("p", "mark('pass')", show=False),
        Binding("w", "mark('warn')", show=False),
        Binding("f", "mark('fail')", show=False),
        Binding("n", "note", show=False),
        Binding("v", "variant", show=False),
        Binding("e", "sheet", show=False),
        Binding("slash", "search", show=False),
        Binding("y", "copy", show=False),
        Binding("question_mark", "help", show=False),
        Binding("colon,ctrl+p", "actions", show=False),
        Binding("q", "leave", show=False),
        Binding("ctrl+q", "leave", show=False, priority=True),
        Binding("ctrl+c", "hint_quit", show=False, priority=True),
    ]

    class Moved(Message):
        """A snapshot waits at the feed."""

    class Said(Message):
        """A worker has something to tell."""

        def __init__(self, text: str, role: str = "text") -> None:
            super().__init__()
            self.text, self.role = text, role

    class Started(Message):
        """A run was started."""

        def __init__(self, folder: RunFolder) -> None:
            super().__init__()
            self.folder = folder

    def __init__(
        self,
        runs: Path,
        plan: LoadedPlan | None = None,
        folder: RunFolder | None = None,
        look: Look | None = None,
        notice: str | None = None,
    ) -> None:
        no_color = os.environ.get("NO_COLOR")
        super().__init__()
        if no_color is not None:
            os.environ["NO_COLOR"] = no_color  # Textual takes it away; a pilot started from here must see it
        self.animation_level = "none"
        self.runs = runs
        self.plan = plan
        self.look = look or Look()
        self.snapshot = Snapshot(plan=plan)
        self.starting = False
        self._notice = notice
        self._first_folder = folder
        self._opened = 0
        self._feed = Feed(self._deliver, plan)
        self.rooms: tuple[Room, ...] = (
            PilotRoom(),
            ExamplesRoom(),
            MemoryRoom(),
            BatchRoom(),
            RunsRoom(runs),
            SheetRoom(),
        )

    def compose(self) -> ComposeResult:
        yield Lines(id="top")
        with Vertical(id="rooms"):
            yield from self.rooms
        yield Lines(id="keys")
        yield Prompt(id="prompt")

    def on_mount(self) -> None:
        for theme in textual_themes():
            self.register_theme(theme)
        self.theme = self.look.theme
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, self._signalled)
            except (ValueError, RuntimeError, NotImplementedError):
                break  # not the main thread: a test
        self._open(0)
        self._feed.start(self._first_folder)
        self.set_interval(1.0, self._second)
        if self._notice:
            self.say(self._notice)

    def _deliver(self) -> None:
        self.post_message(self.Moved())

    def on_unmount(self) -> None:
        self._feed.stop()

    def _signalled(self) -> None:
        self.exit()

    # Showing.

    @property
    def room(self) -> Room:
        """The room that is open."""
        return self.rooms[self._opened]

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    def on_pilot_app_moved(self) -> None:
        self.snapshot = self._feed.take()
        if self.snapshot.folder is None:
            self.snapshot = replace(self.snapshot, plan=self.plan)
        if self.snapshot.live:
            self.starting = False
        self._show()

    def _second(self) -> None:
        self.snapshot = replace(self.snapshot, now_mono=time.monotonic(), now=time.time())
        self._show()

    def _show(self) -> None:
        if not self.is_running or len(self.screen_stack) > 1:
            return
        self.room.show(self.snapshot)
        self._show_frame()

    def _show_frame(self) -> None:
        width = self.size.width
        titles = [room.title for room in self.rooms]
        head = self.room.headline(self.snapshot) or headline(self.snapshot, width)
        self.query_one("#top", Lines).write([first_line(titles, self._opened, self.snapshot, width), head], 0)
        can = [each.name for each in actions.ACTIONS if self._why_not(each.name) is None]
        found = actions.hints(self.snapshot, self.room.hints(), can)
        self.query_one("#keys", Lines).write([actions.keys_line(found, width)], 0)

    def on_resize(self, event: events.Resize) -> None:
        for room in self.rooms:
            room.fit_to(event.size.width, event.size.height)
        self.call_after_refresh(self._show)

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self._show)

    def _open(self, number: int) -> None:
        self._opened = number % len(self.rooms)
        for n, room in enumerate(self.rooms):
            room.display = n == self._opened
        self.room.focus()
        self.call_after_refresh(self._show)

    def say(self, text: str, role: str = "text") -> None:
        """A toast on the line above the keys."""
        self.prompt.say(text, role)

    # Keys that only look.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a question is open only its own keys answer; where text is typed, letters are text."""
        prompts = self.query(Prompt)
        if prompts and prompts.first().asking:
            return action in ("back", "copy", "hint_quit", "focus_next", "leave") and not (
                action == "leave" and prompts.first().typing
            )
        return True

    def action_room(self, number: int) -> None:
        self._open(number)

    def action_turn(self, by: int) -> None:
        self._open(self._opened + by)

    async def action_back(self) -> None:
        if self.prompt.close():
            self.room.focus()
        else:
            self.room.back()
        self._show()

    def action_hint_quit(self) -> None:
        self.say(HINT_QUIT)

    async def action_quit(self) -> None:
        self.exit()

    def action_leave(self) -> None:
        self.exit()

    def action_help(self) -> None:
        lines: list[Line] = [((text, "text"),) for text in self.room.help_text.split("\n")]
        lines += [paint.EMPTY, (("keys", "head"),)]
        moves = (
            ("1-6, H L", "room; previous, next room"),
            ("arrows, h j k l", "move; g G first and last; pgup pgdn, ctrl+u ctrl+d a page"),
            ("enter, esc", "open; close what is on top (never leaves)"),
            ("tab, z", "next pane; this pane alone and back"),
        )
        lines += [((f" {key:<16} ", "head"), (word, "text")) for key, word in moves]
        for each in actions.ACTIONS:
            why = self._why_not(each.name)
            note = f"   now: {why}" if why else ""
            lines.append(((f" {each.key:<16} ", "head"), (each.long, "text"), (note, "dim")))
        self.push_screen(Reading(f"help: {self.room.title}", lines))

    def action_actions(self) -> None:
        choices = [(each.name, each.key, each.long, True) for each in actions.ACTIONS if each.name != "actions"]
        shown = []
        for name, key, long, _ in choices:
            why = self._why_not(name)
            shown.append((name, key, f"{long}   {why}" if why else long, why is None))
        shown += [(f"room({n})", str(n + 1), f"room {room.title}", True) for n, room in enumerate(self.rooms)]
        shown += [(f"theme('{name}')", "theme", f"theme {name}", True) for name in THEMES]
        self.push_screen(Picking("all actions", shown), self._picked)

    async def _picked(self, name: str | None) -> None:
        if name is not None:
            await self.run_action(name)
        self._show()

    def action_theme(self, name: str) -> None:
        self.look = Look(name, self.look.ascii)
        self.theme = name
        save_theme(name)
        for lines in self.query(Lines):
            lines.repaint()
        self.say(f"theme {name}, kept for the next start")

    def action_search(self) -> None:
        if self._may("search"):
            self.prompt.type("filter", "", self.room.search)

    def action_copy(self) -> None:
        if self.prompt.asking:
            self.prompt.answer()
            self.room.focus()
            return
        text = self.room.copied()
        if not text:
            self.say("nothing is selected here")
            return
        self.copy_to_clipboard(text)
        self._do(partial(operate.copied, self.snapshot.folder, text))

    # Keys that change something.

    def _why_not(self, name: str) -> str | None:
        return actions.why_not(name, self.snapshot, self.room.selected_phase(), self.starting, self.room.can_search())

    def _may(self, name: str, key: str = "") -> bool:
        why = self._why_not(name)
        if why is not None:
            shown = key or next((each.key for each in actions.ACTIONS if each.name == name), name)
            self.say(f"{shown}: {why}", "warn")
        return why is None

    def _do(self, work: Callable[[], str]) -> None:
        """Run something that blocks on a worker thread; its sentence becomes the toast."""

        def inside() -> None:
            try:
                text, role = work(), "text"
            except Exception as error:
                text, role = operate.sentence(error), "fail"
            self._feed.hurry()
            self.post_message(self.Said(text, role))

        self.run_worker(inside, thread=True, group="do", exit_on_error=False)

    def on_pilot_app_said(self, message: Said) -> None:
        if message.role == "fail":
            self.starting = False
        self.say(message.text, message.role)
        self._show_frame()

    def action_run(self) -> None:
        if not self._may("run"):
            return
        if self.snapshot.folder is not None and self.snapshot.state.state == "finished":
            self.prompt.ask(actions.again_question(self.snapshot), partial(self._start, False))
        else:
            self._start(False)

    def action_run_past_fails(self) -> None:
        if self._may("run_past_fails"):
            self._start(True)

    def _start(self, keep_going: bool, plan: LoadedPlan | None = None, variant: str | None = None) -> None:
        chosen = plan or self.snapshot.plan
        assert chosen is not None
        self.starting = True
        self.say("starting: the run folder is made, files are hashed")

        def work() -> str:
            folder = operate.run(chosen, self.runs, keep_going, variant)
            self.post_message(self.Started(folder))
            return f"{short_id(folder.id)} runs; q leaves and it goes on"

        self._do(work)

    def on_pilot_app_started(self, message: Started) -> None:
        self._feed.follow(message.folder, fresh=True)

    def on_runs_room_chosen(self, message: RunsRoom.Chosen) -> None:
        self._feed.follow(message.folder)
        self._open(0)

    def action_stop(self) -> None:
        folder = self.snapshot.folder
        if self._may("stop") and folder is not None:
            self.prompt.ask(actions.stop_question(self.snapshot), lambda: self._do(partial(operate.stop, folder)))

    def action_resume_test(self) -> None:
        folder = self.snapshot.folder
        if self._may("resume_test") and folder is not None:
            self._do(partial(operate.resume_test, folder))

    def action_mark(self, verdict: str) -> None:
        folder, phase = self.snapshot.folder, self.room.selected_phase()
        if not self._may(f"mark('{verdict}')") or folder is None or phase is None:
            return
        row = self.snapshot.state.row(phase)
        if row.mark == verdict:
            self._do(partial(operate.mark, folder, phase, None, None))
            return
        needed = row.verdict == "fail" and verdict != "fail"
        what = f"{phase} {verdict}, why" + (" (needed over a FAIL)" if needed else "")

        def save(text: str) -> None:
            if needed and not text.strip():
                self.say(f"a mark over the FAIL of {phase} needs a note: nothing was marked", "warn")
                return
            self._do(partial(operate.mark, folder, phase, verdict, text.strip()))

        self.prompt.type(what, row.note or "", save)

    def action_note(self) -> None:
        folder = self.snapshot.folder
        if self._may("note") and folder is not None:
            self.prompt.type(
                "note", "", lambda text: self._do(partial(operate.note, folder, text)) if text.strip() else None
            )

    def action_sheet(self) -> None:
        folder = self.snapshot.folder
        if self._may("sheet") and folder is not None:
            self._do(partial(operate.sheet, folder, Path.cwd()))

    def action_variant(self) -> None:
        loaded = self.snapshot.plan
        if not self._may("variant") or loaded is None:
            return
        choices = []
        for each in loaded.plan.variants:
            changes = ", ".join(f"{key} = {value}" for key, value in each.set.items())
            choices.append((each.id, each.id, f"{changes}   {each.why}".rstrip(), True))
        self.push_screen(Picking("variants of this plan, most wanted first in the plan", choices), self._variant_picked)

    def _variant_picked(self, name: str | None) -> None:
        loaded = self.snapshot.plan
        if name is None or loaded is None or not self._may("run", "v"):
            return
        from tui_pilot.plan import variants

        try:
            changed = variants.variant(loaded, name)
        except Exception as error:
            self.say(operate.sentence(error), "fail")
            return
        self.prompt.ask(
            f"Run variant {name} as a new run?   y runs it, esc leaves it", partial(self._start, False, changed, name)
        )

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.prompt.submit(event.value)
        self.room.focus()


def farewell(snapshot: Snapshot) -> list[str]:
    """What stands on the plain terminal after the screen is left while a run is live."""
    if not snapshot.live or snapshot.folder is None:
        return []
    short = snapshot.folder.id[-4:]
    row = snapshot.state.running_row
    where = f", phase {PHASES.index(row.phase) + 1} of {len(PHASES)}" if row is not None else ""
    return [
        f"The pilot goes on: {short}{where}.",
        f"Back: pilot-tui attach {short}   Stop: pilot-tui stop {short}",
    ]


def run_screen(
    *,
    runs: Path,
    plan: LoadedPlan | None = None,
    folder: RunFolder | None = None,
    ascii: bool = False,
    theme: str | None = None,
    mouse: bool = False,
) -> int:
    """Open the screen on a run, or on a plan ready to run; returns the exit code once it is left."""
    why = ascii_reason(asked=ascii)
    chosen = theme or saved_theme() or "dark"
    notice = why if why and not ascii else None
    app = PilotApp(runs, plan, folder, Look(chosen if chosen in THEMES else "dark", why is not None), notice)
    app.run(mouse=mouse)
    for text in farewell(app.snapshot):
        print(paint.clean(text))
    return app.return_code or 0
