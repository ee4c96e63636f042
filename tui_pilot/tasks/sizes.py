"""How long an example is, whatever a task makes it of. Standard library only."""

from __future__ import annotations

from typing import Any


def example_length(example: Any) -> int:
    """Tokens of an example; the longer side of a pair, the longest of several texts; else its longest list, or 1."""
    if "input_ids" in example:
        inner = [len(each) for each in example["input_ids"] if isinstance(each, (list, tuple))]
        return max(inner, default=len(example["input_ids"]))
    sides = [len(example[name]["input_ids"]) for name in ("chosen", "rejected") if name in example]
    return max(sides or [_size(value) for value in example.values()], default=1)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (list, tuple)) or getattr(value, "ndim", False) else 1
