"""What an evaluation must not do: change the state, mix its metric with other rows, score a row twice or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.gates import ranks
from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.text import plural

Seen = Mapping[str, Any]


def judge(seen: Seen) -> list[Reason]:
    """``seen``: what changed, a metric asked twice, rows scored by rank."""
    return [
        *state(seen.get("changed"), "Evaluation"),
        *_metric(seen.get("metric_again")),
        *ranks.rows_of_epoch(seen.get("scored"), "Evaluation", 0),
    ]


def state(changed: Seen | None, what: str) -> list[Reason]:
    """Weights, gradients or optimizer state that are others after ``what``."""
    reasons = []
    weights = list((changed or {}).get("weights") or ())
    optimizer = list((changed or {}).get("optimizer") or ())
    if weights:
        text = f"{what} changed {plural(len(weights), 'tensor')} of the model: {weights[0]}; expected 0."
        reasons.append(reason("state_changed", text, {"tensors": weights, "tensor": weights[0]}))
    gradients = list((changed or {}).get("gradients") or ())
    if gradients:
        text = f"{what} left a gradient on {plural(len(gradients), 'tensor')}: {gradients[0]}; the next update adds it."
        reasons.append(reason("state_changed", text, {"tensors": gradients, "tensor": gradients[0]}))
    if optimizer:
        text = f"{what} changed the optimizer's state in {plural(len(optimizer), 'place')}: {optimizer[0]}; expected 0."
        reasons.append(reason("state_changed", text, {"key": optimizer[0]}))
    return reasons


def _metric(found: Seen | None) -> list[Reason]:
    if not found:
        return []
    text = (
        f"{found['name']} of the same {plural(len(found['rows']), 'prediction')} was {_shown(found['first'])}, and "
        f"{_shown(found['second'])} after {plural(found['between'], 'other row')}: it counts more than it is handed."
    )
    return [reason("metric_mixed", text, {"rows": found["rows"], "key": found["name"]})]


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
