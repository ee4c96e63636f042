"""What ``pilot-tui fit`` says: a row for every GPU, what was tried, and where the margin comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tui_pilot.commands.tables import table
from tui_pilot.predict import largest
from tui_pilot.text import plural, size

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan
    from tui_pilot.predict.catalogue import Gpu
    from tui_pilot.predict.largest import Asked, Found
    from tui_pilot.predict.residuals import Residuals


def answer_json(
    loaded: LoadedPlan, answers: Sequence[tuple[Gpu, Found]], known: Mapping[str, Residuals]
) -> dict[str, Any]:
    """The document of ``fit --json``."""
    plan = loaded.plan
    return {
        "effective_batch": plan.effective_batch,
        "replicas": plan.replicas,
        "planned": {"micro": plan.batch.micro, "accumulation": plan.batch.accumulation},
        "gpus": [
            {
                **gpu.as_json(),
                "best": None if found.best is None else largest.as_json(found.best),
                "asked": [largest.as_json(each) for each in found.asked],
                "residuals": known[gpu.name].as_json(),
            }
            for gpu, found in answers
        ],
        "run": None,
    }


def lines(loaded: LoadedPlan, answers: Sequence[tuple[Gpu, Found]]) -> list[str]:
    """A row for every GPU, what was tried, and where the margin comes from."""
    plan = loaded.plan
    head = ("gpu", "usable", "micro", "accum", "need", "free", "set by")
    rows = []
    notes = []
    for gpu, found in answers:
        best = found.best
        cells = _cells(best) if best is not None else ("-", "-", "-", "-", _why_none(found))
        rows.append((gpu.name, size(gpu.usable_bytes), *cells))
        fits = [each.fit for each in (best, *found.asked) if each is not None and each.fit is not None]
        notes += [f"{gpu.name}: {fits[0].basis}; asked free: {fits[0].asked:.0%}"] if fits else []
    effective = plural(plan.effective_batch, "row")
    return [f"effective batch held at {effective}", *table(head, rows, right=(1, 2, 3, 4, 5)), *notes]


def _cells(best: Asked) -> tuple[str, ...]:
    assert best.fit is not None
    return (
        str(best.shape.micro),
        str(best.shape.accumulation),
        size(best.fit.need_bytes),
        f"{best.fit.margin:.0%}",
        best.fit.binding_phase,
    )


def _why_none(found: Found) -> str:
    if found.failed is not None:
        return f"not predicted: {found.failed.why}"
    least = min((each for each in found.asked if each.fit is not None), key=lambda each: each.shape.micro, default=None)
    if least is None or least.fit is None:
        return "nothing was asked"
    return f"microbatch {least.shape.micro} needs {size(least.fit.need_bytes)} in {least.fit.binding_phase}"
