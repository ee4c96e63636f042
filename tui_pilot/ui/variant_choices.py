"""The variants of a plan as choices: what each changes, whether it is the same experiment, what it needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui_pilot.errors import PilotError
from tui_pilot.run_folder import all_runs, short_id
from tui_pilot.store.view import load_state
from tui_pilot.text import rate, size
from tui_pilot.ui.parts import units

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan

NO_MEMORY = "memory not known: no run of it here was measured"


@dataclass(frozen=True)
class VariantChoice:
    """One variant; ``plan`` is None where the plan does not allow it, and ``problem`` says why."""

    id: str
    line: str
    more: tuple[str, ...]
    plan: LoadedPlan | None
    problem: str = ""


def choices(loaded: LoadedPlan, runs: Path) -> list[VariantChoice]:
    """Every variant, most wanted first. Reads run folders: to be called off the screen's own thread."""
    needs = _measured(runs, loaded.plan.name)
    listed = sorted(loaded.plan.variants, key=lambda each: each.priority)
    return [_choice(loaded, each.id, each.why, needs.get(each.id, "")) for each in listed]


def _choice(loaded: LoadedPlan, id: str, why: str, need: str) -> VariantChoice:
    from tui_pilot.plan import variants

    try:
        changed = variants.variant(loaded, id)
    except PilotError as error:
        return VariantChoice(id, f"not possible: {error.text}", (str(error),), None, str(error))
    same, reasons = variants.keeps_question(loaded.plan, changed.plan)
    found = variants.differences(loaded.plan, changed.plan)
    said = ", ".join(f"{key} {_word(key, old)} → {_word(key, new)}" for key, (old, new) in found.items())
    word = "yes" if same else "no "
    more: Sequence[str] = (
        said or "nothing is changed",
        *((f"why: {why}",) if why else ()),
        "the same experiment, run another way" if same else f"another experiment: {' '.join(reasons)}",
        need or NO_MEMORY,
    )
    shown = need.split(" in ", maxsplit=1)[0] if need else "–"
    return VariantChoice(id, f"{word}   {shown:>10}   {said}", tuple(more), changed)


def _word(key: str, value: Any) -> str:
    if isinstance(value, float) and key.endswith("lr"):
        return rate(value)
    return "none" if value is None else str(value)


def _measured(runs: Path, name: str) -> dict[str, str]:
    """By variant, what its newest run here needed: the whole device, on a CPU what was allocated."""
    found: dict[str, str] = {}
    for folder in all_runs(runs):
        try:
            facts = folder.read_json(folder.run_file)
        except PilotError:
            continue
        variant = facts.get("variant")
        if not variant or facts.get("name") != name:
            continue
        rows = load_state(folder)[0].rows
        for counter in ("device_used_peak", "allocated_peak"):
            most = max((units.peak(row, counter) or 0 for row in rows), default=0)
            if most:
                found[str(variant)] = f"{size(most)} in {short_id(folder.id)}, measured"
                break
    return found
