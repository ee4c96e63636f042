"""The trial stage: one compared run, from its first update to its planned end or to a rule that stops it.

The same loop as the pilot's. Validation points, saves and stopping rules are those of the plan; nothing is decided on
the way. What the comparison holds equal is noted again as it really ran.
"""

from __future__ import annotations

import math
import time

from tui_pilot.events import schema
from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason, settle
from tui_pilot.observe.memory import reachable_bytes
from tui_pilot.observe.random_streams import streams_kept
from tui_pilot.pilot import checkpoint, evaluation, trial_facts
from tui_pilot.pilot.artifact import export
from tui_pilot.pilot.audit import split_of
from tui_pilot.pilot.context import Context, seed_everything
from tui_pilot.pilot.loop import Loop, build_loop, build_model, planned_updates
from tui_pilot.pilot.main import environment
from tui_pilot.pilot.phase import Phase, PhaseBroken, phase, skip
from tui_pilot.pilot.train_stage import disk_error, prune
from tui_pilot.pilot.trial_record import Trial, keep_predictions, summary
from tui_pilot.pilot.trial_rules import Stop, validation_at
from tui_pilot.pilot.twin import announce

PROGRESS_S = 1.0


def run(context: Context) -> None:
    """Load, all updates with their validations and saves, the last evaluation, the final save, the artifact."""
    context.cache["environment"] = environment(context)
    for name in schema.NOT_IN_TRIAL:
        skip(context, name, "skipped", Reason("skipped", "A trial leaves this to the pilot.", "note"))
    trial = Trial(context)
    bodies = {"load": load, "batch": train, "evaluate": evaluate, "checkpoint": save_last, "export": write_artifact}
    broken: str | None = None
    for name, body in bodies.items():
        if broken is not None:
            skip(context, name, "not_run", reason("needs_model", f"{broken} did not end, and {name} needs it."))
        elif trial.stop is not None and trial.stop.diverged and name != "evaluate":
            why = Reason("skipped", f"Nothing is kept of a run that diverged: {trial.stop.text}.", "note")
            skip(context, name, "skipped", why)
        elif name == "export" and not context.plan.keep.artifact:
            skip(context, name, "skipped", Reason("skipped", "keep.artifact is false.", "note"))
        else:
            try:
                with phase(context, name) as current:
                    if trial.loop is not None:
                        trial.loop.at.clear()
                        current.at = trial.loop.at
                    body(trial, current)
                    if current.verdict is None:
                        current.verdict = settle(())
            except PhaseBroken:
                if context.world > 1:
                    raise
                broken = name
    summary(trial)


def load(trial: Trial, current: Phase) -> None:
    """Model, optimizer, schedule, and the weights they begin with."""
    context = trial.context
    split = split_of(context, "train")
    trial.answer = planned_updates(context, len(split))
    with current.measure("model"):
        model = build_model(context)
    trial.weights = trial_facts.weights(model)
    with current.measure("optimizer"):
        trial.loop = build_loop(context, model, split)
    trial.order = trial_facts.Order(trial.answer.updates)
    current.reachable = reachable_bytes(trial.loop.raw, trial.loop.optimizer)
    current.inputs |= {"weights": trial_facts.digest(trial.weights), "planned_updates": trial.answer.updates}
    # Dropout and whatever else draws begin alike in every trial of this seed.
    seed_everything(context.plan.seed + context.rank)


def train(trial: Trial, current: Phase) -> None:
    """Every planned update in campaign order, validation and saves at their updates, until the end or a stop."""
    context, (loop, answer) = trial.context, trial.ready
    current.at = loop.at
    plan = context.plan
    validate = (
        set(validation_at(answer.updates, plan.evaluate.every)) if split_of(context, "validation").records else set()
    )
    save = set(range(plan.checkpoint.every, answer.updates, plan.checkpoint.every))
    wanted = frozenset(trial_facts.marks(answer.updates))
    edges = sorted({*validate, *save, answer.updates})
    current.inputs |= {
        "planned_updates": answer.updates,
        "effective_batch": answer.effective_batch,
        "validation_at": sorted(validate)[:20],
        "validation_every": plan.evaluate.every,
    }
    said = 0.0
    for edge in edges:
        with current.measure("updates"):
            while loop.updates < edge and trial.stop is None:
                trial.stop = _update(trial, loop, wanted)
                if time.monotonic() - said >= PROGRESS_S or loop.updates == answer.updates:
                    said = time.monotonic()
                    current.progress(loop.updates, answer.updates, "updates")
        if trial.stop is None and edge in validate:
            trial.stop = _validate(trial, loop)
        if trial.stop is not None:
            break
        if edge in save:
            _save(trial, loop, current)
    current.reachable = reachable_bytes(loop.raw, loop.optimizer)
    current.inputs |= {"updates": loop.updates, "rows_per_update": trial.order.as_json()["rows"]}
    if trial.stop is not None:
        context.facts("stop", trial.stop.as_json())
        where = {"update": trial.stop.update}
        text = f"Stopped by {trial.stop.code}, fixed before the start: {trial.stop.text}."
        found = reason("diverged", text, where) if trial.stop.diverged else reason("no_progress", text, where)
        current.verdict = settle([found])
        current.inputs["stopped"] = trial.stop.as_json()


def _update(trial: Trial, loop: Loop, wanted: frozenset[int]) -> Stop | None:
    context = trial.context
    started = time.monotonic()
    window = loop.feed.window()
    if window is None:
        raise ValueError(
            f"{len(loop.feed.split)} rows give no window of {context.plan.batch.accumulation} microbatches."
        )
    if len(trial.windows) < trial_facts.LOOKED_WINDOWS:
        every = context.gather(trial_facts.window_facts(window))
        trial.windows.append({key: sum(each[key] for each in every) for key in every[0]})
    result = loop.update(window)
    seconds = time.monotonic() - started
    trial.seconds["update"].append(seconds)
    ids = [row for each in context.gather(result.ids) for row in each]
    trial.order.add(ids)
    trial.examples += len(ids)
    trial.items += result.items
    if result.update in wanted:
        trial.rates[str(result.update)] = result.lr
    announce(loop, "batch", result, seconds)
    return trial.rules.loss(result.update, result.loss)


def _validate(trial: Trial, loop: Loop) -> Stop | None:
    """One validation point; what it draws at random does not move the training."""
    context = trial.context
    started = time.monotonic()
    with streams_kept(context.device):
        metrics = evaluation.evaluate(loop, context.plan.evaluate.rows)
        if context.main:
            keep_predictions(trial, loop)
    trial.seconds["evaluate"].append(time.monotonic() - started)
    trial.points.append((loop.updates, metrics))
    if context.main:
        context.emit(schema.VALIDATION, update=loop.updates, metrics=metrics)
    value = metrics.get(context.plan.evaluate.metric)
    if value is None:
        text = f"evaluate.metric is {context.plan.evaluate.metric}; the evaluation gives {', '.join(sorted(metrics))}."
        raise ValueError(text)
    return trial.rules.validation(loop.updates, float(value))


def _save(trial: Trial, loop: Loop, current: Phase) -> None:
    """A checkpoint; where it cannot be written the run goes on and the row says so."""
    context = trial.context
    started = time.monotonic()
    try:
        saved = checkpoint.save(loop, context.run.checkpoints, f"step-{loop.updates:06d}")
    except checkpoint.UnsafeState as error:
        current.verdict = settle([reason("unsafe_state", str(error))]) if current.name == "checkpoint" else None
        context.notice("warn", f"No checkpoint at update {loop.updates}: {error}")
        return
    except OSError as error:
        said = disk_error(error, context.run.checkpoints, "checkpoint")
        if current.name == "checkpoint":
            current.verdict = settle([reason("disk_too_small", said["text"])])
        context.notice("warn", said["text"])
        return
    trial.seconds["save"].append(time.monotonic() - started)
    trial.saved_at = loop.updates
    prune(context, context.run.checkpoints)
    current.inputs |= {"bytes": sum(each["bytes"] for each in saved.manifest["files"].values()), "step": saved.step}


def evaluate(trial: Trial, current: Phase) -> None:
    """The last validation point again, as the row that other documents read; after a divergence, what is left."""
    loop, _ = trial.ready
    plan = trial.context.plan
    if not split_of(trial.context, "validation").records:
        current.verdict = settle(
            [reason("not_observed", "There is no validation split: nothing can be compared on it.")]
        )
        return
    if trial.stop is not None and trial.stop.diverged:
        at = trial.points[-1][0] if trial.points else None
        current.inputs |= {"diverged_at": trial.stop.update, "last_validation_at": at}
        last = "nothing was evaluated before it" if at is None else f"the last validation is that of update {at}"
        text = f"It diverged at update {trial.stop.update}: nothing is evaluated after that; {last}."
        current.verdict = settle([reason("not_observed", text, {"update": trial.stop.update})])
        return
    at, metrics = trial.points[-1]
    current.inputs |= {"metrics": metrics, "update": at, "rows": plan.evaluate.rows, "metric": plan.evaluate.metric}
    value = float(metrics[plan.evaluate.metric])
    if not math.isfinite(value):
        text = f"{plan.evaluate.metric} is {value} at update {loop.updates}."
        current.verdict = settle([reason("not_observed", text, {"update": loop.updates})])


def save_last(trial: Trial, current: Phase) -> None:
    """The full state at the end."""
    loop, _ = trial.ready
    with current.measure("save"):
        _save(trial, loop, current)


def write_artifact(trial: Trial, current: Phase) -> None:
    """What evaluation would load of this trial."""
    loop, _ = trial.ready
    started = time.monotonic()
    try:
        export(loop, current)
    except OSError as error:
        said = disk_error(error, trial.context.run.artifact, "artifact")
        current.verdict = settle([reason("disk_too_small", said["text"])])
        return
    trial.seconds["export"] = [time.monotonic() - started]
    current.verdict = settle(())
