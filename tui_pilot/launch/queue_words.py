"""Says when a resume test that is asked for now will run, and why not at once. Pure."""

from __future__ import annotations

from tui_pilot.store.state import RunState

NO_CHECKPOINT_YET = "queued until stage train ends: there is no checkpoint yet"
IN_TRAIN = (
    "queued until stage train ends: a second copy needs memory that was not measured yet; "
    "the stage saves at its next update"
)


def queue_words(state: RunState) -> str:
    """The sentence for a live run."""
    stage = state.stage.name if state.stage is not None else ""
    if stage == "train":
        return IN_TRAIN
    if stage in ("resume", "reload"):
        return f"queued until stage {stage} ends: two processes would share the device's memory"
    if state.row("checkpoint").verdict in (None, "running"):
        return NO_CHECKPOINT_YET
    return "queued until the next stage ends"
