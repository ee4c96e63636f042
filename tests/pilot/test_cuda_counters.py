"""The CUDA half of measuring on counters a test sets: rows, live peaks, AMD, pinned memory, refused allocations."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")

from tui_pilot.observe.memory import Meter, Window, joined  # noqa: E402
from tui_pilot.observe.refused import Refusals, keep_snapshot  # noqa: E402

GIB = 1 << 30
DEVICE = torch.device("cuda", 1)


class Card:
    """What torch.cuda answers. ``hold`` moves the counters as an allocator would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, hip: str | None = None, pinned: bool = True) -> None:
        self.stats = {f"{name}_bytes.all.{edge}": 0 for name in ("allocated", "reserved", "active")
                      for edge in ("current", "peak")}  # fmt: skip
        self.stats |= {"num_alloc_retries": 0, "num_ooms": 0}
        self.outside = GIB
        self.total = 79 * GIB
        self.host = {"allocated_bytes.current": 0, "allocated_bytes.peak": 0}
        self.observer: Callable[[int, int, int, int], None] | None = None
        cuda = torch.cuda
        monkeypatch.setattr(cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1a2b"))
        monkeypatch.setattr(cuda, "memory_stats", lambda device: dict(self.stats))
        monkeypatch.setattr(cuda, "synchronize", lambda device: None)
        monkeypatch.setattr(cuda, "mem_get_info", lambda device: (self.total - self.used, self.total))
        monkeypatch.setattr(cuda, "reset_peak_memory_stats", lambda device: self.reset())
        monkeypatch.setattr(cuda, "host_memory_stats", lambda: dict(self.host) if pinned else {}, raising=False)
        monkeypatch.setattr(cuda, "reset_peak_host_memory_stats", lambda: None, raising=False)
        monkeypatch.setattr(torch.version, "hip", hip)
        attach = "_cuda_attach_out_of_memory_observer"
        monkeypatch.setattr(torch._C, attach, lambda call: setattr(self, "observer", call), raising=False)
        monkeypatch.setattr(cuda.memory, "_snapshot", lambda device: {"segments": [1, 2]})

    @property
    def used(self) -> int:
        return self.stats["reserved_bytes.all.current"] + self.outside

    def reset(self) -> None:
        for name in ("allocated", "reserved", "active"):
            self.stats[f"{name}_bytes.all.peak"] = self.stats[f"{name}_bytes.all.current"]

    def hold(self, allocated: int, reserved: int) -> None:
        for name, value in (("allocated", allocated), ("active", allocated), ("reserved", reserved)):
            self.stats[f"{name}_bytes.all.current"] = value
            self.stats[f"{name}_bytes.all.peak"] = max(self.stats[f"{name}_bytes.all.peak"], value)


def window(meter: Meter, work: Callable[[], Any]) -> Window:
    with meter.window() as found:
        work()
    return found


def test_a_window_has_the_allocators_own_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch)
    meter = Meter(DEVICE, 3)

    def work() -> None:
        card.hold(30 * GIB, 33 * GIB)
        card.hold(15 * GIB, 33 * GIB)
        card.stats["num_alloc_retries"] += 2
        card.host |= {"allocated_bytes.current": 1 << 20, "allocated_bytes.peak": 2 << 20}

    first = window(meter, work)
    second = window(meter, lambda: card.hold(16 * GIB, 33 * GIB))
    row = first.memory
    assert (row["rank"], row["device"], row["uuid"]) == (3, "cuda:1", "GPU-1a2b")
    assert (row["allocated_before"], row["allocated_peak"], row["allocated_after"]) == (0, 30 * GIB, 15 * GIB)
    assert (row["reserved_peak"], row["active_peak"], row["alloc_retries"], row["ooms"]) == (33 * GIB, 30 * GIB, 2, 0)
    assert row["known"]["allocated_peak"]["kind"] == row["known"]["reserved_after"]["kind"] == "exact"
    assert row["outside_torch"] == GIB and row["known"]["outside_torch"]["bound"] == "lower"
    assert row["device_usable"] == 79 * GIB and row["device_total"] is None, "NVML knows the total"
    assert row["pinned_peak"] == 2 << 20 and row["known"]["pinned_peak"]["kind"] == "exact"
    assert second.memory["allocated_peak"] == 16 * GIB, "each window has a peak of its own"
    whole = joined([first, second], 3, DEVICE, meter.uuid)
    assert (whole["allocated_before"], whole["allocated_peak"], whole["allocated_after"]) == (0, 30 * GIB, 16 * GIB)
    assert whole["alloc_retries"] == 2 and whole["pinned_peak"] == 2 << 20


def test_live_figures_are_the_peak_where_it_moved_else_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch)
    meter = Meter(DEVICE, 0)
    card.hold(30 * GIB, 33 * GIB)
    card.hold(15 * GIB, 33 * GIB)
    assert meter.highest() == (30 * GIB, 33 * GIB), "a peak between two looks is not missed"
    assert meter.highest() == (15 * GIB, 33 * GIB), "and is not said twice"
    card.reset()  # a new window begins
    card.hold(20 * GIB, 33 * GIB)
    card.hold(1 * GIB, 33 * GIB)
    assert meter.highest()[0] == 20 * GIB


def test_amd_has_torchs_numbers_and_says_why_there_are_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch, hip="6.4", pinned=False)
    row = window(Meter(DEVICE, 0), lambda: card.hold(20 * GIB, 24 * GIB)).memory
    assert row["allocated_peak"] == 20 * GIB and row["device_usable"] == 79 * GIB
    assert row["device_used_peak"] is None and "AMD" in row["known"]["device_used_peak"]["why"]
    assert row["known"]["device_usable"]["source"] == "hipMemGetInfo"
    assert row["pinned_peak"] is None and "does not count" in row["known"]["pinned_peak"]["why"]


def test_a_refusal_is_kept_as_it_was_with_a_snapshot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    card = Card(monkeypatch)
    seen = Refusals(DEVICE)
    assert card.observer is not None and seen.last is None
    card.hold(76 * GIB, 77 * GIB)
    card.observer(0, 1, 2, 3)
    assert seen.last is None, "another GPU's refusal"
    card.observer(1, 112 << 20, card.total, 74 << 20)
    card.hold(0, 77 * GIB)  # unwound before anybody looks
    assert seen.last is not None
    assert (seen.last.asked, seen.last.free, seen.last.allocated) == (112 << 20, 74 << 20, 76 * GIB)
    path = tmp_path / "crash" / "one.pickle"
    assert keep_snapshot(seen.last, path) is None and pickle.loads(path.read_bytes()) == {"segments": [1, 2]}
    (tmp_path / "taken").mkdir()
    assert "could not be written" in str(keep_snapshot(seen.last, tmp_path / "taken"))
    seen.forget()
    assert seen.last is None and "not seen to refuse" in str(keep_snapshot(None, path))


def test_an_observer_never_hides_the_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch)
    seen = Refusals(DEVICE)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda device: 1 / 0)
    assert card.observer is not None
    card.observer(1, 5, 6, 7)
    assert seen.last is not None and seen.last.asked == 5 and seen.last.snapshot is None
    assert "ZeroDivisionError" in str(seen.why)


def test_allocators_without_an_observer_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    Card(monkeypatch)

    def refuse(call: Any) -> None:
        raise RuntimeError("cudaMallocAsync does not yet support attachOutOfMemoryObserver.\nmore")

    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", refuse, raising=False)
    assert str(Refusals(DEVICE).why).startswith("cudaMallocAsync does not yet support")
    assert "a CPU has no caching allocator" in str(Refusals(torch.device("cpu")).why)
