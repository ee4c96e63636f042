"""Runs the stages of one run, one after another, each a fresh process; outlives every screen.

``python -m tui_pilot.launch.supervisor RUN [--only STAGE --attempt N]``. It holds the run's lock, reads the GPUs,
judges phases whose process died, takes requests from operator files, and leaves state only in the event log.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from tui_pilot.devices.host import boot_id, free_bytes, process_start
from tui_pilot.errors import EXIT_OK, EXIT_TOOL_FAILED, PilotError, RunFolderError
from tui_pilot.events import schema
from tui_pilot.events.reader import Reader
from tui_pilot.events.writer import Writer
from tui_pilot.gates.verdict import Reason
from tui_pilot.launch import foretelling, rules
from tui_pilot.launch.deaths import Death, HostWatch, reason_of, text_of_end
from tui_pilot.launch.gpu_watch import GpuWatch
from tui_pilot.launch.requests import Requests
from tui_pilot.launch.stage_process import StageProcess, kill_ranks, source_prefix
from tui_pilot.plan.model import from_json
from tui_pilot.run_folder import RunFolder, beat, drop_lock, take_lock
from tui_pilot.store.files import has_checkpoint
from tui_pilot.store.fold import fold
from tui_pilot.store.view import as_seen

BEAT_S = 1.0
POLL_S = 0.1
POLL_WITH_GPUS_S = 0.05  # phase edges are learnt from the stage's file: the closer, the truer the sampled windows
LAST_WORDS_TRIES = 5
ALONE = ("data", "overfit", "reload")  # one process whatever the plan: nothing in them depends on the others


class Supervisor:
    """One supervisor's life. ``only`` and ``attempt``: a single stage of an ended run, again."""

    def __init__(self, folder: RunFolder, only: str | None = None, attempt: int = 1) -> None:
        self.folder = folder
        self.only, self.attempt = only, attempt
        self.run = folder.read_json(folder.run_file)
        document = folder.read_json(folder.plan_file)
        self.plan = from_json(document["plan"])
        self.cwd = Path(str(document["folder"]))
        self.keep_going = bool(self.run.get("keep_going")) or not self.plan.gates.stop_on_fail
        self.reader = Reader(folder.events)
        self.state = fold(self.reader.poll())
        self.before = as_seen(self.state, live=False)
        self.requests = Requests(self.state.requests if only is not None else ())
        self.writer = Writer(folder.events, "supervisor")
        self.gpus = GpuWatch(folder)
        self.foretelling = foretelling.Foretelling(folder, self.run, document, self.gpus.seen)
        self.ways_found: dict[str, Any] | None = None
        self.process: StageProcess | None = None
        self.stopped_at = ""
        self._beaten = 0.0

    # -- the run -------------------------------------------------------------------------------------------------------
    def go(self) -> None:
        """The whole run, or the one stage; never raises for what a stage does."""
        self._announce()
        if self.run.get("python") is None:
            self._no_python()
        elif self.only is not None:
            self._again(self.only)
        else:
            self.foretelling.begin()
            self._stages(self.run.get("stages") or schema.STAGES)
            self._weigh_ways_out()
        self.poll()
        state, text = rules.outcome(self.state, self.before, self.only is not None, self.stopped_at)
        self._end(state, text)

    def _stages(self, stages: Sequence[str]) -> None:
        for stage in stages:
            self.poll()
            if self.requests.stop:
                self.stopped_at = self.stopped_at or f"before {stage}"
                return
            if self._left_out(stage):
                continue
            self.run_stage(stage, 1)
            if self.stopped_at or (rules.stops(self.state, stage) and not self.keep_going):
                break
            if stage in ("resume", "reload") and self.requests.tests:
                self._asked_test()
        if self.requests.tests and not self.stopped_at:
            self._asked_test()

    def _left_out(self, stage: str) -> bool:
        """Whether the stage is not started: the plan skips all its phases, or what it needs is not there."""
        verdicts = rules.without_process(stage, self.plan, self.folder)
        for phase, verdict, reason in verdicts:
            self._judge(phase, 1, verdict, [reason])
        if verdicts:
            self.poll()
        return bool(verdicts)

    def _asked_test(self) -> None:
        self.requests.tests = 0
        self.poll()
        if has_checkpoint(self.folder):
            self.run_stage("resume", self.state.row("resume").attempt + 1)
        else:
            self._notice("warn", "The resume test that was asked for did not run: there is no checkpoint.")

    def _again(self, stage: str) -> None:
        if has_checkpoint(self.folder):
            self.run_stage(stage, self.attempt)
        else:
            self._notice("error", f"{stage} cannot run again: there is no checkpoint.")

    def _weigh_ways_out(self) -> None:
        """After an out-of-memory: what each way out would need, by prediction. A stop ends the wait."""
        ways = foretelling.out_of_memory(self.state)
        if not ways or self.stopped_at:
            return
        until = time.monotonic() + foretelling.WAYS_SECONDS
        asked = [(phase, way) for phase, each in ways.items() for way in each]
        self._wait_for_prediction(until)
        self.foretelling.begin([way for _, way in asked])
        self._wait_for_prediction(until)
        if self.ways_found is None:
            return
        weighed = self.foretelling.weighed([way for _, way in asked], self.ways_found)
        value = {phase: [way for (of, _), way in zip(asked, weighed, strict=True) if of == phase] for phase in ways}
        self.writer.emit(schema.FACTS, sync=True, name="ways_out", value=value)
        self.poll()

    def _wait_for_prediction(self, until: float) -> None:
        while self.foretelling.busy and time.monotonic() < until and not self.requests.stop:
            self.poll()
            time.sleep(POLL_S)

    def _no_python(self) -> None:
        choice = self.run.get("python_choice") or {}
        text = str(choice.get("problem") or "no Python here has a torch that can be imported")
        reason = Reason("extension_broken", text + ".", "fail", {"package": "torch"}, str(choice.get("advice") or ""))
        self._judge("stack", 1, "fail", [reason])

    # -- one stage -----------------------------------------------------------------------------------------------------
    def run_stage(self, stage: str, attempt: int) -> None:
        """Start a stage, follow it to its end, and judge what it left open."""
        processes = 1 if stage in ALONE else self.plan.launch.processes
        python = str(self.run["python"])
        try:
            process = StageProcess.spawn(self.folder, python, stage, attempt, processes=processes, cwd=self.cwd)
        except OSError as error:
            reason = Reason("crash", f"Stage {stage} could not be started with {python}: {error}.", "fail")
            self._judge(schema.phases_of(stage)[0], attempt, "fail", [reason])
            self.poll()
            return
        self.process = process
        self.writer.emit(
            schema.STAGE_STARTED, sync=True, stage=stage, attempt=attempt, pid=process.pid, pid_start=process.start,
            processes=processes, python=python,
        )  # fmt: skip
        watch = HostWatch.begin()
        pause = POLL_WITH_GPUS_S if self.gpus.active else POLL_S
        while (code := process.peek()) is None:
            self.poll()
            watch.look()
            if self.requests.stop:
                self._note_stop(stage)
                process.terminate()
                process.push(self._ranks(process))
            time.sleep(pause)
        kill_ranks(self._ranks(process))
        while self.poll():
            pass
        self._judge_open(process, code, watch)
        self.process = None
        self.poll()

    def _note_stop(self, stage: str) -> None:
        if not self.stopped_at:
            row = self.state.running_row
            self.stopped_at = f"in {row.phase}" if row is not None else f"in stage {stage}"

    def _ranks(self, process: StageProcess) -> list[dict[str, Any]]:
        ours = (process.stage, process.attempt)
        return [dict(rank) for rank in self.state.ranks.values() if (rank.get("stage"), rank.get("attempt")) == ours]

    def _judge_open(self, process: StageProcess, code: int, watch: HostWatch) -> None:
        death = Death(
            process.stage, code, process.log, process.log_tail(40), watch.memory_killer(), free_bytes(self.folder.path)
        )
        for phase, began in rules.unjudged(self.state, process.stage, process.attempt, code, bool(self.stopped_at)):
            if self.stopped_at:
                reason = Reason("stopped", f"Stopped {self.requests.by or 'by you'} {self.stopped_at}.", "note")
                self._judge(phase, process.attempt, "not_run", [reason])
            else:
                self._judge(phase, process.attempt, "fail", [reason_of(death, phase, began)])
            if began:
                self._peaks(phase, process.attempt)
        self.writer.emit(
            schema.STAGE_ENDED, sync=True, stage=process.stage, attempt=process.attempt,
            exit_code=code if code >= 0 else None, signal=-code if code < 0 else None, text=text_of_end(death),
        )  # fmt: skip

    def _judge(self, phase: str, attempt: int, verdict: str, reasons: Sequence[Reason]) -> None:
        row = self.state.row(phase)
        began = row.started_mono if row.running else None
        self.writer.emit(
            schema.PHASE_ENDED, sync=True, phase=phase, attempt=attempt, verdict=verdict,
            reasons=[reason.as_json() for reason in reasons],
            duration_s=None if began is None else round(time.monotonic() - began, 4),
        )  # fmt: skip

    # -- following -----------------------------------------------------------------------------------------------------
    def poll(self) -> int:
        """Read what is new, act on it, give a sign of life; returns the number of new events."""
        now = time.monotonic()
        if now - self._beaten >= BEAT_S:
            self._beaten = now
            beat(self.folder.lock_file)
        self._take_prediction()
        events = self.reader.poll()
        self.state = fold(events, self.state)
        if self.process is not None and events:
            self._edges(events, source_prefix(self.process.stage, self.process.attempt))
        for event in events:
            for kind, fields in self.requests.take(event, self.state, self.folder):
                self.writer.emit(kind, **fields)
        return len(events)

    def _take_prediction(self) -> None:
        found = self.foretelling.taken()
        if found is None:
            return
        if "instead" in found:
            self.ways_found = found
        else:
            self.writer.emit(schema.FACTS, sync=True, name="predicted", value=self.foretelling.keep(found))

    def _edges(self, events: Sequence[dict[str, Any]], prefix: str) -> None:
        if not self.gpus.active:
            return
        ours = [event for event in events if str(event["source"]).startswith(prefix) and not event.get("rank", 0)]
        ended = {event.get("phase") for event in ours if event["kind"] == schema.PHASE_ENDED}
        for event in ours:
            phase = str(event.get("phase"))
            if event["kind"] == schema.PHASE_STARTED and phase not in ended:
                self.gpus.phase_began(phase)
            elif event["kind"] == schema.PHASE_ENDED:
                self._peaks(phase, int(event.get("attempt", 1)))

    def _peaks(self, phase: str, attempt: int) -> None:
        rows = self.gpus.phase_ended(phase)
        if rows:
            self.writer.emit(schema.DEVICE_PEAKS, sync=True, phase=phase, attempt=attempt, edge="ended", gpus=rows)

    # -- first and last words ------------------------------------------------------------------------------------------
    def _announce(self) -> None:
        if self.only is not None:
            for row in self.before.rows:
                if self.state.row(row.phase).running:  # the run was lost here: nobody else can close this row
                    self.writer.emit(
                        schema.PHASE_ENDED, phase=row.phase, attempt=row.attempt, verdict=row.verdict,
                        reasons=list(row.reasons),
                    )  # fmt: skip
        pid = os.getpid()
        self.writer.emit(
            schema.RUN_STARTED, sync=True, run=self.folder.id, run_kind=self.run.get("kind", "pilot"),
            name=self.run.get("name", ""), demo=bool(self.run.get("demo")), parent=self.run.get("parent"),
            changed=self.run.get("changed") or {}, host=os.uname().nodename, pid=pid, pid_start=process_start(pid),
            boot=boot_id(), stages=[self.only] if self.only else list(self.run.get("stages") or schema.STAGES),
            **({"again": True} if self.only is not None else {}),
        )  # fmt: skip
        choice = self.run.get("python_choice") or {}
        if choice.get("problem") and self.run.get("python") is not None:
            self._notice("warn", str(choice["problem"]), str(choice.get("advice") or ""))
        if self.gpus.problem:
            self._notice("warn", self.gpus.problem)

    def _notice(self, level: str, text: str, advice: str = "") -> None:
        self.writer.emit(schema.NOTICE, level=level, text=text, advice=advice)

    def _end(self, state: str, text: str) -> None:
        self.foretelling.end()
        self.gpus.close()
        if self.writer.failures:
            lost = self.writer.failures
            self._notice("warn", f"{lost} events of the supervisor could not be written: {self.writer.last_error}.")
        for _ in range(LAST_WORDS_TRIES):  # a full disk may take this one line a moment later
            if self.writer.emit(
                schema.RUN_ENDED, sync=True, state=state, text=text, interrupted=self.requests.interrupted
            ):
                break
            time.sleep(1.0)
        self.writer.close()

    def give_up(self, error: BaseException) -> None:
        """pilot-tui itself failed: end the stage, say so, keep every row."""
        if self.process is not None:
            self.process.terminate(now=-1e9)
            self.process.push(self._ranks(self.process))
        self._end("lost", f"pilot-tui itself failed: {type(error).__name__}: {error}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the lock, run, give the lock back."""
    parser = argparse.ArgumentParser(prog="tui_pilot.launch.supervisor")
    parser.add_argument("run", type=Path)
    parser.add_argument("--only", choices=schema.STAGES)
    parser.add_argument("--attempt", type=int, default=1)
    options = parser.parse_args(arguments)
    folder = RunFolder(options.run.resolve())
    try:
        # What cannot be read is said before the lock is taken: whoever starts a supervisor waits for that lock.
        folder.read_json(folder.run_file)
        from_json(folder.read_json(folder.plan_file)["plan"])
        if not take_lock(folder.lock_file):
            raise RunFolderError(f"{folder.path} is live already: another supervisor holds its lock.")
        supervisor = Supervisor(folder, options.only, options.attempt)
        if options.only is None and supervisor.state.started is not None:
            raise RunFolderError(f"{folder.id} ran already; an id is never used twice.", "Run the plan again.")
    except (PilotError, OSError, KeyError, TypeError) as error:
        sys.stderr.write(f"{error}\n")
        drop_lock(folder.lock_file)
        return EXIT_TOOL_FAILED
    _listen(supervisor)
    try:
        supervisor.go()
    except Exception as error:
        traceback.print_exc()
        supervisor.give_up(error)
        return EXIT_TOOL_FAILED
    finally:
        drop_lock(folder.lock_file)
    return EXIT_OK


def _listen(supervisor: Supervisor) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        supervisor.requests.stop_by_signal(number)

    def stay(number: int, frame: FrameType | None) -> None:
        return

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    # A handler, not SIG_IGN: what is ignored stays ignored in every process started from here.
    signal.signal(signal.SIGHUP, stay)


if __name__ == "__main__":
    sys.exit(main())
