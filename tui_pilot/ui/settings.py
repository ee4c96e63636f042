"""What the screen remembers between two starts: the theme. A file that cannot be read or written changes nothing."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from tui_pilot.run_folder import write_json
from tui_pilot.ui.theme_names import THEMES


def settings_file() -> Path:
    """``$XDG_CONFIG_HOME/pilot-tui/settings.json``."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "pilot-tui" / "settings.json"


def saved_theme() -> str | None:
    """The theme chosen last; None if there is none or it is unknown."""
    try:
        found = json.loads(settings_file().read_text("utf-8")).get("theme")
    except (OSError, ValueError, AttributeError):
        return None
    return found if found in THEMES else None


def save_theme(name: str) -> None:
    """Remember the theme."""
    with contextlib.suppress(OSError):
        write_json(settings_file(), {"theme": name})
