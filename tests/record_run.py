"""Keeps a finished run as a fixture: ``python tests/record_run.py RUN_FOLDER NAME [--light]``.

What screens, sheets and tests read is copied to ``tests/recorded/NAME``; weights, code and logs are not. Paths, hosts
and process numbers of the machine are replaced: nothing of it may be committed. ``--light`` leaves the examples out,
for a run that is only a line in Runs. ``copy_all`` puts the recorded runs back under their own ids.

Two kinds of lines are thinned, nothing else is changed. Of the ``live`` events of one phase and rank the highest of
each second stays; of the device samples of one GPU the highest of each two seconds between two phase edges, the first
and the last. A reading holds for three seconds in the screen's charts, so no gap comes of it.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("recorded")
FIRST_ROWS = 6
LIVE_S, SAMPLE_S = 1.0, 2.0
HOST = "box"
FOLDER = "/home/you/desk"
BOOT = "00000000-0000-4000-8000-000000000000"
PYTHON = "/usr/bin/python3"
_PAYLOAD = re.compile(r"-\d+-(\d+)\.json$")
WHOLE = ("plan.json", "run.json", "baseline.json", "prediction.json", "comparison.json", "record.json")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("name", help="folder below tests/recorded")
    parser.add_argument("--light", action="store_true", help="without examples/")
    asked = parser.parse_args(arguments)
    left = record(asked.run, asked.name, light=asked.light)
    if left:
        print(f"words of this machine are left in {left}", file=sys.stderr)
        return 1
    target = RECORDED / asked.name
    print(f"{target}: {sum(path.stat().st_size for path in target.rglob('*') if path.is_file()):,} bytes")
    return 0


def record(run: Path, name: str, *, light: bool = False, ids: Mapping[str, str] | None = None) -> list[str]:
    """Copy a run, or the folder of a comparison; ``ids``: run ids and what they are called in the recording.

    Returns the files that still hold a word of this machine.
    """
    target = RECORDED / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    swap = [*_swaps(run), *(ids or {}).items()]
    for each in WHOLE:
        if (run / each).exists():
            _text(run / each, target / each, swap)
    for path in sorted((run / "events").glob("*.jsonl")):
        kept = _thin_events(path.read_text("utf-8").splitlines())
        _write(kept, target / "events" / re.sub(r"^operator-.*", "operator-1-1.jsonl", path.name), swap)
        for line in kept:
            payload = json.loads(line).get("payload")  # a long body stands in a file of its own
            if payload:
                _text(run / "events" / payload, target / "events" / _PAYLOAD.sub(r"-1-\1.json", payload), swap)
    for path in sorted((run / "samples").glob("*.jsonl")):
        _write(_thin_samples(path.read_text("utf-8").splitlines()), target / "samples" / path.name, swap)
    for path in sorted((run / "reference").glob("*.json")):
        if not light:
            _text(path, target / "reference" / path.name, swap)
    if not light and (run / "examples" / "audit.jsonl").exists():
        _examples(run / "examples", target / "examples", swap)
    return _foreign(target)


def recorded_id(folder: Path) -> str:
    """The id of a recorded run, or of a recorded comparison."""
    file, key = ("run.json", "run") if (folder / "run.json").exists() else ("comparison.json", "id")
    return str(json.loads((folder / file).read_text("utf-8"))[key])


def copy_all(runs: Path) -> None:
    """Every recorded run, each in a folder named by its id, as a run folder is."""
    for source in sorted(RECORDED.iterdir()):
        shutil.copytree(source, runs / recorded_id(source))


def _swaps(run: Path) -> list[tuple[str, str]]:
    """What is replaced, longest first: the interpreter, the command, folders, the boot's id."""
    file = next(run / each for each in ("run.json", "record.json") if (run / each).exists())
    facts = json.loads(file.read_text("utf-8"))
    swap = [(str(run.resolve().parent.parent), FOLDER), (str(facts.get("python") or PYTHON), PYTHON)]
    swap += [(each, "pilot-tui") for each in facts.get("argv") or () if each.endswith("/pilot-tui")]
    if (run / "events" / "supervisor.jsonl").exists():
        for line in (run / "events" / "supervisor.jsonl").read_text("utf-8").splitlines():
            boot = json.loads(line).get("boot")
            swap += [(boot, BOOT)] if boot else []
    return sorted(set(swap), key=lambda pair: -len(pair[0]))


def _text(source: Path, target: Path, swap: Iterable[tuple[str, str]]) -> None:
    _write([source.read_text("utf-8").removesuffix("\n")], target, swap)


def _write(lines: Iterable[str], target: Path, swap: Iterable[tuple[str, str]]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    for old, new in swap:
        text = text.replace(old, new)
    text = re.sub(r'("host": ?)"[^"]*"', rf'\1"{HOST}"', text)
    text = re.sub(r'("payload": ?"[^"]*")', lambda found: _PAYLOAD.sub(r"-1-\1.json", found[0][:-1]) + '"', text)
    text = re.sub(r'("by": ?)"[^"]*"', rf'\1"you@{HOST}"', text)
    text = re.sub(r'("(?:pid|pid_start)": ?)\d+', r"\g<1>1", text)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("a", encoding="utf-8") as stream:  # several operators become one file
        stream.write(text)


def _thin_events(lines: list[str]) -> list[str]:
    """All lines but most of the ``live`` ones."""
    events = [json.loads(line) for line in lines]
    stretches: dict[tuple[Any, ...], list[int]] = {}
    for n, event in enumerate(events):
        if event["kind"] == "live":
            key = (event.get("stage"), event.get("attempt"), event.get("phase"), event.get("rank"))
            stretches.setdefault(key, []).append(n)
    kept = {n for places in stretches.values() for n in _highest(places, events, "allocated", LIVE_S)}
    return [line for n, line in enumerate(lines) if events[n]["kind"] != "live" or n in kept]


def _thin_samples(lines: list[str]) -> list[str]:
    values = [json.loads(line) for line in lines]
    kept = {n for n, value in enumerate(values) if value["kind"] != "sample"}
    edges = 0
    places: dict[tuple[int, str], list[int]] = {}
    for n, value in enumerate(values):
        edges += value["kind"] == "mark"
        if value["kind"] == "sample":
            places.setdefault((edges, value["gpu"]), []).append(n)
    for found in places.values():
        kept |= {found[0], found[-1], *_highest(found, values, "used", SAMPLE_S)}
    return [line for n, line in enumerate(lines) if n in kept]


def _highest(places: list[int], values: list[dict[str, Any]], field: str, seconds: float) -> list[int]:
    """Of ``places``, the place of the highest value in each stretch of so many seconds."""
    cut = groupby(places, key=lambda place: int(values[place]["mono"] / seconds))
    return [max(found, key=lambda place: values[place].get(field) or 0) for _, found in cut]


def _examples(source: Path, target: Path, swap: list[tuple[str, str]]) -> None:
    """The whole audit with a new index; of the kept rows the first ones, then those of each reason that lost most."""
    _text(source / "audit.jsonl", target / "audit.jsonl", swap)
    data = (target / "audit.jsonl").read_bytes()
    starts = [0, *(place.end() for place in re.finditer(rb"\n", data))][:-1]
    (target / "audit.idx").write_bytes(b"".join(struct.pack("<Q", start) for start in starts))
    wanted: dict[str, int] = {}
    records: list[dict[str, Any]] = [json.loads(line) for line in data.splitlines()]
    listed = [
        *records[:FIRST_ROWS],
        *sorted(records, key=lambda each: -int(each.get("lost") or 0)),
    ]  # as Examples lists
    for record in listed:
        path = source / "rows" / f"{record['split']}-{record['n']}.json"
        kept = target / "rows" / path.name
        reasons = record.get("reasons") or ["none"]
        few = min(wanted.get(each, 0) for each in reasons) < FIRST_ROWS or record in records[:FIRST_ROWS]
        if path.exists() and not kept.exists() and few:
            _text(path, kept, swap)
            for each in reasons:
                wanted[each] = wanted.get(each, 0) + 1


def _foreign(target: Path) -> list[str]:
    host = re.escape(socket.gethostname().encode())
    words = re.compile(rb'"/(?:tmp|root|work|mnt|home/(?!you))|/venv/|\b' + host + rb"\b")
    return [str(path) for path in target.rglob("*") if path.is_file() and words.search(path.read_bytes())]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
