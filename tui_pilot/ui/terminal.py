"""What the terminal can show: whether glyphs must become ASCII, and why."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

CURE = "export LANG=C.UTF-8, then tmux -u attach"


def ascii_reason(environment: Mapping[str, str] | None = None, asked: bool = False) -> str | None:
    """Why ASCII is used, as a sentence with the cure; None if glyphs are safe."""
    env = os.environ if environment is None else environment
    if asked:
        return "ASCII, as --ascii asks"
    if env.get("PILOT_TUI_ASCII", "") not in ("", "0"):
        return "ASCII, as PILOT_TUI_ASCII asks"
    if env.get("TERM", "") in ("dumb", "linux"):
        return f"ASCII: TERM is {env['TERM']}, whose font lacks the glyphs"
    if env.get("TMUX") and _tmux_utf8() == "0":
        return f"ASCII: this tmux is not UTF-8. Cure: {CURE}"
    return None


def _tmux_utf8() -> str:
    try:
        done = subprocess.run(
            ["tmux", "display", "-p", "#{client_utf8}"], capture_output=True, text=True, timeout=2, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
