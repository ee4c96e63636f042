"""The trials of a plan's ``compare`` section: one for each setting and seed, and what must be true of the section."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tui_pilot.errors import PlanError
from tui_pilot.plan import variants
from tui_pilot.plan.model import Plan

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan

#: Which way is better, for metrics whose name says it; a name that is not here is the plan's word alone.
LOWER = ("loss", "perplexity", "ppl", "error", "wer", "cer", "mae", "mse", "rmse", "nll", "brier", "hamming")
HIGHER = (
    "accuracy", "acc", "f1", "precision", "recall", "auc", "auroc", "bleu", "rouge", "rouge1", "rouge2", "rougel",
    "chrf", "match", "em", "reward", "mrr", "ndcg", "mcc", "r2", "iou",
)  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """One setting at one seed."""

    id: str
    seed: int
    set: dict[str, Any]
    loaded: LoadedPlan

    @property
    def key(self) -> tuple[str, int]:
        return self.id, self.seed


def of_plan(loaded: LoadedPlan) -> list[Trial]:
    """Every trial, seed by seed, so that a comparison stopped half way has each setting at the seeds it has.

    Raises PlanError where the section cannot be compared: no trial, one trial, a metric against its own direction.
    """
    plan, file = loaded.plan, str(loaded.file) if loaded.file else None
    compare = plan.compare
    if len(compare.trials) < 2:
        have = "has no trial" if not compare.trials else "has one trial"
        advice = "compare: {trials: [{id: base, set: {}}, {id: half, set: {optimizer.lr: 5.0e-5}}]}. Nothing was run."
        raise PlanError(f"the plan {have}; a comparison needs two.", advice, file=file, key="compare.trials")
    check_direction(plan, file)
    return [
        Trial(each.id, seed, dict(each.set), variants.trial(loaded, each.id, seed))
        for seed in compare.seeds
        for each in compare.trials
    ]


def check_direction(plan: Plan, file: str | None = None) -> None:
    """A known metric whose direction the plan has the wrong way round is refused: the worst run would win."""
    metric, direction = plan.evaluate.metric, plan.evaluate.direction
    right = known_direction(metric)
    if right is not None and right != direction:
        word = "lower" if right == "min" else "higher"
        raise PlanError(
            f'"{direction}" is the wrong way for {metric}: {word} is better.',
            f"Write evaluate.direction: {right}. Nothing was run.",
            file=file,
            key="evaluate.direction",
            value=direction,
        )


def known_direction(metric: str) -> str | None:
    """``min`` or ``max`` of a metric whose name says it, None for a name of one's own."""
    words = metric.lower().replace("-", "_").split("_")
    if any(word in LOWER for word in words):
        return "min"
    return "max" if any(word in HIGHER for word in words) else None


def control_metrics(metrics: list[str], plan: Plan, file: str | None = None) -> None:
    """The metric must be one that the evaluation gives; an empty list means that there is no validation at all."""
    if not metrics:
        text = "there is no validation split: trials can only be compared on one."
        raise PlanError(text, "Give data.validation. Nothing was run.", file=file, key="data.validation")
    if plan.evaluate.metric not in metrics:
        text = f'"{plan.evaluate.metric}" is not among what the evaluation gives.'
        advice = f"Known here: {', '.join(metrics)}. Nothing was run."
        raise PlanError(text, advice, file=file, key="evaluate.metric", value=plan.evaluate.metric)
