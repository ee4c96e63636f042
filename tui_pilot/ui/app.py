"""The screen: two lines above, a room, one line of keys below. It only reads a run; what changes it goes to files.

The run is another process and does not know that a screen exists: leaving, crashing or losing the connection ends
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.actions import ActionParseResult
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.dom import DOMNode
from textual.message import Message
from textual.widgets import Input

from tui_pilot.events.schema import PHASES
from tui_pilot.run_folder import RunFolder
from tui_pilot.ui import actions, help, operate, paint, palette
from tui_pilot.ui.clock import Clock
from tui_pilot.ui.feed import Feed
from tui_pilot.ui.keyboard import Keyboard, was_pasted
from tui_pilot.ui.lines import Lines
from tui_pilot.ui.overlays import Picking, Reading
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
from tui_pilot.ui.run_keys import RunKeys
from tui_pilot.ui.settings import save_theme, saved_theme
from tui_pilot.ui.signals import Signals
from tui_pilot.ui.snapshot import Snapshot
from tui_pilot.ui.terminal import ascii_reason
from tui_pilot.ui.theme import Look, textual_themes
from tui_pilot.ui.theme_names import THEMES

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan

HINT_QUIT = "q leaves and the pilot goes on, s stops it"
ANSWERS = ("y", "escape", "q", "ctrl+q", "ctrl+c")
"""The keys that an open question lets through."""


class PilotApp(RunKeys):
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

    def __init__(
        self,
        runs: Path,
        plan: LoadedPlan | None = None,
        folder: RunFolder | None = None,
        look: Look | None = None,
        notice: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        no_color = os.environ.get("NO_COLOR")
        super().__init__(ansi_color=True)  # roles are 256-colour numbers: sent as they are, short and exact
        if no_color is not None:
            os.environ["NO_COLOR"] = no_color  # Textual takes it away; a pilot started from here must see it
        self.driver_class = Keyboard
        self.animation_level = "none"
        self.runs = runs
        self.plan = plan
        self.look = look or Look()
        self.snapshot = Snapshot(plan=plan, folder=folder)
        self.starting = False
        self._notice = notice
        self._first_folder = folder
        self._opened = 0
        self.clock = clock or Clock()
        self.feed = Feed(self._deliver, plan, clock=self.clock)
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
        self._signals = Signals(self, self.feed.stop)
        self._open(0)
        self.feed.start(self._first_folder)
        self.set_interval(1.0, self._second)
        if self._notice:
            self.say(self._notice)

    def _deliver(self) -> None:
        self.post_message(self.Moved())

    def on_unmount(self) -> None:
        self.feed.stop()

    # Showing.

    @property
    def room(self) -> Room:
        """The room that is open."""
        return self.rooms[self._opened]

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    def on_pilot_app_moved(self) -> None:
        before, read_only = self.snapshot.folder, self.snapshot.read_only
        self.snapshot = self.feed.take()
        if self.snapshot.folder is None:
            self.snapshot = replace(self.snapshot, plan=self.plan)
        if self.snapshot.live:
            self.starting = False
        if read_only and not self.snapshot.read_only and before == self.snapshot.folder:
            self.say("the other screen has left: the keys are yours")
        self._show()

    def _second(self) -> None:
        if self.snapshot.now_mono:  # a snapshot came: until then there is nothing to count from
            self.snapshot = replace(self.snapshot, now_mono=self.clock.mono(), now=self.clock.wall())
        self._show()

    def _show(self) -> None:
        if not self.is_running or len(self.screen_stack) > 1:
            return
        try:
            self.room.show(self.snapshot)
        except Exception as error:
            self.failed(error)
        self.show_frame()

    def failed(self, error: Exception) -> None:
        """A fault of a room or of a key: it is said and kept in a file, and everything else goes on."""
        if self.is_headless:
            raise error
        said = f"{self.room.title}: this is a fault of pilot-tui itself: {operate.fault(self.snapshot.folder, error)}"
        if said != self.prompt.said:
            self.say(said, "fail")

    def show_frame(self) -> None:
        width = self.size.width
        titles = [room.title for room in self.rooms]
        head = self.room.headline(self.snapshot) or headline(self.snapshot, width)
        self.query_one("#top", Lines).write([first_line(titles, self._opened, self.snapshot, width), head], 0)
        can = [each.name for each in actions.ACTIONS if self.why_not(each.name) is None]
        picked = self.picked.id if self.picked else None
        if self.prompt.asking:
            asked = [(0, key) for key in self.prompt.keys]
            self.query_one("#keys", Lines).write([actions.keys_line(asked, width)], 0)
            return
        own = [hint for hint in self.room.hints() if hint[0] != "z" or self.room.why_no_zoom() is None]
        found = actions.hints(self.snapshot, own, can, picked, self.room.room)
        self.query_one("#keys", Lines).write([actions.keys_line(found, width)], 0)

    @on(events.Resize)
    def _fit(self, event: events.Resize) -> None:
        for room in self.rooms:
            room.fit_to(event.size.width, event.size.height)
        self.prompt.fit()
        self.call_after_refresh(self._show)

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self._show)

    def _open(self, number: int) -> None:
        self._opened = number % len(self.rooms)
        self.prompt.dismiss()
        for n, room in enumerate(self.rooms):
            room.display = n == self._opened
        self.screen.set_focus(self.room)  # at once: keys typed ahead are for the room that opens
        self.call_after_refresh(self._show)

    def say(self, text: str, role: str = "text") -> None:
        """A toast on the line above the keys."""
        self.prompt.say(text, role)

    # Keys that only look.

    async def on_event(self, event: events.Event) -> None:
        """Before any key acts: an open question lets only its answers through, and a toast goes with what is done."""
        if isinstance(event, events.Key) and not event.is_forwarded:
            self.pasted = was_pasted(event)
            if len(self.screen_stack) == 1:
                if self.pasted and isinstance(self.focused, Room):
                    self.say("pasted text is taken only where text is typed: nothing was done")
                    return
                if self.prompt.asking and not self.prompt.typing and event.key not in ANSWERS:
                    return
                if event.key not in ("escape", "ctrl+c") and event.key in self.screen.active_bindings:
                    self.prompt.dismiss()
        await super().on_event(event)

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        try:
            return await super().run_action(action, default_namespace, namespaces)
        except Exception as error:
            self.failed(error)
            return True

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a question is open only its own keys answer; where text is typed, letters are text."""
        prompts = self.query(Prompt)
        if prompts and prompts.first().asking:
            typing = prompts.first().typing
            return action in ("back", "copy", "hint_quit", "leave") and not (action == "leave" and typing)
        return True

    def action_room(self, number: int) -> None:
        self._open(number)

    def action_turn(self, by: int) -> None:
        self._open(self._opened + by)

    async def action_back(self) -> None:
        if self.prompt.close():
            self.room.focus()
        elif not self.room.back() and self.drop_picked():
            self.say("the variant is let go; r runs the plan itself")
        self._show()

    def action_hint_quit(self) -> None:
        self.say(HINT_QUIT)

    async def action_quit(self) -> None:
        self.exit()

    def action_leave(self) -> None:
        """Not in the middle of a paste: what is left of it would go to the shell."""
        if not self.pasted:
            self.exit()

    def action_help(self) -> None:
        title, page = help.page(self.room, self.why_not)
        self.push_screen(Reading(title, page), self._uncovered)

    def action_actions(self) -> None:
        listed, more = palette.choices(self.rooms, self.room, self.why_not, self.size.width)
        self.push_screen(Picking("all actions", listed, more, must_work=False), self._picked)

    def action_plain(self) -> None:
        """How to get plain lines: they are another way to look, so they begin after this one is left."""
        name = self.snapshot.folder.id[-4:] if self.snapshot.folder is not None else ""
        command = f"pilot-tui attach {name} --plain" if name else "pilot-tui run --plain"
        self.say(f"q, then: {command}   one line an event and now and then a summary, on stdout")

    async def _picked(self, name: str | None) -> None:
        self._uncovered()
        if name is not None and name.startswith(palette.HERE):
            await self.run_action(name.removeprefix(palette.HERE), self.room)
        elif name is not None:
            await self.run_action(name)
        self._show()

    def _uncovered(self, _: object = None) -> None:
        """A list that covered everything was closed."""
        self.prompt.say_waiting()
        self._show()

    def action_theme(self, name: str) -> None:
        self.look = Look(name, self.look.ascii)
        self.theme = name
        save_theme(name)
        for lines in self.query(Lines):
            lines.repaint()
        self.say(f"theme {name}, kept for the next start")

    def action_search(self) -> None:
        if self.may("search"):
            self.prompt.type("filter", "", self.room.search)

    def action_copy(self) -> None:
        if self.prompt.asking:
            if not self.pasted:
                self.prompt.answer()
                self.room.focus()
            return
        text = self.room.copied()
        if not text:
            self.say("nothing is selected here")
            return
        self.copy_to_clipboard(text)
        self.do(partial(operate.copied, self.snapshot.folder, text))

    def on_runs_room_chosen(self, message: RunsRoom.Chosen) -> None:
        self.picked = None  # a variant is of the plan that was shown
        self.feed.follow(message.folder)
        self._open(0)

    def on_runs_room_compare(self, message: RunsRoom.Compare) -> None:
        loaded = self.snapshot.plan
        why = actions.why_not_compare(loaded)
        if why is not None or loaded is None:
            self.say(f"c: {why}", "warn")
            return
        self.prompt.ask(actions.compare_question(loaded), lambda: self.do(partial(operate.compare, loaded, self.runs)))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.prompt.submit(event.value)
        self.room.focus()


def farewell(snapshot: Snapshot, starting: bool = False) -> list[str]:
    """What stands on the plain terminal after the screen is left while a run is live, or about to be."""
    if starting:
        return ["A run was starting and goes on by itself.", "Back: pilot-tui attach latest   All runs: pilot-tui runs"]
    if not snapshot.live or snapshot.folder is None or snapshot.state.state not in ("new", "running"):
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
    for text in farewell(app.snapshot, app.starting):
        print(paint.clean(text))
    return app.return_code or 0
