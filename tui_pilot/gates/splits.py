"""The ``splits`` gate: no unit, row or near-duplicate on two sides, judged on what the loaders yield."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import cut, plural

Seen = Mapping[str, Any]


def judge(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: rows per split, the unit rule, shared units, rows and texts between pairs of splits, ranks."""
    reasons: list[Reason] = []
    sizes = seen.get("rows") or {}
    if not sizes.get("validation"):
        reasons.append(reason("no_validation", "There is no validation split, so nothing was compared."))
    elif seen.get("unit") is None:
        reasons.append(reason("unit_unknown", "No unit given: rows were compared one by one, sources were not."))
    for pair in seen.get("same_files") or ():
        text = f"{pair['left']} and {pair['right']} have the same content ({pair['file_left']}, {pair['file_right']})."
        reasons.append(reason("same_file", text, {"split": pair["left"], "file": pair["file_left"]}))
    for shared in seen.get("units") or ():
        names = ", ".join(str(unit) for unit in shared["units"][:5])
        text = (
            f"{plural(shared['count'], 'unit')} of {seen.get('unit')} on both sides of {shared['left']} and "
            f"{shared['right']}: {names}{', …' if shared['count'] > 5 else ''}; expected 0."
        )
        where = {"unit": shared["units"][0], "rows": shared["rows"], "split": f"{shared['left']}, {shared['right']}"}
        reasons.append(reason("unit_in_two_splits", text, where))
    for shared in seen.get("windows") or ():
        text = (
            f"{plural(shared['count'], 'window')} of {shared['left']} and {shared['right']} overlap or stand closer "
            f"than the gap {shared.get('gap', 0)}: first {shared['example']}."
        )
        reasons.append(reason("windows_overlap", text, {"rows": shared["rows"]}))
    whole = seen.get("repeated_over_all") or {}
    for shared in seen.get("texts") or ():
        share = shared["rows_count"] / max(1, sizes.get(shared["right"], 1))
        text = (
            f"{plural(shared['count'], 'message')} of {shared['right']} occur in {shared['left']} too "
            f"({share:.0%} of its rows): “{cut(shared['example'], 60)}”; expected 0."
        )
        if whole.get("folded"):
            text += (
                f" Over all {whole['total']:,} rows {whole['messages']:,} messages occur more than once to the letter, "
                f"{whole['folded']:,} with case and blanks folded."
            )
        reasons.append(reason("same_rows", text, {"rows": shared["rows"], "split": shared["right"]}))
    for shared in seen.get("same_ids") or ():
        text = f"{plural(shared['count'], 'row id')} yielded by {shared['left']} and {shared['right']}; expected 0."
        reasons.append(reason("same_rows", text, {"rows": shared["rows"], "split": shared["right"]}))
    for near in seen.get("near") or ():
        text = (
            f"{plural(near['count'], 'row')} of {near['right']} share at least {near['share']:.0%} of their 8-word "
            f"runs with a row of {near['left']}: {near['pair'][0]} and {near['pair'][1]}, “{cut(near['example'], 60)}”."
        )
        reasons.append(reason("near_duplicate", text, {"rows": near["rows"], "split": near["right"]}))
    for repeated in seen.get("repeated") or ():
        text = (
            f"{plural(repeated['messages'], 'message')} occur more than once in {repeated['split']} "
            f"({plural(repeated['rows_count'], 'row')}): “{cut(repeated['example'], 60)}”."
        )
        reasons.append(reason("duplicates_in_split", text, {"rows": repeated["rows"], "split": repeated["split"]}))
    bench = seen.get("benchmark")
    if bench and bench.get("count"):
        text = f"{plural(bench['count'], 'benchmark row')} occur in train: “{cut(bench['example'], 60)}”; expected 0."
        reasons.append(reason("benchmark_in_train", text, {"rows": bench["rows"], "file": bench["file"]}))
    if bench and bench.get("near"):
        rows = plural(bench["near"], "benchmark row")
        text = f"{rows} share 8-word runs with train: “{cut(bench['near_example'], 60)}”."
        reasons.append(reason("near_duplicate", text, {"rows": bench.get("near_rows", [])}))
    ranks = seen.get("ranks")
    if ranks and ranks.get("shared_count"):
        text = f"{plural(ranks['shared_count'], 'row')} on more than one rank in one epoch; expected 0."
        reasons.append(reason("ranks_see_same_rows", text, {"rows": ranks["shared"]}))
    return reasons
