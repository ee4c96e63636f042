"""The selection sheet as one document: what was piloted, what may be retained and what stays open.

Every other form of the sheet (markdown, JSON, the screen's preview) is made from this document and adds nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.campaign import schedule
from tui_pilot.campaign.variant_runs import others_of, plan_of
from tui_pilot.errors import RunFolderError
from tui_pilot.plan.model import Plan
from tui_pilot.predict.residuals import Residuals
from tui_pilot.run_folder import RunFolder, short_id
from tui_pilot.sheet import curves, gpus, measured, residuals, variants
from tui_pilot.sheet.judged import codes, judge, sentence, word
from tui_pilot.store.earlier import prediction_of
from tui_pilot.store.view import snapshot
from tui_pilot.version import VERSION

Json = Mapping[str, Any]

__all__ = ["configuration", "document", "from_shown", "plan_of", "settings", "software"]

SCHEMA = 1
SETTINGS = (
    "task", "micro", "accumulation", "replicas", "effective_batch", "precision", "adapter", "optimizer", "sharding",
    "tensor_parallel", "max_length", "activation_checkpointing", "attention", "budget", "seed",
)  # fmt: skip


def document(folders: Sequence[RunFolder]) -> dict[str, Any]:
    """The sheet over some runs, in the order given; their parents are named among what was seen and kept."""
    shown = [snapshot(folder) for folder in folders]
    predictions = {folder.id: _prediction(folder) for folder in folders}
    planned = [(show, plan) for show in shown if (plan := plan_of(show)) is not None]
    known = residuals.of_runs(folders) if any(predictions.values()) else {}
    found = from_shown(shown, _parents(folders, shown), predictions, known, others_of(folders, planned))
    for folder, show, item in zip(folders, shown, found["configurations"], strict=True):
        item["variants"] = variants.beside(folder, show, plan_of(show))
    return found


def from_shown(
    shown: Sequence[Json],
    parents: Sequence[Json] = (),
    predictions: Mapping[str, Json | None] | None = None,
    known: Mapping[str, Residuals] | None = None,
    others: Sequence[tuple[Json, Plan]] = (),
) -> dict[str, Any]:
    """The sheet from ``show --json`` documents, for runs that are not on this disk.

    ``predictions`` by run, ``known`` residuals by GPU; ``others`` are runs that measured variants or trials of these.
    """
    configurations = [configuration(show, (predictions or {}).get(str(show.get("run"))), known) for show in shown]
    several = len(configurations) > 1
    names = list(dict.fromkeys(str(item["name"]) for item in configurations))
    planned = [(show, plan) for show in shown if (plan := plan_of(show)) is not None]
    return {
        "schema": SCHEMA,
        "tool": VERSION,
        "title": ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else ""),
        "configurations": configurations,
        "retained": sum(item["retained"] for item in configurations),
        "packages": schedule.packages(planned, others),
        "seen_and_kept": [line for show in (*shown, *parents) for line in _kept(show)],
        "open": [
            f"{item['short']}: {question}" if several else question
            for item in configurations
            for question in item["open"]
        ],
    }


def _prediction(folder: RunFolder) -> Json | None:
    """The run's own prediction; one that cannot be read says as much as none."""
    with contextlib.suppress(RunFolderError):
        return prediction_of(folder)
    return None


def configuration(
    show: Json, prediction: Json | None = None, known: Mapping[str, Residuals] | None = None
) -> dict[str, Any]:
    """One run's part of the sheet, from its ``show --json`` document."""
    facts = show.get("facts") or {}
    plan = plan_of(show)
    memory = measured.memory(show)
    need = measured.need(memory)
    measured_on_gpu = any(measured.on_gpu(entry) for entry in memory)
    judged = judge(show, plan, need["margin"] if need else None)
    fits, fits_note = gpus.fits(show, plan, need, prediction, known or {})
    run = str(show.get("run") or "")
    return {
        "run": run,
        "short": short_id(run),
        "name": plan.name if plan else short_id(run),
        "kind": show.get("kind"),
        "demo": bool(show.get("demo")),
        "state": show.get("state"),
        "started": show.get("started"),
        "ended": show.get("ended"),
        "parent": show.get("parent"),
        "changed": dict(show.get("changed") or {}),
        "retained": judged.retained,
        "why_not": list(judged.why_not),
        "verdict": show.get("verdict"),
        "mark": judged.mark,
        "decision": show.get("decision"),
        "overrides": list(judged.overrides),
        "phases": [_phase(row) for row in show.get("phases") or ()],
        **settings(plan),
        "dimensions": measured.dimensions(show, facts),
        "binding_phase": show.get("binding_phase"),
        "memory": memory,
        "memory_measured_on": "gpu" if measured_on_gpu else "cpu" if memory else None,
        "memory_need": need,
        "memory_margin_asked": plan.rental.memory_margin if plan else None,
        "seconds": measured.seconds(show, facts),
        "sizes": measured.sizes(facts, plan),
        "resume": {**_proof(show, "resume"), **_exactness(facts)},
        "reload": _proof(show, "reload"),
        "control_outputs": _controls(show),
        "software": software(show, facts),
        "software_checked": {"value": judged.software_checked, "on": _checked_on(show, facts)},
        "revisions": dict(show.get("revisions") or {}),
        "expected_result": plan.expected if plan else None,
        "fits": fits,
        "fits_note": fits_note,
        "variants": variants.planned(plan),
        "curve": curves.of(show),
        "notes": list(show.get("notes") or ()),
        "open": [*judged.open, fits_note],
    }


def settings(plan: Plan | None) -> dict[str, Any]:
    """What the configuration is, in the plan's words; every key is there, null where there is no plan."""
    if plan is None:
        return dict.fromkeys(SETTINGS)
    adapter = plan.model.adapter
    optimizer = plan.optimizer
    held, amount = plan.budget.held
    return {
        "task": plan.task,
        "micro": plan.batch.micro,
        "accumulation": plan.batch.accumulation,
        "replicas": plan.replicas,
        "effective_batch": plan.effective_batch,
        "precision": plan.precision,
        "adapter": None
        if adapter is None
        else {"kind": adapter.kind, "r": adapter.r, "alpha": adapter.alpha, "targets": list(adapter.targets)},
        "optimizer": {
            key: getattr(optimizer, key)
            for key in ("name", "implementation", "lr", "weight_decay", "clip", "schedule", "warmup")
        },
        "sharding": plan.launch.strategy,
        "tensor_parallel": plan.launch.tensor_parallel,
        "max_length": plan.data.max_length,
        "activation_checkpointing": plan.memory.activation_checkpointing,
        "attention": plan.model.attention,
        "budget": {held: amount},
        "seed": plan.seed,
    }


def software(show: Json, facts: Json) -> dict[str, Any]:
    """Versions as the stack phase read them."""
    found = facts.get("software")
    if not isinstance(found, Mapping):
        inputs = measured.row_of(show, "stack").get("inputs") or {}
        found = inputs.get("software") or inputs.get("versions") or {}
    return dict(found) if isinstance(found, Mapping) else {}


def _checked_on(show: Json, facts: Json) -> dict[str, Any]:
    versions = software(show, facts)
    stack = facts.get("stack") if isinstance(facts.get("stack"), Mapping) else {}
    inputs = measured.row_of(show, "stack").get("inputs") or {}

    def first(*keys: str) -> Any:
        places = (stack or {}, inputs, versions)
        return next((place[key] for key in keys for place in places if place.get(key)), None)

    return {"gpu": first("gpu", "gpus"), "driver": first("driver"), "torch": first("torch")}


def where_checked(item: Json, host: Any) -> dict[str, Any]:
    """Whether a configuration's stack was checked, and the machine it was checked on: no other GPU."""
    checked = item["software_checked"]
    return {"value": checked["value"], "on": {"host": host, **checked["on"]}, "elsewhere": False}


def _phase(row: Json) -> dict[str, Any]:
    return {
        "phase": row.get("phase"),
        "verdict": row.get("verdict"),
        "mark": row.get("mark"),
        "note": row.get("note"),
        "codes": codes(row),
        "text": sentence(row),
        "duration_s": row.get("duration_s"),
        "attempt": row.get("attempt"),
    }


def _proof(show: Json, phase: str) -> dict[str, Any]:
    row = measured.row_of(show, phase)
    return {"verdict": row.get("verdict"), "text": sentence(row), "attempt": row.get("attempt")}


def _exactness(facts: Json) -> dict[str, Any]:
    """Whether the resumed losses were equal to the bit, or within which tolerance; null where no test ended."""
    found = facts.get("resume")
    found = found if isinstance(found, Mapping) else {}
    return {"bit_equal": found.get("bit_equal"), "tolerance": found.get("tolerance")}


def _controls(show: Json) -> list[str]:
    """What the reloaded artifact answered to the control inputs, as far as the task can decode it."""
    found = (measured.row_of(show, "reload").get("inputs") or {}).get("control_answers")
    return [str(each) for each in found] if isinstance(found, list) else []


def _parents(folders: Sequence[RunFolder], shown: Sequence[Json]) -> list[Json]:
    """The runs that the given ones came from: a failure is never replaced by its rerun."""
    seen = {str(show.get("run")) for show in shown}
    found: list[Json] = []
    for folder, show in zip(folders, shown, strict=True):
        parent = show.get("parent")
        while parent and str(parent) not in seen:
            seen.add(str(parent))
            place = RunFolder(folder.path.parent / str(parent))
            if place.path.parent != folder.path.parent or not place.run_file.is_file():
                break
            found.append(snapshot(place))
            parent = found[-1].get("parent")
    return found


def _kept(show: Json) -> list[dict[str, Any]]:
    """What must not be forgotten of a run: how it ended, if not well, and attempts that a newer one stands before."""
    run = str(show.get("run") or "")
    lines: list[str] = []
    state = str(show.get("state") or "new")
    rows = show.get("phases") or ()
    failed = [row for row in rows if row.get("verdict") == "fail"]
    said = "; ".join(f"{row.get('phase')}: {sentence(row) or 'FAIL'}" for row in failed)
    if state != "finished" or failed:
        why = str(show.get("text") or "").strip()
        lines.append(", ".join(part for part in (state, why, said) if part))
    for row in rows:
        for attempt in row.get("attempts") or ():
            if attempt.get("verdict") not in ("pass", None):
                told = sentence(attempt)
                lines.append(
                    f"{row.get('phase')}, attempt {attempt.get('attempt')}: {word(attempt.get('verdict'))}"
                    + (f", {told}" if told else "")
                )
    return [{"run": run, "short": short_id(run), "text": line} for line in lines]
