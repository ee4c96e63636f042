"""The list of runs as the Runs room keeps it: one small record a run, parents before what was changed from them. Pure.

A whole ``RunState`` of each of ten thousand runs would not fit; what a line of the list shows does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tui_pilot.run_folder import RunFolder
from tui_pilot.store.ledger import Entry
from tui_pilot.store.state import RunState
from tui_pilot.ui.parts import units
from tui_pilot.ui.rooms import _changes

NESTED = ("variant", "trial")
WITHOUT_VERDICT = ("stopped", "lost", "new")
"""States of a run that came to no end of its own: only its rows have verdicts."""
ORDER = {"finished": 0, "running": 1, "failed": 2, "diverged": 3, "stopped": 4, "lost": 5, "new": 6}


@dataclass(frozen=True)
class Brief:
    """What a line of the list says of one run. ``need`` is bytes: the device's, on a CPU what was allocated.

    ``failed`` is the first failed row as ``phase: code``. ``born`` orders the runs: ids of one second have no order of
    their own, the first event's clock does.
    """

    folder: RunFolder
    state: str = "new"
    verdict: str | None = None
    failed: str = ""
    fails: int = 0
    updates: int = 0
    batch: int | None = None
    need: int | None = None
    pace: float | None = None
    validation: float | None = None
    bytes: int = 0
    problem: str | None = None
    born: tuple[str, str, str] = ("", "", "")
    kind: str = "pilot"
    parent: str | None = None
    replicate_of: str | None = None
    comparison: str | None = None
    trial: str | None = None
    seed: int | None = None
    changed: Mapping[str, Any] = field(default_factory=dict)

    def changed_text(self) -> str:
        """What was changed from the parent, in full."""
        return _changes.full(self.changed) or self.origin()

    def origin(self) -> str:
        """What stands where nothing was changed."""
        if self.replicate_of:
            return f"nothing: a replicate of {self.replicate_of[-4:]}"
        return "nothing" if self.parent else "first trial" if self.trial else "first run"

    @property
    def word(self) -> str:
        """The verdict's word. A run that was stopped or lost has none; its failed rows are said all the same."""
        if self.state in WITHOUT_VERDICT:
            return f"– {self.fails} FAIL" if self.fails else "–"
        return "FAIL" if self.verdict == "fail" else self.verdict or "–"

    @property
    def sign(self) -> str:
        """The verdict whose glyph stands before the line."""
        if self.problem or self.state in ("lost", "new"):
            return "lost"
        if self.state in ("running", "stopped"):
            return {"running": "running", "stopped": "skipped"}[self.state]
        return str(self.verdict)


def brief(entry: Entry) -> Brief:
    """The record of a run that was read whole."""
    run, state = entry.run, entry.state
    failed = [row for row in state.rows if row.verdict == "fail"]
    codes = [str(each.get("code")) for each in (failed[0].reasons if failed else ()) if each.get("severity") == "fail"]
    changed = run.get("changed")

    def text(key: str) -> str | None:
        return str(run[key]) if run.get(key) else None

    seed = run.get("seed")
    return Brief(
        folder=entry.folder,
        state=state.state,
        verdict=state.verdict,
        failed=f"{failed[0].phase}: {codes[0]}" if failed and codes else failed[0].phase if failed else "",
        fails=len(failed),
        updates=getattr(state.loss, "came", len(state.loss)),
        batch=batch_of(state),
        need=need_of(state),
        pace=pace_of(state),
        validation=validation_of(state),
        bytes=entry.bytes,
        problem=entry.problem,
        born=(str(run.get("created") or _stamp(entry.folder.id)), state.started or "", entry.folder.id),
        kind=str(run.get("kind") or "pilot"),
        parent=text("parent"),
        replicate_of=text("replicate_of"),
        comparison=text("comparison"),
        trial=text("trial"),
        seed=seed if isinstance(seed, int) else None,
        changed=dict(changed) if isinstance(changed, Mapping) else {},
    )


def _stamp(id: str) -> str:
    """``20261201-193200-...`` as the clock time that ``created`` would say."""
    if len(id) < 15 or not (id[:8] + id[9:15]).isdigit():
        return ""
    return f"{id[:4]}-{id[4:6]}-{id[6:8]}T{id[9:11]}:{id[11:13]}:{id[13:15]}Z"


def need_of(state: RunState) -> int | None:
    """The highest used memory, on a CPU what was allocated."""
    for counter in ("device_used_peak", "allocated_peak"):
        most = max((units.peak(row, counter) or 0 for row in state.rows), default=0)
        if most:
            return most
    return None


def batch_of(state: RunState) -> int | None:
    """The planned effective batch."""
    counted = (state.facts.get("batch") or {}).get("planned")
    number = counted.get("effective_batch") if isinstance(counted, Mapping) else None
    return number if isinstance(number, int) else None


def pace_of(state: RunState) -> float | None:
    """Seconds an update."""
    seconds = (state.facts.get("sizes") or {}).get("seconds")
    took = seconds.get("update") if isinstance(seconds, Mapping) else None
    return float(took) if isinstance(took, (int, float)) else None


def validation_of(state: RunState, metric: str = "loss") -> float | None:
    """The last validation value."""
    for _, metrics in reversed(state.validation):
        value = metrics.get(metric)
        if isinstance(value, (int, float)):
            return float(value)
    return None


@dataclass(frozen=True)
class Listed:
    """One run as a line: its record and the strokes that lead to it from its parent."""

    entry: Brief
    branch: str = ""

    @property
    def folder(self) -> RunFolder:
        return self.entry.folder

    def words(self) -> str:
        """What a filter looks in."""
        each = self.entry
        return f"{self.folder.id} {each.state} {each.word} {each.failed} {each.changed_text()}".lower()


def tree(entries: Iterable[Brief]) -> list[Listed]:
    """Oldest first; a variant or a trial stands below the run it was changed from, wherever that is listed."""
    ordered = sorted(entries, key=lambda each: each.born)
    here = {each.folder.id for each in ordered}
    below: dict[str, list[Brief]] = {}
    roots = []
    for each in ordered:
        parent = each.parent
        if each.kind in NESTED and parent in here and parent != each.folder.id:
            below.setdefault(str(parent), []).append(each)
        else:
            roots.append(each)
    out: list[Listed] = []
    done: set[str] = set()
    # Runs that name each other as parents have no root and are still runs.
    for start in [*roots, *ordered]:
        waiting = [(start, "", "")]
        while waiting:
            each, branch, deeper = waiting.pop()
            if each.folder.id in done:
                continue
            done.add(each.folder.id)
            out.append(Listed(each, branch))
            children = below.get(each.folder.id, [])
            for n, child in reversed(list(enumerate(children))):
                last = n == len(children) - 1
                waiting.append((child, deeper + ("└ " if last else "├ "), deeper + ("  " if last else "│ ")))
    return out


def least_need(listed: Sequence[Listed]) -> int | None:
    """The smallest need of any run that has one, bytes."""
    return min((each.entry.need for each in listed if each.entry.need), default=None)


def counted(listed: Sequence[Listed]) -> str:
    """``12 finished, 1 failed, 1 lost``."""
    words: dict[str, int] = {}
    for each in listed:
        name = "unreadable" if each.entry.problem else each.entry.state
        words[name] = words.get(name, 0) + 1
    return ", ".join(f"{words[name]:,} {name}" for name in sorted(words, key=lambda name: ORDER.get(name, 9)))
