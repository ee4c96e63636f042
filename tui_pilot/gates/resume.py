"""The ``resume`` gate: every state named apart, against an uninterrupted twin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import loss, plural, rate, size

Seen = Mapping[str, Any]
ROWS = ("rows_repeated", "rows_skipped", "order_differs")
FEWEST_IN_ORDER = 4


def judge(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: the checkpoint used, ``states`` equal or not, the twin's trace beside this process's trace."""
    reasons: list[Reason] = []
    for problem in seen.get("problems") or ():
        reasons.append(reason(problem["code"], problem["text"], problem.get("where")))
    for broken in seen.get("incomplete") or ():
        text = f"{broken['name']} is not whole ({broken['why']}); resumed from {seen.get('checkpoint')}."
        reasons.append(reason("newest_incomplete", text, {"file": broken["name"]}))
    reasons += _left(seen)
    reasons += _trainable(seen)
    states = _states(seen.get("states") or {}, seen)
    reasons += states + _schedule(seen.get("schedule"), states)
    reasons += _epochs(seen)
    known = {each.code for each in reasons}
    for found in _trace(seen, plan):
        # What follows from a cause that is named already is not another fault.
        echo = found.code == "loss_diverges" and (states or known.intersection(ROWS))
        if found.code not in known and not echo and not (found.code in ROWS and known.intersection(ROWS)):
            reasons.append(found)
    for key, pair in (seen.get("environment") or {}).items():
        text = f"{key} was {pair[0]} in the twin and is {pair[1]} here: compared within {seen.get('tolerance', 0):.0e}."
        reasons.append(reason("environment_differs", text, {"key": key}))
    peak, trained = seen.get("peak"), seen.get("train_peak")
    if peak and trained and peak > trained * 1.02 + (1 << 20):
        text = f"Resuming peaks at {size(peak)}, training at {size(trained)}."
        reasons.append(reason("resume_peak_higher", text))
    elif "peak" in seen and not (peak and trained):
        text = "The memory of the first resumed forward was not measured: a campaign may fit fresh and not resumed."
        reasons.append(reason("not_observed", text, advice="Let pilot.reference be 1 or more; see the memory counter."))
    seek, limit = seen.get("seek_estimate_s"), plan.gates.resume.max_seek_seconds
    if seek is not None and seek > limit:
        text = f"Reaching the last update's rows would take about {_seconds(seek)}, allowed {_seconds(limit)}."
        probe = seen.get("seek") or {}
        if probe.get("per_row_s"):
            text += (
                f" Every row before them is read again, {probe['per_row_s'] * 1e3:.2g} ms each: {probe['now_s']:.2g} s "
                f"to where this checkpoint stands."
            )
        reasons.append(reason("seek_too_slow", text))
    return reasons


def _left(seen: Seen) -> list[Reason]:
    """Updates that are left, and those a resumed run really did where it ran to its end (``updates_after``)."""
    left, done = seen.get("left"), seen.get("updates_after")
    where = {"update": seen.get("step")}
    if left is not None and left <= 0:
        text = f"The checkpoint stands at update {seen.get('step')} of {seen.get('total')}: nothing is left to do."
        return [reason("nothing_left", text, where)]
    if left is None or done is None or done == left:
        return []
    text = f"The resumed run made {plural(done, 'update')} from update {seen.get('step')} of {seen.get('total')}"
    text += f"; expected {left}."
    return [reason("updates_left_differ" if done else "nothing_left", text, where)]


def _trainable(seen: Seen) -> list[Reason]:
    before, after = seen.get("trainable_before"), seen.get("trainable_after")
    if before is None or after is None or before == after:
        return []
    names = list(seen.get("trainable_names") or ())
    text = f"Trainable parameters {before:,} -> {after:,} after the resume" + (f": {names[0]}." if names else ".")
    where = {"tensors": names, "tensor": names[0]} if names else {}
    return [reason("trainable_lost" if after < before else "trainable_set_differs", text, where)]


_STATE_CODES = {
    "weights": "weights_not_restored",
    "optimizer": "optimizer_not_restored",
    "scheduler": "scheduler_restarted",
    "scaler": "scaler_not_restored",
    "torch_rng": "rng_not_restored",
    "python_rng": "rng_not_restored",
    "numpy_rng": "rng_not_restored",
    "device_rng": "rng_not_restored",
}
STREAMS = {"torch": "torch", "python": "Python", "numpy": "numpy", "device": "device"}


def _states(states: Mapping[str, Mapping[str, Any]], seen: Seen) -> list[Reason]:
    reasons: list[Reason] = []
    for name, found in states.items():
        if found.get("equal", True):
            continue
        word = name.replace("_rng", " random state")
        detail = f": {found['detail']}" if found.get("detail") else ""
        if name == "scheduler" and seen.get("twin") and seen.get("here"):
            now, then = seen["here"][0]["lr"], seen["twin"][0]["lr"]
            if now != then:
                detail += f"; the learning rate is {rate(now)}, the twin's was {rate(then)}"
        where = {"tensors": found["tensors"], "tensor": found["tensors"][0]} if found.get("tensors") else {"key": name}
        reasons.append(
            reason(_STATE_CODES[name], f"The {word} right after the load differs from the twin's{detail}.", where)
        )
    return reasons


def _schedule(found: Seen | None, states: Sequence[Reason]) -> list[Reason]:
    """Where the schedule stands against the updates done: an epoch's number in its place is a restart."""
    if not found or any(each.code == "scheduler_restarted" for each in states):
        return []
    stands, done = found["stands"], found["updates"] - found.get("skipped", 0)
    if stands == done:
        return []
    epoch = " (the epoch's number)" if found.get("epoch") == stands else ""
    text = f"The schedule stands at {stands}{epoch} and {plural(done, 'update')} are done"
    if found.get("lr") is not None and found.get("lr_expected") is not None:
        text += f": learning rate {rate(found['lr'])}, expected {rate(found['lr_expected'])}"
    return [reason("scheduler_restarted", text + ".", {"update": found["updates"]})]


def _epochs(seen: Seen) -> list[Reason]:
    """The rows that are still to come: of this epoch by id, of it and the next by count."""
    twin, here = seen.get("epoch_twin"), seen.get("epoch_here")
    if not twin or not here:
        return []
    want, have = list(twin.get("rest") or ()), list(here.get("rest") or ())
    if twin.get("hash", want) != here.get("hash", have):
        return [_order(want, have, seen, twin, here)]
    for number, (planned, counted) in enumerate(
        zip(twin.get("batches") or (), here.get("batches") or (), strict=False)
    ):
        if planned == counted:
            continue
        epoch = twin.get("epoch", 0) + number
        what = "still to come" if number == 0 else "in it"
        text = f"Epoch {epoch} has {plural(counted, 'microbatch', 'microbatches')} {what} after the resume"
        text += f"; expected {planned}."
        return [reason("rows_skipped" if counted < planned else "rows_repeated", text, {"epoch": epoch})]
    return []


def _order(want: Sequence[Any], have: Sequence[Any], seen: Seen, twin: Seen, here: Seen) -> Reason:
    before, due, coming = set(seen.get("rows_before") or ()), set(want), set(have)
    twice = [row for row in have if row in before and row not in due]
    never = [row for row in want if row not in coming]
    epoch = twin.get("epoch", 0)
    shown = f"next rows are {_some(have)}, the twin's were {_some(want)}"
    parts = [f"rows {_some(twice)} come twice"] if twice else []
    parts += [f"rows {_some(never)} never"] if never else []
    told = f"in epoch {epoch} {' and '.join(parts)}" if parts else f"of epoch {epoch} come in another order"
    where = {"rows": twice or never or list(have)[:100], "epoch": epoch}
    if _in_order(here.get("places")) and not _in_order(twin.get("places")):
        return reason("order_differs", f"The resumed order is file order: {told}; {shown}.", where)
    if not parts:
        return reason("order_differs", f"The rows still to come {told}: {shown}.", where)
    return reason("rows_repeated" if twice else "rows_skipped", f"{told[0].upper()}{told[1:]}: {shown}.", where)


def _in_order(places: Sequence[int] | None) -> bool:
    """Whether rows stand one after the other as in the file."""
    return bool(places) and len(places or ()) >= FEWEST_IN_ORDER and all(b == a + 1 for a, b in pairwise(places or ()))


def _some(rows: Sequence[Any]) -> str:
    return ", ".join(map(str, rows[:6])) + (f" and {len(rows) - 6} more" if len(rows) > 6 else "") or "none"


def _trace(seen: Seen, plan: Plan) -> list[Reason]:
    twin: Sequence[Seen] = seen.get("twin") or ()
    here: Sequence[Seen] = seen.get("here") or ()
    for number, (left, right) in enumerate(zip(twin, here, strict=False)):
        update = left.get("update", number + 1)
        where = {"update": update}
        if left["rows"] != right["rows"]:
            return [_rows(left["rows"], right["rows"], where, seen)]
        if abs(left["lr"] - right["lr"]) > 1e-12 + 1e-9 * abs(left["lr"]):
            text = f"The learning rate of update {update} is {rate(right['lr'])}, the twin's was {rate(left['lr'])}."
            return [reason("scheduler_restarted", text, where)]
        if left.get("data") != right.get("data"):
            return [_other_tensors(right, update, *_stream(twin, here, number))]
        if not _close(left["loss"], right["loss"], seen.get("tolerance", 0.0)):
            text = (
                f"The loss of update {update} is {_full(right['loss'])}, the twin's was {_full(left['loss'])} "
                f"(same rows, same rate)"
            )
            stream, when = _stream(twin, here, number)
            if stream:
                text += f": the {STREAMS[stream]} random state {when} it is another one."
                return [reason("rng_not_restored", text, {**where, "key": f"{stream}_rng"})]
            return [reason("loss_diverges", text + ".", where)]
        if left.get("weights") != right.get("weights") and not seen.get("tolerance"):
            text = f"The weights after update {update} differ from the twin's although the losses are equal."
            return [reason("loss_diverges", text, where)]
    if twin and len(here) < len(twin):
        text = f"{plural(len(here), 'update')} repeated, the twin has {len(twin)}."
        return [reason("updates_left_differ", text)]
    return []


def _other_tensors(here: Seen, update: int, stream: str | None, when: str) -> Reason:
    """Same rows, other numbers in them: what is drawn while rows are encoded was not restored."""
    which = f"the {STREAMS[stream]} random state" if stream else "a random stream of the task's own"
    text = f"The rows of update {update} are the twin's and their tensors are not: {which} differs {when} it."
    where = {"update": update, "rows": list(here["rows"]), "key": f"{stream}_rng" if stream else "data"}
    return reason("rng_not_restored", text, where)


def _stream(twin: Sequence[Seen], here: Sequence[Seen], number: int) -> tuple[str | None, str]:
    """The first random stream that differs before an update, or after it: seeded again, or drawn from more often."""
    for place, when in ((number, "before"), (number + 1, "after")):
        if place < min(len(twin), len(here)):
            then, now = twin[place].get("streams") or {}, here[place].get("streams") or {}
            for name in STREAMS:
                if name in then and name in now and then[name] != now[name]:
                    return name, when
    return None, "before"


def _rows(want: Sequence[Any], have: Sequence[Any], where: dict[str, Any], seen: Seen) -> Reason:
    before = set(seen.get("rows_before") or ())
    shown = f"{_some(have)}, the twin's were {_some(want)}"
    place = {**where, "rows": list(have)}
    again = [row for row in have if row in before]
    if again:
        text = f"Rows {_some(again)} come again after the resume: next rows are {shown}."
        return reason("rows_repeated", text, place)
    if sorted(map(str, have)) == sorted(map(str, want)):
        return reason("order_differs", f"The next rows come in another order: {shown}.", place)
    return reason("rows_skipped", f"The next rows are {shown}.", place)


def _close(left: Any, right: Any, tolerance: float) -> bool:
    if isinstance(left, str) or isinstance(right, str):
        return bool(left == right)
    if not tolerance:
        return bool(left == right)
    return bool(abs(left - right) <= tolerance * max(1.0, abs(left), abs(right)))


def _full(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.9g} ({loss(value)})"


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 10 else f"{value:.2g} s"
