"""The ``examples`` gate: the audit of every row, folded into one verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import plural

Seen = Mapping[str, Any]


def judge(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: rows per split, faults by code with rows and a first detail, and what could not be looked at."""
    reasons: list[Reason] = []
    rows = int(seen.get("rows", 0))
    if not rows and not seen.get("broken"):
        reasons.append(reason("no_rows", "train has 0 rows, expected at least 1.", {"split": "train"}))
    for code, fault in (seen.get("faults") or {}).items():
        reasons.append(_fault(code, fault, rows, plan, seen.get("ends") or (0, 0)))
    for extra in seen.get("problems") or ():
        reasons.append(reason(extra["code"], extra["text"], extra.get("where"), severity=extra.get("severity")))
    for missing in seen.get("unchecked") or ():
        reasons.append(reason("not_observed", missing))
    return reasons


def _fault(code: str, fault: Mapping[str, Any], rows: int, plan: Plan, ends: Sequence[int]) -> Reason:
    count, first = fault["count"], fault.get("first") or {}
    where: dict[str, Any] = {"rows": list(fault["rows"]), "rows_count": count, "split": fault.get("split")}
    if fault.get("file"):
        where["file"] = fault["file"]
    for key in ("turn", "role", "side"):
        if key in first:
            where[key] = first[key]
    row = fault["rows"][0] if fault["rows"] else "?"
    share = f"{plural(count, 'row')} of {rows:,}"
    severity = None
    if code == "input_truncated" and rows and count / rows > plan.gates.examples.max_truncated:
        severity = "warn"
    if code == "response_truncated":
        limit = plan.gates.examples.max_truncated
        if rows and count / rows > limit:
            severity = "fail"
        lost = fault.get("sum", {}).get("lost", 0)
        text = (
            f"{share} lose part of the response to the cut at {plan.data.max_length}: {lost:,} supervised tokens; "
            f"row {row} keeps {first['of'] - first['lost']} of {first['of']}. Accepted share: {limit:.0%}."
        )
    else:
        sums = fault.get("sum") or {}
        if code == "wrong_role_supervised":
            first = {**first, "counts": {role: sums.get(role, number) for role, number in first["counts"].items()}}
        if code == "end_token_unsupervised" and ends[0]:
            first = {**first, "rows": ends}
        text = f"{share}: {_SENTENCES[code](first)} First: row {row}."
    return reason(code, text, where, severity=severity)


def _cap(first: Seen) -> str:
    effective, planned = first["effective"], first["planned"]
    if planned is None:
        rest = f"{first['characters']:,} characters of the answer are missing in the first"
        return f"cut at {effective:,} tokens although data.max_length is not set ({rest})."
    if effective > planned:
        return f"effective {effective:,} != configured {planned:,}: data.max_length is not in force."
    lost = first.get("lost")
    rest = f"{lost:,} tokens lost" if lost is not None else f"{first['characters']:,} characters of the answer missing"
    return f"cut although data.max_length allows more: effective {effective:,} != configured {planned:,} ({rest})."


def _lost_messages(first: Seen) -> str:
    listed = ", ".join(f"{role} {pair[0]} -> {pair[1]}" for role, pair in first["roles"].items())
    return f"messages of the file that are not rendered: {listed}."


def _nothing(first: Seen) -> str:
    if first.get("before_cut"):
        return f"no supervised token is left after the cut (0 of {first['before_cut']}), expected at least 1."
    said = f"no supervised token (0 of {first.get('tokens', 0)} tokens), expected at least 1"
    if "marker" not in first:
        return f"{said}."
    times = first.get("in_text")
    there = "" if times is None else f"; as text it is there {plural(times, 'time')}, as tokens it is not found"
    return f"{said}; the response marker is {first['marker']!r}{there if times else ''}."


def _ends(first: Seen) -> str:
    there, trained = first.get("rows") or (0, 0)
    turn = f"turn {first['turn']}: " if "turn" in first else ""
    word = "never" if not trained else "not"
    return f"{turn}the end token is there and {word} supervised ({trained:,} of {there:,} rows)."


def _content(first: Seen) -> str:
    if "turn" not in first:
        return (
            f"{first['characters']} of {first['of']} characters of the source's answer are not in the supervised text."
        )
    more = f"; turns {', '.join(map(str, first['turns']))} all lost text" if first.get("turns") else ""
    return (
        f"turn {first['turn']} ({first['role']}) lost {first['characters']} of {first['of']} characters, from "
        f"{first['piece']!r} on{more}."
    )


def _identical(first: Seen) -> str:
    where = "in the file" if first.get("in_file") else "after the cut"
    return f"chosen and rejected are equal {where}: the pair carries no preference."


def _side(first: Seen) -> str:
    if first.get("before_cut"):
        return (
            f"{first['side']} is empty after the cut (0 of {first['before_cut']} response tokens), expected at least 1."
        )
    return f"{first.get('side', 'one side')} has no supervised token, expected at least 1."


def _bos(first: Seen) -> str:
    expected = " or ".join(str(number) for number in first["expected"])
    word = "BOS lost: " if first["seen"] == 0 else ""
    return f"{word}{first['seen']} leading BOS, expected {expected}."


_SENTENCES: dict[str, Any] = {
    "no_supervised_token": _nothing,
    "end_token_unsupervised": _ends,
    "missing_end_token": lambda first: "no end token after the response: nothing teaches the model to stop.",
    "bos_count": _bos,
    "wrong_role_supervised": lambda first: (
        "supervised outside the roles to train: "
        + ", ".join(f"{role} {number}" for role, number in first["counts"].items())
        + " tokens, expected 0."
    ),
    "turn_unsupervised": lambda first: f"turn {first['turn']} of {first['of']} trained turns carries no label.",
    "span_shifted": lambda first: (
        "labels name the token "
        + ("after" if first.get("shift") == 1 else "before" if first.get("shift") == -1 else "of another length than")
        + " their place."
    ),
    "length_cap": _cap,
    "content_lost": _content,
    "text_normalised": lambda first: "the tokenizer changes letter case or composed characters of the source's words.",
    "message_lost": _lost_messages,
    "template_token_supervised": lambda first: f"{first['count']} template tokens outside every turn are supervised.",
    "length_beyond_model": lambda first: (
        f"{first['tokens']:,} tokens, and the model has {first['positions']:,} places."
    ),
    "input_truncated": lambda first: f"the text is cut, {first['lost']} of {first['of']} tokens in the first.",
    "label_out_of_range": lambda first: f"label {first['value']} is no class id of 0 to {first['classes'] - 1}.",
    "loss_mismatch": lambda first: f"label {first['value']!r} is no class id.",
    "empty_target": lambda first: (
        (f"turn {first['turn']}: " if "turn" in first else "")
        + first.get("side", "no target, the answer")
        + " is empty or blank."
    ),
    "padding_supervised": lambda first: f"{first['count']} labels stand on padding, expected 0.",
    "pair_identical": _identical,
    "pair_side_empty": _side,
    "pair_prompts_differ": lambda first: "chosen and rejected do not share one prompt.",
    "id_out_of_table": lambda first: f"token id {first['id']} out of table {first['table']}.",
    "entities_inflated": lambda first: f"{first['seen']} entities in the labels, {first['expected']} in the words.",
    "entities_lost": lambda first: f"{first['seen']} entities in the labels, {first['expected']} in the words.",
}
