"""What trains against what the plan says trains: adapter, head, everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.text import plural

SHOWN = 3


def trainable_set(found: Mapping[str, Any] | None) -> list[Reason]:
    """``found``: the plan's word, names that take a gradient, adapters, base tensors that train, frozen ones."""
    if not found:
        return []
    planned = "an adapter" if found.get("plan") == "adapter" else "every weight"
    taking = list(found.get("taking") or [name for name in (found.get("first"),) if name])
    adapters = list(found.get("adapters") or ())
    if not found.get("names_count"):
        of = f"0 of {plural(found['tensors'], 'tensor')}" if found.get("tensors") else "0 parameters"
        return _differs(f"Planned: {planned}. Nothing is trainable: {of} take a gradient.", adapters)
    if not found.get("adapter_count") and (adapters or found.get("plan") == "adapter"):
        what = f"none of its {plural(len(adapters), 'tensor')}" if adapters else "no adapter tensor"
        text = f"Planned: {planned}. Trainable: {_listed(taking)} only, and {what}."
        if adapters and found.get("plan") != "adapter":
            text = f"The model has an adapter, and {what} trains; trainable: {_listed(taking)} only."
        return _differs(text, adapters or found.get("others") or taking)
    others = list(found.get("others") or ())
    if found.get("plan") == "adapter" and others:
        text = (
            f"Planned: an adapter. {plural(len(others), 'tensor')} outside it are trainable too: {_listed(others)} "
            f"({found.get('base_share', found.get('others_share', 0)):.0%} of the base)."
        )
        return _differs(text, others)
    if found.get("plan") == "full" and found.get("frozen"):
        frozen = list(found["frozen"])
        text = f"Planned: every weight. {plural(len(frozen), 'tensor')} are frozen: {_listed(frozen)}."
        return _differs(text, frozen, found.get("severity"))
    return []


def _differs(text: str, names: Sequence[str], severity: str | None = None) -> list[Reason]:
    where = {"tensors": list(names), "tensor": names[0]} if names else {}
    return [reason("trainable_set_differs", text, where, severity=severity)]


def _listed(names: Sequence[str]) -> str:
    more = f", {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
