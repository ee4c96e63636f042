"""What a trial keeps of itself: its counts while it runs, answers on fixed rows, and the summary a comparison reads."""

from __future__ import annotations

import json
from typing import Any

from tui_pilot.pilot import evaluation, trial_facts
from tui_pilot.pilot.answers import ask, targets_of
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.loop import Loop
from tui_pilot.pilot.phase import PhaseBroken
from tui_pilot.pilot.rows import chunks
from tui_pilot.pilot.trial_rules import Rules, Stop
from tui_pilot.plan.batch import BatchAnswer
from tui_pilot.tasks.base import IGNORE, defines

PREDICTIONS = "control.jsonl"


class Trial:
    """What the phases of this stage hand to each other."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.loop: Loop | None = None
        self.answer: BatchAnswer | None = None
        self.order = trial_facts.Order(0)
        self.stop: Stop | None = None
        self.rules = Rules(context.plan.compare.stop, context.plan.evaluate.direction, context.plan.evaluate.metric)
        self.windows: list[dict[str, Any]] = []
        self.rates: dict[str, float] = {}
        self.seconds: dict[str, list[float]] = {"update": [], "evaluate": [], "save": []}
        self.examples = self.items = 0
        self.points: list[tuple[int, dict[str, Any]]] = []
        self.weights: dict[str, str] = {}
        self.saved_at = 0

    @property
    def ready(self) -> tuple[Loop, BatchAnswer]:
        if self.loop is None or self.answer is None:
            raise PhaseBroken("load")
        return self.loop, self.answer


def keep_predictions(trial: Trial, loop: Loop) -> None:
    """The answers on the fixed control rows, one line a row, appended to the run's predictions."""
    context = trial.context
    task = context.task()
    if not defines(task, "predict"):
        return
    name, split, places = trial_facts.control_rows(context)
    feed = evaluation.evaluation_feed(loop, split)
    folder = context.run.predictions
    folder.mkdir(exist_ok=True)
    loop.raw.eval()
    with (folder / PREDICTIONS).open("a", encoding="utf-8", errors="backslashreplace") as stream:
        for group in chunks(places, evaluation.micro_of(context)):
            micro = feed.build(group)
            given = ask(context, loop.raw, micro.batch)
            own, targets = targets_of(micro.batch) if "labels" in micro.batch else (False, [None] * len(given))
            for row, answer, target in zip(micro.ids, given, targets, strict=False):
                said, wanted = _supervised(own, answer, target)
                line = {"update": loop.updates, "split": name, "row": row, "answer": said, "target": wanted}
                if defines(task, "decode") and isinstance(said, list):
                    line |= {"text": task.decode(said), "target_text": task.decode(wanted)}
                stream.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
    loop.raw.train()


def _supervised(own: bool, answer: Any, target: Any) -> tuple[Any, Any]:
    """Answer and target at the supervised places alone; the answer at a place is for the token after it."""
    if (
        not isinstance(answer, list)
        or not isinstance(target, list)
        or any(isinstance(x, (list, float)) for x in answer)
    ):
        return answer, target
    ahead = 1 if own else 0
    places = [n for n in range(ahead, min(len(target), len(answer) + ahead)) if target[n] != IGNORE]
    return [answer[n - ahead] for n in places], [target[n] for n in places]


def summary(trial: Trial) -> None:
    """Everything that the comparison reads of this run, in one summary."""
    context, loop, answer = trial.context, trial.loop, trial.answer
    done = 0 if loop is None else loop.updates
    middle = {name: sorted(values)[len(values) // 2] for name, values in trial.seconds.items() if values}
    names = {"update": "update", "evaluate": "evaluate", "save": "save_first", "export": "export"}
    context.facts("sizes", {"seconds": {names[name]: value for name, value in middle.items()}})
    if answer is not None:
        counted = {"updates": done, "rows_per_update": trial.order.as_json()["rows"], "examples_seen": trial.examples}
        context.facts("batch", {"planned": answer.as_json(), "counted": counted})
    kept = context.run.predictions / PREDICTIONS
    context.facts(
        "trial",
        {
            "updates": done,
            "planned_updates": None if answer is None else answer.updates,
            "stop": None if trial.stop is None else trial.stop.as_json(),
            "order": trial.order.as_json(),
            "windows": trial.windows,
            "weights": trial_facts.digest(trial.weights),
            "rates": trial.rates,
            "examples_seen": trial.examples,
            "tokens_seen": trial.items,
            "seconds": {name: round(sum(values), 4) for name, values in trial.seconds.items()},
            "times": {name: len(values) for name, values in trial.seconds.items()},
            "predictions": str(kept.relative_to(context.run.path)) if kept.is_file() else None,
        },
    )
