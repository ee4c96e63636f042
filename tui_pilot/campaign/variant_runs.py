"""The runs beside a run that measured its variants and its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.campaign.jobs import of_run, same_work
from tui_pilot.errors import RunFolderError
from tui_pilot.plan.model import Plan, from_json
from tui_pilot.run_folder import RunFolder, all_runs
from tui_pilot.store.view import snapshot

Json = Mapping[str, Any]


def plan_of(show: Json) -> Plan | None:
    """The plan of a ``show --json`` document; None where the run folder holds none that can be read."""
    value = show.get("plan")
    if isinstance(value, Mapping) and isinstance(value.get("plan"), Mapping):
        value = value["plan"]
    if not isinstance(value, Mapping) or not value:
        return None
    try:
        return from_json(dict(value))
    except (TypeError, ValueError, KeyError):
        return None


def others_of(folders: Sequence[RunFolder], given: Sequence[tuple[Json, Plan]]) -> list[tuple[Json, Plan]]:
    """Of the runs beside the given ones, the newest that did the very work of one of their trials or variants."""
    wanted = [job.plan for show, plan in given for job in of_run(show, plan) if job.plan is not None]
    wanted = [plan for plan in wanted if not any(same_work(plan, own) for _, own in given)]
    seen = {folder.id for folder in folders}
    found: list[tuple[Json, Plan]] = []
    for root in dict.fromkeys(folder.path.parent for folder in folders):
        for folder in reversed(all_runs(root)) if wanted else ():
            if folder.id in seen:
                continue
            try:
                plan = from_json(folder.read_json(folder.plan_file)["plan"])
                if any(same_work(plan, each) for each in wanted) and not any(same_work(plan, own) for _, own in found):
                    show = snapshot(folder)
                    if ((show["facts"].get("sizes") or {}).get("seconds") or {}).get("update") is not None:
                        found.append((show, plan))
            except (RunFolderError, KeyError, TypeError, AttributeError, ValueError):
                continue
    return found
