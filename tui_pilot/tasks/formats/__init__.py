"""Data files as records: ``read`` opens any of them, ``detect`` and ``sniff`` say what one looks like."""

from tui_pilot.tasks.formats.reader import Detected, detect, read, sniff
from tui_pilot.tasks.formats.table import Table

__all__ = ["Detected", "Table", "detect", "read", "sniff"]
