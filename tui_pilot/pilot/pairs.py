"""Preference pairs in the audit: both sides as the loss gets them, and what makes a pair worth nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tui_pilot.gates.label_kinds import IGNORE
from tui_pilot.gates.rows import Expected, RowFacts, RowReport, inspect
from tui_pilot.pilot.row_view import plain_list

SIDES = ("chosen", "rejected")


def sides_of(example: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    """Ids and labels of both sides, from ``chosen`` and ``rejected`` or from keys like ``chosen_input_ids``."""
    found: dict[str, dict[str, Any]] = {}
    for side in SIDES:
        whole = example.get(side)
        if isinstance(whole, Mapping) and "input_ids" in whole:
            ids, labels = whole["input_ids"], whole.get("labels")
        elif f"{side}_input_ids" in example:
            ids, labels = example[f"{side}_input_ids"], example.get(f"{side}_labels")
        else:
            return None
        found[side] = {"ids": plain_list(ids), "labels": None if labels is None else plain_list(labels)}
    return found


def report_pair(
    row: Any, split: str, record: Any, example: Mapping[str, Any], full: Mapping[str, Any], expected: Expected
) -> RowReport:
    """Counts of the pair (the longer side, the fewer supervised tokens) and its faults."""
    sides, whole = sides_of(example), sides_of(full)
    assert sides is not None and whole is not None
    report = RowReport()
    plain = dataclasses.replace(expected, roles=None, marker=None)
    counts: dict[str, int] = {}
    of = 0
    for side, seen in sides.items():
        counts[side], due = _supervised(seen), _supervised(whole[side])
        report.lost += max(0, due - counts[side])
        of += due
        report.length = max(report.length, len(seen["ids"]))
        report.tokens = max(report.tokens, len(whole[side]["ids"]))
        if not counts[side]:
            report.add("pair_side_empty", side=side, before_cut=due)
        if seen["labels"] is not None:
            facts = RowFacts(row, split, seen["ids"], seen["labels"], whole[side]["ids"], whole[side]["labels"])
            told = {code for code, _ in report.faults}
            for code, detail in inspect(facts, plain).faults:
                if code not in told and code not in ("no_supervised_token", "response_truncated"):
                    report.add(code, **detail, side=side)
    blank = next((side for side in SIDES if _blank(record, side)), None)
    if blank is not None:
        report.add("empty_target", side=blank)
    report.supervised = min(counts.values())
    if sides["chosen"] == sides["rejected"]:
        report.add("pair_identical", in_file=whole["chosen"] == whole["rejected"])
    elif report.lost and report.supervised:
        report.add("response_truncated", lost=report.lost, of=of)
    prompts = [_prompt(side) for side in whole.values()]
    if None not in prompts and prompts[0] != prompts[1]:
        report.add("pair_prompts_differ")
    return report


def _blank(record: Any, side: str) -> bool:
    """Whether a side of the file's pair has no words: a text, or a list of messages whose last one is the answer."""
    value = record.get(side) if isinstance(record, Mapping) else None
    if isinstance(value, list) and value and all(isinstance(turn, Mapping) for turn in value):
        if value[-1].get("tool_calls"):
            return False
        value = value[-1].get("content") or ""
    return isinstance(value, str) and not value.strip()


def _supervised(side: Mapping[str, Any]) -> int:
    if side["labels"] is None:
        return len(side["ids"])
    return sum(1 for label in side["labels"][1:] if label != IGNORE)


def _prompt(side: Mapping[str, Any]) -> list[int] | None:
    """Ids before the first label; None where the side carries no labels, or none that count."""
    labels = side["labels"]
    if labels is None or all(label == IGNORE for label in labels):
        return None
    return list(side["ids"][: next(place for place, label in enumerate(labels) if label != IGNORE)])
