"""A run's losses for a page: few enough points to print, the ends and what is not finite kept. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.text import loss, plural

Json = Mapping[str, Any]
MOST = 200


def of(show: Json) -> dict[str, Any]:
    """``loss``: at most about ``MOST`` points ``[update, value]``, a value that is no number null; ``validation``.

    ``last_update`` and ``points`` are of the whole log.
    """
    metrics = show.get("metrics") or {}
    found = [_point(point) for point in metrics.get("loss") or ()]
    metric = ((show.get("plan") or {}).get("evaluate") or {}).get("metric")
    validation = []
    for point in metrics.get("validation") or ():
        values = point[1] if isinstance(point[1], Mapping) else {}
        if values.get("loss") is not None:
            validation.append(_point([point[0], values["loss"]]))
    return {
        "loss": _thin(found),
        "validation": _thin(validation),
        "metric": metric,
        "points": len(found),
        "last_update": found[-1][0] if found else None,
        "diverged": show.get("state") == "diverged" or any(value is None for _, value in found),
    }


def words(curve: Json) -> str:
    """The curve in a sentence; empty where nothing was logged."""
    points = curve["loss"]
    if not points:
        return ""
    said = f"{loss(points[0][1], 'not finite')} at update {points[0][0]}, {loss(points[-1][1], 'not finite')} at update"
    said += f" {points[-1][0]}"
    if curve["diverged"]:
        said += "; diverged there"
    if curve["validation"]:
        last = curve["validation"][-1]
        said += f"; validation loss {loss(last[1], 'not finite')} after {plural(last[0], 'update')}"
    return said


def _point(point: Sequence[Any]) -> list[Any]:
    value = point[1]
    finite = isinstance(value, (int, float)) and math.isfinite(value)
    return [int(point[0]), float(value) if finite else None]


def _thin(points: list[list[Any]]) -> list[list[Any]]:
    step = max(1, math.ceil(len(points) / MOST))
    return [point for n, point in enumerate(points) if n % step == 0 or n == len(points) - 1 or point[1] is None]
