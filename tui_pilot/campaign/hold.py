"""Whether trials hold equal what the comparison says, judged by what each would really do. Pure.

``probes`` are what the training side reported of each trial (``pilot/trial_probe.py``). Every trial is held against the
first of its seed. A difference that the trial's own ``set`` causes is kept and labelled; any other is refused: the
comparison would be of two things at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tui_pilot.errors import PlanError
from tui_pilot.plan import variants
from tui_pilot.plan.model import Plan

#: What is looked at whatever ``compare.hold`` lists, and the plan's keys by which a trial may change it openly.
ASPECTS: dict[str, tuple[str, ...]] = {
    "architecture": ("task", "model", "precision", "options", "data.max_length", "data.classes"),
    "initial weights": ("task", "model", "precision", "options", "data.max_length", "data.classes"),
    "data": ("task", "data", "options", "model.path"),
    "data order": ("task", "data", "batch", "options", "launch", "budget"),
    "effective batch": ("batch", "launch", "data", "budget", "options"),
    "updates": ("budget", "batch", "launch", "data"),
    "warm-up share": ("optimizer.warmup", "optimizer.schedule", "budget", "batch", "launch", "data"),
}
#: By which key of ``compare.hold`` an aspect is asked for. What is not asked for is still reported.
ASKED = {
    "architecture": "architecture", "initial weights": "architecture", "data": "data", "data order": "data",
    "effective batch": "effective_batch", "updates": "updates", "warm-up share": "updates",
}  # fmt: skip
SHARE = 1e-3
"""A warm-up share may differ by this: rounding to whole updates."""


@dataclass(frozen=True)
class Difference:
    """One aspect in which a trial differs from the first of its seed."""

    trial: str
    seed: int
    aspect: str
    text: str
    declared: tuple[str, ...]

    def sentence(self) -> str:
        return f"{self.trial}, seed {self.seed}: {self.aspect}: {self.text}"


@dataclass
class Held:
    """What was verified: a sentence per aspect, and the differences that were declared."""

    held: dict[str, str] = field(default_factory=dict)
    not_matched: list[Difference] = field(default_factory=list)
    refused: list[Difference] = field(default_factory=list)


def verify(
    base: Plan, trials: Sequence[tuple[str, int, Plan]], probes: Mapping[tuple[str, int], Mapping[str, Any]]
) -> Held:
    """Hold every trial against the first trial of its seed; ``base`` is the plan without any trial's changes."""
    found = Held()
    first: dict[int, str] = {}
    plans = {(id, seed): plan for id, seed, plan in trials}
    for id, seed, _ in trials:
        first.setdefault(seed, id)
    for id, seed, plan in trials:
        if id == first[seed]:
            continue
        reference = (first[seed], seed)
        changed = [key for key in variants.differences(plans[reference], plan) if key != "seed"]
        for aspect, text in differing(probes[reference], probes[(id, seed)]).items():
            causes = tuple(key for key in changed if variants.under(key, ASPECTS[aspect]))
            one = Difference(id, seed, aspect, text, causes)
            (found.not_matched if causes else found.refused).append(one)
        for name, pairs in variants.not_held(plans[reference], plan, base.compare.hold).items():
            aspects = [aspect for aspect, key in ASKED.items() if key == name]
            seen = [each for each in found.not_matched if each.trial == id and each.aspect in aspects]
            if not seen:  # said in the plan, though nothing of it shows in what would run
                text = "; ".join(f"{key} {pair[0]} -> {pair[1]}" for key, pair in pairs.items())
                found.not_matched.append(Difference(id, seed, name, text, tuple(pairs)))
    broken = {each.aspect for each in found.not_matched}
    broken |= {"initial weights"} if "architecture" in broken else set()
    for aspect, text in described(probes, first).items():
        if aspect not in broken:
            found.held[aspect] = text
    for name in base.compare.hold:
        if name not in ASKED.values() and name not in broken:
            found.held[name] = "equal in the plan"
    return found


def refuse(found: Held, file: str | None) -> None:
    """Raise where a trial changes something beyond its own ``set``."""
    if found.refused:
        said = "; ".join(each.sentence() for each in found.refused[:6])
        more = f"; and {len(found.refused) - 6} more" if len(found.refused) > 6 else ""
        raise PlanError(
            f"not held: {said}{more}.",
            "The trial's set does not name this: look in the task for what depends on a setting. Nothing was run.",
            code="not_held",
            title="The trials do not hold equal what they must",
            file=file,
            key="compare.hold",
        )


def labels(found: Held) -> list[str]:
    """``not matched: ...`` for every declared difference, each trial and aspect once."""
    texts: dict[tuple[str, str], str] = {}
    for each in found.not_matched:
        texts.setdefault((each.trial, each.aspect), f"{each.trial}: {each.aspect}: {each.text}")
    return list(texts.values())


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, str]:
    """Aspects in which two probes differ, each with the first difference in words."""
    found: dict[str, str] = {}
    if one["architecture"]["digest"] != other["architecture"]["digest"]:
        found["architecture"] = _tensors(one["architecture"]["tensors"], other["architecture"]["tensors"])
    elif one["weights"] != other["weights"]:
        names = [name for name, value in one["weights"].items() if other["weights"].get(name) != value]
        found["initial weights"] = f"{len(names)} tensors begin with other values, first {names[0]}"
    for split in ("train", "validation"):
        text = _rows(split, one[split], other[split])
        if text:
            found["data"] = text
            break
    if one["order"]["at"] != other["order"]["at"]:
        text = _order(one["order"], other["order"])
        same_rows = one["order"]["rows"] == other["order"]["rows"]
        first, second = one["order"]["first"], other["order"]["first"]
        shorter = min(len(first), len(second))
        # Updates of another size hold other rows each, in the same order: that is the effective batch, said below.
        if text and (same_rows or first[:shorter] != second[:shorter]):
            found["data order"] = text
    batch = _batch(one, other)
    if batch:
        found["effective batch"] = batch
    if one["updates"]["planned"] != other["updates"]["planned"]:
        found["updates"] = f"{one['updates']['planned']:,} -> {other['updates']['planned']:,} updates"
    before, after = (each["schedule"].get("warmup_share") for each in (one, other))
    if before is not None and after is not None and abs(before - after) > SHARE:
        counts = [f"{each['schedule']['warmup_updates']} of {each['updates']['planned']}" for each in (one, other)]
        found["warm-up share"] = f"{before:.2%} ({counts[0]}) -> {after:.2%} ({counts[1]})"
    return found


def _tensors(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    for name, value in one.items():
        if other.get(name) != value:
            return f"{name} is {value} -> {other.get(name, 'not there')}"
    extra = next((name for name in other if name not in one), None)
    return f"{extra} is new" if extra is not None else "the same tensors in another order"


def _rows(split: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if one["rows"] != other["rows"]:
        return f"{split} has {one['rows']:,} -> {other['rows']:,} rows"
    if one["ids"] != other["ids"]:
        return f"{split} has other row ids"
    return f"{split} rows are encoded otherwise: ids, labels or length" if one["encoded"] != other["encoded"] else ""


def _order(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    for update, value in one["at"].items():
        if update in other["at"] and other["at"][update] != value:
            head = [str(row) for row in one["first"][:4]], [str(row) for row in other["first"][:4]]
            first = (
                f"; the first update takes {', '.join(head[0])} -> {', '.join(head[1])}" if head[0] != head[1] else ""
            )
            return f"other rows at or before update {update}{first}"
    return ""


def _batch(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if one["effective_batch"] != other["effective_batch"]:
        return f"{one['effective_batch']} -> {other['effective_batch']} rows by the plan's arithmetic"
    if one["updates"]["planned"] == other["updates"]["planned"] and one["order"]["rows"] != other["order"]["rows"]:
        return f"rows an update {_counts(one['order']['rows'])} -> {_counts(other['order']['rows'])}"
    for number, (a, b) in enumerate(zip(one["windows"], other["windows"], strict=False), start=1):
        if a["rows"] != b["rows"]:
            return f"update {number} averages {a['rows']} -> {b['rows']} rows in the tensors the loss gets"
        if (
            a["items"] != b["items"]
            and one["train"] == other["train"]
            and one["order"]["first"] == other["order"]["first"]
        ):
            return f"update {number} averages {a['items']} -> {b['items']} supervised items over the same rows"
    return ""


def _counts(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{size} x {times}" for size, times in rows.items())


def described(probes: Mapping[tuple[str, int], Mapping[str, Any]], first: Mapping[int, str]) -> dict[str, str]:
    """What is held, in words, from the first trial's probe."""
    seed = next(iter(first))
    one = probes[(first[seed], seed)]
    shape, updates = one["architecture"], one["updates"]
    train, validation, when = one["train"], one["validation"], one["schedule"]
    looked = train["looked_at"] + validation["looked_at"]
    return {
        "architecture": f"{len(shape['tensors'])} tensors, {shape['elements']:,} elements, {shape['trained']:,} train",
        "initial weights": f"equal in all settings, seed by seed, {len(one['weights'])} tensors compared",
        "data": f"{train['rows']:,} train and {validation['rows']:,} validation rows, {looked:,} compared as encoded",
        "data order": f"row ids of all {updates['planned']:,} updates",
        "effective batch": f"{one['effective_batch']} rows an update",
        "updates": f"{updates['planned']:,} updates, {updates['examples']:,} rows, by budget.{updates['held'][0]}",
        "warm-up share": f"{when.get('warmup_share', 0):.1%}, {when.get('warmup_updates', 0)} updates",
    }


def afterwards(probe: Mapping[str, Any], ran: Mapping[str, Any]) -> list[str]:
    """What a trial did otherwise than its probe said it would: from the trial's own events."""
    found = []
    order = ran.get("order") or {}
    wrong = next((at for at, value in (order.get("at") or {}).items() if probe["order"]["at"].get(at) != value), None)
    if wrong is not None:
        found.append(f"data order: other rows at or before update {wrong} than were verified")
    for number, (a, b) in enumerate(zip(probe["windows"], ran.get("windows") or (), strict=False), start=1):
        if a["rows"] != b["rows"]:
            found.append(f"effective batch: update {number} averaged {b['rows']} rows, {a['rows']} were verified")
            break
    if ran.get("weights") not in (None, probe.get("weights_digest")):
        found.append("initial weights: it began with other values than were verified")
    for at, rate in (ran.get("rates") or {}).items():
        planned = (probe["schedule"].get("at") or {}).get(at)
        if planned is not None and abs(planned - rate) > 1e-6 * max(abs(planned), abs(rate)):
            found.append(f"learning rate: {rate:g} at update {at}, {planned:g} was verified")
            break
    return found
