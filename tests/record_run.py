"""Keeps a finished run as a fixture: ``python tests/record_run.py RUN_FOLDER NAME [--light]``.

What screens, sheets and tests read is copied to ``tests/recorded/NAME``; weights, code and logs are not. Paths, hosts
and process numbers of the machine are replaced: nothing of it may be committed. ``--light`` leaves the examples out,
for a run that is only a line in Runs. ``copy_all`` puts the recorded runs back under their own ids.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("recorded")
KEPT_ROWS = 24
HOST = "box"
FOLDER = "/home/you/desk"
BOOT = "00000000-0000-4000-8000-000000000000"
PYTHON = "/usr/bin/python3"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("name", help="folder below tests/recorded")
    parser.add_argument("--light", action="store_true", help="without examples/")
    asked = parser.parse_args(arguments)
    target = RECORDED / asked.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    swap = _swaps(asked.run)
    for name in ("plan.json", "run.json"):
        _text(asked.run / name, target / name, swap)
    for path in sorted((asked.run / "events").glob("*.jsonl")):
        _text(path, target / "events" / re.sub(r"^operator-.*", "operator-1-1.jsonl", path.name), swap)
    for path in sorted((asked.run / "reference").glob("*.json")):
        _text(path, target / "reference" / path.name, swap)
    if not asked.light:
        _examples(asked.run / "examples", target / "examples", swap)
    left = _foreign(target)
    if left:
        print(f"words of this machine are left in {left}", file=sys.stderr)
        return 1
    print(f"{target}: {sum(path.stat().st_size for path in target.rglob('*') if path.is_file()):,} bytes")
    return 0


def copy_all(runs: Path) -> None:
    """Every recorded run, each in a folder named by its id, as a run folder is."""
    for source in sorted(RECORDED.iterdir()):
        shutil.copytree(source, runs / json.loads((source / "run.json").read_text("utf-8"))["run"])


def _swaps(run: Path) -> list[tuple[str, str]]:
    """What is replaced, longest first: the interpreter, the command, folders, the boot's id."""
    facts = json.loads((run / "run.json").read_text("utf-8"))
    swap = [(str(run.resolve().parent.parent), FOLDER), (str(facts.get("python") or PYTHON), PYTHON)]
    swap += [(each, "pilot-tui") for each in facts.get("argv") or () if each.endswith("/pilot-tui")]
    for line in (run / "events" / "supervisor.jsonl").read_text("utf-8").splitlines():
        boot = json.loads(line).get("boot")
        swap += [(boot, BOOT)] if boot else []
    return sorted(set(swap), key=lambda pair: -len(pair[0]))


def _text(source: Path, target: Path, swap: list[tuple[str, str]]) -> None:
    text = source.read_text("utf-8")
    for old, new in swap:
        text = text.replace(old, new)
    text = re.sub(r'("host": ?)"[^"]*"', rf'\1"{HOST}"', text)
    text = re.sub(r'("(?:pid|pid_start)": ?)\d+', r"\g<1>1", text)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("a", encoding="utf-8") as stream:  # several operators become one file
        stream.write(text)


def _examples(source: Path, target: Path, swap: list[tuple[str, str]]) -> None:
    """The whole audit with a new index, and the first kept rows of each reason."""
    _text(source / "audit.jsonl", target / "audit.jsonl", swap)
    data = (target / "audit.jsonl").read_bytes()
    starts = [0, *(place.end() for place in re.finditer(rb"\n", data))][:-1]
    (target / "audit.idx").write_bytes(b"".join(struct.pack("<Q", start) for start in starts))
    wanted: dict[str, int] = {}
    kept = 0
    records: list[dict[str, Any]] = [json.loads(line) for line in data.splitlines()]
    for record in sorted(records, key=lambda each: -int(each.get("lost") or 0)):  # as Examples lists them
        path = source / "rows" / f"{record['split']}-{record['n']}.json"
        reasons = record.get("reasons") or ["none"]
        if path.exists() and kept < KEPT_ROWS and min(wanted.get(each, 0) for each in reasons) < 6:
            _text(path, target / "rows" / path.name, swap)
            kept += 1
            for each in reasons:
                wanted[each] = wanted.get(each, 0) + 1


def _foreign(target: Path) -> list[str]:
    words = re.compile(rb'"/(?:tmp|root|work|mnt|home/(?!you))|/venv/')
    return [str(path) for path in target.rglob("*") if path.is_file() and words.search(path.read_bytes())]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
