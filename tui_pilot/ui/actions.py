"""What the keys do, when they cannot work and why, and the line that names those that can. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui_pilot.events.schema import PHASES
from tui_pilot.run_folder import short_id
from tui_pilot.text import plural
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.room import Hint
from tui_pilot.ui.snapshot import Snapshot

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan


@dataclass(frozen=True)
class Action:
    """One thing a person can do: the app's method name, its key, and its words."""

    name: str
    key: str
    word: str
    long: str


ACTIONS = (
    Action("run", "r", "run", "run the plan"),
    Action("run_past_fails", "R", "run past fails", "run the plan on past fails (--keep-going)"),
    Action("stop", "s", "stop", "stop the live run; its rows are kept"),
    Action("resume_test", "t", "resume test", "test the resume from the checkpoint, in a new process"),
    Action("variant", "v", "variant", "variants of the plan, with memory; enter picks, r runs"),
    Action("mark('pass')", "p", "mark", "mark the selected phase pass; again takes it back"),
    Action("mark('warn')", "w", "mark warn", "mark the selected phase warn; again takes it back"),
    Action("mark('fail')", "f", "mark fail", "mark the selected phase fail; again takes it back"),
    Action("note", "n", "note", "write a note on the selected phase, elsewhere on the run"),
    Action("sheet", "e", "sheet", "write the selection sheet under a new name"),
    Action("search", "/", "filter", "filter this room's list"),
    Action("copy", "y", "copy", "copy what is selected: OSC 52, and copied.txt"),
    Action("actions", ":", "all actions", "all actions"),
    Action("help", "?", "help", "help of this room, its words explained"),
    Action("leave", "q", "leave", "leave the screen; the pilot goes on"),
)

CHANGES_THIS = ("stop", "resume_test", "mark", "note")
CHANGES = (*CHANGES_THIS, "run", "run_past_fails", "variant")


def why_not(name: str, snapshot: Snapshot, phase: str | None, starting: bool, searchable: bool) -> str | None:
    """Why an action cannot work now, as a sentence; None if it can."""
    base = name.split("(", maxsplit=1)[0]
    if base in ("actions", "help", "leave", "copy"):
        return None
    if base == "search":
        return None if searchable else "this room has no list to filter"
    if snapshot.read_only and base in (CHANGES if snapshot.live else CHANGES_THIS):
        who = f" (pid {snapshot.keys_pid})" if snapshot.keys_pid else ""
        return f"another screen has the keys{who}; this one reads only"
    checks = {
        "run": _why_no_run,
        "run_past_fails": _why_no_run,
        "stop": _why_no_stop,
        "resume_test": _why_no_resume,
        "variant": _why_no_variant,
    }
    if base in ("run", "run_past_fails") and starting:
        return "a run is starting"
    if base in checks:
        return checks[base](snapshot)
    if snapshot.folder is None:
        return "no run yet: r runs the plan"
    if base == "mark":
        return _why_no_mark(snapshot, phase)
    return None


def _why_no_run(snapshot: Snapshot) -> str | None:
    if snapshot.live:
        return "a run is live: s stops it"
    if snapshot.plan is None:
        return "there is no plan to run here: pilot-tui init writes one"
    return None


def _why_no_stop(snapshot: Snapshot) -> str | None:
    return None if snapshot.live else "the run shown is not live; room 5 lists those that are"


def _why_no_resume(snapshot: Snapshot) -> str | None:
    if snapshot.folder is None:
        return "no run yet: r runs the plan"
    row = snapshot.state.row("checkpoint")
    number = PHASES.index("checkpoint") + 1
    if snapshot.live:
        stage = snapshot.state.stage.name if snapshot.state.stage else ""
        reached = row.verdict not in (None, "not_run") or stage in ("train", "resume", "reload")
        return None if reached else f"no checkpoint yet, it comes in phase {number}"
    if row.verdict in (None, "not_run", "running") or any(
        each.get("code") == "needs_checkpoint" for each in row.reasons
    ):
        return f"this run has no checkpoint: phase {number} did not end"
    return None


def _why_no_variant(snapshot: Snapshot) -> str | None:
    if snapshot.plan is None:
        return "there is no plan here"
    if not snapshot.plan.plan.variants:
        return "the plan lists no variants; they stand under variants: in the plan"
    return None


def _why_no_mark(snapshot: Snapshot, phase: str | None) -> str | None:
    if phase is None:
        return "marks are made in Pilot and Memory, on the selected phase"
    verdict = snapshot.state.row(phase).verdict
    if verdict is None or verdict == "running":
        return f"{phase} has no verdict yet, so there is nothing to mark"
    return None


def hints(
    snapshot: Snapshot, room: Sequence[Hint], can: Sequence[str], picked: str | None = None, here: str = "pilot"
) -> list[tuple[int, Hint]]:
    """The keys that work now as ``(importance, (key, word))``, in the order they are read; 0 is never left out.

    ``picked`` is the variant that ``r`` runs. ``here`` is the room: in all but Pilot its own keys come before those
    that change the run, which are everywhere the same."""
    out: list[tuple[int, Hint]] = []
    allowed = set(can)
    again = snapshot.folder is not None
    ended = again and not snapshot.live
    if "stop" in allowed:
        out.append((1, ("s", "stop")))
    if "run" in allowed:
        out.append((1, ("r", f"run {picked}" if picked else "run again" if again else "run")))
    if "run_past_fails" in allowed and ended and snapshot.state.verdict == "fail":
        out.append((4, ("R", "run past fails")))
    if "resume_test" in allowed:
        out.append((9 if here != "pilot" else 4, ("t", "resume test")))
    if "variant" in allowed and again:
        out.append((6, ("v", "variant")))
    if "mark('pass')" in allowed:
        out.append((2, ("p w f", "mark")))
    own = here != "pilot"
    if "note" in allowed:
        out.append((8 if own else 3, ("n", "note")))
    if "sheet" in allowed:
        out.append((1 if here == "sheet" else 7 if own else 3, ("e", "sheet")))
    closes = any(key == "esc" for key, _ in room)  # something is open: how to close it comes before all else
    out += [((1 if closes else 2 if own else 5) + n, hint) for n, hint in enumerate(room)]
    if "search" in allowed and all(key != "/" for key, _ in room):
        out.append((8, ("/", "filter")))
    if "copy" in allowed:
        out.append((9, ("y", "copy")))
    out += [(1, (":", "all actions")), (0, ("?", "help")), (0, ("q", "leave"))]
    return out


def keys_line(found: Sequence[tuple[int, Hint]], width: int) -> Line:
    """As many of them as fit; the least important go first, and ``:`` names them all."""
    kept = list(found)
    while kept and _length(kept) > width:
        worst = max(level for level, _ in kept)
        if worst == 0:
            break
        place = max(n for n, (level, _) in enumerate(kept) if level == worst)
        kept.pop(place)
    spans: list[paint.Span] = []
    for _, (key, word) in kept:
        spans += [(" ", "text"), (key, "head"), (f" {word} ", "dim")]
    if spans:
        spans[-1] = (spans[-1][0].rstrip(), "dim")
    return tuple(spans)


def _length(found: Sequence[tuple[int, Hint]]) -> int:
    return sum(len(key) + len(word) + 3 for _, (key, word) in found) - 1


def stop_question(snapshot: Snapshot) -> str:
    name = short_id(snapshot.folder.id) if snapshot.folder else "the run"
    return f"Stop {name}? Its rows are kept.   y stops it, esc lets it go on"


def again_question(snapshot: Snapshot) -> str:
    name = short_id(snapshot.folder.id) if snapshot.folder else "this plan"
    verdict = snapshot.state.verdict or snapshot.state.state
    return f"{name} already finished ({verdict}). Run the plan again, as a new run?   y runs it, esc leaves it"


def why_not_compare(loaded: LoadedPlan | None) -> str | None:
    """Why the shown plan's comparison cannot be run from the screen; None if it can."""
    if loaded is None:
        return "no plan is shown"
    if len(loaded.plan.compare.trials) < 2:
        return "the plan shown has no compare section with two trials"
    if loaded.file is None or not loaded.file.is_file():
        return "its file is gone: pilot-tui compare PLAN, from where it is"
    changed = [key for key, origin in loaded.origins.items() if origin == "set"]
    return f"the plan was changed by --set {changed[0]}: pilot-tui compare takes --set too" if changed else None


def compare_question(loaded: LoadedPlan) -> str:
    """What ``c`` asks first."""
    compare = loaded.plan.compare
    number = len(compare.trials) * len(compare.seeds)
    what = f"{plural(len(compare.trials), 'setting')} x {plural(len(compare.seeds), 'seed')}"
    return f"compare {what} of {loaded.plan.name}: {plural(number, 'run')}? y, or esc"
