"""The keys that change something: run, stop, resume test, variant, mark, note, sheet. Each says why when it cannot."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.message import Message

from tui_pilot.run_folder import RunFolder, short_id
from tui_pilot.ui import actions, operate
from tui_pilot.ui.feed import Feed
from tui_pilot.ui.overlays import Picking
from tui_pilot.ui.prompt import Prompt
from tui_pilot.ui.room import Room
from tui_pilot.ui.snapshot import Snapshot
from tui_pilot.ui.variant_choices import VariantChoice, choices
from tui_pilot.ui.wire import QuietApp

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan

DECISIONS = (
    ("retain", "this configuration is the one, or one of those, to rent for"),
    ("reject", "it is not: the sheet says so, and why"),
    ("defer", "not now: something is still open"),
)
VARIANT_COLUMNS = f"  {'variant':<15}same?       need   changes"


class RunKeys(QuietApp):
    """The half of the app that writes: everything goes through ``operate`` on worker threads."""

    runs: Path
    snapshot: Snapshot
    starting: bool
    feed: Feed
    picked: VariantChoice | None = None
    pasted: bool = False  # the key that acts came in a paste that the terminal did not mark

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

    class Variants(Message):
        """The variants of the shown plan were looked at."""

        def __init__(self, found: list[VariantChoice]) -> None:
            super().__init__()
            self.found = found

    @property
    def room(self) -> Room:
        """The room that is open."""
        raise RuntimeError("the app has no rooms")

    @property
    def prompt(self) -> Prompt:
        """The line above the keys."""
        return self.query_one(Prompt)

    def show_frame(self) -> None:
        """Write the lines around the room again."""

    def say(self, text: str, role: str = "text") -> None:
        """A toast on the line above the keys."""
        self.prompt.say(text, role)

    def why_not(self, name: str) -> str | None:
        """Why an action cannot work now; None if it can."""
        if name == "copy" and self.snapshot.folder is None and not self.room.copied():
            return "nothing is selected here"
        return actions.why_not(name, self.snapshot, self.room.selected_phase(), self.starting, self.room.can_search())

    def may(self, name: str, key: str = "") -> bool:
        """Whether an action can work now; if not, it is said why."""
        why = "keys came faster than anybody types, as a paste does: nothing was done" if self.pasted else None
        why = why or self.why_not(name)
        if why is not None:
            shown = key or next((each.key for each in actions.ACTIONS if each.name == name), name)
            self.say(f"{shown}: {why}", "warn")
        return why is None

    def do(self, work: Callable[[], str]) -> None:
        """Run something that blocks on a worker thread; its sentence becomes the toast."""

        def inside() -> None:
            try:
                text, role = work(), "text"
            except Exception as error:
                text, role = operate.sentence(error), "fail"
            self.feed.hurry()
            self.post_message(self.Said(text, role))

        self.run_worker(inside, thread=True, group="do", exit_on_error=False)

    def on_run_keys_said(self, message: Said) -> None:
        if message.role == "fail":
            self.starting = False
        self.say(message.text, message.role)
        self.show_frame()

    def action_run(self) -> None:
        if not self.may("run"):
            return
        if self.picked is not None:
            self._start(False, self.picked.plan, self.picked.id)
        elif self.snapshot.folder is not None and self.snapshot.state.state == "finished":
            self.prompt.ask(actions.again_question(self.snapshot), partial(self._start, False))
        else:
            self._start(False)

    def action_run_past_fails(self) -> None:
        if not self.may("run_past_fails"):
            return
        if self.snapshot.folder is not None and self.snapshot.state.state == "finished":
            self.prompt.ask(actions.again_question(self.snapshot), partial(self._start, True))
        else:
            self._start(True)

    def _start(self, keep_going: bool, plan: LoadedPlan | None = None, variant: str | None = None) -> None:
        chosen = plan or self.snapshot.plan
        assert chosen is not None
        parent = self.snapshot.folder.id if variant and self.snapshot.folder else None
        self.starting, self.picked = True, None
        self.say("starting: the run folder is made, files are hashed")

        def work() -> str:
            folder = operate.run(chosen, self.runs, keep_going, variant, parent)
            self.post_message(self.Started(folder))
            return f"{short_id(folder.id)} runs; q leaves and it goes on"

        self.do(work)

    def on_run_keys_started(self, message: Started) -> None:
        self.starting = False
        self.feed.follow(message.folder, fresh=True)

    def action_stop(self) -> None:
        folder = self.snapshot.folder
        if self.may("stop") and folder is not None:
            self.prompt.ask(actions.stop_question(self.snapshot), lambda: self.do(partial(operate.stop, folder)))

    def action_resume_test(self) -> None:
        folder = self.snapshot.folder
        if self.may("resume_test") and folder is not None:
            self.do(partial(operate.resume_test, folder))

    def action_mark(self, verdict: str) -> None:
        folder, phase = self.snapshot.folder, self.room.selected_phase()
        if not self.may(f"mark('{verdict}')") or folder is None or phase is None:
            return
        row = self.snapshot.state.row(phase)
        if row.mark == verdict:
            self.do(partial(operate.mark, folder, phase, None, None))
            return
        needed = row.verdict == "fail" and verdict != "fail"
        what = f"{phase} {verdict}, why" + (" (needed over a FAIL)" if needed else "")

        def save(text: str) -> None:
            if needed and not text.strip():
                self.say(f"a mark over the FAIL of {phase} needs a note: nothing was marked", "warn")
                return
            self.do(partial(operate.mark, folder, phase, verdict, text.strip()))

        # The reason of another mark is no reason of this one.
        self.prompt.type(what, "", save)

    def action_note(self) -> None:
        """A note on the selected phase once it was reached, else on the run."""
        folder, phase = self.snapshot.folder, self.room.selected_phase()
        if not self.may("note") or folder is None:
            return
        if phase is not None and self.snapshot.state.row(phase).verdict in (None, "not_run"):
            phase = None

        def save(text: str) -> None:
            if text.strip():
                self.do(partial(operate.note, folder, text.strip(), phase))

        self.prompt.type(f"note on {phase or 'the run'}", "", save)

    def action_sheet(self) -> None:
        folder = self.snapshot.folder
        if self.may("sheet") and folder is not None:
            self.do(partial(operate.sheet, folder, Path.cwd(), self.room.sheet_format))

    def on_sheet_room_decide(self, message: Message) -> None:
        """``d`` in the Sheet room: a decision and its reason, as ``pilot-tui decide`` keeps them."""
        folder = self.snapshot.folder
        if not self.may("note", "d") or folder is None:
            return

        def picked(decision: str | None) -> None:
            if decision is not None:
                self.call_after_refresh(self.prompt.type, f"{decision}, why", "", partial(save, decision))

        def save(decision: str, why: str) -> None:
            if not why.strip():
                self.say("a decision needs its reason: nothing was decided", "warn")
                return
            self.do(partial(operate.decide, folder, decision, why.strip()))

        listed = [(name, name, sentence, True) for name, sentence in DECISIONS]
        self.push_screen(Picking(f"decide on {short_id(folder.id)}", listed), picked)

    def action_variant(self) -> None:
        loaded = self.snapshot.plan
        if not self.may("variant") or loaded is None:
            return

        def look() -> None:
            try:
                self.post_message(self.Variants(choices(loaded, self.runs)))
            except Exception as error:
                self.post_message(self.Said(operate.sentence(error), "fail"))

        self.run_worker(look, thread=True, group="variants", exclusive=True, exit_on_error=False)

    def on_run_keys_variants(self, message: Variants) -> None:
        found = {each.id: each for each in message.found}
        listed = [(each.id, each.id, each.line, each.plan is not None) for each in message.found]
        more = {each.id: each.more for each in message.found}

        def picked(name: str | None) -> None:
            if name is None:
                return
            self.picked = found[name]
            self.say(f"variant {name} is picked: r runs it as a new run, esc lets it go")
            self.show_frame()

        self.push_screen(Picking(f"variants of {self._shown_name()}", listed, more, VARIANT_COLUMNS), picked)

    def _shown_name(self) -> str:
        if self.snapshot.folder is not None:
            return short_id(self.snapshot.folder.id)
        return self.snapshot.plan.plan.name if self.snapshot.plan is not None else "this plan"

    def drop_picked(self) -> bool:
        """``esc``: whether a picked variant was let go."""
        had, self.picked = self.picked is not None, None
        return had
