"""Looks at one trial before it runs: ``trial_probe.py REQUEST RESULT``, both JSON files; run from a copy of this side.

The request holds ``plans`` (one per seed, as plan.json has them) and ``folder``; the result a list of what each would
really do, or ``error``. Nothing is trained.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()


def look(plan: Any, folder: Path, place: Path, with_metrics: bool) -> dict[str, Any]:
    """One trial at one seed: what it would build, read, and how it would order, batch and schedule."""
    import torch

    from tui_pilot.events.writer import Writer
    from tui_pilot.observe.memory import Meter
    from tui_pilot.pilot import trial_facts as facts
    from tui_pilot.pilot.audit import split_of
    from tui_pilot.pilot.context import Context
    from tui_pilot.pilot.evaluation import Scores, evaluation_feed, score
    from tui_pilot.pilot.loop import build_loop, build_model, planned_updates
    from tui_pilot.pilot.rows import Feed
    from tui_pilot.run_folder import RunFolder

    run = RunFolder(place)
    context = Context(run, "probe", 1, plan, folder, Writer(run.events, "probe"), Meter(torch.device("cpu"), 0))
    task = context.task()
    train, validation = split_of(context, "train"), split_of(context, "validation")
    found: dict[str, Any] = {"train": facts.encoded(task, train), "validation": facts.encoded(task, validation)}
    answer = planned_updates(context, len(train))
    model = build_model(context)
    found["architecture"] = facts.architecture(model)
    found["weights"] = facts.weights(model)
    found["weights_digest"] = facts.digest(found["weights"])
    loop = build_loop(context, model, train)
    found["updates"] = {"planned": answer.updates, "examples": answer.examples_seen, "held": list(plan.budget.held)}
    found["effective_batch"] = answer.effective_batch
    found["order"] = facts.planned_order(task, train, plan, answer.updates).as_json()
    windows = []
    feeds = [Feed(task, train, plan.batch, plan.seed, rank, plan.replicas) for rank in range(plan.replicas)]
    for _ in range(min(facts.LOOKED_WINDOWS, answer.updates)):
        every = [micro for feed in feeds for micro in feed.window() or ()]
        windows.append(facts.window_facts(every))
    found["windows"] = windows
    if with_metrics and len(validation):
        scores = Scores()
        loop.raw.eval()
        score(loop, evaluation_feed(loop, validation).build([0]), scores)
        loop.raw.train()
        found["metrics"] = sorted(scores.metrics(context))
    elif with_metrics:
        found["metrics"] = []
    # Last: a schedule that is run to its end leaves optimizer and rate there.
    found["schedule"] = facts.schedule(facts.rates(loop.optimizer, loop.scheduler, answer.updates))
    return found


def main(request: Path, result: Path) -> int:
    """0 when a result was written."""
    from tui_pilot.errors import PilotError
    from tui_pilot.pilot.context import absolute_paths
    from tui_pilot.plan.model import from_json

    asked = json.loads(request.read_text("utf-8"))
    folder = Path(asked["folder"])
    found: dict[str, Any] = {"seeds": []}
    with tempfile.TemporaryDirectory() as place:
        try:
            for number, each in enumerate(asked["plans"]):
                plan = absolute_paths(from_json(each), folder)
                found["seeds"].append(look(plan, folder, Path(place) / str(number), number == 0))
        except PilotError as error:
            found = {"error": error.as_json()}
    result.write_text(json.dumps(found, default=str), "utf-8")
    return 0


if __name__ == "__main__":
    sys.path[0] = str(HERE.parents[2])
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
