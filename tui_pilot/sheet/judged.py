"""What may be retained, and what stays open: the rules over a run's rows, the person's marks and the decision. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tui_pilot.plan.model import Plan
from tui_pilot.text import plural

Json = Mapping[str, Any]

CHECKED = ("pass", "warn")
MARKS = ("pass", "warn", "fail")
STATES = {
    "running": "the run is still live",
    "new": "nothing was run yet",
    "lost": "the run was lost: its supervisor died before the end",
    "stopped": "the run was stopped before the end",
    "diverged": "the run diverged",
}


@dataclass(frozen=True)
class Judged:
    """``why_not`` is empty exactly when nothing forbids to retain it; ``retained`` says that, whoever has decided.

    ``open`` never decides, it asks.
    """

    retained: bool
    why_not: tuple[str, ...]
    overrides: tuple[dict[str, Any], ...]
    software_checked: bool
    mark: str | None
    open: tuple[str, ...]


def judge(show: Json, plan: Plan | None, margin: float | None) -> Judged:
    """Apply the rules to a ``show --json`` document.

    ``margin`` is the free share of a GPU's usable memory at the need, None where no GPU was measured. A fail is lifted
    by the person's mark ``pass`` or ``warn`` with a note, and by nothing else; a stack that was not checked by none.
    """
    rows = [row for row in show.get("phases") or () if isinstance(row, Mapping)]
    stack = next((row for row in rows if row.get("phase") == "stack"), {})
    checked = stack.get("verdict") in CHECKED
    overrides = tuple(_override(row) for row in rows if _is_override(row))
    why = [] if checked else [f"the software stack was not checked: stack is {word(stack.get('verdict'))}"]
    state = str(show.get("state") or "new")
    if state in STATES:
        why.append(STATES[state])
    why += [_fail(row) for row in rows if _unresolved(row) and not (row is stack and not checked)]
    missing = [str(row.get("phase")) for row in rows if row.get("verdict") == "not_run"]
    if missing:
        why.append(f"{plural(len(missing), 'phase')} not run: {', '.join(missing)}")
    if not rows:
        why.append("no phase was run")
    decision = show.get("decision") or {}
    if decision.get("decision") in ("reject", "defer"):
        word_of = {"reject": "rejected", "defer": "deferred"}[decision["decision"]]
        why.append(f"{word_of} by hand" + _note(decision.get("note")))
    asked = plan.rental.memory_margin if plan else None
    if margin is not None and asked is not None and margin < asked:
        why.append(f"{margin:.0%} of the GPU's usable memory stays free; the plan asks {asked:.0%}")
    marks = [row.get("mark") for row in rows if row.get("mark") in MARKS]
    worst = max(marks, key=MARKS.index) if marks else None
    return Judged(not why, tuple(why), overrides, checked, worst, tuple(_open(show, rows, plan)))


def standing(item: Json) -> str:
    """A configuration's standing in words: that nothing forbids it is no decision, and only a person decides."""
    if not item["retained"]:
        return "not retained"
    return "retained" if is_decided(item) else "may be retained, no decision yet"


def is_decided(item: Json) -> bool:
    """Whether somebody decided to retain it."""
    return (item.get("decision") or {}).get("decision") == "retain"


def word(verdict: Any) -> str:
    """A verdict for a sentence."""
    return {None: "not reached", "not_run": "not run", "fail": "FAIL"}.get(verdict, str(verdict))


def sentence(row: Json) -> str:
    """The row's first reason as a sentence; empty without one."""
    reasons = [reason for reason in row.get("reasons") or () if isinstance(reason, Mapping)]
    return str(reasons[0].get("text") or reasons[0].get("code") or "") if reasons else ""


def codes(row: Json) -> list[str]:
    """The codes of the row's reasons, notes left out."""
    found = (reason for reason in row.get("reasons") or () if isinstance(reason, Mapping))
    return [str(reason.get("code")) for reason in found if reason.get("severity") != "note"]


def _is_override(row: Json) -> bool:
    noted = bool(str(row.get("note") or "").strip())
    return row.get("verdict") == "fail" and row.get("mark") in ("pass", "warn") and noted


def _override(row: Json) -> dict[str, Any]:
    return {
        "phase": row.get("phase"),
        "verdict": "fail",
        "codes": codes(row),
        "text": sentence(row),
        "mark": row.get("mark"),
        "note": row.get("note"),
    }


def _unresolved(row: Json) -> bool:
    return row.get("mark") == "fail" or (row.get("verdict") == "fail" and not _is_override(row))


def _fail(row: Json) -> str:
    phase = row.get("phase")
    if row.get("verdict") != "fail":
        return f"{phase} is marked fail by hand" + _note(row.get("note"))
    said = sentence(row)
    found = f"{phase} is FAIL" + (f": {said}" if said else "")
    if row.get("mark") in ("pass", "warn"):
        return f"{found} (marked {row['mark']} by hand, but without a note)"
    return found


def _note(note: Any) -> str:
    return f": {note}" if note else ", without a note"


def _open(show: Json, rows: Sequence[Json], plan: Plan | None) -> list[str]:
    """Questions that the reader of the sheet must still answer, one sentence each."""
    found: list[str] = []
    for row in rows:
        phase, verdict, mark, said = row.get("phase"), row.get("verdict"), row.get("mark"), sentence(row)
        tail = f": {said}" if said else ""
        if verdict in ("unchecked", "skipped") and mark is None:
            found.append(f"{phase} is {verdict}{tail}")
        elif verdict == "warn" and mark is None:
            found.append(f"{phase} warns, and nobody has judged it by hand{tail}")
        elif verdict in (None, "running"):
            found.append(f"{phase} has no verdict yet")
        if mark is not None and mark != verdict and not str(row.get("note") or "").strip():
            found.append(f"{phase} is {word(verdict)} and marked {mark} by hand, without a note that says why")
    if plan is not None:
        if plan.task not in ("classification", "command"):
            found.append(f"generation not rehearsed: evaluate.max_new_tokens is {plan.evaluate.max_new_tokens}")
        if not plan.expected.strip():
            found.append("no expected result is written down: the plan's expected is empty")
    broken = (show.get("events") or {}).get("broken_lines") or 0
    if broken:
        found.append(f"{plural(int(broken), 'line')} of the event log could not be read")
    return found
