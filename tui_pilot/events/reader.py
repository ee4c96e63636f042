"""Reading event files by offset: unfinished last lines are kept for later, broken ones are counted, never hidden.

A long log is read in pieces, in the order of its clock across all files, so that whoever shows it can say how far it
is and never holds more than a piece of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from tui_pilot.events.schema import KINDS

Event = dict[str, Any]
Moment = tuple[str, float]

PIECE_BYTES = 1 << 18  # about 1,300 events
_CHUNK_BYTES = 1 << 14  # of one file at a time, so that many files advance together

_decode = json.JSONDecoder().raw_decode

# What the fold relies on. A field of another shape is no event of ours, whatever its kind says.
_NOTHING = type(None)
_NUMBERS = frozenset({int, float, bool})
_TYPES: dict[str, frozenset[type]] = {
    **dict.fromkeys(("rank", "attempt", "update"), frozenset({int})),  # where they are given, they are never null
    **dict.fromkeys(("pid", "allocated", "reserved"), frozenset({int, _NOTHING})),
    **dict.fromkeys(("at", "phase", "stage", "verdict", "text", "started"), frozenset({str, _NOTHING})),
    **dict.fromkeys(("inputs", "thresholds", "parts", "metrics", "changed"), frozenset({dict, _NOTHING})),
    **dict.fromkeys(("reasons", "memory", "gpus", "removed"), frozenset({list, _NOTHING})),
    **dict.fromkeys(("loss", "lr", "duration_s"), _NUMBERS | {str, _NOTHING}),
    "mono": _NUMBERS,
}


def well_shaped(event: Event) -> bool:
    """Whether the fields that readers count on have their types; fields nobody knows may be anything."""
    for key, value in event.items():
        types = _TYPES.get(key)
        if types is None:
            continue
        if type(value) not in types:
            return False
        if type(value) is list and not all(isinstance(item, dict) for item in value):
            return False
    return True


@dataclass
class Tail:
    """One growing event file, read from where the last read stopped.

    ``waiting`` are events that were read but may not be told yet, since another file may have earlier ones; each with
    the latest moment of the file so far, for a file's own order stands even where its clock was set back.
    """

    path: Path
    offset: int = 0
    size: int = 0
    rest: bytes = b""
    broken: int = 0
    unknown: int = 0
    read: int = 0
    reached: Moment = ("", 0.0)
    waiting: list[tuple[Moment, Event]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._source = self.path.stem

    def poll(self, limit: int | None = None) -> list[Event]:
        """The events written since the last poll, in file order, at most ``limit`` bytes read.

        A line without its newline is not an event yet. A line that is no JSON object, or whose fields have other
        types, is counted in ``broken``; an event of an unknown kind is counted in ``unknown`` and left out.
        """
        try:
            with self.path.open("rb", buffering=0) as stream:
                stream.seek(self.offset)
                data = stream.readall() if limit is None else stream.read(limit)
        except OSError:
            data = b""
        if not data:
            self.size = self.offset  # gone, or shorter than it said: there is nothing to wait for
            return []
        self.offset += len(data)
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        events: list[Event] = []
        for line in lines:
            if line and not line.isspace():
                event = self._parse(line)
                if event is not None:
                    events.append(event)
        return events

    def fill(self, limit: int | None) -> int:
        """Read on into ``waiting``; how many bytes."""
        before = self.offset
        for event in self.poll(limit):
            # Clock time first: a screen or command on a machine that was started again has a younger monotonic clock.
            moment = (event.get("at") or "", event.get("mono", 0.0))
            self.reached = max(self.reached, moment)
            self.waiting.append((self.reached, event))
        return self.offset - before

    def _parse(self, line: bytes) -> Event | None:
        try:
            text = line.decode()
            event, end = _decode(text)
            if end != len(text):  # blanks around it, or something that is no JSON
                event = json.loads(text)
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
        event["source"] = self._source
        return event


@dataclass
class Reader:
    """All event files of a run folder; new files are found at every poll."""

    folder: Path
    tails: dict[str, Tail] = field(default_factory=dict)

    def poll(self, limit: int | None = None) -> list[Event]:
        """New events of all files, merged by their monotonic clock (files of one machine share it).

        With ``limit`` about so many bytes are read; ``share`` then says how much of all there is has been read.
        """
        behind = self._look()
        spent = 0
        while behind and (limit is None or spent < limit):
            tail = behind[0] if limit is None or len(behind) == 1 else min(behind, key=lambda each: each.reached)
            spent += tail.fill(None if limit is None else min(limit, max(_CHUNK_BYTES, limit // len(behind))))
            if tail.offset >= tail.size:
                behind.remove(tail)
        until = min((tail.reached for tail in behind), default=None)
        batches = [batch for tail in self.tails.values() if tail.waiting and (batch := _told(tail, until))]
        if len(batches) == 1:
            return [event for _, event in batches[0]]
        together = [pair for batch in batches for pair in batch]
        together.sort(key=itemgetter(0))  # stable: each file's own order stays
        return [event for _, event in together]

    def stream(self) -> Iterator[Event]:
        """New events, piece by piece, until there are no more."""
        while True:
            yield from self.poll(PIECE_BYTES)
            if not self.behind:
                return

    def _look(self) -> list[Tail]:
        """The files that have more than was read of them."""
        try:
            with os.scandir(self.folder) as entries:
                found = {entry.name: entry for entry in entries if entry.name.endswith(".jsonl")}
        except OSError:
            return []
        behind = []
        # The supervisor first: what it says of an ended stage never arrives before that stage's own last words.
        for name in sorted(found, key=lambda name: (name != "supervisor.jsonl", name)):
            tail = self.tails.get(name)
            if tail is None:
                tail = self.tails[name] = Tail(self.folder / name)
            try:
                tail.size = found[name].stat().st_size
            except OSError:
                continue
            if tail.size > tail.offset:
                behind.append(tail)
        return behind

    @property
    def behind(self) -> bool:
        """Whether there was more to read when the last poll ended."""
        return any(tail.size > tail.offset for tail in self.tails.values())

    @property
    def share(self) -> float:
        """How much of the log has been read, 0 to 1."""
        whole = sum(tail.size for tail in self.tails.values())
        return min(1.0, sum(tail.offset for tail in self.tails.values()) / whole) if whole else 1.0

    @property
    def broken(self) -> int:
        return sum(tail.broken for tail in self.tails.values())

    @property
    def unknown(self) -> int:
        return sum(tail.unknown for tail in self.tails.values())

    @property
    def read(self) -> int:
        return sum(tail.read for tail in self.tails.values())


def _told(tail: Tail, until: Moment | None) -> list[tuple[Moment, Event]]:
    """Take out of ``waiting`` what no other file can have an earlier event for."""
    waiting = tail.waiting
    if until is None or waiting[-1][0] <= until:
        tail.waiting = []
        return waiting
    count = next(n for n, (moment, _) in enumerate(waiting) if moment > until)
    tail.waiting = waiting[count:]
    return waiting[:count]
