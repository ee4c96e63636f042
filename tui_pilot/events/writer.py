"""Append-only event files: one writer per file, one ``os.write`` per line. Standard library only.

Measuring never kills training: a failed emission is caught once, counted, and shown when the disk takes lines again.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from threading import Lock
from typing import Any

from tui_pilot.events.schema import MAX_LINE, SCHEMA

BALLAST_BYTES = 64 << 10


def utc_now() -> str:
    """Clock time, UTC, milliseconds, ISO 8601 with ``Z``."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain(value: Any) -> Any:
    """JSON has no NaN: floats that are not finite become the words ``nan``, ``inf``, ``-inf``; tuples become lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value


class Writer:
    """Writes one event file of a run.

    ``folder`` is the run's events folder, ``source`` the file's name without ending (``train.rank0``). The file is
    opened for appending; a torn last line of an earlier writer is closed with a newline first, so that two records
    never glue together. A preallocated ballast file is given up on the first full disk, so that the last words fit.
    """

    def __init__(self, folder: Path, source: str) -> None:
        self.folder = folder
        self.source = source
        self.failures = 0
        self.last_error: str | None = None
        self._lock = Lock()
        self._sequence = 0
        self._ballast = folder / f".{source}.ballast"
        folder.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(
            folder / f"{source}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        self._mend_tail()
        with contextlib.suppress(OSError):
            self._ballast.write_bytes(b"\0" * BALLAST_BYTES)

    def _mend_tail(self) -> None:
        path = self.folder / f"{self.source}.jsonl"
        length = os.fstat(self._descriptor).st_size
        if length:
            with path.open("rb") as stream:
                stream.seek(length - 1)
                if stream.read(1) != b"\n":
                    os.write(self._descriptor, b"\n")

    def emit(self, kind: str, /, *, sync: bool = False, **fields: Any) -> bool:
        """Append one event; returns whether it reached the file. Never raises for a full or failing disk.

        ``sync`` also forces it to the disk: for phase edges, not for every line (0.13 ms each).
        """
        with self._lock:
            self._sequence += 1
            head = {
                "v": SCHEMA,
                "kind": kind,
                "at": utc_now(),
                "mono": round(time.monotonic(), 4),
                "n": self._sequence,
            }
            body = plain(fields)
            line = json.dumps(head | body, ensure_ascii=False, separators=(",", ":")).encode(
                "utf-8", "backslashreplace"
            )
            try:
                if len(line) >= MAX_LINE:
                    line = self._spill(head, body)
                self._write(line + b"\n")
                if sync:
                    os.fsync(self._descriptor)
                return True
            except OSError as error:
                self.failures += 1
                self.last_error = f"{type(error).__name__}: {error.strerror or error}"
                return False

    def _spill(self, head: Mapping[str, Any], body: Mapping[str, Any]) -> bytes:
        name = f"payload/{self.source}-{os.getpid()}-{head['n']}.json"
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_suffix(".part")
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "backslashreplace")
        try:
            temporary.write_bytes(data)
        except OSError:
            self._give_up_ballast()
            temporary.write_bytes(data)
        temporary.replace(path)
        keep = {key: body[key] for key in ("phase", "stage", "attempt", "verdict", "name", "rank") if key in body}
        return json.dumps({**head, **keep, "payload": name}, ensure_ascii=False, separators=(",", ":")).encode()

    def _write(self, data: bytes) -> None:
        done = 0
        retried = False
        while done < len(data):
            try:
                done += os.write(self._descriptor, data[done:])
            except OSError:
                if retried or not self._give_up_ballast():
                    if done:
                        with contextlib.suppress(OSError):
                            os.write(self._descriptor, b"\n")
                    raise
                retried = True

    def _give_up_ballast(self) -> bool:
        try:
            self._ballast.unlink()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Force the file to the disk, close it and remove the ballast."""
        with self._lock:
            with contextlib.suppress(OSError):
                os.fsync(self._descriptor)
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._give_up_ballast()
