"""The sheet as a file: always a new one, whole or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tui_pilot.errors import EXIT_PLAN_WRONG, RunFolderError
from tui_pilot.run_folder import RunFolder
from tui_pilot.sheet import formats
from tui_pilot.sheet.build import document
from tui_pilot.sheet.markdown import render

FORMATS = ("md", "json", "yaml", "csv", "html")
#: Formats that can be shown as lines; HTML draws plots, which takes another library.
SHOWN = FORMATS[:-1]


def write(folders: Sequence[RunFolder], target_dir: Path, format: str = "md") -> Path:
    """Write the sheet of these runs into ``target_dir`` under a name that was free; returns the file."""
    return write_document(document(folders), target_dir, format)


def write_document(found: Mapping[str, Any], target_dir: Path, format: str = "md") -> Path:
    """Write a document that was already built: what the preview showed is what is written."""
    data = text(found, format).encode("utf-8", "backslashreplace")
    try:
        target_dir.mkdir(parents=True, exist_ok=True)
        path, descriptor = _free(target_dir, file_name(found), format)
    except OSError as error:
        raise _refused(target_dir, error) from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise _refused(path, error) from error
    return path


def text(found: Mapping[str, Any], format: str) -> str:
    """The document in one of ``FORMATS``."""
    if format == "md":
        return render(found)
    if format == "json":
        return formats.as_json(found)
    if format == "yaml":
        return formats.as_yaml(found)
    if format == "csv":
        return formats.as_csv(found)
    if format == "html":
        from tui_pilot.sheet.page import as_html

        return as_html(found)
    raise RunFolderError(
        f"The sheet has no format {format!r}.", f"Allowed: {', '.join(FORMATS)}.", key="format", value=format,
        exit_code=EXIT_PLAN_WRONG,
    )  # fmt: skip


def file_name(found: Mapping[str, Any]) -> str:
    """``sheet-gsm8k-lora``: the title made safe for a file, without its ending."""
    safe = re.sub(r"[^A-Za-z0-9]+", "-", str(found.get("title") or "")).strip("-").lower()[:60]
    return f"sheet-{safe or 'run'}"


def free_name(found: Mapping[str, Any], target_dir: Path, format: str) -> str:
    """The name that ``write`` would take now."""
    stem, number = file_name(found), 1
    while (target_dir / _numbered(stem, number, format)).exists():
        number += 1
    return _numbered(stem, number, format)


def _numbered(stem: str, number: int, format: str) -> str:
    return f"{stem}.{format}" if number == 1 else f"{stem}-{number}.{format}"


def _free(target_dir: Path, stem: str, format: str) -> tuple[Path, int]:
    number = 1
    while True:
        path = target_dir / _numbered(stem, number, format)
        try:
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            number += 1


def _refused(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(
        f"The sheet cannot be written to {path}: {error.strerror or error}.",
        "Name another place: pilot-tui sheet RUN -o FILE",
        file=str(path),
    )
