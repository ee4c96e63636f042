"""Reasons and verdicts, and how they fold: the worst of fail > unchecked > warn > pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ORDER = ("pass", "skipped", "warn", "unchecked", "fail")
LIST_LIMIT = 100


@dataclass(frozen=True)
class Reason:
    """Why a verdict is what it is: a stable ``code``, one sentence with the number seen and expected, and where.

    ``where`` uses the keys row, rows, split, unit, turn, role, position, tensor, tensors, rank, update, file, line,
    key, package. ``severity`` is fail, unchecked, warn or note; a note never changes a verdict.
    """

    code: str
    text: str
    severity: str = "fail"
    where: Mapping[str, Any] = field(default_factory=dict)
    advice: str = ""

    def as_json(self) -> dict[str, Any]:
        """The reason as the row's JSON carries it; id lists are cut at 100 with a ``*_count`` beside."""
        where: dict[str, Any] = {}
        for key, value in self.where.items():
            where[key] = value
            if isinstance(value, (list, tuple)):
                where[key] = list(value[:LIST_LIMIT])
                if key in ("rows", "tensors"):
                    where[f"{key}_count"] = self.where.get(f"{key}_count", len(value))
        return {
            "code": self.code,
            "severity": self.severity,
            "text": self.text,
            "where": where,
            "advice": self.advice,
        }


@dataclass(frozen=True)
class Verdict:
    """The automatic verdict of one phase."""

    word: str
    reasons: tuple[Reason, ...] = ()
    thresholds: Mapping[str, Any] = field(default_factory=dict)


def worst(words: Iterable[str | None]) -> str | None:
    """The worst of several verdict words; ``not_run`` and None do not count; None if nothing counts."""
    seen = [word for word in words if word in ORDER]
    if not seen:
        return None
    found = max(seen, key=ORDER.index)
    return "pass" if found == "skipped" else found


def settle(reasons: Iterable[Reason], thresholds: Mapping[str, Any] | None = None) -> Verdict:
    """A phase's verdict from its reasons: none, or notes alone, is a pass."""
    listed = tuple(reasons)
    word = worst(reason.severity for reason in listed if reason.severity != "note") or "pass"
    ranked = sorted(listed, key=lambda reason: -ORDER.index(reason.severity) if reason.severity in ORDER else 1)
    return Verdict(word, tuple(ranked), thresholds or {})
