"""What trains in a model, beside what the plan says should."""

from __future__ import annotations

from typing import Any

from torch import nn

from tui_pilot.pilot.context import Context

ADAPTER_MARKS = ("lora_", "adapter", "ia3_", "prompt_embeddings", "modules_to_save")


def is_adapter(name: str) -> bool:
    """Whether a parameter's name is an adapter's, or of a module that is saved with it (a head)."""
    return any(mark in name for mark in ADAPTER_MARKS)


def trainable_facts(context: Context, model: nn.Module) -> dict[str, Any]:
    """Trainable names against the plan: adapter, or every weight. An own task decides for itself what it freezes."""
    names = {name: parameter for name, parameter in model.named_parameters()}
    taking = [name for name, parameter in names.items() if parameter.requires_grad]
    planned = "adapter" if context.plan.model.adapter is not None else "full"
    others = [name for name in taking if not is_adapter(name)] if planned == "adapter" else []
    frozen = [name for name in names if name not in set(taking)] if planned == "full" else []
    total = sum(parameter.numel() for parameter in names.values())
    own = context.plan.task not in ("demo", "sft", "classification")
    return {
        "plan": planned,
        "names_count": len(taking),
        "adapter_count": sum(1 for name in taking if is_adapter(name)),
        "first": taking[0] if taking else None,
        "others": others,
        "others_share": sum(names[name].numel() for name in others) / max(1, total),
        "frozen": frozen,
        "severity": "note" if own else None,
        "elements": sum(names[name].numel() for name in taking),
        "total": total,
    }
