"""Reads a plan's bytes as text; what is no small UTF-8 file is said in words before anything parses it."""

from __future__ import annotations

from pathlib import Path

from tui_pilot.plan.problems import Problems
from tui_pilot.text import size

MAX_BYTES = 1 << 20


def read_text(path: Path, problems: Problems) -> str:
    """The text of a plan's file, or PlanErrors that say what stands at the path instead."""
    text = ""
    try:
        if path.is_dir():
            problems.add_text("is a folder.", "Name the plan in it, or a run folder with show.")
        elif not path.exists():
            problems.add_text("does not exist.", "pilot-tui init writes a plan; pilot-tui alone runs the demo.")
        elif not path.is_file():
            problems.add_text("is no file.", "Name a YAML file.")
        elif path.stat().st_size > MAX_BYTES:
            problems.add_text(f"has {size(path.stat().st_size)}: that is no plan.", "Name a YAML file.")
        else:
            text = _decode(path.read_bytes(), problems)
    except (OSError, ValueError) as error:
        problems.add_text(f"cannot be read: {(getattr(error, 'strerror', None) or str(error)).lower()}.")
    problems.raise_all()
    return text


def _decode(data: bytes, problems: Problems) -> str:
    if data.startswith(b"\xef\xbb\xbf"):
        problems.add_text("starts with a byte order mark.", "Save it as UTF-8 without BOM.", 1)
        return ""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problems.add_text(f"is not UTF-8: byte 0x{data[error.start]:02x}.", "Save it as UTF-8.", line)
        return ""
