"""What several processes must agree on: rows apart, weights alike, one gradient norm. Pure."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import plural

Seen = Mapping[str, Any]
NORM_TOLERANCE = 1e-4
LIST_LIMIT = 100


def overlap(ids: Sequence[Sequence[Hashable]], everything: Iterable[Hashable] = ()) -> dict[str, Any]:
    """Rows by the ranks (or loader workers) that had them: on more than one, and, of ``everything``, on none."""
    holders: dict[Hashable, list[int]] = {}
    for rank, own in enumerate(ids):
        for row in dict.fromkeys(own):
            holders.setdefault(row, []).append(rank)
    shared = [row for row, ranks in holders.items() if len(ranks) > 1]
    missing = [row for row in dict.fromkeys(everything) if row not in holders]
    return {
        "shared": shared[:LIST_LIMIT],
        "shared_count": len(shared),
        "ranks": holders[shared[0]] if shared else [],
        "missing": missing[:LIST_LIMIT],
        "missing_count": len(missing),
        "distinct": len(holders),
        "seen": sum(len(own) for own in ids),
    }


def full_norm(sharded: Sequence[float], replicated: float = 0.0) -> float:
    """The norm over all ranks from each rank's norm of its shard and of what every rank holds whole, counted once."""
    return math.sqrt(sum(norm * norm for norm in sharded) + replicated * replicated)


def judge(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: rows of the first update and of epoch 0 by rank, where replicas part, norms by update and rank."""
    reasons = _first_update(seen.get("first_update"))
    # What the first update shows already needs no second sentence for the same rows.
    reasons += rows_of_epoch(seen.get("epoch_rows"), "Epoch 0", 0) if not reasons else []
    drift = seen.get("drift")
    if drift:
        apart = f"Weights of rank {drift['rank']} differ from rank 0 after update {drift['update']}"
        where = {**_where(drift), "update": drift["update"]}
        reasons.append(reason("replicas_drift", f"{apart}: {_tensors(drift)}.", where))
    return reasons + norms(seen, plan)


def _first_update(found: Seen | None) -> list[Reason]:
    if not found or not found["shared_count"]:
        return []
    text = (
        f"{plural(found['shared_count'], 'row')} seen by more than one rank in the first update, expected 0: "
        f"{_on(found)}; {found['distinct']} different rows instead of {found['seen']}."
    )
    return [reason("ranks_see_same_rows", text, {"rows": found["shared"], "ranks": found["ranks"]})]


def rows_of_epoch(found: Seen | None, what: str, allowed: int) -> list[Reason]:
    """Rows of one pass on several ranks or on none; ``allowed`` may be left out by drop_last."""
    if not found:
        return []
    missing = found["missing_count"] if found["missing_count"] > max(allowed, found.get("dropped", 0)) else 0
    none = f"{plural(missing, 'row')} on none ({', '.join(str(row) for row in found['missing'][:4])})"
    if found["shared_count"]:
        text = f"{what}: {plural(found['shared_count'], 'row')} on more than one rank ({_on(found)})"
        text += f" and {none}" if missing else ""
        where = {"rows": found["shared"], "ranks": found["ranks"]} | ({"missing": found["missing"]} if missing else {})
        return [reason("ranks_see_same_rows", text + "; expected each on one.", where)]
    if missing:
        return [reason("ranks_miss_rows", f"{what}: {none}; expected each on one rank.", {"rows": found["missing"]})]
    return []


def _on(found: Seen) -> str:
    return f"row {found['shared'][0]} on ranks {' and '.join(str(rank) for rank in found['ranks'])}"


def at_start(seen: Seen) -> list[Reason]:
    """Replicas before the first update: as every rank built them, and as they stand once everything is wrapped."""
    start, built = seen.get("start_differs"), seen.get("built_differs")
    if start:
        text = f"Weights of rank {start['rank']} differ from rank 0 before the first update: {_tensors(start)}."
        return [reason("replicas_differ", text, _where(start))]
    if built:
        text = (
            f"Rank {built['rank']} built other tensors than rank 0 from seed {built['seed']}: {_tensors(built)}. "
            "Wrapping copied rank 0's over them; what is added later would stay different."
        )
        return [reason("replicas_differ", text, _where(built))]
    return []


def _tensors(found: Seen) -> str:
    more = len(found["tensors"]) - 1
    return str(found["tensors"][0]) + (f" and {more} more" if more > 0 else "")


def _where(found: Seen) -> dict[str, Any]:
    return {"rank": found["rank"], "tensor": found["tensors"][0], "tensors": found["tensors"][:LIST_LIMIT]}


def norms(seen: Seen, plan: Plan) -> list[Reason]:
    """``rank_norms``: per update one norm a rank; ``full_norms``: the right one per update, where it was taken."""
    full = list(seen.get("full_norms") or ())
    for number, per_rank in enumerate(seen.get("rank_norms") or ()):
        known = [norm for norm in per_rank if norm is not None and math.isfinite(norm)]
        if not known:
            continue
        right = full[number] if number < len(full) else None
        limit = NORM_TOLERANCE * max(known)
        update = {"update": number + 1}
        if max(known) - min(known) > limit:
            text = f"Update {number + 1}: ranks clip by different norms, {_by_rank(per_rank)}"
            text += f"; the norm over all ranks is {right:.4g}" if right is not None else "; expected one"
            if plan.optimizer.clip is not None:
                factors = ", ".join(f"{min(1.0, plan.optimizer.clip / max(1e-12, norm)):.3g}" for norm in known)
                text += f" (factors {factors})"
            rank = next((each for each, norm in enumerate(per_rank) if norm != per_rank[0]), 0)
            return [reason("norm_local", text + ".", update | {"rank": rank})]
        if right is not None and abs(known[0] - right) > NORM_TOLERANCE * right:
            text = f"Update {number + 1}: every rank clips by {known[0]:.4g}, the norm over all ranks is {right:.4g}"
            return [reason("norm_local", f"{text} (x{known[0] / right:.3g}).", update)]
    return []


def _by_rank(norms_: Sequence[float | None]) -> str:
    return ", ".join(f"rank {rank}: {norm:.4g}" for rank, norm in enumerate(norms_) if norm is not None)
