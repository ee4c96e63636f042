"""The source's words against what was rendered of them: which message lost text, and where an answer breaks off. Pure.

Templates re-space text, so white space never counts. What a tokenizer changes by normalising (letter case, composed
characters) is told apart from what is gone.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CLEAR_START = 8
"""Characters of an answer that must stand at a text's end before it counts as broken off there and not as chance."""
LONGEST_HEAD = 4000
"""Characters before a gap that are looked at: more only cost time, for a number that shows where a piece is gone."""

SPEAKERS = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "function": "tool",
    "function_response": "tool",
}
"""Other names of roles in conversation files."""


@dataclass(frozen=True)
class Message:
    """One message of the file: role, words, and whether it holds more than words (calls of tools)."""

    role: str
    text: str
    calls: bool = False


@dataclass(frozen=True)
class Lost:
    """What one message lost: ``characters`` of ``of``, and how the lost piece begins."""

    turn: int
    role: str
    characters: int
    of: int
    piece: str


def messages_of(record: Any) -> list[Message] | None:
    """The conversation of a record as the file has it (``messages``, or ``conversations`` of from and value)."""
    if not isinstance(record, Mapping):
        return None
    for key, role, text in (("messages", "role", "content"), ("conversations", "from", "value")):
        turns = record.get(key)
        if not isinstance(turns, (list, tuple)) or not turns or not all(isinstance(turn, Mapping) for turn in turns):
            continue
        return [_message(turn, role if role in turn else "role", text if text in turn else "content") for turn in turns]
    return None


def _message(turn: Mapping[str, Any], role: str, text: str) -> Message:
    name = str(turn.get(role))
    value = turn.get(text)
    if isinstance(value, (list, tuple)) and len(value) == 1 and isinstance(value[0], Mapping):
        value = value[0].get("text")  # of several parts the template may write anything between
    calls = bool(turn.get("tool_calls") or turn.get("function_call"))
    return Message(SPEAKERS.get(name, name), value if isinstance(value, str) else "", calls)


def squeeze(text: str) -> str:
    """Text without any white space, for comparing what templates re-space."""
    return "".join(text.split())


def fold(text: str) -> str:
    """Text without what tokenizers normalise: letter case, composed or decomposed characters. Only to compare."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKD", text).casefold())


def lost_messages(
    messages: Sequence[Message], rendered: str, of_turn: Callable[[int], str | None]
) -> tuple[list[Lost], bool]:
    """Messages whose words are not in the rendered row, and whether words differ by normalising alone.

    Words are looked for in order, so that a later turn with the same words does not stand for an earlier one.
    ``of_turn`` gives what was rendered of one turn, None where the row has no such turn (that is counted elsewhere).
    """
    whole, at = squeeze(rendered), 0
    for message in messages:
        words = squeeze(message.text)
        place = whole.find(words, at)
        if place < 0:
            break
        at = place + len(words)
    else:
        return [], False
    lost: list[Lost] = []
    normalised = False
    for turn, message in enumerate(messages):
        seen = of_turn(turn)
        if seen is None or squeeze(message.text) in squeeze(seen):
            continue
        if message.role == "tool" and any(_as_json(message.text, plain) in squeeze(seen) for plain in (True, False)):
            continue
        if fold(squeeze(message.text)) in fold(squeeze(seen)):
            normalised = True
            continue
        lost.append(_lost(turn, message, seen))
    return lost, normalised


def _lost(turn: int, message: Message, seen: str) -> Lost:
    text = message.text
    tail = longest(len(text), lambda size: text[len(text) - size :] in seen)
    if tail:
        # what is gone lay between two pieces that touch now
        before = seen[: seen.rfind(text[len(text) - tail :])]
        sizes = range(min(len(text) - tail, len(before), LONGEST_HEAD), 0, -1)
        head = next((size for size in sizes if before.endswith(text[:size])), 0)
    else:
        head = longest(len(text), lambda size: text[:size] in seen)
    gone = text[head : len(text) - tail]
    return Lost(turn, message.role, max(1, len(gone)), len(text), gone[:40])


def _as_json(text: str, plain: bool) -> str:
    """What templates that write tool results as JSON make of a text."""
    return squeeze(json.dumps(text, ensure_ascii=plain)[1:-1])


def longest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest size up to ``most`` that fits, where every smaller one fits too."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def breaks_off(source: str, rendered: str) -> int | None:
    """Characters of the source missing where a text ends in the middle of it; None where it does not."""
    source, rendered = squeeze(source), squeeze(rendered)
    if not source or source in rendered:
        return None
    least = min(CLEAR_START, max(1, len(source) // 2))
    tail = rendered[-least:]
    place = source.rfind(tail, 0, len(source) - 1) if len(tail) == least else -1
    while place >= 0:
        size = place + least
        if rendered.endswith(source[:size]):
            return len(source) - size
        place = source.rfind(tail, 0, size - 1)
    return None


def pile_up(lengths: Mapping[int, int]) -> tuple[int, int] | None:
    """A length that many rows end at although the rows differ: ``(length, rows)``, the mark of a hidden cut.

    Rows of one fixed length are no cut: there must be shorter ones that thin out toward the top.
    """
    if len(lengths) < 4:
        return None
    top = max(lengths)
    count = lengths[top]
    near = [lengths[each] for each in lengths if 0.75 * top <= each < top]
    ordinary = sum(near) / max(1.0, 0.25 * top)
    return (top, count) if count >= 5 and count >= 10 * ordinary and near else None
