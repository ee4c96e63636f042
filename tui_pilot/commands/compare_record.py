"""What a comparison fixes before its first trial: its identity, what is held and verified, rules, and cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui_pilot.commands.output import say

if TYPE_CHECKING:
    from tui_pilot.campaign.trials import Trial
    from tui_pilot.plan.load import LoadedPlan

RECORD = "record.json"


def identity_of(listed: Sequence[Trial], runs: Path) -> str:
    """One digest over everything that can change the comparison: each trial's own identity, and the rules."""
    import tempfile

    from tui_pilot.devices.pythons import choose
    from tui_pilot.launch import revisions
    from tui_pilot.launch.code import copy_pilot_side
    from tui_pilot.plan.model import plain

    with tempfile.TemporaryDirectory(prefix="pilot-tui-compare-") as place:
        code = copy_pilot_side(Path(place) / "code")
    runs.mkdir(parents=True, exist_ok=True)
    each = [revisions.of_plan(one.loaded.plan, one.loaded.folder, code=code, runs=runs)["identity"] for one in listed]
    choice = choose(listed[0].loaded.plan.device, listed[0].loaded.plan.launch.python)
    rules = plain(listed[0].loaded.plan.compare)
    software = None if choice.probe is None else [choice.probe.version, choice.probe.torch, choice.probe.build]
    return hashlib.sha256(json.dumps([each, rules, software], sort_keys=True).encode()).hexdigest()


def find(runs: Path, identity: str) -> Path | None:
    """The newest comparison of this identity."""
    for path in sorted(runs.glob(f"*/{RECORD}"), reverse=True):
        try:
            if json.loads(path.read_text("utf-8")).get("identity") == identity:
                return path.parent
        except (OSError, ValueError, AttributeError):
            continue
    return None


def new_record(loaded: LoadedPlan, listed: Sequence[Trial], identity: str, runs: Path, jobs: int) -> dict[str, Any]:
    """What is fixed before the first trial; raises where something is not held."""
    from tui_pilot.campaign import cost, hold, trials
    from tui_pilot.launch import comparing
    from tui_pilot.plan.model import as_json, plain
    from tui_pilot.run_folder import new_id
    from tui_pilot.version import VERSION

    plan, file = loaded.plan, str(loaded.file) if loaded.file else None
    settings = list(dict.fromkeys(one.id for one in listed))
    say(f"looking at {len(settings)} settings x {len(plan.compare.seeds)} seeds: what they hold equal")
    by_id = {id: [one for one in listed if one.id == id] for id in settings}
    found = comparing.probe({id: [one.loaded.plan for one in each] for id, each in by_id.items()}, loaded)
    probes = {one.key: found[id][n] for id, each in by_id.items() for n, one in enumerate(each)}
    first = probes[listed[0].key]
    trials.control_metrics(first.get("metrics") or [], plan, file)
    held = hold.verify(plan, [(one.id, one.seed, one.loaded.plan) for one in listed], probes)
    hold.refuse(held, file)
    updates = int(first["updates"]["planned"])
    base = listed[0].loaded.plan
    points = _validation_at(updates, base.evaluate.every)
    saves = len(range(base.checkpoint.every, updates, base.checkpoint.every)) + 1
    measured = cost.measured(runs, base)
    kept = {f"{id}:{seed}": _kept(each) for (id, seed), each in probes.items()}
    return {
        "schema": 1,
        "tool": VERSION,
        "id": new_id(f"{plan.name}-comparison"),
        "name": plan.name,
        "demo": loaded.demo,
        "identity": identity,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "plan": as_json(plan),
        "metric": plan.evaluate.metric,
        "direction": plan.evaluate.direction,
        "baseline": listed[0].id,
        "seeds": list(plan.compare.seeds),
        "sets": {one.id: plain(one.set) for one in listed},
        "order": [[one.id, one.seed] for one in listed],
        "planned": {
            "updates": updates,
            "examples": first["updates"]["examples"],
            "validation_every": base.evaluate.every,
            "validation_at": points,
            "save_every": base.checkpoint.every,
            "stop": plain(plan.compare.stop),
        },
        "held": held.held,
        "not_matched": hold.labels(held),
        "cost": cost.predicted(measured, len(listed), updates, len(points), saves, jobs),
        "probes": kept,
    }


def _kept(probe: Mapping[str, Any]) -> dict[str, Any]:
    """Of a probe, what the trial's own events are held against afterwards."""
    return {key: probe[key] for key in ("order", "windows", "schedule", "weights_digest", "effective_batch", "updates")}


def _validation_at(updates: int, every: int) -> list[int]:
    return sorted({*range(every, updates + 1, every), updates})
