"""What is said of a phase whose process died: the signal, whether it was the kernel's memory killer, its last words."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tui_pilot.devices import host
from tui_pilot.gates.verdict import Reason
from tui_pilot.text import harmless, plural, size

NEAR_LIMIT = 0.95
LOOK_EVERY_S = 0.5
_TORCHRUN_RANK = re.compile(r"^\s*rank\s*: (\d+)")
_TORCHRUN_EXIT = re.compile(r"^\s*exitcode\s*: (-?\d+)")
FULL_DISK = 1 << 20


@dataclass
class HostWatch:
    """How near a stage came to the end of host memory: the highest use, and the kernel's count of kills before it."""

    kills_before: int | None = None
    highest: float = 0.0
    words: str = ""
    _looked: float = field(default=0.0, repr=False)

    @classmethod
    def begin(cls) -> HostWatch:
        watch = cls(host.cgroup_memory().oom_kills)
        watch.look(force=True)
        return watch

    def look(self, force: bool = False) -> None:
        """Read memory, at most twice a second."""
        now = time.monotonic()
        if not force and now - self._looked < LOOK_EVERY_S:
            return
        self._looked = now
        group = host.cgroup_memory()
        if group.limit and group.current is not None:
            self._take(group.current - (group.inactive_file or 0), group.limit, "this container's limit")
        available, total = host.memory_available(), host.memory_total()
        if available is not None and total:
            self._take(total - available, total, "this machine's memory")

    def _take(self, used: int, limit: int, name: str) -> None:
        if used / limit > self.highest:
            self.highest = used / limit
            self.words = f"{size(used)} of {size(limit)}, {name}"

    def memory_killer(self) -> str | None:
        """Why signal 9 was the kernel's memory killer, as far as it can be known; None if nothing points to it."""
        kills = host.cgroup_memory().oom_kills
        if kills is not None and self.kills_before is not None and kills > self.kills_before:
            return f"the kernel's out-of-memory killer ended it: host memory was used up ({self.words})"
        if self.highest >= NEAR_LIMIT:
            return f"the kernel's out-of-memory killer is likely: host memory was at {self.words}"
        return None


@dataclass(frozen=True)
class Death:
    """How a stage ended: its exit code (negative: minus the signal), its log, and what the host's memory did."""

    stage: str
    exit_code: int
    log: Path
    tail: Sequence[str] = ()
    memory_killer: str | None = None
    free_disk: int | None = None


def signal_name(number: int) -> str:
    """``SIGKILL``; an unknown number stays a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def reason_of(death: Death, phase: str, began: bool) -> Reason:
    """``killed`` for a signal, of the process itself or of one of torchrun's ranks; else ``crash``."""
    number, rank = _signal_of(death)
    when = f"in {phase}" if began else f"before {phase} began"
    where: dict[str, object] = {"file": f"logs/{death.log.name}"}
    if rank is not None:
        where["rank"] = rank
    who = f"stage {death.stage}" if rank is None else f"rank {rank} of stage {death.stage}"
    if number is not None:
        text = f"{who} was ended by signal {number} ({signal_name(number)}) {when}"
        advice = f"Its last words are in logs/{death.log.name}."
        if number == signal.SIGKILL:
            if death.memory_killer:
                text += f"; {death.memory_killer}"
                advice = "Free host memory, or make the pilot need less of it. " + advice
            else:
                text += "; not by pilot-tui, and host memory was not near its limit: somebody or a job manager did it"
        return Reason("killed", text + _last_words(death) + ".", "fail", where, advice)
    if death.free_disk is not None and death.free_disk < FULL_DISK:
        text = (
            f"{who} left no verdict on {phase}: the disk of the run folder is full "
            f"({size(death.free_disk)} free), so its events could not be written"
        )
        return Reason("crash", text + ".", "fail", where, "Free some space, then start it again as a new run.")
    ended = "ended with exit code 0 but without a verdict" if death.exit_code == 0 else (
        f"ended with exit code {death.exit_code}"
    )  # fmt: skip
    return Reason("crash", f"{who} {ended} {when}{_last_words(death)}.", "fail", where, f"See logs/{death.log.name}.")


def _signal_of(death: Death) -> tuple[int | None, int | None]:
    """(signal, rank) of a death; of torchrun's ranks the one that began it: it ends the others by SIGTERM itself."""
    if death.exit_code < 0:
        return -death.exit_code, None
    rank: int | None = None
    ends: list[tuple[int | None, int]] = []  # rank and exit code, the root cause last
    for line in death.tail:
        if found := _TORCHRUN_RANK.search(line):
            rank = int(found.group(1))
        elif found := _TORCHRUN_EXIT.search(line):
            ends.append((rank, int(found.group(1))))
    for rank, code in reversed(ends):
        if code < 0 and code != -signal.SIGTERM:
            return -code, rank
    if not ends:
        return None, None
    rank, code = ends[-1]
    return (-code if code < 0 else None), rank


def _last_words(death: Death) -> str:
    lines = [harmless(line.strip()) for line in death.tail if line.strip(" =-\t")]
    if not lines:
        return "; its log is empty"
    return f"; last line of its log: {lines[-1][:300]}"


def text_of_end(death: Death) -> str:
    """One line for the stage's end."""
    number, rank = _signal_of(death)
    if number is not None:
        whose = "" if rank is None else f" of rank {rank}"
        return f"signal {number} ({signal_name(number)}){whose}"
    return f"exit {death.exit_code}, {plural(len(death.tail), 'line')} of its log kept in logs/{death.log.name}"
