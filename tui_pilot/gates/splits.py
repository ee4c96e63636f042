"""The ``splits`` gate: no unit, row or near-duplicate on two sides, judged on what the loaders yield."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import cut, plural

Seen = Mapping[str, Any]


def judge(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: rows per split, the unit rule, shared units, rows and texts between pairs of splits, ranks."""
    sizes = seen.get("rows") or {}
    reasons = _unit_rule(seen, sizes)
    for pair in seen.get("same_files") or ():
        same = pair["file_left"] == pair["file_right"]
        text = (
            f"{pair['left']} and {pair['right']} are one file: {pair['file_left']}."
            if same
            else f"{pair['left']} and {pair['right']} have the same content hash: {pair['file_left']} and "
            f"{pair['file_right']}."
        )
        reasons.append(reason("same_file", text, {"split": pair["right"], "file": pair["file_right"]}))
    for shared in seen.get("units") or ():
        names = ", ".join(str(unit) for unit in shared["units"][:5])
        text = (
            f"{plural(shared['count'], 'unit')} of {seen.get('unit')} on both sides of {shared['left']} and "
            f"{shared['right']}: {names}{', …' if shared['count'] > 5 else ''}; expected 0."
        )
        where = {"unit": shared["units"][0], "rows": shared["rows"], "split": f"{shared['left']}, {shared['right']}"}
        if shared.get("left_rows"):
            where["row"] = shared["left_rows"][0]
        reasons.append(reason("unit_in_two_splits", text, where))
    for shared in seen.get("windows") or ():
        gap = shared.get("gap") or 0
        text = (
            f"{plural(shared['count'], 'window')} of {shared['right']} overlap {shared['left']}"
            f"{f' or stand closer than the gap {gap:g}' if gap else ''}: first {_spans(shared['example'])}; expected 0."
        )
        reasons.append(reason("windows_overlap", text, {"rows": shared["rows"], "split": shared["right"]}))
    return reasons + _rows(seen, sizes) + _benchmark(seen.get("benchmark")) + _ranks(seen.get("ranks"))


def _unit_rule(seen: Seen, sizes: Mapping[str, int]) -> list[Reason]:
    if not (sizes.get("validation") or sizes.get("test")):
        return [reason("no_validation", "There is no validation split, so nothing was compared.")]
    reasons = []
    if not sizes.get("validation"):
        reasons.append(reason("no_validation", "There is no validation split; train was compared with test alone."))
    if seen.get("unit") is None:
        text = "No unit given: rows were compared one by one, sources were not."
        advice = None
        guess = next(iter(seen.get("guesses") or ()), None)
        if guess:
            text += (
                f" {plural(guess['shared'], 'value')} of {guess['rule']} stand on both sides, first {guess['first']}."
            )
            advice = f"If that keeps one source together: data.unit: {guess['rule']}"
        reasons.append(reason("unit_unknown", text, {"key": "data.unit"}, advice=advice))
    for lacking in seen.get("without_unit") or ():
        text = (
            f"{lacking['count']:,} of {plural(lacking['of'], 'row')} of {lacking['split']} do not say their unit "
            f"({seen.get('unit')}): whether their sources are on two sides could not be looked at."
        )
        where = {"rows": lacking["rows"], "split": lacking["split"], "key": "data.unit"}
        reasons.append(reason("unit_unknown", text, where, advice="Give every row its unit, or another rule."))
    return reasons


def _rows(seen: Seen, sizes: Mapping[str, int]) -> list[Reason]:
    reasons: list[Reason] = []
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
        where = {"rows": shared["rows"], "split": shared["right"]}
        if shared.get("pair"):
            where["row"] = shared["pair"][0]
        reasons.append(reason("same_rows", text, where))
    for shared in seen.get("same_ids") or ():
        ids = ", ".join(map(str, shared["rows"][:5]))
        text = f"{plural(shared['count'], 'row id')} yielded by {shared['left']} and {shared['right']}: {ids}"
        text += "; what the rows say differs." if shared.get("other_content") else "; expected 0."
        severity = "warn" if shared.get("other_content") else None
        where = {"rows": shared["rows"], "split": shared["right"]}
        reasons.append(reason("same_rows", text, where, severity=severity))
    for foreign in seen.get("foreign") or ():
        owner = f", {foreign['of']} has them" if foreign.get("of") else ""
        ids = ", ".join(map(str, foreign["rows"][:5]))
        text = f"The order of {foreign['split']} yields {plural(foreign['count'], 'row')} that it lacks{owner}: {ids}."
        reasons.append(reason("same_rows", text, {"rows": foreign["rows"], "split": foreign["split"]}))
    for near in seen.get("near") or ():
        one, other = (cut(each, 60) for each in near["examples"])
        text = (
            f"{plural(near['count'], 'row')} of {near['right']} share at least {near['share']:.0%} of their 8-word "
            f"runs with a row of {near['left']}: {near['pair'][0]} “{one}” and {near['pair'][1]} “{other}”."
        )
        if near.get("whole"):
            text += f" {near['whole']:,} differ in marks and blanks alone."
        where = {"rows": near["rows"], "row": near["pair"][0], "split": near["right"]}
        reasons.append(reason("near_duplicate", text, where))
    for repeated in seen.get("repeated") or ():
        text = (
            f"{plural(repeated['messages'], 'message')} occur more than once in {repeated['split']} "
            f"({plural(repeated['rows_count'], 'row')}): “{cut(repeated['example'], 60)}”."
        )
        reasons.append(reason("duplicates_in_split", text, {"rows": repeated["rows"], "split": repeated["split"]}))
    return reasons


def _benchmark(bench: Seen | None) -> list[Reason]:
    """Questions of a benchmark file: whole ones in train fail, ones that share runs of words are to be looked at."""
    if not bench:
        return []
    reasons = []
    for name, code in (("whole", "benchmark_in_train"), ("near", "near_duplicate")):
        hits: Sequence[Seen] = bench.get(name) or ()
        if not hits:
            continue
        lines = {hit["line"] for hit in hits}
        first = hits[0]
        place = f"line {first['line']} “{cut(first['text'], 60)}”, train row {first['row']} “{cut(first['train'], 60)}”"
        count = f"{len(lines):,} of {plural(bench['rows'], 'benchmark row')}"
        text = (
            f"{count} occur in train: {place}; expected 0."
            if name == "whole"
            else f"{count} share 8-word runs with train: {place}."
        )
        where = {
            "rows": list(dict.fromkeys(hit["row"] for hit in hits)),
            "lines": sorted(lines, key=str),
            "line": first["line"],
            "file": bench["file"],
        }
        reasons.append(reason(code, text, where))
    for key, what in (("unread_count", "could not be read"), ("without_text", "hold no question of three words")):
        if bench.get(key):
            text = f"{plural(bench[key], 'benchmark row')} of {bench['rows'] + bench.get('unread_count', 0)} {what}."
            unread = bench.get("unread") or ()
            where = {"file": bench["file"], "line": unread[0]["line"] if unread and key == "unread_count" else None}
            severity = None if key == "unread_count" or bench[key] == bench["rows"] else "note"
            reasons.append(reason("not_observed", text, where, "Mend the file that data.benchmark names.", severity))
    return reasons


def _ranks(ranks: Seen | None) -> list[Reason]:
    if not ranks or not ranks.get("shared_count"):
        return []
    text = f"{plural(ranks['shared_count'], 'row')} on more than one rank in one epoch; expected 0."
    return [reason("ranks_see_same_rows", text, {"rows": ranks["shared"]})]


def _spans(pair: Any) -> str:
    if isinstance(pair, str) or not pair:
        return str(pair)
    return " and ".join(f"{start:g} to {end:g}" for start, end in pair)
