"""Which GPUs of the catalogue hold a configuration: by what was measured on one, else by the run's prediction. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.errors import PilotError
from tui_pilot.plan.model import Plan
from tui_pilot.predict import catalogue
from tui_pilot.predict.residuals import Residuals, gpu_name, predicted_for

Json = Mapping[str, Any]

ON_CPU = "measured on CPU: says nothing about a GPU, so whether it fits one is unchecked"
NO_MEMORY = "no memory was measured"
FOR_CPU = "; the run's prediction is for a CPU too: pilot-tui predict PLAN says it for GPUs"
ELSEWHERE = "measured on {gpu} only: if you rent another GPU, run this pilot there first"


def wanted(plan: Plan | None) -> tuple[list[catalogue.Gpu], list[str]]:
    """The GPUs that are asked about (the plan's ``rental.gpus``, else the whole catalogue), and names it lacks."""
    found: list[catalogue.Gpu] = []
    lacking: list[str] = []
    for name in plan.rental.gpus if plan else ():
        try:
            found.append(catalogue.find(name))
        except PilotError:
            lacking.append(name)
    return found or ([] if lacking else list(catalogue.catalogue())), lacking


def fits(
    show: Json, plan: Plan | None, need: Json | None, prediction: Json | None, known: Mapping[str, Residuals]
) -> tuple[list[dict[str, Any]], str]:
    """``fits`` of a configuration, and the sentence that says what it rests on, or why it is empty.

    ``need``: what one measured GPU must have. ``known``: residuals by the catalogue's name, from earlier runs.
    """
    listed, lacking = wanted(plan)
    note = f"; not in the catalogue: {', '.join(lacking)}" if lacking else ""
    if need is not None:
        here = catalogue.class_of(gpu_name(show) or _stack_gpu(show)) or "this GPU"
        return [_measured(gpu, need, plan, here) for gpu in listed], ELSEWHERE.format(gpu=here) + note
    if not any(row.get("memory") for row in show.get("phases") or ()):
        return [], NO_MEMORY
    if prediction is None:
        return [], ON_CPU
    if not predicted_for({"prediction": prediction}, "gpu"):
        return [], ON_CPU + FOR_CPU
    found = catalogue.fits(
        prediction.get("phases") or (), listed, known, plan.rental.memory_margin if plan else None,
        plan.precision if plan else None,
    )  # fmt: skip
    entries = [_priced({**each.as_json(), "basis": f"predicted; {each.basis}"}, plan) for each in found]
    said = "predicted, not measured on any GPU: run this pilot on the one you rent before you rely on it"
    return entries, (said if entries else ON_CPU) + note


def _stack_gpu(show: Json) -> str | None:
    stack = (show.get("facts") or {}).get("stack")
    name = stack.get("gpu") if isinstance(stack, Mapping) else None
    return name if isinstance(name, str) else None


def _measured(gpu: catalogue.Gpu, need: Json, plan: Plan | None, here: str) -> dict[str, Any]:
    own = gpu.name == here and need.get("usable_bytes")
    usable = int(need["usable_bytes"]) if own else gpu.usable_bytes
    asked = plan.rental.memory_margin if plan else 0.0
    margin = (usable - need["bytes"]) / usable
    notes = [] if own else ["memory outside torch differs there"]
    if plan and plan.precision.startswith("bf16") and gpu.bf16 is False:
        notes.append("no bf16 units: bf16 is emulated, slowly")
    entry = {
        "name": gpu.name,
        "usable_bytes": usable,
        "need_bytes": need["bytes"],
        "residual": None,
        "fits": margin >= asked,
        "margin": round(margin, 4),
        "margin_asked": asked,
        "binding_phase": need["phase"],
        "basis": "measured on this GPU" if own else f"measured on {here}",
        "note": "; ".join(notes) or None,
    }
    return _priced(entry, plan)


def _priced(entry: dict[str, Any], plan: Plan | None) -> dict[str, Any]:
    """With the plan's own price of an hour; there are no others."""
    prices = plan.rental.prices if plan else {}
    price = next((value for name, value in prices.items() if catalogue.class_of(name) == entry["name"]), None)
    return {**entry, "price_an_hour": price}
