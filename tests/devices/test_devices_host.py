"""Host memory and process identity, on real processes; cgroups and mounts on written-down ones."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tui_pilot.devices import host

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
MIB = 1 << 20


def test_memory_of_this_process() -> None:
    seen = host.process_memory()
    assert seen.rss_anon and seen.high_water and seen.rss and seen.high_water >= 0.9 * seen.rss
    assert host.process_memory(2**22 + 1) == host.ProcessMemory(None, None, None, None, None)


def test_anonymous_memory_is_told_from_the_rest() -> None:
    before = host.process_memory()
    block = mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for place in range(0, 64 * MIB, 4096):
        block[place] = 1
    after = host.process_memory()
    block.close()
    assert before.rss_anon is not None and after.rss_anon is not None
    assert after.rss_anon - before.rss_anon > 48 * MIB


def _touch(size: int) -> None:
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for place in range(0, size, 4096):
        block[place] = 1
    block.close()


def test_the_peak_of_a_stretch() -> None:
    _touch(96 * MIB)
    watch = host.PeakWatch()
    if watch.fallback:
        pytest.skip(watch.fallback)
    calm = watch.read()
    start = host.process_memory().rss
    assert calm.bound == "exact" and calm.peak and start and calm.peak < start + 48 * MIB
    _touch(128 * MIB)
    peak = watch.read()
    assert peak.peak and peak.peak - calm.peak > 64 * MIB


def test_a_peak_without_reset_is_a_lower_bound_unless_the_mark_rises(tmp_path: Path) -> None:
    status = tmp_path / "self" / "status"
    status.parent.mkdir()
    status.write_text("VmHWM:\t 900 kB\nVmRSS:\t 500 kB\n")
    watch = host.PeakWatch(proc=tmp_path / "nowhere")
    assert watch.read().bound is None
    # clear_refs as a folder: it cannot be written, whoever runs the test.
    (tmp_path / "self" / "clear_refs").mkdir()
    watch = host.PeakWatch(proc=tmp_path)
    assert watch.fallback and "does not reset" in watch.fallback
    status.write_text("VmHWM:\t 900 kB\nVmRSS:\t 700 kB\n")
    seen = watch.read()
    assert (seen.peak, seen.bound, seen.why) == (700 * 1024, "lower", watch.fallback)
    assert (seen.before.rss, seen.after.rss) == (500 * 1024, 700 * 1024)
    status.write_text("VmHWM:\t 950 kB\nVmRSS:\t 700 kB\n")
    assert (watch.read().peak, watch.read().bound) == (950 * 1024, "exact")


def test_identity_of_a_process_its_death_and_a_zombie() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = host.process_start(child.pid)
    assert start is not None and host.is_alive(child.pid, start) and host.is_alive(child.pid, None)
    assert not host.is_alive(child.pid, start + 1), "a reused pid is another process"
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended and not reaped: a zombie
    assert host.process_start(child.pid) == start and not host.is_alive(child.pid, start)
    child.wait()
    assert host.process_start(child.pid) is None and not host.is_alive(child.pid, start)


def test_a_name_with_spaces_and_parentheses(tmp_path: Path) -> None:
    odd = tmp_path / "a) S 1 (b"
    odd.symlink_to(os.path.realpath("/bin/sleep"))
    with subprocess.Popen([str(odd), "60"]) as child:
        mine = host.process_start(os.getpid())
        start = host.process_start(child.pid)
        assert start is not None and mine is not None and start >= mine and host.is_alive(child.pid, start)
        child.kill()


def test_boot_and_machine() -> None:
    boot, total, free = host.boot_id(), host.memory_total(), host.memory_available()
    assert boot and boot == host.boot_id() and total and free and free <= total


def _cgroup(tmp_path: Path, line: str, mount: str) -> Path:
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(line + "\n")
    (proc / "self" / "mountinfo").write_text(mount + "\n")
    return proc


def test_cgroup_v2_takes_the_tightest_limit_on_the_way_up(tmp_path: Path) -> None:
    top = tmp_path / "cg"
    inner = top / "pod" / "box"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    (top / "pod" / "memory.max").write_text("1000000\n")
    (top / "pod" / "memory.current").write_text("400000\n")
    (top / "pod" / "memory.stat").write_text("anon 1\ninactive_file 30000\n")
    (top / "pod" / "memory.events").write_text("low 0\noom_kill 2\n")
    proc = _cgroup(tmp_path, "0::/pod/box", f"31 23 0:28 / {top} rw - cgroup2 cgroup2 rw")
    assert host.cgroup_memory(proc=proc) == host.CgroupMemory(2, 1000000, 400000, 30000, 2, None)
    (top / "pod" / "memory.max").write_text("max\n")
    assert host.cgroup_memory(proc=proc).limit is None


def test_cgroup_v1_in_a_container_that_sees_the_hosts_path(tmp_path: Path) -> None:
    top = tmp_path / "memory"
    top.mkdir()
    (top / "memory.limit_in_bytes").write_text("2000000\n")
    (top / "memory.usage_in_bytes").write_text("5\n")
    line = "4:cpu:/docker/abc\n3:memory:/docker/abc\n0::/"
    mount = f"35 31 0:32 /docker/abc {top} rw - cgroup cgroup rw,memory"
    proc = _cgroup(tmp_path, line, mount)
    seen = host.cgroup_memory(proc=proc)
    assert (seen.version, seen.limit, seen.current, seen.why) == (1, 2000000, 5, None)
    (top / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert host.cgroup_memory(proc=proc).limit is None


def test_the_limit_is_the_tighter_of_container_and_machine(tmp_path: Path) -> None:
    (tmp_path / "cg").mkdir()
    line, mount = "0::/", f"30 1 0:5 / {tmp_path / 'cg'} rw - cgroup2 cgroup rw"
    proc = _cgroup(tmp_path, line, mount)
    (proc / "meminfo").write_text("MemTotal: 8192 kB\n")
    limit = tmp_path / "cg" / "memory.max"
    for written, bytes_, words in (("4194304", 4 << 20, "cgroup limit"), ("max", 8 << 20, "no cgroup limit")):
        limit.write_text(written)
        assert host.memory_limit(proc)[0] == bytes_ and words in host.memory_limit(proc)[1]
    limit.write_text(str(1 << 40))
    assert host.memory_limit(proc)[0] == 8 << 20, "a limit above the machine is none"
    assert host.memory_limit(tmp_path / "nowhere") == (None, "/proc hides it")


def test_no_cgroup_is_said(tmp_path: Path) -> None:
    assert host.cgroup_memory(proc=tmp_path).why == "no memory cgroup is mounted here"


def test_the_overlay_root_and_a_volume(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    mounts = ["rootfs / rootfs rw 0 0", "overlay / overlay rw 0 0", "/dev/x /work\\040space ext4 rw 0 0"]
    (tmp_path / "self" / "mounts").write_text("\n".join([*mounts, "tmpfs /work tmpfs rw 0 0", ""]))
    assert host.on_overlay_root("/nowhere/runs", proc=tmp_path) is True
    assert host.on_overlay_root("/workshop", proc=tmp_path) is True
    assert host.mount_of("/work space/runs", proc=tmp_path) == ("/work space", "ext4")
    assert host.on_overlay_root("/work/runs", proc=tmp_path) is False
    assert host.on_overlay_root("/work", proc=tmp_path / "none") is None


def test_free_bytes_of_a_place_that_does_not_exist_yet(tmp_path: Path) -> None:
    free = host.free_bytes(tmp_path / "not" / "yet")
    assert free is not None and free > 0
