"""The shapes of training rows, told by their keys, and each made into one: ``record["messages"]`` for chats.

Nothing of the source is dropped or invented: a record keeps its own keys and gains what its shape is read as. A turn
whose role is not known is an error with its name, never skipped: a dropped turn changes what is learned in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tui_pilot.errors import DataError
from tui_pilot.tasks.formats.table import LINE, Record

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function", "ipython"})
SPEAKERS = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
}
"""ShareGPT's ``from`` to a role. ``function_call`` is what the model says, ``observation`` what comes back."""

KEYS: dict[str, tuple[str, ...]] = {
    "messages": ("messages",),
    "sharegpt": ("conversations",),
    "preference": ("chosen", "rejected"),
    "alpaca": ("instruction", "output"),
    "prompt_completion": ("prompt", "completion"),
    "text": ("text",),
}
"""Keys that make a shape, the first that fits counts."""


def shape_of(record: Mapping[str, Any], columns: Mapping[str, str]) -> tuple[str | None, str]:
    """The shape's name and why; None where no shape fits (rows for a classifier or for a task of one's own)."""
    for name, keys in KEYS.items():
        if keys[0] in columns and all(key in columns or key in record for key in keys) and not _labelled({}, columns):
            return name, f"data.columns names {', '.join(keys)}"
    for name, keys in KEYS.items():
        if all(key in record for key in keys) and not (name == "text" and _labelled(record, columns)):
            return name, f"the first row has {', '.join(keys)}"
    return None, "the first row has " + (", ".join(str(key) for key in record if key != LINE) or "no keys")


def _labelled(record: Mapping[str, Any], columns: Mapping[str, str]) -> bool:
    return "label" in record or "label" in columns


@dataclass(frozen=True)
class Shaper:
    """Reads objects of one file as one shape; ``columns`` maps a shape's keys to the file's own names."""

    path: Path
    format: str | None
    columns: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, source: Mapping[str, Any], line: int) -> Record:
        record: dict[str, Any] = {**source, LINE: line}
        for key, name in self.columns.items():
            if str(name) in source:
                record[key] = source[str(name)]
            elif key not in source or not str(name).isdigit():
                there = ", ".join(str(own) for own in source if own != LINE)
                raise self.wrong(f"no column {name!r} for {key}; the row has {there or 'none'}", line, key=str(name))
        if self.format in KEYS:
            lacking = [key for key in KEYS[self.format] if key not in record]
            if lacking:
                there = ", ".join(str(own) for own in record if own != LINE)
                raise self.wrong(
                    f"a {self.format} row without {' and '.join(lacking)}; it has {there or 'no keys'}",
                    line,
                    key=lacking[0],
                    advice=f"Name the file's own keys in data.columns: {{{lacking[0]}: ...}}.",
                )
            READ[self.format](self, record, line)
        return record

    def wrong(self, text: str, line: int, key: str | None = None, value: Any = None, advice: str = "") -> DataError:
        """An error at a row of this file."""
        return DataError(text, advice, file=str(self.path), line=line, key=key, value=value)

    # -- one method per shape, each adds to the record in place ------------------------------------------------------
    def alpaca(self, record: dict[str, Any], line: int) -> None:
        """``instruction``, optional ``input``, ``output``; an empty input adds nothing, not even a blank line."""
        messages: list[dict[str, Any]] = []
        if record.get("system"):
            messages.append({"role": "system", "content": self.text(record, "system", line)})
        for place, pair in enumerate(record.get("history") or []):
            if not (isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(one, str) for one in pair)):
                raise self.wrong("history is not a list of [question, answer]", line, key=f"history[{place}]")
            messages += [{"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}]
        question = self.text(record, "instruction", line)
        more = "" if record.get("input") is None else self.text(record, "input", line)
        if more.strip():
            question = f"{question}\n\n{more}" if question else more
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": self.text(record, "output", line)})
        record["messages"] = messages

    def sharegpt(self, record: dict[str, Any], line: int) -> None:
        """``conversations`` of ``{"from", "value"}``; turns already in ``role`` and ``content`` are taken as such."""
        turns = self.turns(record["conversations"], "conversations", line)
        messages: list[dict[str, Any]] = []
        if isinstance(record.get("system"), str) and record["system"]:
            messages.append({"role": "system", "content": record["system"]})
        for place, turn in enumerate(turns):
            key = f"conversations[{place}]"
            if "from" not in turn and "role" in turn:
                messages.append(self.message(turn, key, line))
                continue
            speaker = turn.get("from")
            role = self.roles.get(speaker, SPEAKERS.get(speaker)) if isinstance(speaker, str) else None
            if role is None:
                raise self.unknown_role(speaker, f"{key}.from", line)
            if not isinstance(turn.get("value"), str):
                raise self.wrong(f"the turn's value is {_kind(turn.get('value'))}, not text", line, key=f"{key}.value")
            more = {name: item for name, item in turn.items() if name not in ("from", "value")}
            messages.append({"role": role, "content": turn["value"], **more})
        record["messages"] = messages

    def messages(self, record: dict[str, Any], line: int) -> None:
        """``messages`` of ``{"role", "content"}``, optional ``tools``; kept as they are, after a check."""
        turns = self.turns(record["messages"], "messages", line)
        record["messages"] = [self.message(turn, f"messages[{place}]", line) for place, turn in enumerate(turns)]
        if record.get("tools") is not None and not isinstance(record["tools"], (list, str)):
            raise self.wrong(f"tools is {_kind(record['tools'])}, not a list", line, key="tools")

    def prompt_completion(self, record: dict[str, Any], line: int) -> None:
        """``prompt`` and ``completion``: both texts, or both lists of messages (then ``messages`` is the two)."""
        if isinstance(record["prompt"], list) or isinstance(record["completion"], list):
            parts = [
                self.message(turn, f"{key}[{place}]", line)
                for key in ("prompt", "completion")
                for place, turn in enumerate(self.turns(record[key], key, line))
            ]
            record["messages"] = parts
            return
        self.text(record, "prompt", line)
        self.text(record, "completion", line)

    def preference(self, record: dict[str, Any], line: int) -> None:
        """``chosen`` and ``rejected``, optional ``prompt``: texts or lists of messages."""
        for key in ("prompt", "chosen", "rejected"):
            if key not in record:
                continue
            if isinstance(record[key], list):
                turns = self.turns(record[key], key, line)
                record[key] = [self.message(turn, f"{key}[{place}]", line) for place, turn in enumerate(turns)]
            else:
                self.text(record, key, line)
        if isinstance(record["chosen"], list) != isinstance(record["rejected"], list):
            raise self.wrong("chosen is a list of messages and rejected a text, or the reverse", line, key="chosen")

    def document(self, record: dict[str, Any], line: int) -> None:
        """``text``: a document."""
        self.text(record, "text", line)

    # -- parts -------------------------------------------------------------------------------------------------------
    def text(self, record: Mapping[str, Any], key: str, line: int) -> str:
        """The text under a key; a number or null is an error, not a cast."""
        value = record[key]
        if not isinstance(value, str):
            raise self.wrong(f"{key} is {_kind(value)}, not text", line, key=key, value=value)
        return value

    def turns(self, value: Any, key: str, line: int) -> Sequence[Mapping[str, Any]]:
        """A list of objects, not empty."""
        if not isinstance(value, list) or not value:
            said = "an empty list" if value == [] else _kind(value)
            raise self.wrong(f"{key} is {said}, not a list of turns", line, key=key)
        for place, turn in enumerate(value):
            if not isinstance(turn, Mapping):
                raise self.wrong(f"a turn is {_kind(turn)}, not an object", line, key=f"{key}[{place}]")
        return value

    def message(self, turn: Mapping[str, Any], key: str, line: int) -> dict[str, Any]:
        """One message as given; null content is legal beside tool calls."""
        role = turn.get("role")
        known = self.roles.get(role, role if role in ROLES else None) if isinstance(role, str) else None
        if known is None:
            raise self.unknown_role(role, f"{key}.role", line)
        content = turn.get("content")
        calls = turn.get("tool_calls") or turn.get("function_call")
        if content is None and not calls:
            raise self.wrong("a message with neither content nor tool_calls", line, key=f"{key}.content")
        if content is not None and not isinstance(content, (str, list)):
            raise self.wrong(f"content is {_kind(content)}, not text", line, key=f"{key}.content")
        return {**turn, "role": known} if known != role else dict(turn)

    def unknown_role(self, role: Any, key: str, line: int) -> DataError:
        """The error for a speaker that no rule names."""
        return self.wrong(
            f"unknown role {role!r}" if role is not None else "a turn without a role",
            line,
            key=key,
            value=role,
            advice="Known: "
            + ", ".join(sorted(ROLES | SPEAKERS.keys() if ".from" in key else ROLES))
            + ". Others in options.roles: {name: role}.",
        )


READ: dict[str, Callable[[Shaper, dict[str, Any], int], None]] = {
    "alpaca": Shaper.alpaca,
    "sharegpt": Shaper.sharegpt,
    "messages": Shaper.messages,
    "prompt_completion": Shaper.prompt_completion,
    "preference": Shaper.preference,
    "text": Shaper.document,
}


def _kind(value: Any) -> str:
    names = {
        list: "a list",
        dict: "an object",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return "null" if value is None else names.get(type(value), type(value).__name__)
