"""One family of errors for people: what happened, where, and what to do; each knows its exit code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

EXIT_OK = 0
EXIT_GATE_FAILED = 1
EXIT_PLAN_WRONG = 2
EXIT_TOOL_FAILED = 3
EXIT_UNCHECKED = 4
EXIT_STOPPED = 5
EXIT_INTERRUPTED = 130


@dataclass
class PilotError(Exception):
    """Base of every error that reaches a person.

    ``code`` is stable for scripts, ``title`` a few words, ``text`` the whole sentence, ``advice`` one line that
    says what to do. ``file``, ``line``, ``key`` and ``value`` say where, as far as it is known.
    """

    text: str
    advice: str = ""
    code: str = "error"
    title: str = "Something is wrong"
    exit_code: int = EXIT_TOOL_FAILED
    file: str | None = None
    line: int | None = None
    key: str | None = None
    value: Any = None

    def __post_init__(self) -> None:
        super().__init__(self.text)

    def __str__(self) -> str:
        place = "" if self.file is None else self.file + (f":{self.line}" if self.line is not None else "")
        parts = [part for part in (place, self.key) if part]
        head = "  ".join(parts)
        body = f"{head}: {self.text}" if head else self.text
        return f"{body} {self.advice}".rstrip()

    def as_json(self) -> dict[str, Any]:
        """The ``error`` object of ``--json`` output."""
        return {
            "code": self.code,
            "title": self.title,
            "text": self.text,
            "file": self.file,
            "line": self.line,
            "key": self.key,
            "value": self.value,
            "advice": self.advice,
        }


@dataclass
class PlanError(PilotError):
    """One fault in a plan or on the command line; nothing was run."""

    code: str = "plan_wrong"
    title: str = "The plan is wrong"
    exit_code: int = EXIT_PLAN_WRONG

    __str__ = PilotError.__str__


@dataclass
class PlanErrors(PilotError):
    """All faults of one plan at once, in file order."""

    errors: list[PlanError] = field(default_factory=list)
    code: str = "plan_wrong"
    title: str = "The plan is wrong"
    exit_code: int = EXIT_PLAN_WRONG

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors) or self.text


@dataclass
class RunFolderError(PilotError):
    """A run folder that cannot be found, read, written or locked."""

    code: str = "run_folder"
    title: str = "The run folder cannot be used"

    __str__ = PilotError.__str__


@dataclass
class DataError(PilotError):
    """A data file that cannot be read as what the plan says it is; names file and line."""

    code: str = "data_wrong"
    title: str = "The data cannot be read"

    __str__ = PilotError.__str__


@dataclass
class ModelError(PilotError):
    """A model folder that cannot be loaded, or may not be (unsafe files)."""

    code: str = "model_wrong"
    title: str = "The model cannot be loaded"

    __str__ = PilotError.__str__
