"""CUDA_VISIBLE_DEVICES against what NVML shows: indices, abbreviated UUIDs, MIG instances, and what hides the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tui_pilot.devices import report
from tui_pilot.devices.pythons import Choice
from tui_pilot.devices.readings import Gpu, Inventory, Reading
from tui_pilot.devices.visible import visible
from tui_pilot.launch.gpu_watch import GpuWatch, full_hz
from tui_pilot.run_folder import RunFolder

GIB = 1 << 30
Run = Callable[..., Any]
A, B, C = "GPU-aaaa1111-0000-4000-8000-0", "GPU-aaaa2222-0000-4000-8000-1", "GPU-bbbb3333-0000-4000-8000-2"
CARDS = tuple(Gpu(n, uuid, "H100", total=80 * GIB, usable=79 * GIB) for n, uuid in enumerate((A, B, C)))
# Card 1 is partitioned: NVML shows its instances in its place.
PARTS = (
    CARDS[0],
    Gpu(1, "MIG-1c1c0000-1", "H100 1g", parent=B),
    Gpu(1, "MIG-1c1d0000-2", "H100 1g", parent=B),
    CARDS[2],
)


@pytest.mark.parametrize(
    ("value", "places"),
    [
        (None, (0, 1, 2)),
        ("2,0", (2, 0)),
        (" 1 , 2 ", (1, 2)),
        ("1,7,0", (1,)),  # the list ends at what names nothing
        ("-1", ()),
        ("", ()),
        ("NoDevFiles", ()),
        ("1,-1,2", (1,)),
        ("0,0", ()),  # a GPU named twice hides all of them
        ("GPU-bbbb", (2,)),
        ("GPU-BBBB,GPU-aaaa2", (2, 1)),
        (f"{C},{A}", (2, 0)),
        ("GPU-bbbb,0", (2,)),  # one kind of name only
        ("0,GPU-bbbb", (0,)),
    ],
)
def test_names_of_whole_cards(value: str | None, places: tuple[int, ...]) -> None:
    seen = visible(CARDS, {} if value is None else {"CUDA_VISIBLE_DEVICES": value})
    assert seen.gpus == tuple(CARDS[place] for place in places) and seen.known


@pytest.mark.parametrize("value", ["GPU-aaaa", "GPU-cccc", "9", "H100", "MIG-1c1c"])
def test_what_names_nothing_leaves_all_and_says_so(value: str) -> None:
    seen = visible(CARDS, {"CUDA_VISIBLE_DEVICES": value})
    assert seen.gpus == CARDS and not seen.known and value in str(seen.note)


@pytest.mark.parametrize(
    ("value", "places"),
    [
        ("MIG-1c1d", (2,)),
        ("MIG-1c1c0000-1,MIG-1c1d0000-2", (1, 2)),
        ("1", (1,)),  # the first instance stands for its card
        ("2", (3,)),  # cards are counted, not instances
        (B, (1,)),
        (f"MIG-{B}/1/0", (1, 2)),  # the old form names the card: either instance may be meant
    ],
)
def test_names_of_instances(value: str, places: tuple[int, ...]) -> None:
    assert visible(PARTS, {"CUDA_VISIBLE_DEVICES": value}).gpus == tuple(PARTS[place] for place in places)


def test_indices_of_unlike_cards_are_by_address_and_it_is_said() -> None:
    mixed = (CARDS[0], Gpu(1, B, "RTX 3060", total=12 * GIB, usable=12 * GIB))
    said = visible(mixed, {"CUDA_VISIBLE_DEVICES": "0"})
    assert said.gpus == mixed[:1] and "by PCI address" in str(said.note) and "not by speed" in str(said.note)
    quiet = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible(mixed, quiet).note is None and visible(CARDS, {"CUDA_VISIBLE_DEVICES": "0"}).note is None
    assert visible(mixed, {"CUDA_VISIBLE_DEVICES": A}).note is None, "a UUID means the same to both"


class Cards:
    """Three cards that may be read."""

    asked: set[str]

    def __init__(self) -> None:
        self.asked = set()

    def open(self) -> Inventory:
        return Inventory(CARDS)

    def read(self, gpu: Gpu, slow: bool = False, sensors: bool = False) -> Reading:
        self.asked.add(gpu.key)
        return Reading(gpu.key, 0.0, used=GIB)

    def close(self) -> None:
        return


def test_a_run_reads_its_own_gpus_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bbbb")
    cards = Cards()
    watch = GpuWatch(RunFolder(tmp_path), make=lambda: cards)
    watch.phase_began("load")
    rows = watch.phase_ended("load")
    watch.close()
    assert [row["uuid"] for row in rows] == [C] and cards.asked == {C} and watch.problem is None


def test_hidden_gpus_are_why_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    watch = GpuWatch(RunFolder(tmp_path), make=Cards)
    assert not watch.active and watch.phase_ended("load") == [] and "hides every GPU" in str(watch.why)
    assert watch.problem is None
    watch.close()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-zzzz")
    watch = GpuWatch(RunFolder(tmp_path), make=Cards)
    assert watch.gpus == 3 and "GPU-zzzz names no GPU" in str(watch.problem)
    watch.close()


def test_the_report_says_what_a_stage_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    choice = Choice(None, None, "no torch")
    readings = [Reading(gpu.key, 0.0, used=GIB) for gpu in CARDS]
    text = "\n".join(report.lines(report.build(Inventory(CARDS, "580"), readings, [], choice)))
    assert "a stage sees cuda:0 = gpu 2, cuda:1 = gpu 0" in text and "AMD" not in text


def test_amd_is_said_to_have_torchs_numbers_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = tmp_path / "kfd"
    driver.touch()
    monkeypatch.setattr(report, "AMD_DRIVER", str(driver))
    text = "\n".join(report.lines(report.build(Inventory(why="no library"), [], [], Choice(None, None, "no torch"))))
    assert "AMD: torch's own numbers only" in text and "stays unchecked" in text


WATCH = """
from tui_pilot.launch.gpu_watch import GpuWatch, full_hz
from tui_pilot.run_folder import RunFolder
watch = GpuWatch(RunFolder(Path("run")))
watch.phase_began("load")
first = watch.phase_ended("load")
"""


def test_many_gpus_are_read_less_often() -> None:
    assert [full_hz(count) for count in (0, 1, 4)] == [20.0, 20.0, 20.0]
    assert 10.0 < full_hz(8) < 20.0 and full_hz(8) * 8 <= 150 and full_hz(64) == 10.0


def test_sixty_four_gpus_through_the_real_binding(on_stub: Run) -> None:
    found = on_stub(WATCH + "watch.close()\nanswer([watch.gpus, first])", gpus=64, readings="63 used=7G\n")
    assert found[0] == 64 and len({row["uuid"] for row in found[1]}) == 64
    assert found[1][63]["used_peak"] == 7 * GIB and found[1][63]["usable"] == (80 << 30) - (512 << 20)


def test_a_slow_driver_costs_readings_and_says_so(on_stub: Run) -> None:
    script = WATCH + "import time\nwatch.phase_began('forward')\ntime.sleep(0.5)\n"
    script += "rows = watch.phase_ended('forward')\nwatch.close()\nanswer(rows)"
    rows = on_stub(script, gpus=16, readings="", NVML_STUB_DELAY_US="5000")
    assert len(rows) == 16 and all(row["used_peak"] is not None for row in rows)
    assert all(row["hz"] < 20 and row["longest_gap_s"] > 0.05 for row in rows), "16 x 5 ms do not fit into 50 ms"


def test_a_driver_that_dies_in_a_run_leaves_the_other_numbers(on_stub: Run) -> None:
    script = (
        WATCH
        + """
watch.phase_began("forward")
readings("0 err=999\\n1 used=6G\\n")
lost = watch.phase_ended("forward")
watch.phase_began("backward")
still = watch.phase_ended("backward")
watch.close()
answer([first, lost, still])
"""
    )
    first, lost, still = on_stub(script, gpus=2, readings="0 used=3G\n1 used=3G\n")
    assert [row["used_peak"] for row in first] == [3 * GIB, 3 * GIB]
    assert lost[0]["used_peak"] == 3 * GIB and "restart the container" in lost[0]["error"]
    assert still[0]["used_peak"] is None and still[0]["error_since"] and still[0]["readings"] == 0
    assert lost[1]["used_peak"] == still[1]["used_peak"] == 6 * GIB and still[1]["error"] is None


def test_processes_that_wsl_cannot_attribute_are_never_asked_for(on_stub: Run, tmp_path: Path) -> None:
    trace = tmp_path / "calls"
    found = on_stub(
        WATCH + "watch.close()\nanswer(first)", readings="0 used=2G proc=1:na,2:na\n", NVML_STUB_TRACE=str(trace)
    )
    assert found[0]["used_peak"] == 2 * GIB and found[0]["error"] is None
    assert "Process" not in trace.read_text()


@pytest.mark.parametrize(("value", "places"), [("GPU-00005701", [1]), ("1,0", [1, 0]), ("MIG-00005702", [2])])
def test_the_variable_against_the_real_binding(on_stub: Run, value: str, places: list[int]) -> None:
    script = WATCH + "watch.close()\nanswer([row['index'] for row in first])"
    assert on_stub(script, gpus=3, readings="2 mig=1 total=80G used=1G\n", CUDA_VISIBLE_DEVICES=value) == places
