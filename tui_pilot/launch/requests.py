"""What was asked of a live run: stop, or a resume test. Each request is taken up once, by its id."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable, Mapping
from typing import Any

from tui_pilot.events import schema
from tui_pilot.launch.queue_words import queue_words
from tui_pilot.run_folder import RunFolder
from tui_pilot.store.state import RunState

SAVE_NOW = "save_now"


class Requests:
    """``stop`` once asked; ``tests``: how many resume tests wait. ``done``: requests of an earlier life of the run."""

    def __init__(self, done: Iterable[Mapping[str, Any]] = ()) -> None:
        self.stop = False
        self.interrupted = False
        self.by = ""
        self.tests = 0
        self._seen = {str(request.get("id")) for request in done}

    def stop_by_signal(self, number: int) -> None:
        """A signal to the supervisor itself."""
        self.stop = True
        self.interrupted = self.interrupted or number == signal.SIGINT
        self.by = self.by or f"by {signal.Signals(number).name}"

    def take(self, event: Mapping[str, Any], state: RunState, folder: RunFolder) -> list[tuple[str, dict[str, Any]]]:
        """Act on one event; returns the events that answer it."""
        source = str(event.get("source", ""))
        if event.get("kind") != schema.REQUEST or not source.startswith("operator-"):
            return []
        name, what = str(event.get("id")), event.get("what")
        if name in self._seen:
            return []
        self._seen.add(name)
        seen = (schema.REQUEST_SEEN, {"what": what, "id": name, "source": source})
        if what == "stop":
            self.stop = True
            self.by = self.by or "by you"
            self.interrupted = self.interrupted or bool(event.get("interrupt"))
            return [seen]
        if what == "resume_test":
            self.tests += 1
            if state.stage is not None and state.stage.name == "train":
                with contextlib.suppress(OSError):
                    (folder.path / "control").mkdir(exist_ok=True)
                    (folder.path / "control" / SAVE_NOW).touch()
            return [seen, (schema.TEST_QUEUED, {"phase": "resume", "text": queue_words(state)})]
        return [seen]
