"""How many rows an update averages, as each source says it: the plan, a DeepSpeed file, a trainer's arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan

Seen = Mapping[str, Any]
MICRO = (
    "train_micro_batch_size_per_gpu",
    "per_device_train_batch_size",
    "micro_batch_size",
    "micro_batch_size_per_gpu",
)
ACCUMULATION = ("gradient_accumulation_steps", "accumulate_grad_batches", "grad_accumulation_steps")
EFFECTIVE = ("train_batch_size", "global_batch_size", "effective_batch_size")
DEEPSPEED = ("zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer", "steps_per_print")
AUTO = "auto"


def batch_of(document: Mapping[str, Any], replicas: int) -> dict[str, Any] | None:
    """``micro``, ``accumulation`` and ``effective`` of one configuration; None where it says nothing of a batch.

    ``auto`` follows the trainer and is left out. A DeepSpeed file without an accumulation means 1, unless its two batch
    sizes say another: that default is what silently wins over a trainer's own number.
    """
    found: dict[str, Any] = {}
    for name, keys in (("micro", MICRO), ("accumulation", ACCUMULATION), ("effective", EFFECTIVE)):
        key = next((key for key in keys if key in document), None)
        if key is not None:
            found[f"{name}_key"] = key
            if document[key] != AUTO:
                found[name] = _whole(document[key])
    deepspeed = any(key in document for key in DEEPSPEED)
    if "accumulation_key" not in found and deepspeed:
        micro, effective = found.get("micro"), found.get("effective")
        if micro and effective:
            found["accumulation"] = max(1, effective // (micro * max(1, replicas)))
        elif "effective_key" not in found or "effective" in found:
            found["accumulation"], found["default"] = 1, True
    return found if any(name in found for name in ("micro", "accumulation", "effective")) else None


def from_arguments(words: Sequence[str]) -> dict[str, str]:
    """``--key value`` and ``--key=value`` of a command line, dashes in names read as underscores."""
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        after = words[place + 1] if place + 1 < len(words) else ""
        found[name.replace("-", "_")] = value if equals else "" if after.startswith("--") else after
    return found


def judge(sources: Sequence[Seen], counted: Seen, plan: Plan) -> list[Reason]:
    """``sources``: ``{name, micro, accumulation, effective, default}``; the plan is the first of all."""
    planned = {"micro": plan.batch.micro, "accumulation": plan.batch.accumulation, "effective": plan.effective_batch}
    seen = {"micro": None, "accumulation": counted.get("accumulation"), "effective": counted.get("effective")}
    words = {"micro": "the microbatch", "accumulation": "accumulation", "effective": "the effective batch"}
    for source in sources:
        for name in ("accumulation", "micro", "effective"):
            value = source.get(name)
            if value is None or value == planned[name]:
                continue
            missing = " (no gradient_accumulation_steps in it, so 1)" if source.get("default") else ""
            text = (
                f"Sources disagree on {words[name]}: the plan says {planned[name]}, {source['name']} {value}{missing}"
            )
            text += f"; counted: {seen[name]}." if seen[name] is not None else "."
            where = {"file": source["name"], "key": source.get(f"{name}_key") or ACCUMULATION[0]}
            return [reason("sources_disagree", text, where)]
    return []


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None
