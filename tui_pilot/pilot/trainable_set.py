"""What trains in a model, beside what the plan says should: adapter, head and base told apart by their names."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from tui_pilot.errors import PilotError
from tui_pilot.pilot.context import Context

_ADAPTER = re.compile(r"(?:^|[._])lora|adapter|ia3_|prompt_embeddings|modules_to_save", re.IGNORECASE)
# A head of its own, made anew beside an adapter. A language model's lm_head came with the base.
_HEAD = re.compile(r"(?:^|\.)(?!lm_head)(?:\w*_)?(?:head|classifier|score|projector|pooler)(?:s|$|\.)", re.IGNORECASE)


class NothingTrains(PilotError):
    """A model none of whose parameters takes a gradient: no optimizer can be made over it."""

    def __init__(self, tensors: int) -> None:
        super().__init__(
            f"0 of {tensors:,} tensors take a gradient.",
            "Freeze and unfreeze after the adapter is added, as planned.",
            code="trainable_set_differs",
            title="Nothing is trainable",
        )


def is_adapter(name: str) -> bool:
    """Whether a parameter's name is an adapter's, or of a module that is saved with it (a head)."""
    return bool(_ADAPTER.search(name))


def is_head(name: str) -> bool:
    """Whether a parameter belongs to a head or projector that a person may train beside an adapter."""
    return not is_adapter(name) and bool(_HEAD.search(name))


def trainable_facts(context: Context, model: nn.Module) -> dict[str, Any]:
    """Trainable names against the plan: adapter, or every weight. An own task decides for itself what it freezes."""
    names = {name: parameter for name, parameter in model.named_parameters()}
    taking = [name for name, parameter in names.items() if parameter.requires_grad]
    planned = "adapter" if context.plan.model.adapter is not None else "full"
    own = context.plan.task not in ("demo", "sft", "classification")
    adapters = [name for name in names if is_adapter(name)]
    heads = [name for name in taking if own and is_head(name)]
    base = [name for name in names if not is_adapter(name) and name not in set(heads)]
    others = [name for name in base if names[name].requires_grad] if planned == "adapter" else []
    frozen = [name for name in names if name not in set(taking)] if planned == "full" else []
    total = sum(parameter.numel() for parameter in names.values())
    return {
        "plan": planned,
        "names_count": len(taking),
        "tensors": len(names),
        "adapter_count": sum(1 for name in taking if is_adapter(name)),
        "adapters": adapters,
        "first": taking[0] if taking else None,
        "taking": taking[:100],
        "heads": heads,
        "others": others,
        "others_share": sum(names[name].numel() for name in others) / max(1, total),
        "base_share": sum(names[name].numel() for name in others) / max(1, sum(names[name].numel() for name in base)),
        "frozen": frozen,
        "severity": "note" if own else None,
        "elements": sum(names[name].numel() for name in taking),
        "total": total,
    }


def dtypes_of(model: nn.Module) -> dict[str, list[str]]:
    """Names of trainable tensors by dtype."""
    found: dict[str, list[str]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            found.setdefault(str(parameter.dtype).removeprefix("torch."), []).append(name)
    return found
