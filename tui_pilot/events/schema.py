"""The closed vocabulary of the event log, the fifteen phases and the six stages. Standard library only.

An event is one JSON object on one line: ``{"v": 1, "kind": ..., "at": UTC, "mono": seconds, "n": sequence, ...}``.
A line longer than ``MAX_LINE`` has its body in a file that ``payload`` names, relative to the events folder.
"""

from __future__ import annotations

from typing import Final

SCHEMA: Final = 1
MAX_LINE: Final = 4096

PHASES: Final = (
    "stack", "examples", "splits", "overfit", "load", "forward", "backward", "first_step", "steady_step", "batch",
    "evaluate", "checkpoint", "export", "resume", "reload",
)  # fmt: skip

STAGES: Final = ("data", "overfit", "peak", "train", "resume", "reload")

PHASES_OF: Final[dict[str, tuple[str, ...]]] = {
    "data": ("stack", "examples", "splits"),
    "overfit": ("overfit",),
    "peak": ("load", "forward", "backward", "first_step", "steady_step", "evaluate"),
    "train": ("batch", "checkpoint", "export"),
    "resume": ("resume",),
    "reload": ("reload",),
}
STAGE_OF: Final = {phase: stage for stage, phases in PHASES_OF.items() for phase in phases}

# The stage of a compared run, after ``data``; its rows are rows of the fifteen, the others stay skipped.
TRIAL: Final = "trial"
TRIAL_STAGES: Final = ("data", TRIAL)
TRIAL_PHASES: Final = ("load", "batch", "evaluate", "checkpoint", "export")
NOT_IN_TRIAL: Final = tuple(phase for phase in PHASES if phase not in (*PHASES_OF["data"], *TRIAL_PHASES))


def phases_of(stage: str) -> tuple[str, ...]:
    """The phases that a stage writes the rows of; the stage of a trial included."""
    return TRIAL_PHASES if stage == TRIAL else PHASES_OF[stage]


VERDICTS: Final = ("pass", "warn", "fail", "unchecked", "skipped", "not_run")

# Written by the supervisor.
RUN_STARTED: Final = "run_started"  # run, run_kind, name, demo, parent, changed, host, pid, pid_start, boot, stages
RUN_ENDED: Final = "run_ended"  # state (finished|failed|stopped|lost), text
STAGE_STARTED: Final = "stage_started"  # stage, attempt, pid, pid_start, processes, python
STAGE_ENDED: Final = "stage_ended"  # stage, attempt, exit_code, signal, text
DEVICE_PEAKS: Final = "device_peaks"  # phase, attempt, edge (window|ended), gpus: [{uuid, index, used_peak, ...}]
TEST_QUEUED: Final = "test_queued"  # phase, text: a resume test waits, and why
REQUEST_SEEN: Final = "request_seen"  # what, source, n: a request of an operator file was taken up

# Written by the stages, one file per rank.
RANK_STARTED: Final = "rank_started"  # stage, attempt, rank, world, pid, pid_start, device, uuid, torch, counter
PHASE_STARTED: Final = "phase_started"  # phase, attempt, stage, inputs
PROGRESS: Final = "progress"  # phase, attempt, done, total, unit, text
PART: Final = "part"  # phase, attempt, part, duration_s: one timed part of a phase is over
LIVE: Final = "live"  # phase, attempt, rank, allocated, reserved: bytes, the highest since the line before
PHASE_ENDED: Final = "phase_ended"  # phase, attempt, verdict, reasons, inputs, thresholds, duration_s, parts, memory
UPDATE: Final = "update"  # stage, phase, update, loss, lr, tokens, rows, seconds
VALIDATION: Final = "validation"  # update, metrics
FACTS: Final = "facts"  # name (examples|splits|batch|stack|resume|reload|sizes), value: a summary others read

# Written by a screen or a command, each into a file of its own.
MARK: Final = "mark"  # phase, verdict (pass|warn|fail|null), note, by (the user's name, or null)
NOTE: Final = "note"  # text, phase, by
DECISION: Final = "decision"  # decision (retain|reject|defer), note, by
REQUEST: Final = "request"  # what (stop|resume_test), id: for the supervisor
CLEANED: Final = "cleaned"  # removed: [{path, bytes}]: payloads removed by `clean`; manifests stay

# Anybody.
NOTICE: Final = "notice"  # level (info|warn|error), text, advice

KINDS: Final = frozenset(
    value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str)
)  # fmt: skip
