"""What earlier runs teach about predictions: measured / predicted of each phase, on one class of GPU.

A run counts when it ran on that class and holds a prediction of itself. CPU runs are a class of their own: what an
allocator of the host did says nothing about a GPU, so they never correct one. Pure: whoever asks hands the runs in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

CPU = "cpu"
FLOOR_UNMEASURED = 0.10
"""The free share that is asked until a run on the class exists."""
FLOOR = 0.03
"""The free share that is asked at least, however well predictions held: drivers differ, kernels take scratch."""

#: Throwaway subsets, and phases that never touch the device: not what a campaign needs.
NOT_COUNTED = ("stack", "examples", "splits", "overfit")


@dataclass(frozen=True)
class Residuals:
    """What is known on one class of GPU. ``by_phase``: the largest measured / predicted of reserved (CPU: allocated).

    ``margin`` is the share of usable memory to keep free, ``basis`` says in words where it comes from.
    ``outside_torch`` is the most that a process took beside torch's reserve there, None where nothing measured it.
    """

    gpu: str
    runs: int
    by_phase: Mapping[str, float] = field(default_factory=dict)
    margin: float = FLOOR_UNMEASURED
    outside_torch: int | None = None
    basis: str = ""

    def corrected(self, phase: str, predicted: int) -> int:
        """A prediction of that phase as the runs say it comes out; a phase that no run had takes the largest one's."""
        if not self.by_phase:
            return predicted
        ratio = self.by_phase.get(phase)
        return round(predicted * (max(1.0, *self.by_phase.values()) if ratio is None else ratio))

    def as_json(self) -> dict[str, Any]:
        """What ``predict --json`` says of it."""
        return {
            "gpu": self.gpu,
            "runs": self.runs,
            "by_phase": {phase: round(ratio, 6) for phase, ratio in self.by_phase.items()},
            "margin": round(self.margin, 6),
            "outside_torch": self.outside_torch,
            "basis": self.basis,
        }


def unmeasured(gpu: str) -> Residuals:
    """No run on that class yet: the prediction as it is, and the stated floor."""
    context = "" if gpu == CPU else ", from which the CUDA context still goes"
    return Residuals(gpu, 0, basis=f"no run on {gpu} here: margin at the floor of {FLOOR_UNMEASURED:.0%}{context}")


def learn(
    runs: Iterable[Mapping[str, Any]], gpu: str, class_of: Callable[[str | None], str | None] = lambda name: name
) -> Residuals:
    """The residuals of one class, from ``show --json`` documents that hold a ``prediction``.

    ``gpu`` is a class as ``class_of`` names it, or CPU. Runs of another class, runs without a prediction for what they
    ran on, and phases that failed (their peak is where they stopped) are left out.
    """
    found: dict[str, float] = {}
    outside: list[int] = []
    count = 0
    for run in runs:
        if not predicted_for(run, gpu) or class_of_run(run, class_of) != gpu:
            continue
        pairs = compare(run)
        count += bool(pairs)
        for phase, ratio in pairs.items():
            found[phase] = max(ratio, found.get(phase, 0.0))
        outside += [
            entry["outside_torch"]
            for row in run.get("phases") or ()
            for entry in row.get("memory") or ()
            if gpu != CPU and isinstance(entry.get("outside_torch"), int)
        ]
    if not count:
        return unmeasured(gpu)
    worst = max(found, key=lambda phase: abs(found[phase] - 1))
    largest = abs(found[worst] - 1)
    runs_word = "1 run" if count == 1 else f"{count} runs"
    margin = max(largest, FLOOR)
    basis = (
        f"{runs_word} on {gpu}: largest residual {found[worst] - 1:+.1%} ({worst})"
        if largest >= FLOOR
        else f"{runs_word} on {gpu}: residuals within {largest:.1%}, margin at the floor of {FLOOR:.0%}"
    )
    return Residuals(gpu, count, found, margin, max(outside, default=None), basis)


def predicted_for(run: Mapping[str, Any], gpu: str) -> bool:
    """Whether the run holds a prediction for a GPU, or for a CPU, as it is asked; one that does not say is taken."""
    prediction = run.get("prediction")
    if not isinstance(prediction, Mapping):
        return False
    target = (prediction.get("assumptions") or {}).get("target")
    return target is None or (str(target) == CPU) == (gpu == CPU)


def class_of_run(run: Mapping[str, Any], class_of: Callable[[str | None], str | None]) -> str | None:
    """The class of GPU that a run's memory was measured on; CPU for a run without one, None where it is not said."""
    devices = {
        str(entry.get("device") or "").partition(":")[0]
        for row in run.get("phases") or ()
        for entry in row.get("memory") or ()
    }
    if devices == {CPU}:
        return CPU
    if devices != {"cuda"}:
        return None
    return class_of(gpu_name(run))


def gpu_name(run: Mapping[str, Any]) -> str | None:
    """The GPU as the run's own stages called it."""
    facts = run.get("facts") or {}
    for key in ("environment", "software"):
        name = (facts.get(key) or {}).get("gpu") if isinstance(facts.get(key), Mapping) else None
        if isinstance(name, str):
            return name
    for row in run.get("phases") or ():
        name = (row.get("inputs") or {}).get("gpu")
        if isinstance(name, str):
            return name
    return None


def compare(run: Mapping[str, Any]) -> dict[str, float]:
    """measured / predicted of each phase that passed and was predicted: reserved on a GPU, allocated on a CPU.

    Of several ranks the highest counts.
    """
    predicted = {row.get("phase"): row for row in run["prediction"].get("phases") or () if isinstance(row, Mapping)}
    ratios = {}
    for row in run.get("phases") or ():
        name, wanted = row.get("phase"), predicted.get(row.get("phase"))
        if name in NOT_COUNTED or wanted is None or row.get("verdict") not in ("pass", "warn"):
            continue
        measured = highest(row)
        if measured is None:
            continue
        key, count = measured
        expected = wanted.get(key)
        if isinstance(expected, int) and expected > 0:
            ratios[str(name)] = count / expected
    return ratios


def highest(row: Mapping[str, Any]) -> tuple[str, int] | None:
    """Which figure a phase is compared by, and its highest rank; on a CPU with what is mapped from weight files."""
    for key in ("reserved_peak", "allocated_peak"):
        counts = [
            entry[key] + ((entry.get("mapped") or 0) if key == "allocated_peak" else 0)
            for entry in row.get("memory") or ()
            if isinstance(entry.get(key), int)
        ]
        if counts:
            return key, max(counts)
    return None
