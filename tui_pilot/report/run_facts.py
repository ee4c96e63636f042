"""One run as the conclusion tells it, from its ``show --json`` document and the comparison it is a trial of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tui_pilot.report.gather import Gathered
from tui_pilot.report.settings import settings
from tui_pilot.run_folder import RunFolder, short_id
from tui_pilot.sheet.build import configuration, plan_of, where_checked
from tui_pilot.sheet.judged import sentence, word

Json = Mapping[str, Any]


def run_facts(folder: RunFolder, show: Json, found: Gathered) -> dict[str, Any]:
    """One entry of ``runs``: state, origin, settings, losses, validation, fails, memory and how it is known."""
    item = configuration(show)
    plan = plan_of(show)
    trial = _trial(folder.id, found)
    facts = show.get("revisions") or {}
    metrics = show.get("metrics") or {}
    losses = metrics.get("loss") or []
    return {
        "run": folder.id,
        "short": short_id(folder.id),
        "name": item["name"],
        "kind": show.get("kind"),
        "demo": item["demo"],
        "variant": show.get("variant"),
        "trial": trial,
        "state": (trial or {}).get("state") or show.get("state"),
        "text": str((trial or {}).get("stop_text") or (trial or {}).get("stop_reason") or show.get("text") or ""),
        "verdict": show.get("verdict"),
        "started": show.get("started"),
        "ended": show.get("ended"),
        "parent": show.get("parent"),
        "changed": dict(show.get("changed") or {}),
        "identity": facts.get("identity"),
        "settings": settings(plan, facts, bool(item["demo"])),
        "updates": (trial or {}).get("updates") or (losses[-1][0] if losses else None),
        "loss": {"first": losses[0] if losses else None, "last": losses[-1] if losses else None},
        "not_finite_at": _not_finite(losses),
        "diverged_at": (trial or {}).get("diverged_at", _not_finite(losses)),
        "validation": list(metrics.get("validation") or ()),
        "failed": [
            {"phase": row.get("phase"), "text": sentence(row), "mark": row.get("mark")}
            for row in show.get("phases") or ()
            if row.get("verdict") == "fail"
        ],
        "verdicts": _verdicts(show),
        "seconds": item["seconds"],
        "memory": _memory(item),
        "control_outputs": item["control_outputs"],
        "expected": item["expected_result"],
        "retained": item["retained"],
        "why_not": item["why_not"],
        "decision": item["decision"],
        "software": item["software"],
        "software_checked": where_checked(item, folder.read_json(folder.run_file).get("host")),
        "open": item["open"],
    }


def _trial(run: str, found: Gathered) -> dict[str, Any] | None:
    entries = (dict(trial) for each in found.comparisons for trial in each["trials"] if trial.get("run") == run)
    return next(entries, None)


def _not_finite(losses: Iterable[Sequence[Any]]) -> int | None:
    return next((int(point[0]) for point in losses if isinstance(point[1], str)), None)


def _verdicts(show: Json) -> dict[str, int]:
    counted: dict[str, int] = {}
    for row in show.get("phases") or ():
        name = word(row.get("verdict"))
        counted[name] = counted.get(name, 0) + 1
    return counted


def _memory(item: Json) -> dict[str, Any]:
    """The peak of the phase that sets the need, by the widest counter that was read, and how it is known."""
    at = [entry for entry in item["memory"] if entry["phase"] == item["binding_phase"]]
    for counter in ("device_used_peak", "reserved_peak", "allocated_peak"):
        known = [entry for entry in at if entry.get(counter) is not None]
        if known:
            top = max(known, key=lambda entry: int(entry[counter]))
            how = (top.get("known") or {}).get(counter)
            return {"bytes": top[counter], "counter": counter, "phase": item["binding_phase"], "known": how}
    return {"bytes": None, "counter": None, "phase": item["binding_phase"], "known": None}
