"""The sampler: peaks of a window, what goes to the file, and a run that goes on when a device does not."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tui_pilot.devices import sample_file, sampler
from tui_pilot.devices.readings import Gpu, Inventory, Reading
from tui_pilot.devices.sample_file import SampleFile
from tui_pilot.devices.sampler import Sampler

GIB = 1 << 30
Run = Callable[..., Any]


class Scripted:
    """GPUs whose memory a test sets; counts readings and remembers the threads that asked."""

    def __init__(self, *gpus: Gpu) -> None:
        self.gpus = gpus
        self.used: dict[str, int | str] = {gpu.key: 0 for gpu in gpus}
        self.reads = 0
        self.threads: set[str] = set()
        self.asked: list[tuple[bool, bool]] = []
        self.stuck = threading.Event()
        self.free = threading.Event()

    def open(self) -> Inventory:
        return Inventory(self.gpus, why=None if self.gpus else "nothing here")

    def read(self, gpu: Gpu, slow: bool = False, sensors: bool = False) -> Reading:
        if self.stuck.is_set():
            self.free.wait(20)
        self.reads += 1
        self.threads.add(threading.current_thread().name)
        self.asked.append((slow, sensors))
        value, now = self.used[gpu.key], time.monotonic()
        if value == "raise":
            raise RuntimeError("binding broke")
        if isinstance(value, str):
            return Reading(gpu.key, now, error=value, code=15)
        return Reading(gpu.key, now, value, utilization=50 if sensors or slow else None)

    def wait(self, reads: int) -> None:
        """Until that many more readings were begun."""
        goal, limit = self.reads + reads, time.monotonic() + 20
        while self.reads < goal:
            assert time.monotonic() < limit, "the sampler stopped reading"
            time.sleep(0.002)


ONE = Gpu(0, "GPU-a", "one", total=80 * GIB, usable=79 * GIB)
TWO = Gpu(1, "GPU-b", "two", total=80 * GIB, usable=79 * GIB)


def test_each_window_has_its_own_peak_and_shares_its_edges() -> None:
    gpus = Scripted(ONE)
    gpus.used["GPU-a"] = 1 * GIB
    with Sampler(gpus, hz=200) as reader:
        gpus.used["GPU-a"] = 5 * GIB
        gpus.wait(3)
        gpus.used["GPU-a"] = 2 * GIB
        first = reader.mark("load")["GPU-a"]
        second = reader.mark("forward")["GPU-a"]
        gpus.used["GPU-a"] = 3 * GIB
        third = reader.mark("backward")["GPU-a"]
    assert (first["used_before"], first["used_peak"], first["used_after"]) == (1 * GIB, 5 * GIB, 2 * GIB)
    assert (second["used_before"], second["used_peak"], second["used_after"]) == (2 * GIB, 2 * GIB, 2 * GIB)
    assert (third["used_before"], third["used_peak"], third["used_after"]) == (2 * GIB, 3 * GIB, 3 * GIB)
    assert first["uuid"] == "GPU-a" and first["usable"] == 79 * GIB and first["total"] == 80 * GIB
    assert first["readings"] >= 4 and first["hz"] > 0 and first["error"] is None and third["readings"] >= 1
    assert gpus.threads == {"nvml-sampler"}


def test_slow_figures_are_asked_less_often_and_kept_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "SENSORS_S", 3600.0)
    monkeypatch.setattr(sampler, "SLOW_S", 3600.0)
    gpus = Scripted(ONE)
    with Sampler(gpus, hz=500) as reader:
        gpus.wait(20)
        assert reader.latest()["GPU-a"].utilization == 50
    assert gpus.asked[0] == (True, True) and set(gpus.asked[1:]) == {(False, False)}


@pytest.mark.parametrize("failure", ["lost", "raise"])
def test_a_device_that_dies_says_so_and_the_others_go_on(failure: str) -> None:
    gpus = Scripted(ONE, TWO)
    gpus.used |= {"GPU-a": 4 * GIB, "GPU-b": 4 * GIB}
    with Sampler(gpus, hz=200) as reader:
        reader.mark("load")
        gpus.used["GPU-b"] = failure
        rows = reader.mark("forward")
        gpus.used["GPU-a"] = 6 * GIB
        later = reader.mark("backward")
    lost = rows["GPU-b"]
    assert lost["used_peak"] == 4 * GIB and lost["used_after"] is None and lost["error_since"] is not None
    assert ("binding broke" if failure == "raise" else "lost") in lost["error"]
    assert later["GPU-b"]["used_peak"] is None and later["GPU-b"]["readings"] == 0 and later["GPU-b"]["hz"] is None
    assert rows["GPU-a"]["error"] is None and later["GPU-a"]["used_peak"] == 6 * GIB


def test_a_stuck_driver_does_not_hold_a_phase_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "EDGE_WAIT_S", 0.05)
    gpus = Scripted(ONE)
    gpus.used["GPU-a"] = GIB
    reader = Sampler(gpus, hz=200)
    reader.start()
    gpus.stuck.set()
    reader.mark("load")
    row = reader.mark("forward")["GPU-a"]
    gpus.free.set()
    reader.stop()
    assert "no reading in time" in row["error"] and row["used_after"] == GIB


def test_no_gpu_means_no_thread_and_no_rows() -> None:
    with Sampler(Scripted()) as reader:
        assert reader.inventory.why == "nothing here" and reader.mark("load") == {} and reader.latest() == {}
    assert not [thread for thread in threading.enumerate() if thread.name == "nvml-sampler"]


def test_the_file_has_changes_marks_and_little_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_file, "REPEAT_S", 3600.0)
    gpus, path = Scripted(ONE), tmp_path / "samples" / "nvml.jsonl"
    with Sampler(gpus, hz=500, sink=path) as reader:
        gpus.wait(10)
        gpus.used["GPU-a"] = 7 * GIB
        reader.mark("load")
        gpus.used["GPU-a"] = "lost"
        reader.mark("forward")
        assert reader.dropped == 0 and reader.sink_error is None
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["kind"] == "gpu" and lines[0]["usable"] == 79 * GIB
    assert [line["used"] for line in lines if line["kind"] == "sample"] == [0, 7 * GIB, None]
    assert [line["label"] for line in lines if line["kind"] == "mark"] == ["load", "forward"]
    assert next(line for line in lines if line.get("error"))["error"] == "lost"


def test_a_full_disk_costs_lines_and_spoils_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, room = os.write, [1 << 20]

    def write(descriptor: int, data: bytes) -> int:
        if room[0] == 0:
            raise OSError(28, "No space left on device")
        taken = data[: room[0]]
        room[0] -= len(taken)
        return real(descriptor, taken)

    monkeypatch.setattr("tui_pilot.devices.sample_file.os.write", write)
    file = SampleFile(tmp_path / "nvml.jsonl")
    file.mark("one")
    room[0] = 10
    file.mark("cut")
    file.mark("gone")
    assert file.dropped == 2 and file.error == "No space left on device"
    room[0] = 1 << 20
    file.mark("two")
    file.close()
    file.mark("closed")
    lines = (tmp_path / "nvml.jsonl").read_text().splitlines()
    assert len(lines) == 3 and [json.loads(lines[index])["label"] for index in (0, 2)] == ["one", "two"]


def test_a_file_that_cannot_be_opened_is_said_and_sampling_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Sampler(Scripted(ONE), sink=tmp_path / "file" / "nvml.jsonl") as reader:
        assert reader.sink_error and reader.mark("load")["GPU-a"]["readings"] >= 1


def test_on_the_real_binding_with_changing_readings(on_stub: Run) -> None:
    script = """
from tui_pilot.devices.nvml import Nvml
from tui_pilot.devices.sampler import Sampler
reader = Sampler(Nvml(), hz=50, sink="nvml.jsonl")
seen = reader.start()
readings("0 used=9G\\n1 used=3G\\n")
one = reader.mark("load")
readings("0 used=4G\\n1 err=15\\n")
two = reader.mark("forward")
reader.stop()
answer([one, two, [gpu.uuid for gpu in seen.gpus], len(Path("nvml.jsonl").read_text().splitlines())])
"""
    one, two, uuids, lines = on_stub(script, gpus=2, readings="0 used=1G\n1 used=1G\n")
    assert list(one) == list(two) == uuids and lines >= 6
    assert [one[uuid]["used_before"] for uuid in uuids] == [GIB, GIB]
    assert [one[uuid]["used_after"] for uuid in uuids] == [9 * GIB, 3 * GIB]
    assert [two[uuid]["used_peak"] for uuid in uuids] == [9 * GIB, 3 * GIB]
    assert [two[uuid]["used_after"] for uuid in uuids] == [4 * GIB, None]
    assert "lost" in two[uuids[1]]["error"] and two[uuids[0]]["error"] is None
