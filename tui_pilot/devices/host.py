"""Host memory, process identity and disks, read from /proc with the standard library alone.

This module is copied beside the training stages, where neither psutil nor pynvml exists. All sizes are bytes. What the
kernel does not tell (another system, a hidden /proc, a sandbox without `clear_refs`) is None, never 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_NO_LIMIT = 1 << 60  # cgroup v1 writes "unlimited" as LONG_MAX rounded down to a page
_LAYERED = ("overlay", "overlayfs", "aufs", "fuse.fuse-overlayfs")


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = (_text(path) or "").strip()
    return int(text) if text.isdigit() else None


def _fields(path: Path) -> dict[str, int]:
    """Lines such as `VmHWM:  123 kB` or `inactive_file 4096` as {name: bytes or count}; others are left out."""
    found = {}
    for line in (_text(path) or "").splitlines():
        name, _, rest = line.replace(":", " ", 1).partition(" ")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    return found


# -- memory of a process --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProcessMemory:
    """Resident memory of one process, bytes. `rss_file` holds mapped weight files, which the kernel can drop again.

    `high_water` is the kernel's VmHWM: the highest resident total since the start or the last `reset_high_water`.
    """

    rss_anon: int | None
    rss_file: int | None
    rss_shmem: int | None
    rss: int | None
    high_water: int | None


def process_memory(pid: int | None = None, proc: Path = PROC) -> ProcessMemory:
    """Resident memory of `pid` (default: this process); every field None if the process is gone."""
    seen = _fields(proc / str(pid or "self") / "status")
    anon, file, shmem = seen.get("RssAnon"), seen.get("RssFile"), seen.get("RssShmem")
    return ProcessMemory(anon, file, shmem, seen.get("VmRSS"), seen.get("VmHWM"))


def reset_high_water(pid: int | None = None, proc: Path = PROC) -> str | None:
    """Start VmHWM again at the current resident size; None when done, else the reason why the old mark stands."""
    path = proc / str(pid or "self") / "clear_refs"
    try:
        with open(path, "w") as file:
            file.write("5")
    except OSError as error:
        return f"the kernel does not reset the high-water mark: {path}: {error.strerror}"
    return None


@dataclass(frozen=True)
class HostPeak:
    """Highest resident memory in one stretch of time, bytes; `bound` is `exact`, `lower`, or None if unread.

    `before` and `after` are what was resident at its two ends.
    """

    peak: int | None
    bound: str | None
    why: str | None
    before: ProcessMemory
    after: ProcessMemory


class PeakWatch:
    """The highest resident memory between construction and `read()`, of this process or of `pid`.

    Where the mark cannot be reset, a mark that rose is still the peak of this stretch; one that did not rise only says
    that the peak lies between the sizes at both ends and the old mark, so the larger end is given as a lower bound.
    """

    def __init__(self, pid: int | None = None, proc: Path = PROC) -> None:
        self._pid, self._proc = pid, proc
        self.fallback = reset_high_water(pid, proc)
        self._before = process_memory(pid, proc)

    def read(self) -> HostPeak:
        """The peak so far; may be called more than once."""
        before, now = self._before, process_memory(self._pid, self._proc)
        if now.high_water is None:
            return HostPeak(None, None, "no VmHWM in /proc: the process is gone, or /proc hides it", before, now)
        if self.fallback is None or now.high_water > (before.high_water or 0):
            return HostPeak(now.high_water, "exact", self.fallback, before, now)
        ends = [size for size in (before.rss, now.rss) if size is not None]
        return HostPeak(max(ends, default=None), "lower", self.fallback, before, now)


# -- limits of the machine and the container ------------------------------------------------------------------------


@dataclass(frozen=True)
class CgroupMemory:
    """Memory of this container, bytes. `limit` None means unlimited (`why` is None) or unknown (`why` says so).

    `current` counts page cache too; `inactive_file` is the part the kernel drops before it kills. `oom_kills` counts
    processes the kernel killed here: a stage that ended by signal 9 while it rose ran out of host memory.
    """

    version: int | None
    limit: int | None
    current: int | None
    inactive_file: int | None
    oom_kills: int | None
    why: str | None


def cgroup_memory(pid: int | None = None, proc: Path = PROC) -> CgroupMemory:
    """The tightest limit on the way from the process's own cgroup to the root that is mounted here, v1 or v2."""
    found = _memory_cgroup(proc, str(pid or "self"))
    if found is None:
        return CgroupMemory(None, None, None, None, None, "no memory cgroup is mounted here")
    version, folder, top = found
    limit_name, current_name = (
        ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    )
    limits = []
    step = folder
    while True:
        size = _number(step / limit_name)
        if size is not None and size < _NO_LIMIT:
            limits.append((size, step))
        if step in (top, step.parent):
            break
        step = step.parent
    limit, where = min(limits, default=(None, folder), key=lambda pair: pair[0] or 0)
    stat = _fields(where / "memory.stat")
    kills = _fields(where / ("memory.events" if version == 2 else "memory.oom_control")).get("oom_kill")
    inactive = stat.get("inactive_file" if version == 2 else "total_inactive_file")
    return CgroupMemory(version, limit, _number(where / current_name), inactive, kills, None)


def _memory_cgroup(proc: Path, pid: str) -> tuple[int, Path, Path] | None:
    """(version, the process's own folder, the mounted root) of the memory controller; v1 wins if both are mounted."""
    paths: dict[int, str] = {}
    for line in (_text(proc / pid / "cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            paths[2] = path
        elif "memory" in controllers.split(","):
            paths[1] = path
    for version in sorted(paths):
        for line in (_text(proc / pid / "mountinfo") or "").splitlines():
            left, _, right = line.partition(" - ")
            words, kind = left.split(), right.split()
            if len(words) < 5 or len(kind) < 3 or kind[0] != ("cgroup2" if version == 2 else "cgroup"):
                continue
            if version == 1 and "memory" not in kind[2].split(","):
                continue
            # Without a cgroup namespace the path is the host's and the mount shows only the part below its own root.
            root, top = _unescape(words[3]), Path(_unescape(words[4]))
            inner = os.path.relpath(paths[version], root)
            folder = top if inner.startswith("..") else top / inner
            return version, folder if folder.is_dir() else top, top
    return None


def memory_available(proc: Path = PROC) -> int | None:
    """Bytes a new process could use without swapping (MemAvailable): free memory plus droppable page cache."""
    return _fields(proc / "meminfo").get("MemAvailable")


def memory_total(proc: Path = PROC) -> int | None:
    """Bytes of memory of the whole machine (MemTotal), which a container's limit may be far below."""
    return _fields(proc / "meminfo").get("MemTotal")


def memory_limit(proc: Path = PROC) -> tuple[int | None, str]:
    """(bytes that may be used here, what sets that limit): the container's limit, else the machine's memory.

    All processes of the container share it, page cache included.
    """
    limit, total = cgroup_memory(proc=proc).limit, memory_total(proc)
    if limit is not None and (total is None or limit < total):
        return limit, "cgroup limit"
    return total, "the machine's, no cgroup limit" if total is not None else "/proc hides it"


# -- identity of processes ------------------------------------------------------------------------------------------


def _stat(pid: int, proc: Path) -> list[str] | None:
    """/proc/<pid>/stat from field 3 (state) on; the name before it may hold spaces and parentheses."""
    text = _text(proc / str(pid) / "stat")
    fields = text.rpartition(")")[2].split() if text else []
    return fields if len(fields) > 19 else None


def process_start(pid: int, proc: Path = PROC) -> int | None:
    """When the process started, in clock ticks since boot: with the pid, its identity. None if there is none."""
    fields = _stat(pid, proc)
    return int(fields[19]) if fields else None


def is_alive(pid: int, start: int | None, proc: Path = PROC) -> bool:
    """Whether the very process `(pid, start)` runs; a reused pid and a zombie are not it. `start` None: any."""
    fields = _stat(pid, proc)
    return fields is not None and fields[0] not in "ZX" and (start is None or int(fields[19]) == start)


def boot_id(proc: Path = PROC) -> str | None:
    """Identity of this boot: pids and start times of another boot mean nothing."""
    return (_text(proc / "sys/kernel/random/boot_id") or "").strip() or None


# -- disks ----------------------------------------------------------------------------------------------------------


def _unescape(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def _mounts(proc: Path) -> Iterator[tuple[str, str]]:
    """(mount point, file system) of each mount, in mount order."""
    for line in (_text(proc / "self/mounts") or _text(proc / "mounts") or "").splitlines():
        words = line.split()
        if len(words) >= 3:
            yield _unescape(words[1]), words[2]


def mount_of(path: str | os.PathLike[str], proc: Path = PROC) -> tuple[str, str] | None:
    """(mount point, file system) that holds `path`, which need not exist yet; the last mount over a place counts."""
    place = os.path.realpath(path)
    best = None
    for point, kind in _mounts(proc):
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= len(best[0])):
            best = (point, kind)
    return best


def on_overlay_root(path: str | os.PathLike[str], proc: Path = PROC) -> bool | None:
    """Whether `path` lies on a container's own layer, which rented boxes drop on stop. None: mounts are hidden."""
    mount = mount_of(path, proc)
    return None if mount is None else mount[0] == "/" and mount[1] in _LAYERED


def free_bytes(path: str | os.PathLike[str]) -> int | None:
    """Bytes an ordinary user may still write where `path` is, or will be; None if that cannot be asked."""
    place = Path(os.path.abspath(path))
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        stat = os.statvfs(place)
    except OSError:
        return None
    return stat.f_bavail * stat.f_frsize
