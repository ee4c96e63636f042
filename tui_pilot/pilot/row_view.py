"""What the screen shows of audited rows: one row token by token, and the lengths of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tui_pilot.gates.rows import RowFacts
from tui_pilot.tasks.base import Task, defines


def row_view(task: Task, record: Any, facts: RowFacts) -> dict[str, Any]:
    """Everything the token view shows of one row."""
    piece: Callable[[Sequence[int]], list[str]] | None = getattr(task, "pieces", None)

    def pieces(ids: Sequence[int]) -> list[str] | None:
        if piece is not None:
            return list(piece(ids))
        return [task.decode([number]) for number in ids] if defines(task, "decode") else None

    return {
        "row": facts.row,
        "split": facts.split,
        "ids": list(facts.ids),
        "pieces": pieces(facts.ids),
        "labels": facts.labels,
        "full_ids": list(facts.full_ids) if facts.cut and facts.full_ids is not None else None,
        "full_pieces": pieces(facts.full_ids) if facts.cut and facts.full_ids is not None else None,
        "full_labels": facts.full_labels if facts.cut else None,
        "spans": [list(span) for span in (facts.full_spans or facts.spans or ())],
        "source": facts.source,
        "supervised_text": facts.supervised_text,
        "line": record.get("_line") if isinstance(record, Mapping) else None,
    }


def plain_list(value: Any) -> Any:
    """Ids or labels as Python lists, whatever the task made them of."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, (tuple, range)) else value


def quantile(ordered: Sequence[int], share: float) -> int | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def padding_share(lengths: Sequence[int], micro: int) -> float | None:
    """Padding among all tokens of microbatches in file order."""
    total = padded = 0
    for start in range(0, len(lengths), micro):
        group = lengths[start : start + micro]
        padded += max(group) * len(group)
        total += sum(group)
    return round(1 - total / padded, 4) if padded else None


def histogram(lengths: Sequence[int], max_length: int | None) -> list[dict[str, int]]:
    """Rows per length range, eight ranges up to the planned length or the longest row."""
    top = max(max_length or 0, max(lengths, default=0))
    if not top:
        return []
    width = max(1, -(-top // 8))
    counts = Counter(min(7, length // width) for length in lengths)
    return [
        {"from": place * width, "to": min(top, (place + 1) * width - 1), "rows": counts.get(place, 0)}
        for place in range(8)
    ]
