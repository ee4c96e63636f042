"""How much of a half-precision weight an update really changes: bit for bit, where a gradient pushed at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

HALF = (torch.float16, torch.bfloat16)
STEPS = 5
FEWEST = 8
BELOW = 0.99


class Halves:
    """Watches tensors in half precision over their first ``STEPS`` updates at the planned rate."""

    def __init__(self, names: Mapping[str, torch.Tensor]) -> None:
        self.names = {name: tensor for name, tensor in names.items() if tensor.dtype in HALF}
        self.before = {name: tensor.detach().clone() for name, tensor in self.names.items()}
        self.pushed = {name: torch.zeros_like(tensor, dtype=torch.bool) for name, tensor in self.names.items()}

    def note(self) -> None:
        """Between backward and step: which elements have a gradient. Words that no row holds rightly stay."""
        for name, tensor in self.names.items():
            if tensor.grad is not None:
                self.pushed[name] |= tensor.grad != 0

    def facts(self) -> dict[str, Any]:
        """For the gate: tensors whose pushed elements stayed bit-equal, and the share over all tensors."""
        shares: dict[str, float] = {}
        still = pushed = 0
        for name, tensor in self.names.items():
            mask = self.pushed[name]
            count, same = int(mask.sum()), int(((tensor.detach() == self.before[name]) & mask).sum())
            still, pushed = still + same, pushed + count
            if count >= FEWEST:
                shares[name] = same / count
        below = [name for name, share in shares.items() if share >= BELOW]
        found: dict[str, Any] = {"below_all": still / pushed if pushed else 0.0, "below_steps": STEPS}
        if below and len(below) >= 0.5 * len(shares):
            found |= {"below_precision": below, "below_share": min(shares[name] for name in below)}
        return found
