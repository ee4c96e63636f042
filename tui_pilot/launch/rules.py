"""The supervisor's decisions, pure but for looking whether payloads are there: what stops a run, what a stage lacks,
which phases a dead stage leaves without a verdict, and how a run ended.
"""

from __future__ import annotations

from tui_pilot.events.schema import PHASES_OF, STAGES, phases_of
from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.run_folder import RunFolder
from tui_pilot.store.files import has_artifact, has_checkpoint
from tui_pilot.store.state import Row, RunState

Given = tuple[str, str, Reason]


def without_process(stage: str, plan: Plan, folder: RunFolder) -> list[Given]:
    """Verdicts of a stage that is not started; empty when it is."""
    phases = phases_of(stage)
    if all(phase in plan.gates.skip for phase in phases):
        return [
            (phase, "skipped", Reason("skipped", f"The plan skips {phase} (gates.skip).", "note")) for phase in phases
        ]
    if stage == "resume" and not has_checkpoint(folder):
        text = "There is no whole checkpoint to resume from: checkpoint did not write one."
        return [("resume", "not_run", reason("needs_checkpoint", text))]
    if stage == "reload" and not has_artifact(folder):
        text = "There is no whole artifact to reload: export did not write one."
        return [("reload", "not_run", reason("needs_artifact", text))]
    return []


def stops(state: RunState, stage: str) -> bool:
    """Whether the run stops at this stage's edge: a phase of it failed. Out of memory in `overfit` says nothing of
    the planned batch, so it does not stop `peak`."""
    for phase in phases_of(stage):
        row = state.row(phase)
        if row.verdict == "fail" and not (phase == "overfit" and _only_out_of_memory(row)):
            return True
    return False


def _only_out_of_memory(row: Row) -> bool:
    codes = [reason.get("code") for reason in row.reasons if reason.get("severity") == "fail"]
    return bool(codes) and all(code == "oom" for code in codes)


def unjudged(state: RunState, stage: str, attempt: int, exit_code: int, stopped: bool) -> list[tuple[str, bool]]:
    """Phases of an ended stage that still need a verdict: ``[(phase, whether it began)]``.

    Open phases, always. If none is open and the stage died, or ended without a word, before its next phase began, that
    next phase; unless a phase of this attempt failed, which is why the rest was left out.
    """
    rows = [state.row(phase) for phase in phases_of(stage)]
    running = [(row.phase, True) for row in rows if row.running]
    if running or stopped:
        return running
    ours = [row for row in rows if row.attempt == attempt and row.verdict is not None]
    if any(row.verdict in ("fail", "not_run") for row in ours):
        return []
    missing = [row.phase for row in rows if row not in ours]
    return [(missing[0], False)] if missing else []


def outcome(state: RunState, before: RunState, again: bool, stopped_at: str) -> tuple[str, str]:
    """(state, text) of ``run_ended``. After a resume test of an ended run: the state it had, judged again."""
    failed = [row for stage in STAGES for row in map(state.row, PHASES_OF[stage]) if row.verdict == "fail"]
    why = f"at {failed[0].phase}: {_sentence(failed[0])}" if failed else ""
    if again:
        if before.state == "lost":
            return "lost", before.text
        if failed:
            return "failed", why
        return ("finished", "") if before.state in ("failed", "diverged") else (before.state, before.text)
    if stopped_at and any(row.verdict is None or _has(row, "stopped") for row in state.rows):
        return "stopped", f"by you {stopped_at}"
    if any(_has(row, "diverged") for row in failed):
        return "diverged", next(_sentence(row) for row in failed if _has(row, "diverged"))
    return ("failed", why) if failed else ("finished", "")


def _has(row: Row, code: str) -> bool:
    return any(reason.get("code") == code for reason in row.reasons)


def _sentence(row: Row) -> str:
    reason = next((reason for reason in row.reasons if reason.get("severity") == "fail"), None)
    return str(reason.get("text")) if reason is not None else "failed"
