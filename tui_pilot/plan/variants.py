"""What differs between plans, whether it is still the same question, and a fingerprint of a run's inputs.

``differences``, ``keeps_question``, ``not_held`` and ``identity`` are pure and standard library only; the functions
that make a changed plan validate it again through ``load``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tui_pilot.errors import PlanError
from tui_pilot.plan.keys import nearest
from tui_pilot.plan.model import Plan, as_json, from_json, plain

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan

#: What a comparison can hold equal, and the settings (or computed quantities) that say so.
HOLDABLE: dict[str, tuple[str, ...]] = {
    "architecture": ("task", "model.path", "model.adapter"),
    "data": ("data",),
    "effective_batch": ("effective_batch",),
    "updates": ("budget",),
    "optimizer": ("optimizer.name", "optimizer.weight_decay", "optimizer.clip"),
    "lr": ("optimizer.lr",),
    "schedule": ("optimizer.schedule", "optimizer.warmup"),
    "precision": ("precision",),
    "loss": ("loss",),
    "evaluation": ("evaluate.rows", "evaluate.metric", "evaluate.direction", "evaluate.max_new_tokens"),
    "options": ("options",),
}

_NO_RESULT = ("name", "expected", "variants", "compare", "rental", "keep")

#: Settings that change how the same experiment is run, not which one it is.
_SAME = (
    *_NO_RESULT,
    "memory",
    "optimizer.implementation",
    "evaluate.every",
    "evaluate.micro",
    "checkpoint",
    "export",
    "device",
    "launch",
    "pilot",
    "gates",
    "seed",
    "batch.micro",
    "batch.accumulation",
    "data.workers",
    "model.attention",
    "model.trust_remote_code",
    "resume_command",
    "artifact",
)

_WHY = {
    "precision": "rounding is another",
    "model.adapter": "other weights are trained",
    "model.path": "it starts from another model",
    "loss": "another loss is minimised",
    "optimizer": "each update is another",
    "budget": "training is longer or shorter",
    "batch": "other rows enter the updates",
    "data": "it learns from other data",
    "evaluate": "validation measures something else",
    "task": "it is another task",
    "options": "the task's own settings differ",
    "command": "another program trains",
}


def apply(loaded: LoadedPlan, set: Mapping[str, Any], id: str) -> LoadedPlan:
    """The plan with dotted keys changed, validated again; PlanErrors name ``variant ID`` as the file.

    Values are as YAML gives them (``load.parse_value`` reads what a person typed). Derived values follow the change.
    """
    from tui_pilot.plan.load import changed

    return changed(loaded, set, f"variant {id}")


def variant(loaded: LoadedPlan, id: str) -> LoadedPlan:
    """The plan of one of its variants."""
    known = {each.id: each.set for each in loaded.plan.variants}
    if id not in known:
        raise _unknown(id, list(known), "variant")
    return dataclasses.replace(apply(loaded, known[id], id), baseline=loaded)


def trial(loaded: LoadedPlan, id: str, seed: int) -> LoadedPlan:
    """The plan of one trial of the comparison, at one seed."""
    known = {each.id: each.set for each in loaded.plan.compare.trials}
    if id not in known:
        raise _unknown(id, list(known), "trial")
    return apply(loaded, {**known[id], "seed": seed}, id)


def with_set(plan: Plan, changes: Mapping[str, Any]) -> Plan:
    """The plan with dotted keys changed, not validated: for changes that a loaded plan lists, or that are our own."""
    document = as_json(plan)
    for key, value in changes.items():
        *heads, last = key.split(".")
        place = document
        for head in heads:
            if not isinstance(place.get(head), dict):
                place[head] = {}
            place = place[head]
        place[last] = value
    return from_json(document)


def differences(a: Plan, b: Plan) -> dict[str, list[Any]]:
    """What changed from ``a`` to ``b``: ``{"optimizer.lr": [1e-4, 5e-5]}``, plain JSON values, in file order."""
    return dict(_differences(a, b, ""))


def _differences(a: Any, b: Any, key: str) -> list[tuple[str, list[Any]]]:
    found: list[tuple[str, list[Any]]] = []
    if dataclasses.is_dataclass(a) and type(a) is type(b):
        for each in dataclasses.fields(a):
            found += _differences(getattr(a, each.name), getattr(b, each.name), f"{key}.{each.name}".lstrip("."))
    elif isinstance(a, dict) and isinstance(b, dict):
        for name in [*a, *(name for name in b if name not in a)]:
            found += _differences(a.get(name), b.get(name), f"{key}.{name}")
    elif a != b or isinstance(a, bool) != isinstance(b, bool):
        found.append((key, [plain(a), plain(b)]))
    return found


def keeps_question(base: Plan, changed: Plan) -> tuple[bool, list[str]]:
    """Whether two plans ask the same question of the same data, and if not, a sentence for each reason.

    Micro against accumulation, checkpointing, sharding or the optimizer's implementation change how an experiment is
    run; effective batch, precision, adapter, rows lost to a shorter length make it another one.
    """
    reasons = []
    if base.effective_batch != changed.effective_batch:
        before, after = base.effective_batch, changed.effective_batch
        reasons.append(f"effective batch {before} -> {after}: each update averages another number of rows.")
    for key, (old, new) in differences(base, changed).items():
        if key == "data.max_length":
            if (math.inf if new is None else new) < (math.inf if old is None else old):
                reasons.append(f"{key} {_word(old)} -> {_word(new)}: longer rows lose their end.")
        elif not under(key, _SAME):
            why = next((why for head, why in _WHY.items() if under(key, (head,))), "it is another experiment")
            reasons.append(f"{key} {_word(old)} -> {_word(new)}: {why}.")
    return not reasons, reasons


def baseline_document(loaded: LoadedPlan) -> dict[str, Any] | None:
    """What a variant's run keeps of the plan it varies; None for a plan that is no variant."""
    base = loaded.baseline
    if base is None:
        return None
    same, why = keeps_question(base.plan, loaded.plan)
    changed = differences(base.plan, loaded.plan)
    return {"plan": as_json(base.plan), "same_question": same, "why": why, "changed": changed}


def not_held(base: Plan, changed: Plan, hold: tuple[str, ...]) -> dict[str, dict[str, list[Any]]]:
    """Of the things a comparison holds, those that differ, each with its differences; empty when all are equal.

    ``updates`` compares the budgets as written; how many updates a budget in epochs makes is batch arithmetic.
    """
    found = differences(base, changed)
    if base.effective_batch != changed.effective_batch:
        found["effective_batch"] = [base.effective_batch, changed.effective_batch]
    result = {}
    for name in hold:
        inside = {key: pair for key, pair in found.items() if under(key, HOLDABLE[name]) and key != "data.workers"}
        if inside:
            result[name] = inside
    return result


def identity(document: Mapping[str, Any], revisions: Mapping[str, Any]) -> str:
    """A sha256 over everything that can change a result: two runs with equal identities asked exactly the same.

    ``document`` is ``plan.json``; names, expectations, variants, prices and housekeeping are left out of it.
    ``revisions`` are the hashes and versions of data, model, code and software.
    """
    plan = {key: value for key, value in document["plan"].items() if key not in _NO_RESULT}
    canonical = _canonical({"plan": plan, "revisions": dict(revisions)})
    return hashlib.sha256(json.dumps(canonical, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def plan_identity(plan: Plan, revisions: Mapping[str, Any]) -> str:
    """``identity`` of a plan that is at hand."""
    return identity({"plan": as_json(plan)}, revisions)


def _canonical(value: Any) -> Any:
    """16 and 16.0 are one number, tuples are lists, names are text."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(item) for item in value]
    return value


def under(key: str, heads: tuple[str, ...]) -> bool:
    """Whether a dotted key is one of ``heads`` or lies below one."""
    return any(key == head or key.startswith(head + ".") for head in heads)


def _word(value: Any) -> str:
    if value is None:
        return "none"
    return str(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _unknown(id: str, known: list[str], what: str) -> PlanError:
    near = nearest(id, known)
    advice = f"Nearest: {near}." if near else "Known: " + (", ".join(known) or "none") + "."
    return PlanError(f'there is no {what} "{id}".', f"{advice} Nothing was run.", key=what, value=id)
