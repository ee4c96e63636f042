"""Reading event files by offset: unfinished last lines are kept for later, broken ones are counted, never hidden."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tui_pilot.events.schema import KINDS

Event = dict[str, Any]

# What the fold relies on. A field of another shape is no event of ours, whatever its kind says.
_WHOLE = ("rank", "attempt", "update", "pid")
_TEXT = ("at", "phase", "stage", "verdict", "text", "started")
_OBJECT = ("inputs", "thresholds", "parts", "metrics", "changed")
_OBJECTS = ("reasons", "memory", "gpus", "removed")
_BYTES = ("allocated", "reserved")
_NEEDS_NUMBER = ("rank", "attempt", "update")  # where they are given, they are never null


def well_shaped(event: Event) -> bool:
    """Whether the fields that readers count on have their types; fields nobody knows may be anything."""
    for key in (*_WHOLE, *_BYTES):
        value = event.get(key)
        if value is None and key in event and key in _NEEDS_NUMBER:
            return False
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            return False
    return (
        isinstance(event.get("mono", 0.0), (int, float))
        and all(isinstance(event.get(key), (str, type(None))) for key in _TEXT)
        and all(isinstance(event.get(key), (dict, type(None))) for key in _OBJECT)
        and all(_objects(event.get(key)) for key in _OBJECTS)
        and all(isinstance(event.get(key), (int, float, str, type(None))) for key in ("loss", "lr", "duration_s"))
    )


def _objects(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(item, dict) for item in value))


@dataclass
class Tail:
    """One growing event file, read from where the last read stopped."""

    path: Path
    offset: int = 0
    rest: bytes = b""
    broken: int = 0
    unknown: int = 0
    read: int = 0

    def poll(self, limit: int | None = None) -> list[Event]:
        """The events written since the last poll, in file order, at most ``limit`` bytes read.

        A line without its newline is not an event yet. A line that is no JSON object, or whose fields have other
        types, is counted in ``broken``; an event of an unknown kind is counted in ``unknown`` and left out.
        """
        try:
            with self.path.open("rb") as stream:
                stream.seek(self.offset)
                data = stream.read() if limit is None else stream.read(limit)
        except OSError:
            return []
        if not data:
            return []
        self.offset += len(data)
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        events: list[Event] = []
        for line in lines:
            if not line.strip():
                continue
            event = self._parse(line)
            if event is not None:
                events.append(event)
        return events

    def _parse(self, line: bytes) -> Event | None:
        try:
            event = json.loads(line)
            if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
                raise ValueError("no event")
            if "payload" in event:
                body = json.loads((self.path.parent / str(event["payload"])).read_bytes())
                event = {**body, **event}
            if not well_shaped(event):
                raise ValueError("a field has another type")
        except (ValueError, TypeError, OSError, RecursionError):
            self.broken += 1
            return None
        if event["kind"] not in KINDS:
            self.unknown += 1
            return None
        self.read += 1
        event["source"] = self.path.stem
        return event


@dataclass
class Reader:
    """All event files of a run folder; new files are found at every poll."""

    folder: Path
    tails: dict[str, Tail] = field(default_factory=dict)

    def poll(self) -> list[Event]:
        """New events of all files, merged by their monotonic clock (files of one machine share it)."""
        try:
            found = (path.name for path in self.folder.iterdir() if path.suffix == ".jsonl")
            # The supervisor first: what it says of an ended stage never arrives before that stage's own last words.
            names = sorted(found, key=lambda name: (name != "supervisor.jsonl", name))
        except OSError:
            names = []
        batches = []
        for name in names:
            tail = self.tails.setdefault(name, Tail(self.folder / name))
            batch = tail.poll()
            if batch:
                batches.append(batch)
        return list(_merged(batches))

    @property
    def broken(self) -> int:
        return sum(tail.broken for tail in self.tails.values())

    @property
    def unknown(self) -> int:
        return sum(tail.unknown for tail in self.tails.values())

    @property
    def read(self) -> int:
        return sum(tail.read for tail in self.tails.values())


def _merged(batches: list[list[Event]]) -> Iterator[Event]:
    # Clock time first: a screen or command on a machine that was started again has a younger monotonic clock.
    return heapq.merge(*batches, key=lambda event: (str(event.get("at", "")), float(event.get("mono", 0.0))))
