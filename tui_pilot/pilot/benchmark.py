"""A benchmark's questions against the training rows: whole ones, and ones that share runs of words."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tui_pilot.gates.verdict import LIST_LIMIT
from tui_pilot.pilot.likeness import RUN, digest, fold, likenesses, smooth, words_of
from tui_pilot.pilot.row_text import pieces_of
from tui_pilot.tasks.formats.reader import read
from tui_pilot.tasks.formats.table import LINE

SHARE, RUNS = 0.25, 6
LEAST_WORDS = 3
LEAST_INSIDE = 5
OFTEN_SHARE, OFTEN_ROWS = 0.2, 3
ASKS = ("question", "prompt", "problem", "instruction", "query", "goal", "input")
ELSE = ("text", "sentence", "premise", "context", "ctx", "content")
ANSWERS = ("assistant", "gpt", "model", "bot")
_LABEL = re.compile(r"^\s*(?:q|question|problem|prompt|user|human|input|instruction|task)\s*\d*\s*[:.)]\s*", re.I)


def compare(path: Path, ids: Sequence[Any], texts: Sequence[str], pieces: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Rows of a benchmark file that occur in train. ``texts``: train's rows, ``pieces``: their parts, as they were."""
    table = read(path, errors="collect")
    asked = [(number, text) for number, row in enumerate(table.records) for text in questions(row)]
    asked = _without_frames(asked, len(table.records))
    lines = [row.get(LINE, number + 1) for number, row in enumerate(table.records)]
    found = _whole(asked, pieces)
    near = likenesses(texts, [text for _, text in asked], skip=found, share=SHARE, runs=RUNS)
    for place, like in list(near.items()):
        if like.whole or (like.share == 1.0 and smooth(asked[place][1]) in smooth(texts[like.place])):
            found[place] = like.place
            del near[place]
    inside = _inside(asked, texts, {*found, *near})
    result: dict[str, Any] = {
        "file": str(path),
        "rows": len(table.records),
        "unread": [{"line": fault.line, "text": str(fault)} for fault in table.faults[:LIST_LIMIT]],
        "unread_count": len(table.faults),
        "without_text": len(table.records) - len({number for number, _ in asked}),
    }
    for name, hits in (("whole", found), ("near", {place: like.place for place, like in near.items()} | inside)):
        result[name] = [
            {
                "line": lines[asked[place][0]],
                "row": ids[row],
                "share": near[place].share if place in near else None,
                "text": asked[place][1],
                "train": texts[row],
            }
            for place, row in sorted(hits.items())
        ]
    return result


def questions(row: Mapping[str, Any]) -> Iterator[str]:
    """What a benchmark row asks: never its answers or choices, which stand in honest rows too."""
    turns = row.get("messages") or row.get("conversations")
    said: list[str] = []
    if isinstance(turns, (list, tuple)) and turns and isinstance(turns[0], Mapping):
        for turn in turns:
            speaker = turn.get("role", turn.get("from"))
            if speaker != "system" and speaker not in ANSWERS:
                said += pieces_of(turn)
    else:
        for keys in (ASKS, ELSE):
            said = said or [piece for key in keys if key in row for piece in pieces_of(row[key])]
        if not said:
            strings = [piece for key, value in row.items() if key != LINE for piece in pieces_of(value)]
            said = sorted(strings, key=len)[-1:]
    yield from (text for text in said if len(words_of(text)) >= LEAST_WORDS)
    if len(said) > 1:
        yield "\n".join(said)


def _without_frames(asked: list[tuple[int, str]], rows: int) -> list[tuple[int, str]]:
    """Without what many rows say, such as one instruction for all: it is the frame of a question and not one."""
    often = Counter(fold(text) for _, text in asked)
    limit = max(OFTEN_ROWS, OFTEN_SHARE * rows)
    return [(number, text) for number, text in asked if often[fold(text)] <= limit]


def _whole(asked: Sequence[tuple[int, str]], pieces: Sequence[Sequence[str]]) -> dict[int, int]:
    """Places of questions that are a train row, a part or a line of one, a label such as ``Q:`` aside."""
    wanted: dict[bytes, list[int]] = defaultdict(list)
    for place, (_, text) in enumerate(asked):
        wanted[digest(fold(text))].append(place)
        wanted[digest(smooth(_LABEL.sub("", text)))].append(place)
    found: dict[int, int] = {}
    for row, parts in enumerate(pieces):
        for part in {each for piece in parts for each in (piece, *piece.split("\n"))} | {"\n".join(parts)}:
            for key in {digest(fold(part)), digest(smooth(_LABEL.sub("", part)))} if part.strip() else ():
                for place in wanted.get(key, ()):
                    found.setdefault(place, row)
    return found


def _inside(asked: Sequence[tuple[int, str]], texts: Sequence[str], known: set[int]) -> dict[int, int]:
    """Questions of fewer than eight words that stand word for word inside a longer train text."""
    wanted: dict[tuple[str, ...], int] = {}
    for place, (_, text) in enumerate(asked):
        asks = tuple(words_of(text))
        if LEAST_INSIDE <= len(asks) < RUN and place not in known:
            wanted[asks] = place
    found: dict[int, int] = {}
    sizes = {len(asks) for asks in wanted}
    for row, text in enumerate(texts) if wanted else ():
        words = words_of(text)
        for size in sizes:
            for start in range(len(words) - size + 1):
                hit = wanted.get(tuple(words[start : start + size]))
                if hit is not None:
                    found.setdefault(hit, row)
    return found
