"""The plan's variants beside their baseline: memory, seconds and the result, where a run of one is at hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.errors import RunFolderError
from tui_pilot.plan.model import Plan, as_json
from tui_pilot.run_folder import RunFolder, all_runs
from tui_pilot.sheet import measured
from tui_pilot.sheet.judged import codes
from tui_pilot.store.view import snapshot

Json = Mapping[str, Any]
NAMES = ("name", "expected", "variants", "compare", "rental")
"""Parts of a plan that change neither memory nor result: two plans that differ in these alone are one baseline."""


def planned(plan: Plan | None) -> list[dict[str, Any]]:
    """Every variant of the plan, not measured."""
    return [
        {"id": item.id, "why": item.why, "priority": item.priority, "set": dict(item.set), "measured": False}
        for item in (plan.variants if plan else ())
    ]


def beside(folder: RunFolder, show: Json, plan: Plan | None) -> list[dict[str, Any]]:
    """Every variant of the plan, each with the newest run of it in the same folder of runs.

    Only a run that varied this very plan counts: its own baseline says so.
    """
    listed = planned(plan)
    newest = _runs_of(folder, plan) if plan is not None and listed else {}
    return [entry | (compared(show, newest[entry["id"]]) if entry["id"] in newest else {}) for entry in listed]


def _runs_of(folder: RunFolder, plan: Plan) -> dict[str, Json]:
    want = _comparable(as_json(plan))
    found: dict[str, Json] = {}
    for other in reversed(all_runs(folder.path.parent)):
        if other.id == folder.id or not other.baseline_file.is_file():
            continue
        try:
            variant = str(other.read_json(other.run_file).get("variant"))
            if variant not in found and _comparable(other.read_json(other.baseline_file)["plan"]) == want:
                found[variant] = snapshot(other)
        except (RunFolderError, KeyError, TypeError):
            continue
    return found


def _comparable(plan: Json) -> dict[str, Any]:
    return {key: value for key, value in plan.items() if key not in NAMES}


def compared(base: Json, variant: Json) -> dict[str, Any]:
    """Memory and seconds of a variant's run and of its baseline's, and the ``quality`` on its ``overfit`` row."""
    counter, have, want = _memory(variant, base)
    row = measured.row_of(variant, "overfit")
    quality = row.get("quality")
    examples = (variant.get("facts") or {}).get("examples") or {}
    before = (base.get("facts") or {}).get("examples") or {}
    return {
        "measured": True,
        "run": variant.get("run"),
        "verdict": variant.get("verdict"),
        "memory": {
            "counter": counter,
            "bytes": have,
            "baseline_bytes": want,
            "binding_phase": variant.get("binding_phase"),
        },
        "seconds_per_update": {"variant": _update(variant), "baseline": _update(base)},
        "same_experiment": quality.get("same_question") if quality else None,
        "response_tokens_lost": _more(examples, before, "response_tokens_lost"),
        "rows_truncated": _more(examples, before, "truncated"),
        "changes_result": "variant_changes_result" in codes(row),
        "quality": quality,
    }


def _memory(variant: Json, base: Json) -> tuple[str | None, int | None, int | None]:
    """The highest peak of both by one counter: the whole device where both know it, else the allocator's."""
    for counter in ("device_used_peak", "reserved_peak", "allocated_peak"):
        have, want = _highest(variant, counter), _highest(base, counter)
        if have is not None and want is not None:
            return counter, have, want
    return None, None, None


def _highest(show: Json, counter: str) -> int | None:
    found = [
        entry[counter]
        for entry in measured.memory(show)
        if entry.get(counter) is not None and entry["phase"] not in measured.DIAGNOSTIC
    ]
    return max(found, default=None)


def _update(show: Json) -> float | None:
    return measured.seconds(show, show.get("facts") or {})["update"]


def _more(variant: Json, base: Json, key: str) -> int | None:
    have, want = variant.get(key), base.get(key)
    return None if have is None or want is None else have - want
