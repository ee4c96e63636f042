"""The learning rate of the whole campaign, run ahead on a throwaway optimizer, at the updates that tell."""

from __future__ import annotations

from typing import Any

import torch

from tui_pilot.pilot.loop import Loop
from tui_pilot.tasks.base import defines, schedule_factor

CURVE_LIMIT = 20_000
FALLEN = 0.5
LEAST_LEFT = 5
GONE, BACK = 0.02, 0.2
RATE_ERROR = 1e-3
RESTARTING = ("CosineAnnealingWarmRestarts", "CyclicLR")


def rates_ahead(loop: Loop) -> list[float]:
    """The learning rate of the first group after 0, 1, 2.. ticks of the task's schedule, to the plan's end."""
    total = min(loop.total_updates, CURVE_LIMIT)
    groups = [float(group.get("initial_lr", group["lr"])) for group in loop.optimizer.param_groups]
    # One group for each real one: a schedule may name a rate for every group.
    throwaway = torch.optim.SGD([{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in groups])
    scheduler = loop.task.build_scheduler(throwaway, loop.total_updates)
    rates = [float(throwaway.param_groups[0]["lr"])]
    for _ in range(total):
        throwaway.step()
        scheduler.step()
        rates.append(float(throwaway.param_groups[0]["lr"]))
    return rates


def counted(rates: list[float], seen: list[float], ticks: list[int]) -> list[dict[str, Any]]:
    """The first update whose rate is not the schedule's after as many ticks: something else writes it, or ticks more.

    ``seen`` and ``ticks``: the rate of each update, and the ticks before it.
    """
    for number, (rate, done) in enumerate(zip(seen, ticks, strict=True), 1):
        if done < len(rates) and abs(rate - rates[done]) > RATE_ERROR * max(abs(rate), abs(rates[done])):
            return [{"update": number, "name": "counted", "seen": rate, "planned": rates[done]}]
    return []


def curve(loop: Loop, rates: list[float]) -> list[dict[str, Any]]:
    """The learning rate the schedule will give at 0, warm-up end, half and end, beside the planned one."""
    task, plan = loop.task, loop.context.plan.optimizer
    total = len(rates) - 1
    group = loop.optimizer.param_groups[0]
    planned = float(group.get("initial_lr", group["lr"])) if defines(task, "build_optimizer") else plan.lr
    points = {"start": 0, "warm-up end": min(plan.warmup, total), "half": total // 2, "end": total}
    if defines(task, "build_scheduler"):
        return own_curve(rates, points, planned, meant=restarts(loop.scheduler))
    return [
        {
            "update": at,
            "name": name,
            "seen": rates[at],
            "planned": planned * schedule_factor(at, loop.total_updates, plan.warmup, plan.schedule),
        }
        for name, at in points.items()
    ]


def restarts(scheduler: Any) -> bool:
    """Whether a schedule begins again by its very kind."""
    parts = [scheduler, *(getattr(scheduler, "_schedulers", None) or ())]
    return any(kind.__name__ in RESTARTING for each in parts for kind in type(each).__mro__)


def own_curve(rates: list[float], points: dict[str, int], planned: float, meant: bool = False) -> list[dict[str, Any]]:
    """A person's own schedule is taken as it is, but after a rise it must not fall at once from its highest point.

    ``rates`` by update from 0. A fall later (a step decay) and a highest point at the start (no warm-up) are a plan's
    own business; a second rise is what two schedules joined in the wrong place look like.
    """
    peak = max(rates)
    top = rates.index(peak)
    found = [{"update": at, "name": name, "seen": rates[at], "planned": rates[at]} for name, at in points.items()]
    left = len(rates) - top
    if rates[0] < FALLEN * peak and left >= LEAST_LEFT:
        soon = range(top + 1, top + 1 + max(1, left // 20))
        fallen = next((at for at in soon if rates[at] < FALLEN * peak), None)
        if fallen is not None:
            found.append({"update": fallen, "name": "after warm-up", "seen": rates[fallen], "planned": peak})
    gone = next((at for at in range(top, len(rates)) if rates[at] < GONE * peak), None)
    if gone is not None and max(rates[gone:]) > BACK * peak:
        # Sized for fewer updates than there are, it goes on into a second cycle; written by hand, restarts warn too.
        back = max(range(gone, len(rates)), key=lambda at: rates[at])
        severity = "note" if meant else "warn"
        found.append(
            {"update": back, "name": "after its end", "seen": rates[back], "planned": 0.0, "severity": severity}
        )
    if peak < FALLEN * planned and len(rates) > 2:
        found.append({"update": top, "name": "highest", "seen": peak, "planned": planned, "severity": "warn"})
    return found
